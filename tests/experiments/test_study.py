"""What the studies share: figures with their titles, tables, and what the reproducing command prints."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from experiments import study
from experiments.plot import Line, Panel
from normgauge import NormgaugeError


def rising(found: float) -> list[Panel]:
    """Figure 1: a line."""
    return [Panel("a panel", (Line("a line", ((0.0, 0.0), (1.0, found)), 0),))] if found else []


def test_a_finding_is_the_title_and_what_it_is_about_stands_below(tmp_path: Path) -> None:
    drawn = study.draw_figures({"fig1": rising}, 1.0, tmp_path, ["fig1"], {"fig1": "It rises"})
    text = drawn["fig1"].read_text(encoding="utf-8")
    assert text.index("It rises") < text.index("Figure 1: a line.")
    study.draw_figures({"fig1": rising}, 1.0, tmp_path, ["fig1"], {})
    assert "It rises" not in (tmp_path / "fig1.svg").read_text(encoding="utf-8")
    assert study.draw_figures({"fig1": rising}, 0.0, tmp_path / "new", ["fig1"], {}) == {"fig1": None}
    assert list((tmp_path / "new").iterdir()) == []


def test_a_grid_has_words_to_the_left_and_numbers_to_the_right() -> None:
    assert study.grid(("net", "gap"), [["MLP", "1.5"]], words=1) == "| net | gap |\n| --- | ---: |\n| MLP | 1.5 |"
    assert study.grid(("net", "gap"), [], words=1) == "No results yet."


def test_what_was_done_is_the_last_line_and_errors_have_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(args: argparse.Namespace) -> dict[str, object]:
        raise NormgaugeError("no such runs")

    parser = study.reproduce_parser("about", ["fig1", "fig2"], "fig1")
    for argv, code in ((["--list"], 0), (["fig2"], 0), (["fig2", "--train"], 1)):
        args = parser.parse_args(argv)
        assert study.reproduce_figure(args, {"fig1": rising}, lambda args: {"figure": args.name}, fail) == code
    out, err = capsys.readouterr()
    assert err == "normgauge: no such runs\n"
    assert [json.loads(line) for line in out.splitlines()] == [
        {"fig1": "Figure 1: a line."},
        {"figure": "fig2", "trained": False, "words": study.FROM_RESULTS},
    ]
