"""Log weights that make the loop's bound small: quick and unproved; whatever they are, the norm is proved for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY
from normgauge.instrument.loop.mid_network import MidNetwork
from normgauge.instrument.loop.weighted_loop import WeightedLoop, group_counts
from normgauge.instrument.spectral.power import krylov, seeded_start

BLOCK = 4  # vectors that follow the top singular values
SHARP = 50.0  # how much more a larger singular value counts, as a power of its square
FIRST_STEP, LAST_STEP = 0.2, 0.004
FIRST_SLACK, LAST_SLACK = 0.05, 0.0025  # of log N, over which the price of N > 1 sets in
CHANNEL_SHARE, GROUP_SHARE = 0.7, 0.5  # of a layer's step that its channels and single entries take
SETTLING = 12  # power steps before a norm is believed to two digits
RAMPS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """Which uncertain step and which channel each log weight belongs to; the input's is its own of both."""

    layer: Tensor
    channel: Tensor

    @classmethod
    def of(cls, net: MidNetwork) -> Spread:
        """The spread of a network's log weights."""
        counts = group_counts(net)
        layer = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        channels, first = [torch.zeros(1, dtype=torch.long)], 1
        for node in net.uncertain:
            channels.append(node.channel + first)
            first += int(node.channel.max()) + 1
        return cls(layer, torch.cat(channels))


def price(log_norm: float, depth: int) -> float:
    """What a norm N of the weighted loop costs: γ·N bounds the network where N ≤ 1, and γ·N^depth where N ≥ 1.

    Let D fall by N from one level to the next: with G_d the parts of the map that cross d ≥ 1 levels, F(z) = Σ G_d z^d
    has the same norm N on the whole unit circle, F(z)/z is analytic, so ‖F(1/N)‖ ≤ N/N = 1 by the maximum principle;
    and γ grew by N^depth.
    """
    return log_norm * (depth if log_norm > 0 else 1)


def descend_loop(net: MidNetwork, start: Tensor, steps: int) -> Tensor:
    """Log weights after so many steps of Adam from ``start``, shifted so that the norm is about 1."""
    depth, spread = net.levels()[-1], Spread.of(net)
    moves = [Averages(share) for share in (1.0, CHANNEL_SHARE, GROUP_SHARE)]
    block = seeded_start((BLOCK, sum(net.entered)), start).to(net.dtype)
    theta = start.clone()
    for step in range(steps):
        done = step / steps
        slack = FIRST_SLACK * (LAST_SLACK / FIRST_SLACK) ** done
        rate = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** done
        log_norm, slope, block = followed(net, theta, block)
        slope = slope * (1 + (depth - 1) / (1 + math.exp(min(-log_norm / slack, 50.0))))
        slope[0] += 1.0
        fine = moves[2].step(slope)
        coarse = [_by(slope, label, move) for label, move in zip((spread.layer, spread.channel), moves, strict=False)]
        fine[0] = 0.0
        coarse[1][0] = 0.0
        theta = theta - rate * (coarse[0] + (coarse[1] + fine if done > 0.15 else 0.0))
    return centred(net, theta)


def _by(slope: Tensor, label: Tensor, move: Averages) -> Tensor:
    """One step for all log weights that share a label."""
    total = torch.zeros(int(label.max()) + 1, dtype=slope.dtype).index_add_(0, label, slope)
    return move.step(total)[label]


class Averages:
    """Adam's averages of a slope and of its square, and the step they give (Kingma & Ba 2015)."""

    def __init__(self, share: float) -> None:
        self.share, self.count = share, 0
        self.mean = self.square = torch.zeros(())

    def step(self, slope: Tensor) -> Tensor:
        """The next step, for a rate of 1; its ε is the mean size, since most weights carry little."""
        self.count += 1
        self.mean = 0.7 * self.mean + 0.3 * slope
        self.square = 0.95 * self.square + 0.05 * slope.square()
        size = (self.square / (1 - 0.95**self.count)).sqrt()
        return self.share * self.mean / (1 - 0.7**self.count) / (size + size.mean() + TINY)


def followed(net: MidNetwork, theta: Tensor, block: Tensor) -> tuple[float, Tensor, Tensor]:
    """log N as the block of vectors sees it, its slope in θ, and the block after one power step.

    ∂log σ/∂θ_g is the part of the left singular vector in the group less that of the right one; the singular values
    near the top share in it.
    """
    loop = WeightedLoop(net, theta)
    right = torch.linalg.qr(block.T)[0].T.contiguous()
    left = loop.push(right)
    values, turn = torch.linalg.eigh((left @ left.T).double())
    top = float(values[-1].clamp_min(TINY))
    share = torch.softmax(SHARP * (values.clamp_min(TINY) / top).log(), 0)
    turned = turn.T.to(left)
    ups = ((turned @ left).square() * (share / values.clamp_min(TINY)).to(left)[:, None]).sum(0)
    downs = ((turned @ right).square() * share.to(left)[:, None]).sum(0)
    return math.log(top) / 2, _grouped(net, ups, downs), loop.pull(left)


def _grouped(net: MidNetwork, ups: Tensor, downs: Tensor) -> Tensor:
    inner, outer = downs.double().split(net.entered), ups.double().split(net.read)
    slopes = [-inner[0].sum()[None]]
    for place, node in enumerate(net.uncertain):
        slope = torch.zeros(len(node.channel), dtype=torch.float64)
        slope.index_add_(0, node.seen, outer[place]).index_add_(0, node.made, -inner[place + 1])
        slopes.append(slope)
    return torch.cat(slopes)


def estimated_log_norm(net: MidNetwork, theta: Tensor, steps: int) -> float:
    """log N by Lanczos from one start: from below."""
    loop = WeightedLoop(net, theta)
    start = seeded_start((sum(net.entered),), theta, seed=1).to(net.dtype)

    def normal(x: Tensor) -> Tensor:
        return loop.pull(loop.push(x.expand(net.samples, -1)))[0]

    found = krylov(normal, start, steps, 1e-3)
    return math.log(max(float(loop.push(found.top.expand(net.samples, -1))[0].norm()), TINY))


def shifted(net: MidNetwork, theta: Tensor, log_factor: float) -> Tensor:
    """θ with γ, and the weights of every level, moved so that a norm e^log_factor becomes about 1."""
    *levels, last = net.levels()
    rise = torch.tensor([last, *(last - level for level in levels)], dtype=torch.float64)
    return theta + log_factor * torch.repeat_interleave(rise, torch.tensor(group_counts(net)))


def centred(net: MidNetwork, theta: Tensor, rounds: int = 3) -> Tensor:
    """θ shifted until the norm is about 1, where its price has the kink."""
    for _ in range(rounds):
        log_norm = estimated_log_norm(net, theta, 3 * SETTLING)
        theta = shifted(net, theta, log_norm)
        if abs(log_norm) < LAST_SLACK / 4:
            break
    return theta


def ramped_start(net: MidNetwork, base: Tensor) -> Tensor:
    """The best of a few multiples of ``base``, shifted to norm 1."""
    depth = net.levels()[-1]

    def bound(theta: Tensor) -> float:
        return float(theta[0]) + price(estimated_log_norm(net, theta, SETTLING), depth)

    found: Callable[[float], Tensor] = lambda ramp: centred(net, ramp * base, 1)
    return min((found(ramp) for ramp in RAMPS), key=bound)
