"""Trainings with and without faults for `python -m benchmarks.fault_trainings`, written from the list alone."""

from __future__ import annotations

from benchmarks.fault_trainings import agents, convs, generative, language, mlps, precision, recurrent, tuning

TRAININGS = (
    *mlps.TRAININGS,
    *convs.TRAININGS,
    *language.TRAININGS,
    *recurrent.TRAININGS,
    *generative.TRAININGS,
    *agents.TRAININGS,
    *tuning.TRAININGS,
    *precision.TRAININGS,
)
