"""A bar for a person, and nothing for a script."""

from __future__ import annotations

import io
import sys

import pytest

from normgauge.cli.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_without_a_terminal():
    with progress_bar() as report:
        assert report is None


@pytest.mark.parametrize(("step", "drawn"), [(0.1, False), (1.0, True)])
def test_progress_is_drawn_after_two_seconds_only(monkeypatch, step, drawn):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ticks = iter(range(100))
    with progress_bar(clock=lambda: step * next(ticks)) as report:
        assert report is not None
        for done in range(5):
            report("conv norms", done / 5)
    assert ("conv norms" in terminal.getvalue()) == drawn
