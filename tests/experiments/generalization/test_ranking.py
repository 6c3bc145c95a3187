"""The table and the figure of a ranking, from made-up sweeps."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from experiments.generalization import ranking
from experiments.generalization.ranking_stats import (
    kendall,
)
from experiments.generalization.ranking_table import BASELINES, markdown, read
from experiments.generalization.ranking_table import ranking as ranked
from normgauge import NormgaugeError


def made_sweep(count: int = 60, seed: int = 0) -> list[dict]:
    """Networks whose gap is told by one score, is hidden from another, and moves with the training loss."""
    draw = random.Random(seed)
    grid = [
        {"kind": "mlp", "norm": n, "depth": d, "width": w, "lr": lr, "batch": b, "decay": 0.0, "seed": 0}
        for n in ("none", "batch", "layer")
        for d in (2, 4)
        for w in (8, 16)
        for lr in (0.1, 0.2)
        for b in (32, 64)
    ][:count]
    records = []
    for k, row in enumerate(grid):
        reached = k % 4 != 0
        loss = 0.005 + 0.005 * draw.random() if reached else 0.3 * draw.random() + 0.02
        gap = 0.05 + 0.02 * (row["depth"] == 4) + 0.05 * draw.random()
        scores = {"good": gap, "bad": -gap, "blind": draw.random(), "train-loss": -loss}
        if row["norm"] != "layer":
            scores["path-norm"] = gap + 0.1 * draw.random()
        records.append(
            {"key": str(k), **row, "reached": reached, "train_loss": loss, "gap": gap, "test_error": gap + 0.01}
            | {"scores": scores}
        )
    records.append({"key": "x", **grid[0], "reached": False, "diverged": True, "scores": {}})
    records.append({"key": "y", "failed": "InputError: made up"})
    return records


def test_the_table_ranks_the_good_score_first_in_every_selection():
    found = ranked(made_sweep())
    assert found["counts"] == {"networks": 50, "failed": 1, "diverged": 1, "not reached": 12, "matched": 36}
    for name in ("all", "matched", "matched, none or batch"):
        scores = found["selections"][name]["scores"]
        assert scores["good"]["gap"]["kendall"]["value"] == pytest.approx(1.0)
        assert scores["good"]["gap"]["sign error"]["value"] == 0.0
        assert scores["bad"]["gap"]["granulated"]["value"] == pytest.approx(-1.0)
        assert abs(scores["blind"]["gap"]["kendall"]["value"]) < 0.4
        assert scores["path-norm"]["n"] == scores["good"]["n"] or name != "matched, none or batch"
    assert found["selections"]["matched"]["scores"]["path-norm"]["n"] < 36
    assert "matched cnn" not in found["selections"]
    text = markdown(found)
    lines = [line for line in text.splitlines() if line.startswith(("| good", "| bad"))]
    assert lines[0].startswith("| good | 48 | 1.00 ± 0.00") and "−1.00" in lines[1]
    assert "*train-loss (baseline)*" in text and "train-loss" in BASELINES


def test_the_command_writes_table_and_figure(tmp_path):
    sweep = tmp_path / "sweep.jsonl"
    sweep.write_text("\n".join(json.dumps(r) for r in made_sweep()) + "\n", encoding="utf-8")
    assert ranking.main([str(sweep), str(sweep), "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "ranking.json").read_text(encoding="utf-8"))
    assert found["counts"]["networks"] == 50  # a network in two files counts once
    assert (tmp_path / "out" / "ranking.md").read_text(encoding="utf-8").startswith("50 networks, 1 failed")
    assert (tmp_path / "out" / "ranking.svg").read_text(encoding="utf-8").startswith("<svg")


def test_an_empty_sweep_is_said(tmp_path, capsys):
    (tmp_path / "none.jsonl").write_text("", encoding="utf-8")
    assert ranking.main([str(tmp_path / "none.jsonl"), "--out", str(tmp_path)]) == 1
    assert "no network in" in capsys.readouterr().out
    with pytest.raises(NormgaugeError, match="sweep first"):
        read([tmp_path / "none.jsonl"])


def test_the_gap_is_set_beside_the_test_error_and_scores_beside_the_size():
    draw = np.random.default_rng(0)
    records = []
    for i in range(40):
        gap, size = float(draw.normal()), float(draw.normal())
        scores = {"params": size - gap, "good": gap, "bad": -gap}
        settings = {"norm": "none", "depth": 2, "width": i, "lr": 0.1, "batch": 8, "decay": 0.0, "seed": 0}
        told = {"reached": True, "train_loss": 0.01, "gap": gap, "test_error": gap + 0.1, "scores": scores}
        records.append({"key": str(i), "kind": ("mlp", "cnn")[i % 2], **settings, **told})
    found = ranked(records)
    assert found["selections"]["matched"]["gap with test error"]["value"] == 1.0
    by_kind = found["families"][0]
    assert (by_kind["families"], by_kind["ahead"], by_kind["score"], by_kind["best"]) == (2, 0, "good", 1.0)
    halves = [[r for r in records if r["kind"] == kind] for kind in ("mlp", "cnn")]
    taus = [kendall([-r["scores"]["params"] for r in own], [r["gap"] for r in own]).value for own in halves]
    assert by_kind["parameters"] == pytest.approx(np.mean(taus))
    assert "| kind | 2 |" in markdown(found)
