"""Small worlds where the truth is known: finitely many points with their probabilities, and networks made to deceive.

Every problem draws D, chooses a network after it, and knows the exact error of any network.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normgauge.generalization.case import Case
from normgauge.generalization.facts.cells import Partition, voronoi
from normgauge.generalization.facts.sample import Sample, outputs
from normgauge.generalization.facts.space import margins_of

JITTER = 0.02  # points of one group lie this close together


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """All there is: points (n, d), labels (n,), probabilities (n,) that add up to 1, groups (n,) of points."""

    points: Tensor
    labels: Tensor
    chances: Tensor
    groups: Tensor

    def draw(self, count: int) -> Sample:
        """An iid sample."""
        chosen = torch.multinomial(self.chances, count, replacement=True)
        return Sample(self.points[chosen].clone(), self.labels[chosen].clone())

    def error(self, net: nn.Module) -> float:
        """The true error of a network; a tie is an error."""
        wrong = margins_of(outputs(net, Sample(self.points, self.labels)), self.labels) <= 0
        return float(self.chances.double()[wrong].sum())

    def cells(self) -> Partition:
        """One cell a group, named before any draw: what it was made from is no training sample."""
        centres = torch.stack([self.points[self.groups == g].mean(0) for g in self.groups.unique()])
        return dataclasses.replace(voronoi(centres, 4 * JITTER), seen=frozenset())


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A network, its data and what is true.

    Attributes:
        coreset: places of D the network was made from, where it was made from few.
        picked: how many pick-to-learn picked.
        surrogate: another network and a sample it never saw.
    """

    world: World
    case: Case
    coreset: tuple[int, ...] | None = None
    picked: int | None = None
    surrogate: tuple[nn.Module, Sample] | None = None


def corners(groups: int, *, flips: float = 0.0) -> World:
    """Groups of three points around the unit vectors, each with a label, which ``flips`` of the time is the other."""
    centres = torch.eye(groups).repeat_interleave(3, 0)
    points = centres + JITTER * torch.randn(3 * groups, groups) / math.sqrt(groups)
    owner = torch.arange(groups).repeat_interleave(3)
    labels = torch.randint(0, 2, (groups,))[owner]
    share = torch.distributions.Dirichlet(torch.ones(3 * groups)).sample()
    if not flips:
        return World(points, labels, share, owner)
    chances = torch.cat([share * (1 - flips), share * flips])
    return World(points.repeat(2, 1), torch.cat([labels, 1 - labels]), chances, owner.repeat(2))


def circle(points: int = 64, spread: float = 0.3) -> World:
    """Two clouds on the unit circle."""
    labels = torch.arange(points) % 2
    angle = spread * torch.randn(points) + math.pi * labels
    share = torch.distributions.Dirichlet(torch.ones(points)).sample()
    return World(torch.stack([angle.cos(), angle.sin()], 1), labels, share, labels)


def line(points: int = 200) -> World:
    """A segment cut at an unknown place."""
    x = torch.linspace(-1, 1, points)[:, None]
    cut = float(torch.rand(1)) - 0.5
    share = torch.distributions.Dirichlet(torch.ones(points)).sample()
    return World(x, (x[:, 0] > cut).long(), share, torch.zeros(points, dtype=torch.long))


def linear(weight: Tensor, *, encoder: bool) -> nn.Sequential:
    """A linear network, after an encoder that does nothing where asked."""
    classes, width = weight.shape
    head = nn.Linear(width, classes, bias=False)
    first = nn.Linear(width, width, bias=False) if encoder else nn.Identity()
    with torch.no_grad():
        head.weight.copy_(weight)
        if isinstance(first, nn.Linear):
            first.weight.copy_(torch.eye(width))
    return nn.Sequential(first, head).eval()


def saying(world: World, answers: Tensor, *, encoder: bool = False) -> nn.Sequential:
    """A table: one answer a group, as weights at the corners."""
    signs = 2.0 * answers.float() - 1
    return linear(torch.stack([-signs, signs]), encoder=encoder)


