"""Spectral norms of Jacobians, from below: every number is a product that was computed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY
from normgauge.instrument.probe.linearize import Linearization, SampleMap, row_norms, unit_rows
from normgauge.instrument.probe.work import GRAPH, PULL, PUSH

EXACT_OUTPUTS, AGAIN_OUTPUTS = 32, 16  # rows of J that are all computed: at first, and where a direction is known
EXACT_ENTRIES = 2**26  # of all dense Jacobians together: half a gigabyte
CONVERGED, NEARLY = 1e-9, 3e-4  # relative growth of ‖J v‖ in one iteration: no longer worth another, or hardly
INDEPENDENT = 1e-12  # of a unit vector: what is left of it beyond the others is rounding


@dataclass(frozen=True, slots=True)
class TopPair:
    """The steepest direction known at one point of every sample: Jᵀu = σ v with unit u and v.

    Attributes:
        sigma: (samples,), lower bounds of ‖J‖; 0 where the network diverged.
        left: u, (samples, outputs).
        right: v, (samples, inputs).
    """

    sigma: Tensor
    left: Tensor
    right: Tensor


def pair_from(left: Tensor, pulled: Tensor, rounding: float) -> TopPair:
    """The pair that ``pulled`` = Jᵀu shows: σ = ‖Jᵀu‖ / ‖u‖, less its rounding."""
    size = row_norms(left)
    sigma = row_norms(pulled) / torch.where(size > 0, size, 1.0) * (1 - rounding)
    known = sigma.isfinite() & (sigma > TINY)  # below it products lose their digits
    return TopPair(torch.where(known, sigma, 0.0), unit_rows(left), unit_rows(pulled))


def top_pair(
    here: Linearization,
    start: Tensor,
    *,
    exact_outputs: int = EXACT_OUTPUTS,
    steps: int = 30,
    settled: float = CONVERGED,
) -> TopPair:
    """The top singular pair of every sample's Jacobian: exact for few outputs, else by iteration from ``start``.

    Args:
        here: the linearized network.
        start: first right directions, (samples, inputs), not zero.
        exact_outputs: most outputs for which all rows of J are computed.
        steps: iterations otherwise.
        settled: growth of ‖J v‖ in one of them that ends them.

    Returns:
        The pairs.
    """
    if here.outputs <= exact_outputs and start.numel() * here.outputs <= EXACT_ENTRIES:
        return _from_rows(here, start)
    return _from_iteration(here, start, steps, settled)


def top_pair_runs(network: SampleMap, steps: int = 30, exact_outputs: int = EXACT_OUTPUTS) -> float:
    """Runs of the network that its graph and `top_pair` take, at most."""
    rows = network.outputs <= exact_outputs and network.start.numel() * network.outputs <= EXACT_ENTRIES
    return GRAPH + (network.outputs * PULL if rows else (steps + 1) * (PULL + PUSH))


def _from_rows(here: Linearization, start: Tensor) -> TopPair:
    """All rows of J by one backward pass each; u is the top eigenvector of J Jᵀ."""
    samples = len(start)
    eye = torch.eye(here.outputs, dtype=start.dtype, device=start.device)
    rows = torch.stack([here.pull(eye[k].expand(samples, -1)) for k in range(here.outputs)], dim=1)
    # The Gram matrix squares the condition number, but an error in u enters ‖Jᵀu‖ only to second order.
    largest = rows.abs().amax((1, 2), keepdim=True)
    sized = rows / torch.where((largest > 0) & largest.isfinite(), largest, 1.0)  # else squares may be lost
    left = _top_vector(sized @ sized.mT)
    return pair_from(left, (left[:, None] @ rows)[:, 0], here.rounding)


def _from_iteration(here: Linearization, start: Tensor, steps: int, settled: float) -> TopPair:
    """Locally optimal ascent of ‖J v‖ over span{v, JᵀJ v, last step}, for all samples at once.

    Holds:  ‖J v‖ never falls; about the pace of Lanczos with the memory of three vectors.
    Source: A. Knyazev, "Toward the optimal preconditioned eigensolver", SIAM J. Sci. Comput. 23, 2001.
    """
    right = unit_rows(start)
    image = here.push(right)
    last, last_image = torch.zeros_like(right), torch.zeros_like(image)
    height, settled = row_norms(image), max(settled, 4 * here.eps)
    for _ in range(steps):
        fresh = here.pull(image)
        fresh = unit_rows(_without(_without(fresh, right), right))
        fresh_image = here.push(fresh)
        for known, known_image in ((right, image), (fresh, fresh_image)):
            share = (last * known).sum(1, keepdim=True)
            last, last_image = last - share * known, last_image - share * known_image
        size = row_norms(last)[:, None]
        keep = size > INDEPENDENT
        last, last_image = torch.where(keep, last / size, 0.0), torch.where(keep, last_image / size, 0.0)
        images = torch.stack([image, fresh_image, last_image], dim=1)
        share = _top_vector(images @ images.mT)[:, :, None]
        last, last_image = (
            share[:, 1] * fresh + share[:, 2] * last,
            share[:, 1] * fresh_image + share[:, 2] * last_image,
        )
        right, image = share[:, 0] * right + last, share[:, 0] * image + last_image
        before, height = height, row_norms(image)
        if bool((height <= before * (1 + settled)).all()):
            break
    left = unit_rows(image)
    return pair_from(left, here.pull(left), here.rounding)


def _without(flat: Tensor, direction: Tensor) -> Tensor:
    return flat - (flat * direction).sum(1, keepdim=True) * direction


def _top_vector(gram: Tensor) -> Tensor:
    """Top eigenvector of every symmetric matrix; one that diverged is taken as zero, so that the others survive."""
    scale = gram.diagonal(dim1=1, dim2=2).amax(1)
    good = (scale > 0) & gram.isfinite().all(2).all(1)
    safe = torch.where(good[:, None, None], gram / torch.where(good, scale, 1.0)[:, None, None], 0.0)
    return torch.linalg.eigh(safe).eigenvectors[:, :, -1]


def random_rows(like: Tensor, generator: torch.Generator) -> Tensor:
    """Gaussian rows from their own generator, the same on every device."""
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)
