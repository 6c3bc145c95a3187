"""Akbar 2025: the pieces against torch's own, and a slice of every experiment against the direction of its verdict."""

from __future__ import annotations

import json
import math
import multiprocessing.dummy
import os
import pickle
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from experiments.akbar2025 import (
    collect,
    contour,
    depth,
    figures,
    growth,
    panels,
    plan,
    reproduce,
    results,
    run,
    saddle,
    table,
    tasks,
    verdicts,
)
from experiments.akbar2025.descent import Descent, gradients, schedule
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.results import Result
from experiments.akbar2025.shaken import regauge, tolerance
from experiments.akbar2025.spectrum import CUTS, described, diagonal, hessians, top
from normgauge.geometry.hessian import dense_hessian

EXPECTED = json.loads(Path(plan.__file__).with_name("expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def slice_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every experiment at tiny scale, two seeds; once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "akbar-tiny"
    try:
        folder.mkdir()
    except FileExistsError:  # another worker is at it: its folder is moved here when it is done
        while not (folder / "done").exists():
            assert not (folder / "failed").exists()
            time.sleep(0.2)
        return folder / "done"
    part = folder / "part"
    if run.launch(plan.load("tiny"), part, run.TINY_SEEDS, 1):
        (folder / "failed").touch()
        pytest.fail("a unit failed")
    return part.rename(folder / "done")


@pytest.fixture(scope="module")
def found(slice_folder: Path) -> dict[str, Result]:
    return results.load(slice_folder)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_stack_is_its_networks(norm: str, activation: str) -> None:
    stack = Stack(Shape((3, 5, 4, 1), norm, activation), [0, 7])
    x = tasks.waves([0, 1], 12, 3)[0]
    fresh = stack.one(0)
    for _ in range(3):
        out = stack(x + 1)  # moves the running statistics
        fresh(x[0] + 1)
    for mine, theirs in zip(stack.one(0).buffers(), fresh.buffers(), strict=True):
        if theirs.ndim:
            torch.testing.assert_close(mine, theirs)
    for k in range(2):
        one = stack.one(k)
        torch.testing.assert_close(one.train()(x[k] + 1), out[k])
        one = stack.one(k)
        stack.eval()
        torch.testing.assert_close(one.eval()(x[k]), stack(x)[k])
        stack.train()
    assert not torch.equal(stack.tensors["weight0"][0], stack.tensors["weight0"][1])


def test_the_same_seed_has_the_same_weights_with_and_without_normalizers() -> None:
    bn, plain = (Stack(Shape((3, 5, 1), norm), [4]) for norm in ("batch", "none"))
    assert torch.equal(bn.tensors["weight1"], plain.tensors["weight1"])
    assert "bias0" not in bn.tensors and "bias0" in plain.tensors
    assert not any(name.startswith("bias") for name in Stack(Shape((3, 5, 1), biases=False), [4]).tensors)


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam"])
def test_optimizers_are_torchs_own(rule: str) -> None:
    stack = Stack(Shape((3, 5, 1), "batch"), [0, 1])
    x, y = tasks.waves([0, 1], 20, 3)
    loss = tasks.objective("mse")
    rates = [0.05, 0.01]
    descent = Descent(stack, rule, torch.tensor(rates, dtype=torch.float64))
    others = [stack.one(k) for k in range(2)]
    makers = {
        "sgd": torch.optim.SGD,
        "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
        "adam": torch.optim.Adam,
    }
    optimizers = [makers[rule](one.parameters(), lr=lr) for one, lr in zip(others, rates, strict=True)]
    for _ in range(5):
        descent.step(gradients(loss(stack(x), y), stack))
        for k, (one, optimizer) in enumerate(zip(others, optimizers, strict=True)):
            optimizer.zero_grad()
            (one(x[k]) - y[k]).square().mean().backward()
            optimizer.step()
    for k, one in enumerate(others):
        for mine, theirs in zip(stack.parameters(), one.parameters(), strict=True):
            torch.testing.assert_close(mine[k].squeeze(0).reshape(theirs.shape), theirs, rtol=1e-9, atol=1e-12)


def test_hessians_of_a_stack_are_those_of_its_networks() -> None:
    stack = Stack(Shape((2, 4, 1), "batch", "tanh"), [0, 3])
    x, y = tasks.waves([0, 3], 15, 2)
    made = hessians(stack, lambda s: tasks.objective("mse")(s(x), y))
    for k in range(2):
        truth = dense_hessian(stack.one(k), nn.functional.mse_loss, [(x[k], y[k])], mode="train")
        torch.testing.assert_close(made[k], truth, rtol=1e-8, atol=1e-10)
        assert top(made)[k] == pytest.approx(float(torch.linalg.eigvalsh(truth)[-1]))
    before = top(made, diagonal(stack))
    with torch.no_grad():
        stack.tensors["weight0"].mul_(10)  # the same functions, but for ε
    after = hessians(stack, lambda s: tasks.objective("mse")(s(x), y))
    assert top(after, diagonal(stack)) == pytest.approx(before, rel=1e-3)
    assert top(after)[0] != pytest.approx(top(made)[0], rel=0.05)


def test_described_by_hand() -> None:
    told = described(torch.tensor([-2.0, 1e-9, 0.05, 10.0], dtype=torch.float64))
    assert (told["top"], told["bottom"], told["size"]) == (10.0, -2.0, 4)
    assert told["kappa"][CUTS.index(1e-3)] == pytest.approx(200) and told["kappa"][CUTS.index(1e-2)] == 1
    assert told["zero"][CUTS.index(1e-8)] == 1 and told["negative"][CUTS.index(1e-1)] == 1


def test_data_are_as_described() -> None:
    x, y, u = tasks.plane([0, 1], 50)
    assert ((x @ u[:, :, None]) * y).min() > 0.2
    for made in tasks.CLASSES.values():
        x, y = made([0, 2], 60, 12)
        assert (
            x.shape == (2, 60, 12) and set(y.unique().tolist()) == {-1.0, 1.0} and 0.25 < (y > 0).double().mean() < 0.75
        )
        again, _ = made([2], 60, 12)
        assert torch.equal(again[0], x[1])
    for make in tasks.REGRESSIONS.values():
        x, y = make([0], 40, 5)
        assert float(y.mean()) == pytest.approx(0, abs=1e-12) and float(y.square().mean()) == pytest.approx(1)


def test_another_gauge_is_the_same_function_in_eval_mode() -> None:
    stack = Stack(Shape((3, 5, 1), "batch"), [0])
    x = torch.randn(1, 30, 3, dtype=torch.float64)
    stack(x)
    before = stack.eval()(x)
    regauge(stack, 7.0)
    torch.testing.assert_close(stack(x), before)
    assert tolerance([1.0, 0.97, 0.93, *[0.5] * 10]) == pytest.approx(0.015)
    assert tolerance([0.9] * 13) == 0 and tolerance([1.0] * 13) == 1.6


def test_contours_of_a_cone_are_circles() -> None:
    side, reach = 41, 2.0
    at = [reach * (2 * k / (side - 1) - 1) for k in range(side)]
    values = [[math.hypot(a, b) for b in at] for a in at]
    (chain,) = contour.contours(values, 1.0, reach)
    assert chain[0] == chain[-1] and len(chain) > 50
    assert all(math.hypot(*p) == pytest.approx(1, abs=0.01) for p in chain)
    (line,) = contour.contours([[a for _ in at] for a in at], 0.33, reach)
    assert len(line) == side and all(p[0] == pytest.approx(0.33) for p in line)
    assert contour.contours(values, 9.0, reach) == []
    saddle = contour.contours([[a * b for b in at] for a in at], 1e-3, reach)
    assert len(saddle) == 2


def test_factors_predicted_for_wide_layers() -> None:
    assert depth.predict("linear") == pytest.approx(1)
    assert depth.predict("relu") == pytest.approx(math.sqrt(math.pi / (math.pi - 1)), rel=1e-4)
    assert schedule(100, 10)[0] == 0 and schedule(100, 10)[-1] == 100


def test_the_plan() -> None:
    units = plan.load()
    assert len({u.file for u in units}) == len(units) > 80
    assert {u.experiment for u in units} == {u.experiment for u in plan.load("tiny")}
    assert [u.name for u in plan.select(units, ["plane/base", "shift"])] == [
        "plane/base",
        "shift/base",
        "shift/task-committee",
    ]
    assert plan.heavy_first(units)[0].experiment == "scales"
    with pytest.raises(plan.PlanError, match="no unit or experiment 'plain'"):
        plan.select(units, ["plain"])
    with pytest.raises(plan.PlanError, match="no scale 'digits'"):
        plan.load("digits")


def test_units_that_are_there_are_not_run_again(slice_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--scale", "tiny", "--out", str(slice_folder)]) == 0
    assert "21 there already" in capsys.readouterr().out
    assert run.main(["--scale", "tiny", "--out", str(slice_folder), "--only", "nothing"]) == 1
    assert run.main(["--scale", "tiny", "--out", str(slice_folder), "--list", "--only", "plane"]) == 0
    assert capsys.readouterr().out.splitlines() == ["plane/base", "plane/lr-matched"]


def test_a_unit_that_fails_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = plan.select(plan.load("tiny"), ["depth/activation-linear"])[0]
    bad = plan.Unit("depth", "bad", {})
    # threads for processes: what a process is given must be picklable, the rest is the same
    assert pickle.loads(pickle.dumps((run._one, good)))[1] == good
    monkeypatch.setattr(run.multiprocessing, "get_context", lambda kind: multiprocessing.dummy)
    assert run.launch([bad, good], tmp_path, 1, 2) == 1
    said = capsys.readouterr().out
    assert "depth/bad: failed: KeyError" in said and run.done(good, tmp_path, 1) and not run.done(good, tmp_path, 2)


def test_collected(slice_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect.main([str(slice_folder), str(tmp_path), "--seeds", "2", "--scale", "tiny"]) == 0
    assert len(list(tmp_path.glob("*.json"))) == 21
    assert collect.main([str(slice_folder), str(tmp_path)]) == 1
    assert "missing: plane/base" in capsys.readouterr().err


def test_verdicts_of_the_slice_point_the_expected_way(found: dict[str, Result]) -> None:
    rows = {row.id: row for row in [*table.published(found), *table.text(found)]}
    small = {name: wanted["tiny"] for name, wanted in EXPECTED.items() if "tiny" in wanted}
    assert len(small) >= 18
    for name, wanted in small.items():
        assert rows[name].verdict in wanted["verdicts"], (name, rows[name].verdict, rows[name].value)
        low, high = wanted.get("least", -math.inf), wanted.get("most", math.inf)
        assert low <= rows[name].value <= high, (name, rows[name].value)
    assert all(row.rule and row.published and row.ours for row in rows.values())


def test_figures_and_tables_of_the_slice(found: dict[str, Result], slice_folder: Path, tmp_path: Path) -> None:
    assert figures.main([str(slice_folder), str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(figures.ALL)
    for name in figures.ALL:
        text = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert "no runs" not in text and "nan" not in text, name
    readme = tmp_path / "README.md"
    readme.write_text(table.README.read_text(encoding="utf-8"), encoding="utf-8")
    assert table.main([str(slice_folder), "--readme", str(readme)]) == 0
    assert "No results yet." not in readme.read_text(encoding="utf-8")
    widths = [line.count("|") for line in table.tables(found)["published"].splitlines()]
    assert set(widths) == {4}


def test_reproduce(
    tmp_path: Path, slice_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce.main(["--list"]) == 0
    assert {"fig5.1", "fig8.1", "fig8.2"} <= set(json.loads(capsys.readouterr().out))
    monkeypatch.setattr(results, "FOLDER", slice_folder)
    assert reproduce.main(["fig8.2", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == ["margins/base"] and Path(told["figure"]).name == "fig8.2.svg"
    assert reproduce.main(["depth", "--out", str(tmp_path), "--train", "--scale", "tiny"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["trained"] and len(told["runs"]) == 4
    for wrong in (["--scale", "digits"], ["--epochs", "3"]):
        assert reproduce.main(["depth", "--out", str(tmp_path), "--train", *wrong]) == 1
        assert "akbar2025" in capsys.readouterr().err
    monkeypatch.setattr(results, "FOLDER", tmp_path / "none")
    assert reproduce.main(["edge", "--out", str(tmp_path)]) == 1


def test_spreads_and_ticks() -> None:
    assert results.spread([1.0, math.inf, 3.0]) == "2.00 ± 1.41 (2 of 3)"
    assert results.spread([math.nan]) == "–" and results.spread([2.0]) == "2.00"
    assert [word for _, word in panels.ticks([1e-6, 0.001, 0.01, 0.3, 1.0, 1000.0])] == [
        "10⁻⁶",
        "10⁻³",
        "0.01",
        "0.3",
        "1",
        "1000",
    ]
    rows = [{"norm": 10.0, "lr": 1.0, "back": [0.0, 0.5]}, {"norm": 0.1, "lr": 1.0, "back": [0.0]}]
    assert verdicts.straight(rows) == 0.5 and verdicts.straight(rows, matched=True) == pytest.approx(2 / 3)


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_the_saddle_has_the_eigenvalue_it_says(norm: str) -> None:
    x, y, w = saddle._data({"points": 64, "inputs": 3}, 1)

    def loss(theta: torch.Tensor) -> torch.Tensor:
        return saddle.losses(norm, theta[None, 1:], theta[None, 0], x, y)[0]

    at = torch.cat([torch.zeros(1, dtype=torch.float64), w[0]])
    values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, at))
    assert float(values[0]) == pytest.approx((1 - math.sqrt(5)) / 2, rel=1e-4)


def test_the_flow_is_of_fourth_order() -> None:
    unit = plan.select(plan.load("tiny"), ["growth"])[0]
    drift = []
    for step in (0.1, 0.05):
        rows = growth.run({**unit.settings, "lrs": [], "flow": step}, 1)["rows"]
        drift.append(rows[-1]["largest"][0])
    assert 8 < drift[0] / drift[1] < 64
