"""Claims of Than 2025 on group normalization: Eqs. 4-5, Lemma 3 and its proof; feature maps and instances."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.normalized import decade, layer_norm

claims = Family("T", "Than 2025")

HOLDS, LOOSE, UNSUPPORTED = Verdict.HOLDS, Verdict.LOOSE, Verdict.UNSUPPORTED


def group_norm(x: Tensor, groups: int, eps: float) -> Tensor:
    """GroupNorm of one vector as torch computes it."""
    return F.group_norm(x[None], groups, eps=eps)[0]


def spreads(groups: Tensor, eps: float) -> Tensor:
    """√(σ_k² + ε) of the rows of a (groups, size) table, written out."""
    centred = groups - groups.sum(1, keepdim=True) / groups.shape[1]
    return ((centred**2).sum(1) / groups.shape[1] + eps).sqrt()


def rows(draw: Draw, groups: int, size: int) -> Tensor:
    """Groups of entries with scales of their own."""
    return draw.normal(groups, size) * draw.normal(groups, 1).exp()


@claims.add(
    "E4",
    "Eqs. 4-5",
    HOLDS,
    "GroupNorm normalizes each group of entries by its own mean and variance; with one group it is LayerNorm.",
    "Exact, with the biased variance of each group.",
)
def group_norm_definition(draw: Draw) -> Iterator[Finding | Curve]:
    """The function against the formula, group by group."""
    count, size, eps = draw.integer(2, 5), draw.integer(2, 6), decade(draw, -5, 0)
    x, weight = rows(draw, count, size), draw.normal(count, size)
    formula = (x - x.sum(1, keepdim=True) / size) / spreads(x, eps)[:, None]
    out = group_norm(x.flatten(), count, eps)
    yield equal("output, along a random direction", weight.flatten() @ out, predicted=(weight * formula).sum())
    whole, line = group_norm(x.flatten(), 1, eps), layer_norm(x.flatten(), eps)
    yield equal("one group is LayerNorm", weight.flatten() @ whole, predicted=weight.flatten() @ line)


@claims.add(
    "L3",
    "Lemma 3",
    LOOSE,
    "The constant of GroupNorm is at most the sum of 1/√(σ_k² + ε) over the groups.",
    "The Jacobian is block diagonal: the maximum over the groups, with equality for groups of 3 or more entries; the "
    "sum is up to C times too large.",
    backs=("norm_layer.group_norm",),
)
def lemma_3(draw: Draw) -> Iterator[Finding | Curve]:
    """Random groups, equal groups, and the ratio against the number of groups."""
    count, size, eps = draw.integer(2, 6), draw.integer(3, 6), decade(draw, -5, -1)
    x = rows(draw, count, size)
    slope = norm(jacobian(lambda v: group_norm(v, count, eps), x.flatten()))
    inverse = 1 / spreads(x, eps)
    yield equal("slope: the maximum", slope, predicted=inverse.max(), published=inverse.sum())
    yield below("slope against the sum", slope, predicted=inverse.sum())
    same = x[:1].expand(count, size)
    slope = norm(jacobian(lambda v: group_norm(v, count, eps), same.flatten()))
    yield equal("sum over slope for C equal groups", count * slope, predicted=(1 / spreads(same, eps)).sum())
    scales = torch.tensor([0.1, 1.0, 3.0, 10.0], dtype=torch.float64)
    inverse = 1 / spreads(draw.normal(4, 16) * scales[:, None], 1e-5)
    counts = [1.0, 2.0, 3.0, 4.0]
    lines = (
        ("maximum (true)", tuple(float(inverse[: int(c)].max()) for c in counts)),
        ("sum (printed)", tuple(float(inverse[: int(c)].sum()) for c in counts)),
    )
    yield Curve("groups of scale 0.1, 1, 3, 10", "groups", "constant", tuple(counts), lines)


@claims.add(
    "L3.global",
    "Lemma 3, everywhere; Eqs. 27-28",
    LOOSE,
    "With σ_k the smallest over Rⁿ the sum over the C groups bounds GroupNorm's constant.",
    "The smallest variance is 0: the sum is C/√ε for every data set, the constant 1/√ε.",
)
def lemma_3_global(draw: Draw) -> Iterator[Finding | Curve]:
    """At vectors constant within each group, and at points of all sizes."""
    count, size, eps = draw.integer(2, 5), draw.integer(2, 5), decade(draw, -5, -1)
    level = draw.normal(count, 1).expand(count, size).flatten()
    slopes = jacobian(lambda v: group_norm(v, count, eps), level)
    yield equal("slope where every group is constant", norm(slopes), predicted=eps**-0.5, published=count * eps**-0.5)
    blocks = sum(norm(slopes[k : k + size]) for k in range(0, count * size, size))
    yield equal("sum of the groups' slopes there", blocks, predicted=count * eps**-0.5)
    sizes = 10 ** draw.uniform(8, low=-5, high=1)
    found = [norm(jacobian(lambda v: group_norm(v, count, eps), s * draw.normal(count * size))) for s in sizes]
    yield below("largest slope of eight points", max(found), predicted=eps**-0.5)


@claims.add(
    "E25",
    "Eqs. 25-26",
    LOOSE,
    "The Jacobian of GroupNorm is put together from the groups' Jacobians; its norm is at most the sum of theirs.",
    "The pieces are blocks on the diagonal, no two of which see the same input or output: the norm is their maximum.",
)
def proof_of_lemma_3(draw: Draw) -> Iterator[Finding | Curve]:
    """Blocks on and off the diagonal."""
    count, size, eps = draw.integer(2, 5), draw.integer(3, 5), decade(draw, -5, -1)
    x = rows(draw, count, size)
    slopes = jacobian(lambda v: group_norm(v, count, eps), x.flatten())
    blocks = [jacobian(lambda v: layer_norm(v, eps), group) for group in x]
    apart = slopes - torch.block_diag(*blocks)
    yield equal("what is left without the blocks", norm(apart), predicted=0.0, scale=norm(slopes))
    yield below("norm against the sum", norm(slopes), predicted=sum(norm(block) for block in blocks))
    yield equal("norm: the maximum of the blocks", norm(slopes), predicted=max(norm(block) for block in blocks))


claims.read(
    "L3.second",
    "proof of Lemma 3",
    UNSUPPORTED,
    "A second statement of the lemma follows from the first.",
    "The lemma has one statement only; there is nothing to check.",
)


@claims.add(
    "L3.maps",
    "Lemma 3 on feature maps, with gains; InstanceNorm",
    HOLDS,
    "GroupNorm and InstanceNorm of images are covered by extension, gains left out.",
    "max over groups of (largest |γ_c| in the group)/σ_g, with equality when a channel has 3 or more pixels; "
    "InstanceNorm with 2 pixels: |γ|ε/σ³.",
    backs=("norm_layer.instance_norm",),
)
def feature_maps(draw: Draw) -> Iterator[Finding | Curve]:
    """Images with random gains and shifts, grouped and channel by channel."""
    count, per, pixels = draw.integer(1, 4), draw.integer(1, 3), draw.integer(3, 5)
    channels, eps = count * per, decade(draw, -3, -1)
    x, gamma, beta = rows(draw, channels, pixels), draw.normal(channels), draw.normal(channels)
    slopes = jacobian(lambda v: F.group_norm(v[None], count, gamma, beta, eps), x)
    by_group = gamma.reshape(count, per).abs().amax(1) / spreads(x.reshape(count, -1), eps)
    yield equal("GroupNorm of an image", norm(slopes), predicted=by_group.max())
    slopes = jacobian(lambda v: F.instance_norm(v[None], weight=gamma, bias=beta, eps=eps), x)
    yield equal("InstanceNorm of an image", norm(slopes), predicted=(gamma.abs() / spreads(x, eps)).max())
    pair = x[:, :2]
    slopes = jacobian(lambda v: F.instance_norm(v[None], weight=gamma, bias=beta, eps=eps), pair)
    two = (gamma.abs() * eps / spreads(pair, eps) ** 3).max()
    yield equal("InstanceNorm of two pixels", norm(slopes), predicted=two, rel=1e-7)
