"""Notes that others read: which input and output of several were measured, and what padding counts in."""

from __future__ import annotations

from collections.abc import Iterable

OUTPUT = "measured output: "
INPUT = "measured in "
FIXED = "; the other inputs are held fixed: "
PADDING = "padding counts: "
UNREACHED = "rows that do not reach the output at the samples"  # read in files of older versions too


def measured_output(notes: Iterable[str]) -> str:
    """The name of the measured output where there were several; empty elsewhere.

    >>> measured_output(["measured output: logits; not measured: hidden"])
    'logits'
    """
    return next((note.removeprefix(OUTPUT).partition(";")[0] for note in notes if note.startswith(OUTPUT)), "")


def ends_of_several(notes: Iterable[str]) -> dict[str, str]:
    """Which input and which output of several were measured and which were not, in words; "" where there is one.

    >>> ends_of_several(["measured output: 0; not measured: 1"])
    {'input': '', 'output': 'measured output: 0; not measured: 1'}
    """
    said = list(notes)
    starts = {"input": INPUT, "output": OUTPUT}
    return {end: next((note for note in said if note.startswith(start)), "") for end, start in starts.items()}


def padding_notes(notes: Iterable[str]) -> list[str]:
    """What must be said of padding before any number."""
    return [note for note in notes if note.startswith(PADDING)]


def counts_unreached(notes: Iterable[str]) -> bool:
    """Whether rows that do not reach the output, such as padding, count in the bounds composed of layers."""
    return any(note.startswith(UNREACHED) for note in notes)
