"""A third set of trainings with and without faults, written like the others from the list of faults alone."""

from __future__ import annotations

from benchmarks.fault_trainings_third import half, made, pictures, sequences, tables, tuned

TRAININGS = (
    *tables.TRAININGS,
    *pictures.TRAININGS,
    *sequences.TRAININGS,
    *made.TRAININGS,
    *tuned.TRAININGS,
    *half.TRAININGS,
)
