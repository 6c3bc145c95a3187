"""Norms of the Jacobians at the samples as autograd computes them: the answer at a point, its rounding not enclosed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normgauge.core.rounding import house_down, house_up
from normgauge.instrument.probe.jacobian import random_rows
from normgauge.instrument.probe.linearize import Linearization, SampleMap, row_norms, unit_rows
from normgauge.instrument.probe.work import GRAPH, PULL, PUSH
from normgauge.instrument.spectral.dense import norms_squared
from normgauge.instrument.spectral.random_start import batched_lanczos, ends_from, facts_of, steps_for, top_ritz

MOST_ROWS = 1000
MOST_ENTRIES = 2**26  # of all dense Jacobians together: half a gigabyte
CHANCE = 1e-8  # of a norm being too small, where a random start is part of it
WIDTH = 8e-3  # log(upper/lower) aimed at there
FEWEST_STEPS = 8  # with them a norm is known to a factor of about 1.5
AGREES, CLOSELY = 1e-4, 1e-6
"""Parts by which a difference quotient, and the mean of those to both sides, may differ from the Jacobian's slope."""

SMALLEST = 1e-100  # of a norm: squares of smaller ones are lost
LOST = 1e-12  # a part: what is granted to a product with the Jacobian in float64
SMALL_PART = 0.1  # of the budget: rows that cost no more are taken even where Lanczos would cost less
STARTS = 2  # with one, what is granted would drown the proof


@dataclass(frozen=True, slots=True)
class JacobianNorms:
    """What autograd says at the samples.

    Attributes:
        norms: ‖J‖ at each sample from above, infinite where a difference quotient says otherwise; float64.
        least: the same from below, 0 there.
        chance: that one of the norms is too small.
        wide: log(upper/lower) of the widest.
        steepest: a direction at each sample in which its Jacobian is about as steep, (samples, inputs), if one was met.
    """

    norms: Tensor
    least: Tensor
    chance: float = 0.0
    wide: float = 0.0
    steepest: Tensor | None = None


def jacobian_norms(network: SampleMap, budget: float, seed: int, fewest: int = 0) -> JacobianNorms | None:
    """The norms at the points of ``network``; None where they take more than ``budget`` seconds of counted work.

    So many Lanczos steps as ``fewest`` says are made whatever they cost.

    All rows of J and the eigenvalues of J Jᵀ where that is cheaper, else Lanczos on JᵀJ or J Jᵀ from two random starts.
    Each Jacobian is held against two difference quotients along random directions, which a kink, a detached branch or a
    backward pass of the model's own gives away.
    """
    inputs, run = network.start.shape[1], max(network.work.seconds, 1e-9)
    size = min(inputs, network.outputs)
    afford = (budget / run - GRAPH) / (PULL + PUSH) / STARTS
    needed = steps_for(size, CHANCE, WIDTH, STARTS) if size >= 3 else MOST_ROWS
    within = 1 << max(int(afford), 1).bit_length() - 1  # so that small differences change nothing
    steps = needed if afford >= needed else min(needed, max(within, fewest))
    by_rows = network.outputs <= MOST_ROWS and network.start.numel() * network.outputs <= MOST_ENTRIES
    rows_cost = (GRAPH + network.outputs * PULL) * run
    by_rows = by_rows and rows_cost <= max(budget, (GRAPH + (PULL + PUSH) * STARTS * fewest) * run)
    if by_rows and (network.outputs <= max(2 * STARTS * steps, 3) or rows_cost <= SMALL_PART * budget):
        tangent = network.at(network.start, once=True)
        found = _all_rows(network, tangent)
    elif size >= 3 and steps >= FEWEST_STEPS:
        tangent = network.at(network.start)
        found = _random_start(network, tangent, steps, seed)
    else:
        return None
    if not tangent.tracked:
        return None
    agreed = _agrees(network, tangent) & (found.norms > SMALLEST)
    least = torch.where(agreed & found.norms.isfinite(), house_down(found.least), 0.0)
    return replace(found, norms=torch.where(agreed, found.norms, math.inf).cpu(), least=least.cpu())


