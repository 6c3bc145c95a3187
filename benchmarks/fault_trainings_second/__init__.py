"""A second set of trainings with and without faults, written like the first from the list of faults alone."""

from __future__ import annotations

from benchmarks.fault_trainings_second import drawn, images, sequences, small

TRAININGS = (*small.TRAININGS, *images.TRAININGS, *sequences.TRAININGS, *drawn.TRAININGS)
