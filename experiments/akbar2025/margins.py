"""Experiment 3: 50-20-1 with ReLU on two classes no line can part: margins, slopes, accuracy, weight noise.

A network is looked at three times: when it first has every training point right ("zero"), when its training loss
first falls below ``loss`` ("loss"), and at the end ("end"). All three are "trained to zero error"; raw margins differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.akbar2025 import tasks
from experiments.akbar2025.descent import Descent, gradients
from experiments.akbar2025.nets import Shape, Stack
from experiments.akbar2025.shaken import noises
from experiments.akbar2025.tasks import correct, logistic

EDGES = torch.linspace(-4, 16, 81, dtype=torch.float64)  # of the histogram of margins
EDGES_SLOPE = torch.linspace(-1, 4, 81, dtype=torch.float64)


def run(settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Train with and without BatchNorm, look at the networks when they are there.

    Args:
        settings: ``task``, ``points``, ``tests``, ``inputs``, ``hidden``, ``rule``, ``lr``, ``decay``, ``batch``,
            ``epochs``, ``loss``, ``draws``.
        seeds: how many.

    Returns:
        By model and moment, a list over seeds each.
    """
    return {"edges": EDGES.tolist(), "edges_slope": EDGES_SLOPE.tolist()} | {
        norm: _model(norm, settings, seeds) for norm in ("batch", "none")
    }


def data(settings: Mapping[str, Any], seeds: int) -> tuple[tasks.Pair, tasks.Pair]:
    """Training and test points, drawn together."""
    x, y = tasks.CLASSES[settings["task"]](range(seeds), settings["points"] + settings["tests"], settings["inputs"])
    n = settings["points"]
    return (x[:, :n], y[:, :n]), (x[:, n:], y[:, n:])


def epochs(stack: Stack, descent: Descent, pair: tasks.Pair, batch: int, count: int) -> Iterator[int]:
    """Train; after each epoch give its number. Every network shuffles for itself; a partial batch is dropped."""
    x, y = pair
    draws = [tasks.generator(seed, "shuffle") for seed in range(len(x))]
    at = torch.arange(len(x))[:, None]
    for epoch in range(count):
        order = torch.stack([torch.randperm(x.shape[1], generator=g) for g in draws])
        for part in order[:, : x.shape[1] // batch * batch].split(batch, dim=1):
            descent.step(gradients(logistic(stack(x[at, part]), y[at, part]), stack))
        yield epoch + 1


def _model(norm: str, settings: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    train, test = data(settings, seeds)
    stack = Stack(Shape((settings["inputs"], settings["hidden"], 1), norm), range(seeds))
    descent = Descent(stack, settings["rule"], settings["lr"], settings["decay"])
    kept = {moment: _snapshot(stack) for moment in ("zero", "loss")}
    when = {moment: torch.full((seeds,), -1) for moment in kept}
    for epoch in epochs(stack, descent, train, settings["batch"], settings["epochs"]):
        with torch.no_grad():
            out = stack.eval()(train[0])
            stack.train()
        there = {"zero": correct(out, train[1]) == 1, "loss": logistic(out, train[1]) <= settings["loss"]}
        for moment, now in there.items():
            fresh = now & (when[moment] < 0)
            when[moment][fresh] = epoch
            for name, value in stack.state_dict().items():
                kept[moment][name][fresh] = value[fresh]
    kept["end"], when["end"] = _snapshot(stack), torch.full((seeds,), settings["epochs"])
    made = {}
    for moment, state in kept.items():
        stack.load_state_dict(state)
        looked = _looked(stack.eval(), train, test, settings, when[moment] >= 0)
        made[moment] = {"epoch": when[moment].tolist(), **_blanked(looked, when[moment].tolist())}
    return made


def _blanked(looked: dict[str, Any], when: list[int]) -> dict[str, Any]:
    """Not a number for the networks that never got there."""
    for key, value in looked.items():
        if not key.startswith("histogram") and isinstance(value, list):
            looked[key] = [v if epoch >= 0 else math.nan for v, epoch in zip(value, when, strict=True)]
        elif isinstance(value, dict):
            looked[key] = {
                kind: told if kind == "levels" else _blanked(dict(told), when) for kind, told in value.items()
            }
    return looked


def _snapshot(stack: Stack) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in stack.state_dict().items()}


def _looked(
    stack: Stack, train: tasks.Pair, test: tasks.Pair, settings: Mapping[str, Any], there: Tensor
) -> dict[str, Any]:
    """Margins, raw and divided by slopes, accuracy, noise; in eval mode; histograms of the networks that are there."""
    margins, slopes = slope_of(stack, train)
    steepest = slopes.amax(1, keepdim=True)
    bound = product(stack)
    with torch.no_grad():
        tested = correct(stack(test[0]), test[1])
    return {
        "train": (margins > 0).double().mean(1).tolist(),
        "test": tested.tolist(),
        "margin": margins.mean(1).tolist(),
        "narrow": (margins.std(1) / margins.mean(1)).tolist(),
        "least": margins.amin(1).tolist(),
        "distance": (margins / slopes).mean(1).tolist(),  # to the boundary, to first order
        "least_distance": (margins / slopes).amin(1).tolist(),
        "by_steepest": (margins / steepest).mean(1).tolist(),
        "by_bound": (margins.mean(1) / bound).tolist(),
        "slope": steepest[:, 0].tolist(),
        "bound": bound.tolist(),
        "histogram": torch.histogram(margins[there].flatten(), EDGES).hist.tolist(),
        "histogram_slope": torch.histogram((margins / slopes)[there].flatten(), EDGES_SLOPE).hist.tolist(),
        "noise": noises(stack, train, settings["draws"]),
    }


def slope_of(stack: Stack, pair: tasks.Pair) -> tuple[Tensor, Tensor]:
    """Margins y f(x) and ‖∇f(x)‖ at every point, both (networks, points)."""
    x = pair[0].clone().requires_grad_()
    out = stack(x)
    (slope,) = torch.autograd.grad(out.sum(), x)
    return (out * pair[1]).detach()[:, :, 0], slope.norm(dim=2)


def product(stack: Stack) -> Tensor:
    """An upper bound of every slope: the spectral norm of the first layer with its normalizer folded in, times ‖w₂‖."""
    weight = stack.tensors["weight0"].detach()
    if stack.normalized(0):
        scale = stack.tensors["gain0"].detach() / torch.sqrt(stack.get_buffer("var0") + stack.shape.eps)
        weight = scale.mT * weight
    return torch.linalg.matrix_norm(weight, 2) * stack.tensors["weight1"].detach()[:, 0].norm(dim=1)
