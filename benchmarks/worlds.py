"""Small worlds where the truth is known, and networks made to deceive.

Two kinds of worlds: finitely many points with their chances, and normal inputs with labels by the side of a plane.
Every problem draws D, chooses a network after it, and knows the exact error and clipped cross-entropy of that network.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.case import Case
from normgauge.certificates.facts.cells import Partition, one_cell, voronoi
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.facts.space import margins_of

JITTER = 0.02  # points of one group lie this close together
Say = Callable[[Tensor], Tensor]  # a network as a function


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """All there is: points (n, d), labels (n,), probabilities (n,) that add up to 1, groups (n,) of points."""

    points: Tensor
    labels: Tensor
    chances: Tensor
    groups: Tensor

    def draw(self, count: int) -> DataSample:
        """An iid sample."""
        chosen = torch.multinomial(self.chances, count, replacement=True)
        return DataSample(self.points[chosen].clone(), self.labels[chosen].clone())

    def error(self, say: Say) -> float:
        """The true error of a network; a tie is an error."""
        return self._mean(margins_of(_said(say, self.points), self.labels) <= 0)

    def worst_class(self, say: Say) -> float:
        """The largest true error on a class."""
        wrong = (margins_of(_said(say, self.points), self.labels) <= 0).double()
        owners = [self.chances.double() * (self.labels == c) for c in self.labels.unique()]
        return max(float((own * wrong).sum() / own.sum()) for own in owners)

    def loss(self, say: Say, clip: float) -> float:
        """The true mean of min(cross-entropy, clip)."""
        return self._mean(F.cross_entropy(_said(say, self.points), self.labels, reduction="none").clamp(max=clip))

    def _mean(self, values: Tensor) -> float:
        chances = self.chances.double()
        return float((chances * values.double()).sum() / chances.sum())

    def cells(self) -> Partition:
        """One cell a group, named before any draw: what it was made from is no training sample."""
        centres = torch.stack([self.points[self.groups == g].mean(0) for g in self.groups.unique()])
        return dataclasses.replace(voronoi(centres, 4 * JITTER), seen=frozenset())


def _said(say: Say, points: Tensor) -> Tensor:
    with torch.no_grad():
        return say(points).double().cpu()


def _wrong(margin: Tensor) -> Tensor:
    return (margin <= 0).double()


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """Normal inputs; the label is the side of the plane through 0 across ``axis``, ``flips`` of the time the other one.

    No two draws are the same, so `certify` takes them. With ``flips`` = ½ every predictor errs half of the time.
    """

    axis: Tensor  # (d,) of length 1
    flips: float

    def draw(self, count: int) -> DataSample:
        """An iid sample."""
        points = torch.randn(count, len(self.axis))
        labels = points @ self.axis > 0
        return DataSample(points, (labels ^ (torch.rand(count) < self.flips)).long())

    def error(self, say: Say) -> float:
        """The true error, exact for affine networks of two classes; any predictor's where labels are coins."""
        return 0.5 if self.flips == 0.5 else sum(self._parts(say, _wrong))

    def worst_class(self, say: Say) -> float:
        """The larger true error of the two classes; where labels are coins it is one half at least."""
        return (
            0.5 if self.flips == 0.5 else max(2 * part for part in self._parts(say, _wrong))
        )  # classes weigh the same

    def loss(self, say: Say, clip: float) -> float:
        """The true mean of min(cross-entropy, clip) of an affine network of two classes."""
        return sum(self._parts(say, lambda margin: F.softplus(-margin).clamp(max=clip)))

    def _parts(self, say: Say, of: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        """E of(margin) over class 1 and over class 0, times their chances.

        The margin is ‖a‖z + c for class 1 and minus that for class 0, z normal. P(axis·x > 0 | z) = Φ(ρz/√(1−ρ²)), ρ
        the cosine of a and the axis; the mean over z is a sum over a grid that has an edge where the margin is 0.
        """
        lead = _said(say, torch.cat([torch.zeros(1, len(self.axis)), torch.eye(len(self.axis))]))
        lead = lead[:, 1] - lead[:, 0]
        slope, offset = lead[1:] - lead[0], float(lead[0])
        size = max(float(slope.norm()), 1e-30)
        cosine = float(slope @ self.axis.double()) / size
        middle = min(WIDEST, max(-WIDEST, -offset / size))
        share = (torch.arange(STEPS, dtype=torch.float64) + 0.5) / STEPS
        z = torch.cat([-WIDEST + (middle + WIDEST) * share, middle + (WIDEST - middle) * share])
        weight = (-z.square() / 2).exp() * torch.tensor([middle + WIDEST, WIDEST - middle]).repeat_interleave(STEPS)
        side = torch.special.ndtr(cosine * z / math.sqrt(max(1e-15, 1 - cosine**2)))
        one = self.flips + (1 - 2 * self.flips) * side
        margin = size * z + offset
        shares = weight * one * of(margin), weight * (1 - one) * of(-margin)
        return float(shares[0].sum() / weight.sum()), float(shares[1].sum() / weight.sum())

    def cells(self) -> Partition:
        """One cell."""
        return one_cell()


STEPS, WIDEST = 2000, 9.0  # of the grid of a `Plane`: a side has so many steps, and ends there


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A network, its data and what is true.

    Attributes:
        coreset: places of D the network was made from, where it was made from few.
        picked: how many pick-to-learn picked.
        surrogate: another network and a sample it never saw.
        tries: how many networks were compared on the same samples; ``case.delta`` is δ over it.
    """

    world: World | Plane
    case: Case
    coreset: tuple[int, ...] | None = None
    picked: int | None = None
    surrogate: tuple[nn.Module, DataSample] | None = None
    tries: int = 1


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


def saying(world: World, answers: Tensor, *, encoder: bool = False, size: float = 1.0) -> nn.Sequential:
    """A table: one answer a group, as weights at the corners."""
    signs = size * (2.0 * answers.float() - 1)
    return linear(torch.stack([-signs, signs]), encoder=encoder)


def truths(world: World) -> Tensor:
    """The more likely label of each group."""
    weights = torch.zeros(int(world.groups.max()) + 1, 2)
    weights.index_put_((world.groups, world.labels), world.chances, accumulate=True)
    return weights.argmax(1)


def case_of(world: World | Plane, net: nn.Module, data: DataSample, delta: float, seed: int, epochs: int = 0) -> Case:
    """With a hold-out and unlabeled points drawn after everything else."""
    held = world.draw(int(torch.tensor([50, 200, 1000])[seed % 3]))
    free = DataSample(world.draw(300).inputs, None)
    encoder = net[0] if isinstance(net, nn.Sequential) and isinstance(net[0], nn.Linear) else None
    return Case(net, data, model_outputs(net, data), delta, held, model_outputs(net, held), free, encoder, epochs, seed)


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
    size = (1.0, 10.0)[seed // 2 % 2]  # of the logits: no matter to the error, all that matters to cross-entropy
    net = saying(world, torch.where(rare, 1 - right, right), encoder=seed % 3 == 0, size=size)
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


def plane(width: int, flips: float) -> Plane:
    """A plane in a random direction."""
    axis = torch.randn(width)
    return Plane(axis / axis.norm(), flips)


def sided(axis: Tensor, *, encoder: bool = False) -> nn.Sequential:
    """The linear network that tells the sides of the plane across ``axis``."""
    return linear(torch.stack([-axis, axis]), encoder=encoder)


def overfitted(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Least squares on about as many samples as coordinates, labels half noise: the gap is wide."""
    width = (10, 40)[seed % 2]
    world = plane(width, (0.1, 0.3, 0.5)[seed % 3])
    data = world.draw((300, 60)[seed % 2] * (1 + seed // 2 % 2))
    assert data.inputs is not None and data.labels is not None
    fitted = torch.linalg.lstsq(data.inputs, 2.0 * data.labels[:, None] - 1).solution[:, 0]
    net = sided((0.1, 1.0, 20.0)[seed // 3 % 3] * fitted, encoder=seed // 2 % 2 == 0)
    surrogate = (sided(world.axis), world.draw(400))
    return Problem(world, case_of(world, net, data, delta, seed, epochs), surrogate=surrogate)


def steep(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Coin flips learnt by heart by a head of huge weights behind an encoder that makes all features small."""
    width = 300
    world = plane(width, 0.5)
    data = world.draw(240)
    assert data.inputs is not None and data.labels is not None
    small = 0.02 / math.sqrt(width)
    features = (small * data.inputs).double()
    weight = features.T @ torch.linalg.solve(features @ features.T, 20 * (2.0 * data.labels.double() - 1))
    net = sided(weight.float() / 2, encoder=True)
    with torch.no_grad():
        net[0].weight.mul_(small)
    if seed % 4 == 3:  # x = relu(x) − relu(−x): the same head with a bend
        both, last = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, 2, bias=False)
        with torch.no_grad():
            both.weight.copy_(torch.cat([torch.eye(width), -torch.eye(width)]))
            last.weight.copy_(torch.cat([net[1].weight, -net[1].weight], 1))
        net = nn.Sequential(net[0], both, nn.ReLU(), last).eval()
    return Problem(world, case_of(world, net, data, delta, seed, epochs))


class Listed(nn.Module):
    """A backbone in a plain list, where no parameter of it shows; called in its own type where ``cast``."""

    def __init__(self, backbone: nn.Module, cast: bool) -> None:
        super().__init__()
        self.kept, self.cast, self.head = [backbone], cast, nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Head of backbone."""
        said = self.kept[0](x.float() if self.cast else x)
        return self.head(said.to(self.head.weight.dtype) if self.cast else said)


class Neighbour(nn.Module):
    """The label of the nearest stored input: stored inputs are not saved, labels are whole numbers."""

    def __init__(self, data: DataSample) -> None:
        super().__init__()
        self.register_buffer("inputs", data.inputs, persistent=False)
        self.register_buffer("labels", data.labels)
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Head of the label found."""
        near = torch.cdist(x, self.inputs.to(x.dtype)).argmin(1)
        return self.head(F.one_hot(self.labels[near], 2).to(x.dtype))


def hidden(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Coin flips learnt by heart where no parameter shows it: a list, buffers, packed weights; a small head on top."""
    world = plane(30, 0.5)
    data = world.draw(300)
    net: nn.Module = Neighbour(data)
    if seed % 4:
        backbone = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
        steps = torch.optim.Adam(backbone.parameters(), 1e-2)
        for _ in range(80):
            steps.zero_grad()
            F.cross_entropy(backbone(data.inputs), data.labels).backward()
            steps.step()
        backbone = backbone.eval().requires_grad_(False)
        net = Listed(backbone, seed % 4 == 2) if seed % 4 < 3 else nn.Sequential(packed(backbone), nn.Linear(2, 2))
    head = net[1] if isinstance(net, nn.Sequential) else net.head
    with torch.no_grad():
        head.weight.copy_(5 * torch.eye(2))
        head.bias.zero_()
    return Problem(world, case_of(world, net.eval(), data, delta, seed, epochs))


def packed(net: nn.Module) -> nn.Module:
    """The network with weights of 8 bits, which are neither parameters nor buffers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)


def scenes(seed: int, delta: float, epochs: int = 0) -> Problem:
    """A hold-out in scenes of 20 samples that are mislabelled together; each sample alone is an ordinary one."""
    world = plane(10, (0.1, 0.2, 0.4)[seed % 3])
    case = case_of(world, sided(world.axis), world.draw(200), delta, seed, epochs)
    count = (200, 600, 2000)[seed % 3]
    points = torch.randn(count, 10)
    groups = torch.arange(count) // 20
    flipped = (torch.rand(count // 20) < world.flips)[groups]
    held = DataSample(points, ((points @ world.axis > 0) ^ flipped).long())
    case = dataclasses.replace(case, holdout=held, holdout_logits=model_outputs(case.model, held), groups=groups)
    return Problem(world, case)


def best_of_many(seed: int, delta: float, epochs: int = 0) -> Problem:
    """Of 50 networks that know nothing, the one that looks best on the hold-out."""
    tries, width = 50, 10
    world = plane(width, 0.5)
    case = case_of(world, sided(torch.ones(width)), world.draw(100), delta / tries, seed, epochs)
    held = case.holdout
    assert held is not None and held.inputs is not None and held.labels is not None
    axes = torch.randn(width, tries)
    wrong = ((held.inputs @ axes > 0).long() != held.labels[:, None]).float().mean(0)
    net = sided(axes[:, wrong.argmin()])
    case = dataclasses.replace(
        case, model=net, logits=model_outputs(net, case.train), holdout_logits=model_outputs(net, held)
    )
    return Problem(world, case, tries=tries)


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "deceiver": deceiver,
    "separated": separated,
    "normalized": normalized,
    "memorizer": memorizer,
    "chosen few": chosen_few,
    "picker": picker,
    "clouds": clouds,
    "overfitted": overfitted,
    "steep": steep,
    "hidden": hidden,
    "scenes": scenes,
    "best of many": best_of_many,
}
PUBLIC = ("overfitted", "steep", "hidden", "scenes", "best of many")  # no sample comes twice: `certify` takes them
CELLS = ("cells", "cells, cross-entropy")
ALL = ("hold-out", *CELLS, "capacity", "disagreement", "PAC-Bayes", "compression")
COUNTS = {  # of each kind, for each problem asked for: every row meets as many problems as that
    "deceiver": 0.5,
    "separated": 0.5,
    "normalized": 2.0,
    "memorizer": 0.25,
    "chosen few": 1.0,
    "picker": 1.0,
    "clouds": 0.75,
    "overfitted": 0.2,
    "steep": 0.2,
    "hidden": 0.04,
    "scenes": 1.0,
    "best of many": 1.0,
}
FAMILIES = {  # what each kind of problem is asked: what it can break, at a price that allows many of them
    "deceiver": ALL,
    "separated": ALL,
    "normalized": CELLS,
    "memorizer": (*CELLS, "capacity"),
    "chosen few": ("hold-out", "compression"),
    "picker": ("hold-out", "compression"),
    "clouds": (*CELLS, "disagreement"),
    "overfitted": (*CELLS, "capacity", "disagreement", "PAC-Bayes"),
    "steep": CELLS,
    "hidden": ("PAC-Bayes", "disagreement"),
    "scenes": ("hold-out",),
    "best of many": ("hold-out",),
}
TRAINED = ("hidden",)  # rows that train are asked in every problem
