"""Notes that the first lines repeat: which output was measured, and that padding counts in it."""

from __future__ import annotations

from collections.abc import Iterable

OUTPUT = "measured output: "
PADDING = "padding counts: "


def measured_output(notes: Iterable[str]) -> str:
    """The name of the measured output where there were several; empty elsewhere.

    >>> measured_output(["measured output: logits; not measured: hidden"])
    'logits'
    """
    return next((note.removeprefix(OUTPUT).partition(";")[0] for note in notes if note.startswith(OUTPUT)), "")


def padding_notes(notes: Iterable[str]) -> list[str]:
    """What must be said of padding before any number."""
    return [note for note in notes if note.startswith(PADDING)]
