"""Random small trainings, healthy or with one planted fault, for judging the monitor's alarms.

Everything is drawn from a seed. Seeds below 1000 draw from one set of widths, depths and data, seeds from 1000 on from
another: thresholds are tuned on the first and judged on the second (from 6000 on; see faults.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.lab.zoo import digits, vit
from normgauge.lab.zoo.parts import NormFactory
from normgauge.monitor.layers import find_layers, is_norm
from normgauge.monitor.signs.sign import Alarm

STEPS = 150
NORMS = ("batch", "layer", "group", "rms")
FRESH = 1000
"""Seeds from here on draw other widths, depths and data."""


class Stack(nn.Module):
    """``layers.k.{map,norm,act,drop}`` on vectors or images (the first layer halves them), ``head``."""

    def __init__(self, widths: list[int], norm: str, image: bool, dropout: float, classes: int) -> None:
        super().__init__()
        make = NormFactory(norm, "image" if image else "vector", groups=4)
        self.image, self.layers = image, nn.Sequential()
        for k, (a, b) in enumerate(pairwise(widths)):
            layer = nn.Sequential()
            layer.add_module("map", nn.Conv2d(a, b, 3, 1 if k else 2, padding=1) if image else nn.Linear(a, b))
            layer.add_module("norm", make(b))
            layer.add_module("act", nn.ReLU())
            if dropout:
                layer.add_module("drop", nn.Dropout(dropout))
            self.layers.add_module(str(k), layer)
        self.head = nn.Linear(widths[-1] * (16 if image else 1), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x.view(-1, 1, 8, 8) if self.image else x).flatten(1))


class Tokens(nn.Module):
    """The zoo's vision transformer on the 8x8 images."""

    def __init__(self, width: int, depth: int, norm: str, place: str, classes: int) -> None:
        super().__init__()
        self.net = vit(8, 2, 1, width, depth, 4, classes, norm, place)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.view(-1, 1, 8, 8))


