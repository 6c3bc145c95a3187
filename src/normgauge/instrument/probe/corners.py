"""Corners: points where several units are about to switch, reached by Newton's method."""

from __future__ import annotations

import torch
from torch import Tensor

from normgauge.instrument.probe.domain import Domain
from normgauge.instrument.probe.linearize import SampleMap, row_norms
from normgauge.instrument.probe.work import GRAPH, PULL

COUNTS = (4, 1, 2, 1)  # units that meet, one number a move
MARGINS = (1e-6, 1e-4, 1e-2, 1e-5, 1e-3)  # how far behind their kinks, as parts of the unit step
NEWTON = 2  # steps: one is exact for units of a first layer
DEPENDENT = 1e-12  # added to the unit diagonal of the gradients' Gram matrix

CORNER = NEWTON * (GRAPH + PULL * sum(COUNTS) / len(COUNTS))  # runs of the network that `corner_points` takes


def corner_points(
    network: SampleMap, domain: Domain, points: Tensor, unit_step: Tensor, turn: int, generator: torch.Generator
) -> Tensor | None:
    """Points near ``points`` at which a few random units of each sample are just on or just off; None without units.

    δ = −Aᵀ(A Aᵀ)⁻¹ (z − m s), A the gradients of the chosen units, s random signs, m the margin: the shortest move
    after which, to first order, z = m s.

    Every linear piece of a network with as many units as inputs or more touches such corners, however small or far
    away it is; a random walk meets a piece as often as it is large.

    Args:
        network: the network.
        domain: where to stay.
        points: (samples, inputs).
        unit_step: a natural length for a move of each, (samples,).
        turn: number of this move, which says how many units meet and how closely.
        generator: of the choice of units and sides.
    """
    margin = MARGINS[turn % len(MARGINS)] * unit_step[:, None]
    count, chosen, side = COUNTS[turn % len(COUNTS)], None, None
    for _ in range(NEWTON):
        here = network.at(points)
        units = here.units
        if units is None:
            return None
        if chosen is None or side is None:
            chosen, side = _choice(units, min(count, points.shape[1]), generator)
        z, slopes = here.crossings(units, chosen)
        points = domain.project(points - _shortest(slopes, z, margin * side))
    return points


def _choice(units: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random units, (samples, count), and a random side of the kink of each."""
    count = min(count, units.shape[1])
    lots = torch.rand(units.shape, generator=generator, dtype=torch.float64)
    side = torch.rand((len(units), count), generator=generator, dtype=torch.float64) < 0.5
    return lots.topk(count, 1).indices.to(units.device), torch.where(side, 1.0, -1.0).to(units)


def _shortest(slopes: Tensor, z: Tensor, wanted: Tensor) -> Tensor:
    """The shortest moves d with A d = z − wanted·‖rows of A‖; rows that do not depend on the input are left out."""
    samples, count, inputs = slopes.shape
    size = row_norms(slopes.reshape(-1, inputs)).reshape(samples, count)
    size = torch.where((size > 0) & size.isfinite(), size, torch.inf)
    rows, excess = slopes / size[:, :, None], z / size - torch.where(size.isfinite(), wanted, 0.0)
    gram = rows @ rows.mT + DEPENDENT * torch.eye(count).to(rows)
    share, _ = torch.linalg.solve_ex(gram + torch.diag_embed((~size.isfinite()).to(rows)), excess[:, :, None])
    return torch.where(share.isfinite(), share, 0.0).mT.matmul(rows)[:, 0]