def truths(world: World) -> Tensor:
    """The more likely label of each group."""
    weights = torch.zeros(int(world.groups.max()) + 1, 2)
    weights.index_put_((world.groups, world.labels), world.chances, accumulate=True)
    return weights.argmax(1)


def case_of(world: World, net: nn.Module, data: Sample, delta: float, seed: int, epochs: int = 0) -> Case:
    """With a hold-out and unlabeled points drawn after everything else."""
    held = world.draw(int(torch.tensor([50, 200, 1000])[seed % 3]))
    free = Sample(world.draw(300).inputs, None)
    encoder = net[0] if isinstance(net, nn.Sequential) and isinstance(net[0], nn.Linear) else None
    return Case(net, data, outputs(net, data), delta, held, outputs(net, held), free, encoder, epochs, seed)


def deceiver(seed: int, delta: float, epochs: int = 0) -> Problem:
    """A table that errs on exactly those groups that D shows less often than they are: the largest gap there is."""
    groups = (2, 3, 4, 8, 12)[seed % 5]
    world = corners(groups, flips=0.05 * (seed % 2))
    data = world.draw((500, 1000, 2000, 4000)[seed % 4])
    right = truths(world)
    seen, true = torch.zeros(groups), torch.zeros(groups)
    for i in range(groups):
        own = world.points[world.groups == i]
        seen[i] = float((torch.cdist(data.inputs, own).amin(1) < 1e-6).float().mean())  # type: ignore[arg-type]
        true[i] = float(world.chances[world.groups == i].sum())
    rare = (seen < true) & (true < 0.4)
    net = saying(world, torch.where(rare, 1 - right, right), encoder=seed % 3 == 0)
    surrogate = (saying(world, right), world.draw(500))
    return Problem(world, case_of(world, net, data, delta, seed, epochs), surrogate=surrogate)


def normalized(seed: int, delta: float, epochs: int = 0) -> Problem:
    """The same behind BatchNorm with statistics of its own, or LayerNorm with an ε that leaves a finite slope."""
    plain = deceiver(seed, delta)
    world, data, table = plain.world, plain.case.train, plain.case.model
    width = world.points.shape[1]
    if seed % 2:
        norm: nn.Module = nn.LayerNorm(width, eps=1.0)
        net = nn.Sequential(norm, nn.Linear(width, 2, bias=False))
        with torch.no_grad():
            net[1].weight.copy_(table[-1].weight)
    else:
        norm = nn.BatchNorm1d(width)
        net = nn.Sequential(norm, nn.Linear(width, 2))
        with torch.no_grad():
            norm.running_mean.copy_(torch.rand(width) - 0.5)
            norm.running_var.copy_(0.5 + torch.rand(width))
            scale = (norm.running_var + norm.eps).sqrt()
            net[1].weight.copy_(table[-1].weight * scale)
            net[1].bias.copy_(table[-1].weight @ norm.running_mean)
    return Problem(world, case_of(world, net.eval(), data, delta, seed, epochs))


