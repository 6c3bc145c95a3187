"""Log weights that make the loop's bound small: quick and unproved; whatever they are, the norm is proved for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.rounding import TINY, TINY_SINGLE
from normgauge.instrument.loop.mid_network import MidNetwork
from normgauge.instrument.loop.weighted_loop import WeightedLoop, group_counts
from normgauge.instrument.spectral.power import seeded_start

BLOCK = 4  # vectors that follow the top singular values
SHARP = 50.0  # how much more a larger singular value counts, as a power of its square
FIRST_STEP, LAST_STEP = 0.2, 0.004
DAMPED, LONGEST_SHIFT = 0.5, 0.1  # how much of log N is taken back at once, since the vectors lag behind the weights
CHANNEL_SHARE = 0.7  # of a layer's step that its channels take
NEARLY_PARALLEL = 1e-5  # of the largest: a smaller eigenvalue of a Gram matrix in float32 is rounding
SETTLING = 20  # power steps and shifts before the weights begin to move
CENTRING, POWERS = 3, 6  # rounds at the end, and products in each


def price(log_norm: float, depth: int) -> float:
    """What a norm N of the weighted loop costs: γ·N bounds the network where N ≤ 1, and γ·N^depth where N ≥ 1.

    Let D fall by N from one level to the next: with G_d the parts of the map that cross d ≥ 1 levels, F(z) = Σ G_d z^d
    has the same norm N on the whole unit circle, F(z)/z is analytic, so ‖F(1/N)‖ ≤ N/N = 1 by the maximum principle;
    and γ grew by N^depth.
    """
    return log_norm * (depth if log_norm > 0 else 1)


def descend_loop(net: MidNetwork, start: Tensor, steps: int) -> Tensor:
    """Log weights after so many steps of Adam from ``start``, shifted so that the norm is about 1.

    log N = 0 is held by shifts of all levels at once, which move log N by −pull and log γ by the depth; so what is left
    to make small is log γ + (depth/pull)·log N.
    """
    rise, layers, channels = level_rise(net), Averages(), Averages()
    counts = torch.tensor(group_counts(net))
    layer = torch.repeat_interleave(torch.arange(len(counts)), counts)
    block = seeded_start((BLOCK, sum(net.entered)), start).to(net.dtype)
    theta = start.clone()
    for step in range(-SETTLING, steps):
        log_norm, slope, block = followed(net, theta, block)
        pull = min(max(-float(slope @ rise), 1.0), float(rise[0]))
        theta = theta + min(max(DAMPED * log_norm / pull, -LONGEST_SHIFT), LONGEST_SHIFT) * rise
        if step < 0:
            continue
        slope = slope * float(rise[0]) / pull
        slope[0] += 1.0
        rate = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (step / steps)
        whole = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, layer, slope)
        theta = theta - rate * (layers.step(whole)[layer] + CHANNEL_SHARE * channels.step(slope))
    return centred(net, theta, block)


class Averages:
    """Adam's averages of a slope and of its square, and the step they give (Kingma & Ba 2015)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.square = torch.zeros(())

    def step(self, slope: Tensor) -> Tensor:
        """The next step, for a rate of 1; its ε is the mean size, since most weights carry little."""
        self.count += 1
        self.mean = 0.7 * self.mean + 0.3 * slope
        self.square = 0.95 * self.square + 0.05 * slope.square()
        size = (self.square / (1 - 0.95**self.count)).sqrt()
        return self.mean / (1 - 0.7**self.count) / (size + size.mean() + TINY)


def followed(net: MidNetwork, theta: Tensor, block: Tensor) -> tuple[float, Tensor, Tensor]:
    """log N as the block of vectors sees it, its slope in θ, and the block after one power step.

    ∂log σ/∂θ_g is the part of the left singular vector in the group less that of the right one; the singular values
    near the top share in it.
    """
    loop = WeightedLoop(net, theta)
    right = orthonormal(block)
    left = loop.push(right)
    values, turn = torch.linalg.eigh((left @ left.T).double())
    top = float(values[-1].clamp_min(TINY))
    share = torch.softmax(SHARP * (values.clamp_min(TINY) / top).log(), 0)
    turned = turn.T.to(left)
    ups = ((turned @ left).square() * (share / values.clamp_min(TINY)).to(left)[:, None]).sum(0)
    downs = ((turned @ right).square() * share.to(left)[:, None]).sum(0)
    return math.log(top) / 2, _grouped(net, ups, downs), loop.pull(left)


def orthonormal(block: Tensor) -> Tensor:
    """Rows that span the same space, but for directions that rounding made up; by the Gram matrix, which is small."""
    rows = block / torch.linalg.vector_norm(block, dim=1, keepdim=True).clamp_min(TINY_SINGLE)
    values, turn = torch.linalg.eigh((rows @ rows.T).double())
    kept = values > NEARLY_PARALLEL * values[-1]
    return (turn[:, kept] / values[kept].sqrt()).T.to(rows) @ rows


def _grouped(net: MidNetwork, ups: Tensor, downs: Tensor) -> Tensor:
    inner, outer = downs.double().split(net.entered), ups.double().split(net.read)
    slopes = [-inner[0].sum()[None]]
    for place, node in enumerate(net.uncertain):
        slope = torch.zeros(node.groups, dtype=torch.float64)
        slopes.append(slope.index_add_(0, node.seen, outer[place]).index_add_(0, node.made, -inner[place + 1]))
    return torch.cat(slopes)


def level_rise(net: MidNetwork) -> Tensor:
    """How often each weight grows where every level is to fall by one factor: γ by the depth, the last level once."""
    *levels, last = net.levels()
    rise = torch.tensor([last, *(last - level for level in levels)], dtype=torch.float64)
    return torch.repeat_interleave(rise, torch.tensor(group_counts(net)))


def settled(net: MidNetwork, theta: Tensor, block: Tensor, rounds: int) -> tuple[float, Tensor, Tensor]:
    """`followed` after a Rayleigh-Ritz step on the block and its images under so many products."""
    loop, vectors = WeightedLoop(net, theta), [block]
    for _ in range(rounds):
        vectors.append(loop.pull(loop.push(orthonormal(vectors[-1]))))
    basis = torch.linalg.qr(torch.cat([orthonormal(part) for part in vectors]).T)[0].T.contiguous()
    images = torch.cat([loop.push(part) for part in basis.split(BLOCK)])
    _, turn = torch.linalg.eigh((images @ images.T).double())
    return followed(net, theta, turn[:, -BLOCK:].T.to(basis) @ basis)


def centred(net: MidNetwork, theta: Tensor, block: Tensor) -> Tensor:
    """θ shifted until the norm is about 1, from where both ways cost."""
    rise = level_rise(net)
    for _ in range(CENTRING):
        log_norm, slope, block = settled(net, theta, block, POWERS)
        theta = theta + log_norm / min(max(-float(slope @ rise), 1.0), float(rise[0])) * rise
    return theta