@dataclass
class Training:
    """One training that can be run; a fault changes it beforehand or at ``at``.

    Attributes:
        sort: family/normalizer/optimizer/data, for tables.
        model: the network.
        inputs: (N, 64).
        labels: (N,).
        optimizer: steps the model.
        batch: samples of a step.
        factor: of the learning rate, by step.
        half: whether the forward pass runs under float16 autocast.
        kind: the fault, "" for none.
        at: step of the fault; 1 where it is there from the start.
        layers: names that are right.
        alarms: kinds of alarm that are right.
        disturb: called before each step with (training, step, inputs, labels).
        loss_scale: the loss is multiplied by this before the backward pass and gradients divided after it.
    """

    sort: str
    model: nn.Module
    inputs: Tensor
    labels: Tensor
    optimizer: torch.optim.Optimizer
    batch: int
    factor: Callable[[int], float]
    draw: random.Random
    half: bool = False
    kind: str = ""
    at: int = 1
    layers: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    disturb: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] = field(default=lambda step, x, y: (x, y))
    loss_scale: Callable[[int], float] = field(default=lambda step: 1.0)

    def run(self, steps: int, monitor: Any, seed: int) -> list[float]:
        """Train; the loss of each step."""
        generator = torch.Generator().manual_seed(seed)
        base = [group["lr"] for group in self.optimizer.param_groups]
        losses = []
        for step in range(1, steps + 1):
            chosen = torch.randint(len(self.inputs), (self.batch,), generator=generator)
            x, y = self.disturb(step, self.inputs[chosen], self.labels[chosen])
            for group, rate in zip(self.optimizer.param_groups, base, strict=True):
                group["lr"] = rate * self.factor(step)
            loss = self._step(step, x, y)
            losses.append(float(loss.detach()))
            if monitor is not None:
                monitor.step(loss=loss)
        for group, rate in zip(self.optimizer.param_groups, base, strict=True):
            group["lr"] = rate
        return losses

    def right(self, alarms: Iterable[Alarm]) -> list[Alarm]:
        """The alarms that name the fault: by its cause, or by its layer."""
        late = [alarm for alarm in alarms if alarm.step >= self.at]
        return [a for a in late if a.alarm in self.alarms or (a.layer and a.layer in self.layers)]

    def _step(self, step: int, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        scale = self.loss_scale(step)
        with torch.autocast("cpu", torch.float16, enabled=self.half):
            loss = nn.functional.cross_entropy(self.model(x).float(), y)
        (loss * scale).backward()
        if scale != 1.0:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= scale
        self.optimizer.step()
        return loss


@cache
def _digits() -> tuple[Tensor, Tensor]:
    split = digits("train")
    return split.inputs, split.labels


def _clusters(draw: random.Random, classes: int, each: int) -> tuple[Tensor, Tensor]:
    """Gaussian clouds in 64 dimensions, ``each`` of them a class."""
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    centres = torch.randn(classes * each, 64, generator=generator) * draw.uniform(0.25, 0.5)
    which = torch.randint(classes * each, (1500,), generator=generator)
    inputs = centres[which] + torch.randn(1500, 64, generator=generator)
    return inputs * 10 ** draw.uniform(-0.7, 0.5), which % classes


def data(draw: random.Random, fresh: bool) -> tuple[str, Tensor, Tensor, int]:
    """Name, inputs, labels, number of classes."""
    if draw.random() < 0.5:
        inputs, labels = _digits()
        if draw.random() < 0.5:
            inputs = (inputs - inputs.mean()) / inputs.std()
        return "digits", inputs, labels, 10
    classes = draw.choice((5, 8, 12) if fresh else (4, 10))
    inputs, labels = _clusters(draw, classes, 2 if fresh else 1)
    return "clusters", inputs, labels, classes


def network(
    draw: random.Random, fresh: bool, classes: int, norms: tuple[str, ...], deep: bool
) -> tuple[str, nn.Module]:
    """A random network and its family/normalizer."""
    family = draw.choice(("mlp", "mlp", "mlp", "conv", "conv", "transformer"))
    norm = draw.choice(norms)
    if family == "transformer" and norm not in ("layer", "rms"):
        family = draw.choice(("mlp", "conv"))
    depths = (3, 5) if fresh else (2, 4)
    depth = max(draw.choice(depths), 3 if deep else 1)
    if family == "transformer":
        depth = 3 if deep else 2
        place = draw.choice(("pre", "pre", "post"))
        return f"transformer {place}/{norm}", Tokens(24 if fresh else 16, depth, norm, place, classes)
    dropout = draw.choice((0.0, 0.0, 0.1, 0.3))
    if family == "conv":
        width = draw.choice((12, 20) if fresh else (8, 16))
        return f"conv/{norm}", Stack([1, *[width] * min(depth, 4)], norm, True, dropout, classes)
    width = draw.choice((20, 40, 80) if fresh else (16, 32, 64))
    return f"mlp/{norm}", Stack([64, *[width] * depth], norm, False, dropout, classes)


def optimizer_of(draw: random.Random, model: nn.Module) -> tuple[str, torch.optim.Optimizer]:
    """SGD, Adam or AdamW at a learning rate that works."""
    tokens = isinstance(model, Tokens)  # plain SGD hardly trains them
    kind = draw.choice(("adam", "adamw") if tokens else ("sgd", "sgd", "adam", "adamw"))
    if kind == "sgd":
        momentum = draw.choice((0.0, 0.9))
        rate = 10 ** draw.uniform(-1.3, -0.7) * (0.2 if momentum else 1.0)
        return "sgd", torch.optim.SGD(model.parameters(), rate, momentum, weight_decay=draw.choice((0.0, 5e-4)))
    rate = 10 ** draw.uniform(-3.0, -2.3)
    if kind == "adam":
        return "adam", torch.optim.Adam(model.parameters(), rate)
    return "adamw", torch.optim.AdamW(model.parameters(), rate, weight_decay=draw.choice((0.01, 0.1)))


def flat(step: int) -> float:
    """A constant learning rate."""
    del step
    return 1.0


def plain(seed: int, norms: tuple[str, ...] = NORMS, deep: bool = False) -> Training:
    """A training without a fault and with a constant learning rate."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    fresh = seed >= FRESH
    source, inputs, labels, classes = data(draw, fresh)
    family, model = network(draw, fresh, classes, norms, deep)
    name, optimizer = optimizer_of(draw, model)
    batch = draw.choice((24, 48, 96) if fresh else (16, 32, 64))
    return Training(f"{family}/{name}/{source}", model, inputs, labels, optimizer, batch, flat, draw)


def healthy(seed: int) -> Training:
    """A training that goes well: plain, hot, warmed up, decaying, fine-tuned, in half precision."""
    training = plain(seed)
    draw = random.Random(seed + 7)
    style = draw.choice(("plain", "plain", "hot", "warm-up", "cosine", "drop", "fine-tune", "frozen norms", "half"))
    if style == "hot":
        for group in training.optimizer.param_groups:
            group["lr"] *= 3
    elif style == "warm-up":
        training.factor = lambda step: min(1.0, step / 40)
    elif style == "cosine":
        training.factor = lambda step: 0.5 * (1 + math.cos(math.pi * step / (STEPS + 1)))
    elif style == "drop":
        training.factor = lambda step: 0.1 if step > STEPS // 2 else 1.0
    elif style == "half":
        training.half = True
    elif style in ("fine-tune", "frozen norms"):
        training.run(120, None, seed + 1)
        training.factor = lambda step: 0.3
        if style == "frozen norms":
            _eval_norms(training.model)
    training.sort += f"/{style}"
    return training


def _eval_norms(model: nn.Module) -> list[nn.Module]:
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.eval()
    return norms


def _norms(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if is_norm(module)}


def _maps(model: nn.Module) -> list[str]:
    return [layer.name for layer in find_layers(model) if layer.role in ("matrix", "conv")]


def _beside(model: nn.Module, name: str) -> tuple[str, ...]:
    """A layer or normalizer, and the one it makes a pair with in a stack."""
    if not isinstance(model, Stack) or name == "head":
        return (name,)
    prefix = ".".join(name.split(".")[:2])
    return tuple(n for n in (*_maps(model), *_norms(model)) if n.startswith(f"{prefix}."))


def _mid(draw: random.Random) -> int:
    return draw.randint(60, 90)


def learning_rate(seed: int) -> Training:
    t = plain(seed)
    t.at = t.draw.choice((1, _mid(t.draw)))
    t.factor, t.alarms = (lambda step: 100.0 if step >= t.at else 1.0), ("learning_rate",)
    return t


def _scaled(seed: int, by: float) -> Training:
    t = plain(seed)
    name = t.draw.choice(_maps(t.model))
    with torch.no_grad():
        for parameter in t.model.get_submodule(name).parameters(recurse=False):
            parameter.mul_(by)
    t.layers = _beside(t.model, name)
    return t


def init_large(seed: int) -> Training:
    return _scaled(seed, 1e3)


def init_small(seed: int) -> Training:
    return _scaled(seed, 1e-4)


def gamma_zeroed(seed: int) -> Training:
    t = plain(seed)
    name, norm = t.draw.choice(list(_norms(t.model).items()))
    t.at, t.layers = _mid(t.draw), _beside(t.model, name)

    def disturb(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step == t.at:
            with torch.no_grad():
                norm.weight.zero_()
        return x, y

    t.disturb = disturb
    return t


def epsilon(seed: int) -> Training:
    t = plain(seed)
    name, norm = t.draw.choice(list(_norms(t.model).items()))
    t.at, t.layers = t.draw.choice((1, _mid(t.draw))), _beside(t.model, name)
    size = 10 ** t.draw.uniform(2, 4)

    def disturb(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step == t.at:
            norm.eps = size
        return x, y

    t.disturb = disturb
    return t


def label_noise(seed: int) -> Training:
    t = plain(seed)
    t.at, length = t.draw.randint(90, 110), t.draw.randint(15, 40)
    t.alarms = ("label_noise",)
    classes = int(t.labels.max()) + 1
    generator = torch.Generator().manual_seed(seed)

    def disturb(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        noisy = t.at <= step < t.at + length
        return x, torch.randint(classes, y.shape, generator=generator) if noisy else y

    t.disturb = disturb
    return t


def nan_batch(seed: int) -> Training:
    t = plain(seed)
    t.at, t.alarms = _mid(t.draw), ("nan_input",)

    def disturb(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step == t.at:
            x = x.clone()
            x[0, t.draw.randrange(64)] = math.nan
        return x, y

    t.disturb = disturb
    return t


def momentum(seed: int) -> Training:
    t = plain(seed)
    t.alarms = ("momentum",)
    for group in t.optimizer.param_groups:
        if "betas" in group:
            group["betas"] = (0.999, 0.999)
        else:
            group["momentum"] = 0.999
    return t


def normalizer_removed(seed: int) -> Training:
    t = plain(seed, deep=True)
    first = "layers.0." if isinstance(t.model, Stack) else "-"  # the first layer of a network may be meant so
    numbered = [n for n in _norms(t.model) if any(part.isdigit() for part in n.split("."))]
    name = t.draw.choice([n for n in numbered if not n.startswith(first)])
    parent, _, leaf = name.rpartition(".")
    block = name[: name.index(".norm")]  # the RMS norm of an image has one more inside
    t.layers = tuple(other for other in _maps(t.model) if other.startswith(f"{block}."))
    setattr(t.model.get_submodule(parent), leaf, nn.Identity())
    return t


def gamma_decay(seed: int) -> Training:
    t = plain(seed)
    gains = [norm.weight for norm in _norms(t.model).values()]
    others = [p for p in t.model.parameters() if not any(p is g for g in gains)]
    rate = 10 ** t.draw.uniform(-3.0, -2.3)
    decay = t.draw.uniform(0.01, 0.04) / rate  # each step takes one to four per cent of γ
    t.optimizer = torch.optim.AdamW(
        [{"params": others, "weight_decay": 0.01}, {"params": gains, "weight_decay": decay}], rate
    )
    t.alarms = ("gamma_decay",)
    return t


def stale_statistics(seed: int) -> Training:
    """Statistics that never move, or that belong to other data while the normalizers use them."""
    t = plain(seed, ("batch",))
    t.alarms = ("stale_statistics",)
    norms: Any = list(_norms(t.model).values())
    if t.draw.random() < 0.4:
        for norm in norms:
            norm.momentum = 0.0
        return t
    t.at, wrong = _mid(t.draw), t.draw.choice((0.02, 50.0))

    def disturb(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step == t.at:
            _eval_norms(t.model)
            for norm in norms:
                norm.running_var.mul_(wrong)
        return x, y

    t.disturb = disturb
    return t


def half_overflow(seed: int) -> Training:
    """Activations that leave the range of float16, slowly or at once, or a loss scaled out of it."""
    t = plain(seed)
    t.half, t.at, t.alarms = True, _mid(t.draw), ("half_overflow",)
    way = t.draw.choice(("slow", "at once", "loss"))
    if way == "loss":
        t.loss_scale = lambda step: 2.0**40 if step >= t.at else 2.0**8
        return t
    name = t.draw.choice(_maps(t.model))
    layer, factor = t.model.get_submodule(name), 1.3 if way == "slow" else 1e7
    t.layers = _beside(t.model, name)

    def disturb(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step >= t.at and (way == "slow" or step == t.at):
            with torch.no_grad():
                for parameter in layer.parameters(recurse=False):
                    parameter.mul_(factor)
        return x, y

    t.disturb = disturb
    return t


def data_scale(seed: int) -> Training:
    t = plain(seed)
    t.at, t.alarms = t.draw.choice((1, _mid(t.draw))), ("data_scale",)
    t.disturb = lambda step, x, y: (x * 255.0 if step >= t.at else x, y)
    return t


FAULTS: dict[str, Callable[[int], Training]] = {
    "learning rate x100": learning_rate,
    "init x1e3": init_large,
    "init x1e-4": init_small,
    "gamma zeroed": gamma_zeroed,
    "epsilon huge": epsilon,
    "label noise": label_noise,
    "NaN batch": nan_batch,
    "momentum 0.999": momentum,
    "normalizer removed": normalizer_removed,
    "decay on gamma": gamma_decay,
    "stale statistics": stale_statistics,
    "fp16 overflow": half_overflow,
    "data x255": data_scale,
}


def planted(kind: str, seed: int) -> Training:
    """A training with one kind of fault."""
    training = FAULTS[kind](seed)
    training.kind = kind
    return training
