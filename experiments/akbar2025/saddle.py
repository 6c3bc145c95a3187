"""How long it takes to leave a saddle, with noise of samples, of BatchNorm's statistics, of both, or of neither.

f(x) = v ĥ(w·x) with ĥ the identity or BatchNorm, target y = a·x, loss (f − y)²/2. At v = 0 and w·x uncorrelated with y
the gradient is zero and the Hessian has one negative eigenvalue: a strict saddle. Data are white, ‖w‖ = 1, Var y = 1:
in v and the part of w along a it is [[1, −1], [−1, 0]], with (1 − √5)/2 = −0.618, with and without BatchNorm.

samples: the gradient of a mini-batch with the statistics of all points;   statistics: the gradient of all points plus
what the mini-batch's own statistics change in its gradient;   both: the mini-batch as it is trained on
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks

KINDS = ("neither", "samples", "statistics", "both")
EPS = 1e-5


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Start at the saddle, off it by ``off`` in a random direction, and count the steps until half of the loss is gone.

    Args:
        settings: ``points``, ``inputs``, ``lr``, ``steps``, ``batches``, ``off``.
        seeds: how many.

    Returns:
        By model and kind of noise, for each batch size the steps of every seed; −1 where it stayed.
    """
    x, y, start = _data(settings, seeds)
    made: dict[str, Any] = {"batches": list(settings["batches"])}
    for norm in ("batch", "none"):
        kinds = KINDS if norm == "batch" else ("neither", "samples")
        made[norm] = {
            kind: [_escape(norm, kind, b, x, y, start, settings) for b in settings["batches"]] for kind in kinds
        }
    return made


def _data(settings: Mapping[str, Any], seeds: int) -> tuple[Tensor, Tensor, Tensor]:
    """White points exactly (mean 0, covariance 1), targets a·x of unit variance, and a unit w at right angles to a."""
    made = []
    for seed in range(seeds):
        drawn = torch.randn(
            settings["points"], settings["inputs"], generator=tasks.generator(seed, "saddle"), dtype=torch.float64
        )
        drawn = drawn - drawn.mean(0)
        x = torch.linalg.svd(drawn, full_matrices=False)[0] * len(drawn) ** 0.5
        made.append((x, x[:, :1], torch.eye(settings["inputs"], dtype=torch.float64)[1]))
    xs, ys, ws = zip(*made, strict=True)
    return torch.stack(xs), torch.stack(ys), torch.stack(ws)


def losses(norm: str, w: Tensor, v: Tensor, x: Tensor, y: Tensor, rows: Tensor | None = None) -> Tensor:
    """Mean loss of each network over some rows, with the statistics of all points of ``x``."""
    h = (x @ w[:, :, None])[:, :, 0]
    if norm == "batch":
        h = (h - h.mean(1, keepdim=True)) / torch.sqrt(h.var(1, correction=0, keepdim=True) + EPS)
    error = (v[:, None] * h - y[:, :, 0]).square() / 2
    return error.mean(1) if rows is None else error.gather(1, rows).mean(1)


def slope(norm: str, kind: str, w: Tensor, v: Tensor, x: Tensor, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient a step follows."""

    def of(inputs: Tensor, targets: Tensor, some: Tensor | None) -> tuple[Tensor, Tensor]:
        a, b = w.detach().requires_grad_(), v.detach().requires_grad_()
        return torch.autograd.grad(losses(norm, a, b, inputs, targets, some).sum(), (a, b))

    at = torch.arange(len(x))[:, None]
    if kind == "neither":
        return of(x, y, None)
    if kind == "samples":
        return of(x, y, rows)
    own = of(x[at, rows], y[at, rows], None)
    if kind == "both":
        return own
    terms = zip(of(x, y, None), own, of(x, y, rows), strict=True)
    first, second = (a + b - c for a, b, c in terms)
    return first, second


def _escape(
    norm: str, kind: str, batch: int, x: Tensor, y: Tensor, start: Tensor, settings: Mapping[str, Any]
) -> list[int]:
    count = len(x)
    draws = [tasks.generator(seed, f"saddle batches {batch}") for seed in range(count)]
    off = torch.stack([torch.randn(len(start[0]) + 1, generator=g, dtype=torch.float64) for g in draws])
    w, v = start + settings["off"] * off[:, 1:], settings["off"] * off[:, 0]
    steps = torch.full((count,), -1)
    begun = losses(norm, start, torch.zeros(count, dtype=torch.float64), x, y)
    for step in range(settings["steps"]):
        now = losses(norm, w, v, x, y)
        steps[(steps < 0) & (now < begun / 2)] = step
        if (steps >= 0).all():
            break
        # without replacement within a batch, afresh at every step
        keys = torch.stack([torch.rand(x.shape[1], generator=g) for g in draws])
        dw, dv = slope(norm, kind, w, v, x, y, keys.argsort(1)[:, :batch])
        w, v = w - settings["lr"] * dw, v - settings["lr"] * dv
    return steps.tolist()