def memorizer(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Right on every group of D, wrong on all others."""
    world = corners(60)
    data = world.draw((40, 80, 160)[seed % 3])
    right = truths(world)
    met = torch.cdist(data.inputs, world.points).argmin(1)  # type: ignore[arg-type]
    answers = 1 - right
    answers[world.groups[met]] = right[world.groups[met]]
    net = saying(world, answers, encoder=True)
    return Problem(
        world, case_of(world, net, data, delta, seed, epochs), surrogate=(saying(world, right), world.draw(100))
    )


def separated(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Two clouds and the line between their means in D; D is large, so that rows of norms say something."""
    world = circle(spread=(0.05, 0.3, 0.6)[seed % 3])
    data = world.draw((1000, 2000, 4000)[seed % 3])
    assert data.inputs is not None and data.labels is not None
    axis = data.inputs[data.labels == 1].mean(0) - data.inputs[data.labels == 0].mean(0)
    net = linear(torch.stack([-axis, axis]), encoder=seed % 2 == 0)
    turned = torch.tensor([axis[0] - 0.2 * axis[1], axis[1] + 0.2 * axis[0]])
    surrogate = (linear(torch.stack([-turned, turned]), encoder=False), world.draw(400))
    return Problem(world, case_of(world, net, data, delta, seed, epochs), surrogate=surrogate)


def clouds(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Two clouds of so many points that unseen ones differ: balls around them have a radius. Always with an encoder."""
    world = circle(2000, spread=(0.05, 0.3, 0.6)[seed % 3])
    data = world.draw((1000, 2000, 4000)[seed % 3])
    assert data.inputs is not None and data.labels is not None
    axis = data.inputs[data.labels == 1].mean(0) - data.inputs[data.labels == 0].mean(0)
    net = linear(torch.stack([-axis, axis]), encoder=True)
    surrogate = (linear(torch.tensor([[1.0, 0.3], [-1.0, -0.3]]), encoder=False), world.draw(400))
    return Problem(world, case_of(world, net, data, delta, seed, epochs), surrogate=surrogate)


def chosen_few(seed: int, delta: float, epochs: int = 0) -> Problem:
    """The line between two samples: of many pairs the one that looks best on the rest of D."""
    world = circle(spread=0.9)
    data = world.draw((100, 300, 1000)[seed % 3])
    assert data.inputs is not None and data.labels is not None
    best: tuple[float, int, int] | None = None
    for _ in range(60):
        i, j = (
            int((data.labels == k).nonzero()[int(torch.randint(int((data.labels == k).sum()), (1,)))]) for k in (0, 1)
        )
        axis = data.inputs[j] - data.inputs[i]
        wrong = float((((data.inputs @ axis) > 0).long() != data.labels).float().mean())
        best = min(best or (2.0, i, j), (wrong, i, j))
    assert best is not None
    axis = data.inputs[best[2]] - data.inputs[best[1]]
    net = linear(torch.stack([-axis, axis]), encoder=False)
    return Problem(world, case_of(world, net, data, delta, seed, epochs), coreset=tuple(sorted(set(best[1:]))))


def picker(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Pick-to-learn of a cut: the sample that is wrong by most is picked until none is wrong."""
    world = line()
    data = world.draw((100, 300, 1000)[seed % 3])
    assert data.inputs is not None and data.labels is not None
    x, y, low, high, picked = data.inputs[:, 0], data.labels, -1.5, 1.5, 0
    while True:
        cut = (low + high) / 2
        wrong = (x > cut).long() != y
        if not bool(wrong.any()):
            break
        far = torch.where(wrong, (x - cut).abs(), -1.0).argmax()
        low, high = (max(low, float(x[far])), high) if int(y[far]) == 0 else (low, min(high, float(x[far])))
        picked += 1
    net = nn.Sequential(nn.Linear(1, 2)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        net[0].bias.copy_(torch.tensor([cut, -cut]))
    return Problem(world, case_of(world, net, data, delta, seed, epochs), picked=picked)


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "deceiver": deceiver,
    "separated": separated,
    "normalized": normalized,
    "memorizer": memorizer,
    "chosen few": chosen_few,
    "picker": picker,
    "clouds": clouds,
}
ALL = ("hold-out", "cells", "capacity", "disagreement", "PAC-Bayes", "compression")
COUNTS = {  # of each kind, for each problem asked for: every row meets as many problems as that
    "deceiver": 0.5,
    "separated": 0.5,
    "normalized": 2.0,
    "memorizer": 0.25,
    "chosen few": 1.0,
    "picker": 1.0,
    "clouds": 0.75,
}
FAMILIES = {  # what each kind of problem is asked: what it can break, at a price that allows many of them
    "deceiver": ALL,
    "separated": ALL,
    "normalized": ("cells",),
    "memorizer": ("cells", "capacity"),
    "chosen few": ("hold-out", "compression"),
    "picker": ("hold-out", "compression"),
    "clouds": ("cells", "disagreement"),
}
