"""Experiment 1: a linear classifier in the plane, with and without BatchNorm, by gradient descent.

plain: f(x) = w·x + b          BatchNorm: f(x) = γ (w·x − μ)/√(σ² + ε) + β, statistics of all points

Both with the mean logistic loss. The weight starts at a right angle to the best direction (section 5.2) or anywhere
(section 8), b and β at 0, γ at 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.tasks import logistic

EPS = 1e-5
KEPT = 120  # points of a path that are written down
SIDE = 49  # of the grid of a contour plot
REACH = 4.0


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """All starting norms and learning rates, both models, all seeds at once.

    Args:
        settings: ``start``, ``gamma``, ``steps``, ``lr`` ("fixed", or "matched": times ‖w₀‖²), ``points``, ``norms``,
            ``lrs``.
        seeds: how many.

    Returns:
        By model, one row a cell (norm, lr) with a list over seeds each; paths of seed 0; contours of seed 0.
    """
    cells = list(itertools.product(settings["norms"], settings["lrs"], range(seeds)))
    x, y, u = tasks.plane(range(seeds), settings["points"])
    pick = torch.tensor([seed for _, _, seed in cells])
    norm = torch.tensor([norm for norm, _, _ in cells], dtype=torch.float64)
    lr = torch.tensor([lr for _, lr, _ in cells], dtype=torch.float64)
    lr = lr * norm**2 if settings["lr"] == "matched" else lr
    start = _starts(u, settings["start"])[pick] * norm[:, None]
    made = {}
    for name in ("batch", "none"):
        path = _descend(name, x[pick], y[pick], start, lr, settings)
        made[name] = _table(path, u[pick], settings, seeds)
    return {"models": made, "contours": _contours(x[:1], y[:1]), "normal": u[0].tolist()}


def _starts(u: Tensor, kind: str) -> Tensor:
    """Unit vectors: u turned by 90°, or by 20° to 160° to either side."""
    turns = []
    for seed in range(len(u)):
        drawn = torch.rand(2, generator=tasks.generator(seed, "plane start"), dtype=torch.float64)
        side = 1.0 if drawn[0] < 0.5 else -1.0
        turns.append(side * (math.pi / 2 if kind == "right angle" else math.pi * (20 + 140 * float(drawn[1])) / 180))
    angle = torch.tensor(turns, dtype=torch.float64)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return cos * u + sin * torch.stack([-u[:, 1], u[:, 0]], dim=1)


def output(name: str, x: Tensor, w: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """f at all points, (cells, points, 1)."""
    z = x @ w[:, :, None]
    if name == "batch":
        z = (z - z.mean(1, keepdim=True)) / torch.sqrt(z.var(1, correction=0, keepdim=True) + EPS)
        z = z * gain[:, None, None]
    return z + shift[:, None, None]


def _descend(
    name: str, x: Tensor, y: Tensor, start: Tensor, lr: Tensor, settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Every w on the way, the sign of γ, the losses, and by how much ‖w'‖² = ‖w‖² + η²‖∇‖² fails."""
    w, gain, shift = start.clone(), torch.ones(len(start)).double(), torch.zeros(len(start)).double()
    ways, losses, law = [w], [], torch.zeros(len(w), dtype=torch.float64)
    signs = [gain.sign()]
    for _ in range(settings["steps"]):
        values = [v.detach().requires_grad_() for v in (w, gain, shift)]
        loss = logistic(output(name, x, *values), y)
        slopes = torch.autograd.grad(loss.sum(), values, allow_unused=True)
        moved = w - lr[:, None] * slopes[0]
        predicted = w.square().sum(1) + lr**2 * slopes[0].square().sum(1)
        law = torch.maximum(law, (moved.square().sum(1) / predicted - 1).abs())
        w = moved
        if name == "batch" and settings["gamma"] == "learned":
            gain = gain - lr * slopes[1]
        shift = shift - lr * slopes[2]
        ways.append(w)
        signs.append(gain.sign())
        losses.append(loss.detach())
    made = {"w": torch.stack(ways, dim=1), "loss": torch.stack(losses, dim=1), "sign": torch.stack(signs, dim=1)}
    return {**made, "law": law}


def _table(path: dict[str, Tensor], u: Tensor, settings: Mapping[str, Any], seeds: int) -> list[dict[str, Any]]:
    norms = path["w"].norm(dim=2)
    # of the function: a negative γ turns w round
    cosines = path["sign"] * (path["w"] * u[:, None]).sum(2) / norms
    angles = torch.rad2deg(torch.acos(cosines.clamp(-1, 1)))
    ratio = norms / norms[:, :1]
    halfway = (angles <= angles[:, :1] / 2).long().argmax(1)  # 0 where it never gets there
    columns = {
        "change": ratio[:, -1] - 1,
        "largest": (ratio - 1).abs().amax(1),
        "lowest": ratio.amin(1) - 1,
        "angle": angles[:, -1],
        "first_angle": angles[:, 0],
        "flipped": (path["sign"][:, -1] < 0).double(),
        # what the angle rises on the way, as a share of what it falls; 0 for a path that only turns towards u
        "back": angles.diff(dim=1).clamp(min=0).sum(1) / (angles[:, 0] - angles.amin(1)).clamp(min=1e-9),
        "halfway": halfway.double(),
        "grown_halfway": ratio.gather(1, halfway[:, None])[:, 0] - 1,
        "loss": path["loss"][:, -1],
        "law": path["law"],
    }
    rows = []
    kept = torch.unique(torch.linspace(0, settings["steps"], KEPT).round().long())
    for k, (norm, lr) in enumerate(itertools.product(settings["norms"], settings["lrs"])):
        part = slice(k * seeds, (k + 1) * seeds)
        row = {"norm": norm, "lr": lr, **{name: column[part].tolist() for name, column in columns.items()}}
        if settings["start"] == "right angle":
            row["path"] = path["w"][k * seeds, kept].tolist()
            row["losses"] = path["loss"][k * seeds, kept.clamp(max=settings["steps"] - 1)].tolist()
        rows.append(row)
    return rows


def _contours(x: Tensor, y: Tensor) -> dict[str, Any]:
    """The loss over the plane of w, b = β = 0: without BatchNorm, and with it at γ = 2."""
    at = torch.linspace(-REACH, REACH, SIDE, dtype=torch.float64)
    w = torch.cartesian_prod(at, at)
    ones = torch.ones(len(w), dtype=torch.float64)
    both = {name: logistic(output(name, x, w, 2 * ones, 0 * ones), y) for name in ("batch", "none")}
    return {"reach": REACH, **{name: loss.reshape(SIDE, SIDE).tolist() for name, loss in both.items()}}
