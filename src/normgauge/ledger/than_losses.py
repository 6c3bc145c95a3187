"""Claims of Than 2025 on the loss as a function of the weights: Corollary 14 and the text before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import Stack, decade, equal_channels, frozen_stack
from normgauge.ledger.than_weights import after_bound, shape, tail, weight_slope
from normgauge.zoo import extremal

claims = Family("T", "Than 2025")

HOLDS, WRONG = Verdict.HOLDS, Verdict.WRONG


@claims.add(
    "C14.loss",
    "text before Corollary 14",
    WRONG,
    "For the ℓ1 loss the constant in W_i of the loss equals that of the network.",
    "ℓ1 is √n_K-Lipschitz in the output: between the two lies a factor of up to √n_K, reached when all widths are n_K.",
    backs=("normgauge.records.loss_constants",),
)
def loss_and_network(draw: Draw) -> Iterator[Finding | Curve]:
    """The ℓ1 norm itself, and an extremal network's loss beside its output."""
    n, depth = draw.integer(2, 9), draw.integer(1, 4)
    yield equal("slope of the ℓ1 norm", norm(jacobian(lambda v: v.abs().sum()[None], draw.normal(n))), predicted=n**0.5)
    gains, h = [decade(draw, -1, 1) for _ in range(depth)], draw.uniform(draw.integer(2, 6), low=0.2)
    after = tail(gains, [n] * (depth + 1))
    of_net, of_loss = (weight_slope(after, h, n, draw, loss) for loss in (False, True))
    yield exceeds("loss against network", of_loss, published=of_net)
    yield equal("loss: √n_K times the network's", of_loss, predicted=math.sqrt(n) * of_net, published=of_net)


def written_out(stack: Stack, k: int, h: Tensor) -> float:
    """(10) for layer i = k + 1 with what its O hides: √n_K·‖h_{i−1}‖."""
    return after_bound(stack, k) * math.sqrt(len(stack.weights[-1])) * float(h.norm())


def as_printed(gains: Sequence[float], widths: Sequence[int], h: Tensor) -> float:
    """(11): a_{i+1}···a_K times the norm of h cut to the later widths."""
    return math.prod(gains) * float(h[: min(widths[1:])].norm())


@claims.add(
    "C14.10",
    "Corollary 14 (10)",
    HOLDS,
    "The ℓ1 loss of a normalized network is O(‖W_{i+1}‖···‖W_K‖)·Π_{k≥i}‖NO_k‖-Lipschitz in W_i.",
    "Holds with √n_K·‖h_{i−1}(x)‖ inside the O, attained by equal channels.",
)
def corollary_14_upper(draw: Draw) -> Iterator[Finding | Curve]:
    """Random stacks, and equal channels, with the constant written out."""
    stack = frozen_stack(draw, draw.integer(2, 5))
    k, x = draw.integer(0, len(stack.weights)), draw.normal(stack.weights[0].shape[1])
    h, after = stack.entering(k, x), stack.after(k)
    slope = norm(jacobian(lambda w: (after(w @ h) + 1).abs().sum()[None], stack.weights[k]))
    yield below("slope of the loss in W_i", slope, predicted=written_out(stack, k, h))
    channels = draw.integer(2, 5)
    flat, _ = equal_channels(draw, 3, channels)
    k, x = draw.integer(0, 3), draw.uniform(channels, low=0.1)
    h, after = flat.entering(k, x), flat.after(k)
    slope = norm(jacobian(lambda w: (after(w @ h) + 1).abs().sum()[None], flat.weights[k]))
    yield equal("equal channels: attained", slope, predicted=written_out(flat, k, h))
    pair = frozen_stack(draw, 2, on=True)
    even = replace(pair, variances=(pair.variances[0], torch.full_like(pair.variances[1], decade(draw, -1, 1))))
    h = even.entering(1, draw.normal(even.weights[0].shape[1]))
    slope = norm(jacobian(lambda w: (even.after(1)(w @ h) + 1).abs().sum()[None], 1e-3 * even.weights[1]))
    yield equal("last layer of any width: attained", slope, predicted=written_out(even, 1, h))


@claims.add(
    "C14.10.hidden",
    "Corollary 14 (10), the O",
    WRONG,
    "What the O of (10) hides is a constant, so that layers near the output are the smoother ones.",
    "It hides ‖h_{i−1}‖, as large as ‖x‖·Π_{j<i}s_j without normalizers: every layer's worst case is ‖x‖·Π_{j≠i}s_j. "
    "Behind LayerNorm it does not depend on the earlier weights: the real gain.",
)
def hidden_in_the_o(draw: Draw) -> Iterator[Finding | Curve]:
    """The last layer of an extremal network as its earlier layers grow; the same with a LayerNorm before it."""
    n, depth, s = draw.integer(2, 6), draw.integer(2, 6), decade(draw, 0.5, 1)
    x = draw.uniform(n, low=0.2)
    h = extremal([s] * (depth - 1), [n] * depth)(x[None])[0].detach()
    slope = weight_slope(torch.relu, h, n, draw, loss=True)
    plain = math.sqrt(n) * float(x.norm())
    yield exceeds("last layer against √n ‖x‖, all that (10) shows", slope, published=plain)
    yield equal("last layer", slope, predicted=plain * s ** (depth - 1), published=plain)
    normed = [F.layer_norm(t * draw.normal(5, 5) @ draw.normal(5), (5,)) for t in (1.0, 1e6)]
    longest = max(weight_slope(torch.relu, v, n, draw, loss=True) for v in normed)
    yield below("behind LayerNorm, earlier weights of any size", longest, predicted=math.sqrt(n) * math.sqrt(5))


@claims.add(
    "C14.11",
    "Corollary 14 (11)",
    WRONG,
    "The extremal network's ℓ1 loss has in W_i the constant a_{i+1}···a_K times the norm of h_{i−1}(x) cut to the "
    "later widths.",
    "√min(n_i, ..., n_K)·a_{i+1}···a_K·‖h_{i−1}(x)‖: every passing row counts, and h is not cut.",
    backs=("normgauge.zoo.extremal.loss_constant",),
)
def corollary_14_lower(draw: Draw) -> Iterator[Finding | Curve]:
    """Random networks; one that lets a single row pass, where the printed value is that of the cut input."""
    gains, widths, h = shape(draw)
    slope = weight_slope(tail(gains, widths), h, widths[0], draw, loss=True)
    printed = as_printed(gains, widths, h)
    right = math.sqrt(min(widths)) * math.prod(gains) * float(h.norm())
    yield equal("largest slope of the loss in W_i", slope, predicted=right, published=printed)
    yield refutes("largest slope against the printed one", slope, published=printed)
    narrow, more = [*widths, 1], [*gains, decade(draw, -1, 1)]
    cut = torch.where(torch.arange(len(h)) < 1, h, 0.0)
    slope = weight_slope(tail(more, narrow), cut, widths[0], draw, loss=True)
    yield equal("last width 1: printed is that of the cut input", slope, predicted=as_printed(more, narrow, h))
