"""Small random networks for the loop transformation, and the truth about them by dense matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.bound import Scope
from normgauge.instrument.balance import Balanced, folded_bound
from normgauge.instrument.compose import Composition
from normgauge.instrument.loop.bound import side_by_side_parts
from normgauge.instrument.loop.mid_network import MidNetwork, mid_network
from normgauge.instrument.session import Session, opened

ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Mish, nn.Hardswish, nn.SELU, nn.Sigmoid, nn.ELU, nn.Softplus,
    lambda: nn.LeakyReLU(0.2), lambda: nn.LeakyReLU(-0.5), lambda: nn.LeakyReLU(1.7), lambda: nn.PReLU(3, -0.3),
    lambda: nn.GELU(approximate="tanh"), nn.Hardtanh, nn.ReLU6, lambda: nn.ELU(1.6),
]  # fmt: skip


class Block(nn.Module):
    """A residual block with a kind of shortcut."""

    def __init__(self, width: int, act: Callable[[], nn.Module], kind: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=bool(kind % 2)) for _ in range(2))
        self.norm, self.kind = nn.BatchNorm2d(width), kind
        self.act, self.last = act(), act()

    def forward(self, x: Tensor) -> Tensor:
        branch = self.norm(self.second(self.act(self.first(x))))
        if self.kind == 0:
            return self.last(branch + x)
        if self.kind == 1:
            return branch - 0.5 * x
        if self.kind == 2:
            return self.last(torch.cat([branch[:, :1], x[:, 1:]], 1)) / 2.0
        return F.avg_pool2d(F.pad(branch, (1, 1, 1, 1)), 3, 1) + self.last(-x)


def random_net(seed: int) -> tuple[nn.Module, Tensor]:
    """A network of a few layers in float64, every third dense, and two samples for it."""
    torch.manual_seed(seed)
    pick = torch.Generator().manual_seed(seed)

    def number(below: int) -> int:
        return int(torch.randint(below, (1,), generator=pick))

    act = ACTIVATIONS[number(len(ACTIVATIONS))]
    if seed % 3 == 0:
        sizes = [4, 3, 3, 3, 2][: 3 + number(3)]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), act()] if b == 3 else [nn.Linear(a, b)]
        net, x = nn.Sequential(*layers), torch.randn(2, 4)
    else:
        pool = [nn.Identity, lambda: nn.MaxPool2d(2), lambda: nn.MaxPool2d(3, 1), lambda: nn.AvgPool2d(2)][number(4)]
        blocks = [Block(3, act, number(4)) for _ in range(1 + number(2))]
        stem = nn.Conv2d(2, 3, 3, stride=1 + number(2), padding=1)
        net = nn.Sequential(stem, nn.BatchNorm2d(3), act(), *blocks, pool(), nn.Flatten(), nn.LazyLinear(2))
        x = torch.randn(2, 2, 6, 6)
        with torch.no_grad():
            net(x)
    for p in net.parameters():
        p.data.mul_(0.7 + float(torch.rand(1, generator=pick)))
    for norm in (m for m in net.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.weight.data.normal_()
        norm.running_var.uniform_(0.3, 2.0)
    return net.double().eval(), x.double()


@contextmanager
def read(net: nn.Module, x: Tensor) -> Iterator[tuple[Session, Composition, Balanced]]:
    """What `loop_bound` is given."""
    with opened(net, x) as session:
        parts = session.composed(Scope.parse("global"))
        yield session, parts, folded_bound(parts)


def built(session: Session, parts: Composition, dtype: torch.dtype = torch.float64) -> MidNetwork | None:
    beside = side_by_side_parts(session, parts)
    return None if beside is None else mid_network(beside, parts, dtype)


def is_elementwise(net: MidNetwork) -> bool:
    """Whether every uncertain step works entry by entry."""
    return all(len(node.seen) == len(node.made) and "Pool" not in node.step.kind for node in net.uncertain)


def dense(net: MidNetwork) -> Tensor:
    """G, (entries that come out, entries that go in)."""
    unit = torch.eye(sum(net.entered), dtype=net.dtype)
    pad = torch.cat([unit, unit.new_zeros(-len(unit) % net.samples, len(unit))])
    return torch.cat([net.push(part) for part in pad.split(net.samples)])[: len(unit)].T


def steepest_of_slopes(net: MidNetwork, tries: int, seed: int = 0) -> float:
    """The largest ‖J_mid + RΔ(I − HΔ)⁻¹C‖ over random Δ on the boundary, for elementwise uncertain steps."""
    whole, inputs, outputs = dense(net), net.entered[0], net.read[-1]
    half = torch.cat([torch.full((len(node.seen),), node.half, dtype=torch.float64) for node in net.uncertain])
    top, bottom = whole[:-outputs], whole[-outputs:]
    generator = torch.Generator().manual_seed(seed)
    best = 0.0
    signs = torch.ones(len(half), dtype=torch.float64)
    for attempt in range(tries):
        flip = torch.rand(len(half), generator=generator) < (0.5 if attempt % 2 else 0.1)
        trial = torch.where(flip, -signs, signs)
        delta = trial * half
        inner = torch.linalg.solve(torch.eye(len(half), dtype=torch.float64) - top[:, inputs:] * delta, top[:, :inputs])
        slope = float(torch.linalg.matrix_norm(bottom[:, :inputs] + bottom[:, inputs:] * delta @ inner, 2))
        if slope > best:
            best, signs = slope, trial
    return best