def _all_rows(network: SampleMap, tangent: Linearization) -> JacobianNorms:
    samples, outputs = network.samples, network.outputs
    eye = torch.eye(outputs, dtype=torch.float64, device=network.start.device)
    rows = torch.stack([tangent.pull(eye[k].expand(samples, -1)) for k in range(outputs)], dim=1)
    lower, upper = (end.sqrt() for end in norms_squared(rows))
    return JacobianNorms(house_up(torch.where(upper.isfinite(), upper, math.inf)), lower)


def _random_start(network: SampleMap, tangent: Linearization, steps: int, seed: int) -> JacobianNorms:
    """σ ≤ √(λ̂(1 + s²)) of `spectral.random_start`, all samples side by side; products with J are taken as computed."""
    inside = network.start.shape[1] <= network.outputs
    normal: Callable[[Tensor], Tensor] = (
        (lambda v: tangent.pull(tangent.push(v))) if inside else (lambda u: tangent.push(tangent.pull(u)))
    )
    size = min(network.start.shape[1], network.outputs)
    like = torch.zeros(network.samples * STARTS, size, dtype=torch.float64, device=network.start.device)
    start = random_rows(like, torch.Generator().manual_seed(seed)).reshape(network.samples, STARTS, size)

    def each(x: Tensor) -> Tensor:
        return torch.stack([normal(x[:, k]) for k in range(STARTS)], dim=1)

    basis, images, residual = batched_lanczos(each, start, min(steps, size))
    facts = facts_of(basis, images, residual)
    grown = torch.linalg.vector_norm(images[:, 0, 0], dim=1)
    ends, top = ends_from(facts, CHANCE, LOST * grown), top_ritz(basis, facts.ritz)
    upper, lower = ends.upper.sqrt(), ends.lower.sqrt()
    wide = float((upper / lower.clamp_min(torch.finfo(torch.float64).tiny)).log().max())
    known = top if inside else tangent.pull(top)
    return JacobianNorms(torch.where(upper.isfinite(), upper, math.inf), lower, CHANCE * network.samples, wide, known)


def _agrees(network: SampleMap, tangent: Linearization) -> Tensor:
    """Whether uᵀ(f(x ± hv) − f(x))/(±h) = uᵀJv for random u and v, at each sample and some step h.

    Both sides count: at a kink their mean may well be what autograd says.
    """
    generator = torch.Generator().manual_seed(1)
    points, good = network.start, torch.ones(network.samples, dtype=torch.bool, device=network.start.device)
    like = torch.zeros(network.samples, network.outputs, dtype=torch.float64, device=points.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = network.values(points)
        for _ in range(2):
            left, right = unit_rows(random_rows(like, generator)), unit_rows(random_rows(points, generator))
            pulled = tangent.pull(left)
            slope = (pulled * right).sum(1)
            size = row_norms(pulled) / math.sqrt(points.shape[1])
            seen = torch.zeros_like(good)
            for shrink in (1.0, 1e-2, 1e-3, 1e-4):  # a long step crosses kinks
                step = (network.steps(points) * shrink)[:, None]
                noise = 64 * network.eps * row_norms(here) / step[:, 0]
                near = AGREES * torch.maximum(size, slope.abs()) + noise
                rises = [
                    ((network.values(points + way * step * right) - here) * left).sum(1) / (way * step[:, 0])
                    for way in (1.0, -1.0)
                ]
                middle = ((rises[0] + rises[1]) / 2 - slope).abs() <= CLOSELY / AGREES * near + noise
                seen |= middle & ((rises[0] - slope).abs() <= near) & ((rises[1] - slope).abs() <= near)
                if bool(seen.all()):
                    break
            good &= seen
    return good
