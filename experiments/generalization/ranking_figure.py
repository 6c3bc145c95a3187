"""The figure of a ranking: what chosen scores are worth by selection, and the gap over three of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.generalization.ranking_table import Record
from experiments.plot import Line, Panel, figure

CHOSEN = {
    "cell-sensitivity": "cells",
    "balanced-capacity-margin": "balanced/γ",
    "mag-flatness": "flatness",
    "spherical-sharpness": "sharpness",
    "path-norm": "paths",
    "log-prod-spec-margin": "norms/γ",
    "params": "size",
    "train-loss": "−loss",
}  # scores and their short words
SCATTERED = ("cell-sensitivity", "balanced-capacity-margin", "train-loss")
PLACES = (("all", "kendall"), ("all", "in bins"), ("matched", "kendall"), ("matched", "in bins"))
TICKS = ((0.0, "all"), (1.0, "in bins"), (2.0, "matched"), (3.0, "in bins"))


def drawn(found: dict[str, Any], records: Sequence[Record]) -> str:
    """The figure as SVG text."""
    fit = [r for r in records if r.get("scores")]
    counts = found["counts"]
    panels = [worth(found, target) for target in ("gap", "test error")]
    panels += [scatter(fit, key) for key in SCATTERED]
    below = f"{counts['networks']} networks, {counts['matched']} trained to the same loss; whiskers: one standard error"
    return figure("What a score says about the gap before the test set is seen", panels, columns=3, below=below)


def worth(found: dict[str, Any], target: str) -> Panel:
    """Kendall's τ of the chosen scores."""
    lines = []
    for hue, (key, word) in enumerate(CHOSEN.items()):
        points, band = [], []
        for x, (selection, what) in enumerate(PLACES):
            row = found["selections"].get(selection, {}).get("scores", {}).get(key)
            estimate = row and row[target][what]
            if estimate:
                value, error = estimate["value"], estimate["error"]
                points.append((float(x), value))
                band.append((float(x), value - error, value + error))
        lines.append(Line(word, tuple(points), hue, marks=True, band=tuple(band)))
    return Panel(f"Kendall τ with the {target}", tuple(lines), x="", rules=((0.0, ""),), ticks=TICKS)


def scatter(records: Sequence[Record], key: str) -> Panel:
    """The gap over one score: matched networks by kind, the rest grey."""
    have = [r for r in records if key in r["scores"]]
    groups = {
        "mlp": [r for r in have if r["reached"] and r["kind"] == "mlp"],
        "cnn": [r for r in have if r["reached"] and r["kind"] == "cnn"],
        "loss not reached": [r for r in have if not r["reached"]],
    }
    lines = [
        Line(name, tuple((r["scores"][key], r["gap"]) for r in rows), hue, marks=True, joined=False)
        for hue, (name, rows) in zip((0, 1, 5), groups.items(), strict=True)
        if rows
    ]
    return Panel(f"gap over {key}", tuple(lines), x=key, y="%")
