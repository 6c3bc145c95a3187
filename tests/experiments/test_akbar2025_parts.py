"""Akbar 2025: networks, optimizers, data and curves against torch's own and against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from experiments.akbar2025 import (
    contour,
    depth,
    growth,
    panels,
    plan,
    results,
    saddle,
    tasks,
    verdicts,
)
from experiments.akbar2025.descent import Descent, gradients, schedule
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.shaken import regauge, tolerance
from experiments.akbar2025.spectrum import CUTS, described, diagonal, hessians, top
from normgauge.geometry.hessian import dense_hessian


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
