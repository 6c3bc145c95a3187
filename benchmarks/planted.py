"""Random small networks, healthy or with one planted problem, for judging `normgauge.advise`.

A case is a model, a batch, and what was planted: the kind of problem and the layers that may be named for it. All is
drawn from a seed. The thresholds of the advice were tuned on seeds below 1000; reports use seeds from 1000 on.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from normgauge.lab.training import train
from normgauge.lab.zoo import digits, mlp, vit
from normgauge.lab.zoo.parts import NormFactory

NORMS = ("batch", "layer", "group", "rms")
SAMPLES = 32


@dataclass
class Case:
    """A network and what is wrong with it; no kind where nothing is."""

    family: str
    model: nn.Module
    batch: Tensor
    kind: str = ""
    layers: tuple[str, ...] = ()


class ConvNet(nn.Module):
    """Convolutions ``layers.k.{conv,norm,act}``, a mean over pixels, a head."""

    def __init__(self, channels: int, depth: int, norm: str | None) -> None:
        super().__init__()
        make, widths = NormFactory(norm, "image", groups=4), [1, *[channels] * depth]
        self.layers = nn.Sequential()
        for i, (a, b) in enumerate(pairwise(widths)):
            layer = nn.Sequential()
            layer.add_module("conv", nn.Conv2d(a, b, 3, padding=1))
            if norm is not None:
                layer.add_module("norm", make(b))
            layer.add_module("act", nn.ReLU())
            self.layers.add_module(str(i), layer)
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


class ResBlock(nn.Module):
    """x + norm(conv(relu(norm(conv(x)))))."""

    def __init__(self, channels: int, norm: str | None) -> None:
        super().__init__()
        make = NormFactory(norm, "image", groups=4)
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1), make(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1), make(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))))


class ResNet(nn.Module):
    """``stem``, ``blocks``, a mean over pixels, ``head``."""

    def __init__(self, channels: int, depth: int, norm: str | None) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, channels, 3, padding=1), NormFactory(norm, "image", groups=4)(channels)
        self.blocks = nn.Sequential(*(ResBlock(channels, norm) for _ in range(depth)))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(torch.relu(self.norm(self.stem(x)))).mean((2, 3)))


def he(model: nn.Module, gain: float = 1.0, bias: float = 0.0) -> nn.Module:
    """He-normal weights times ``gain``; small random biases."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            with torch.no_grad():
                module.weight.mul_(gain)
                if module.bias is not None:
                    module.bias.normal_(std=bias) if bias else module.bias.zero_()
    return model


def calibrated(model: nn.Module, data: Tensor) -> nn.Module:
    """BatchNorm statistics set to those of the data; eval mode."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average
    model.train()
    with torch.no_grad():
        for part in torch.split(data, 128):
            model(part)
    for norm in norms:
        norm.momentum = 0.1
    return model.eval()


def images(seed: int, count: int = SAMPLES) -> tuple[Tensor, Tensor]:
    """A batch of digits and 512 others to calibrate with, 1 × 8 × 8."""
    data = digits("train").shaped(1, 8, 8).inputs
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    return data[order[:count]], data[order[count : count + 512]]


def healthy(seed: int, families: tuple[str, ...] = ("mlp", "conv", "res", "vit"), norms=NORMS) -> Case:
    """A network with sensible random weights whose statistics fit."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    family, norm = draw.choice(families), draw.choice(norms)
    batch, others = images(seed)
    if family == "mlp":
        width, depth = draw.choice((16, 32, 64)), draw.randint(2, 8 if norm else 4)
        model = mlp((64, *[width] * depth, 10), norm=norm, groups=4)
    elif family == "vit":
        norm = norm if norm in ("layer", "rms") else draw.choice(("layer", "rms"))
        model = vit(8, 2, 1, draw.choice((16, 32)), draw.randint(1, 4), 4, 10, norm, draw.choice(("pre", "post")))
    else:
        net = ConvNet if family == "conv" else ResNet
        model = net(draw.choice((8, 16)), draw.randint(2, 5 if norm else 3), norm)
    if family != "vit" and (norm is None or draw.random() < 0.5):
        he(model)
    return Case(f"{family}/{norm}", calibrated(model, others), batch)


def norm_names(model: nn.Module, kinds: tuple[type, ...] = ()) -> list[str]:
    kinds = kinds or (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]


def plain_stack(seed: int) -> tuple[Case, list[str]]:
    """A network with a long stretch of layers without a normalizer; the names of these layers."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    batch, _ = images(seed)
    form, depth = draw.choice(("mlp", "mlp", "conv", "mixed")), draw.randint(12, 26)
    if form == "conv":
        model: nn.Module = ConvNet(draw.choice((8, 16)), min(depth, 14), None)
    else:
        width = draw.choice((16, 32, 64))
        model = mlp((64, *[width] * depth, 10))
        if form == "mixed":  # a few normalized layers come first
            for k in range(draw.randint(1, 3)):
                model.layers[k] = mlp((64 if k == 0 else width, width, 10), norm="layer").layers[0]
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d) and n != "head"]
    return Case(f"{form}/None", model.eval(), batch), names


def explodes(seed: int) -> Case:
    case, names = plain_stack(seed)
    depth = len(names)
    he(case.model, 10 ** (random.Random(seed + 1).uniform(4.5, 8) / depth))
    case.kind, case.layers = "explodes", tuple(names)
    return case


def vanishes(seed: int) -> Case:
    case, names = plain_stack(seed)
    if "conv" in case.family or random.Random(seed + 1).random() < 0.5:
        he(case.model, 10 ** (-random.Random(seed + 2).uniform(4.5, 8) / len(names)), bias=0.1)
    case.kind, case.layers = "vanishes", tuple(names)  # else torch's own weights, which lose 0.4 decades a layer
    return case


def tiny_sigma(seed: int) -> Case:
    """A BatchNorm channel that sees only the difference of two nearly equal units, or a blank sample."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        case = healthy(seed, ("mlp", "conv", "vit"), ("layer", "rms", "group"))
        first = norm_names(case.model)[0]
        for module in case.model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if "vit" in case.family:
            nn.init.zeros_(case.model.place)
        index = draw.randrange(SAMPLES)
        case.batch = case.batch.clone()
        case.batch[index] *= 1e-4
        case.kind, case.layers = "tiny sigma", (first,)
        return case
    case = healthy(seed, ("mlp",), ("batch",))
    k = draw.randrange(1, len(case.model.layers))
    before, layer = case.model.layers[k - 1], case.model.layers[k]
    with torch.no_grad():
        a, b = 0, 1
        for tensor in (before.linear.weight, before.linear.bias, before.norm.weight, before.norm.bias):
            tensor[b] = tensor[a] * (1 + 1e-4 * torch.randn(()))
        before.linear.weight[b] += 1e-4 * before.linear.weight[2]
        before.norm.bias[a] = before.norm.bias[b] = 1.0
        row, c = layer.linear.weight, draw.randrange(len(layer.linear.weight))
        size = row[c].norm()
        row[c] = 0
        row[c, a], row[c, b] = size / 2**0.5, -size / 2**0.5
        layer.norm.eps = 1e-12
    calibrated(case.model, images(seed)[1])
    case.kind, case.layers = "tiny sigma", (f"layers.{k}.norm",)
    return case


def epsilon(seed: int) -> Case:
    """The layer in front of a normalizer is scaled down until σ² lies below ε."""
    draw = random.Random(seed)
    case = healthy(seed, ("mlp", "conv", "res"))
    made = feeding(case.model)
    weight, norm = draw.choice(sorted(made.items()))
    with torch.no_grad():
        for tensor in case.model.get_submodule(weight).parameters():
            tensor.mul_(10 ** -draw.uniform(3.5, 5))
    module = case.model.get_submodule(norm)
    if isinstance(module, nn.RMSNorm):
        module.eps = 1e-5
    calibrated(case.model, images(seed)[1])
    case.kind, case.layers = "epsilon decides", (norm,)
    return case


def feeding(model: nn.Module) -> dict[str, str]:
    """Each layer with the normalizer right behind it."""
    found = {}
    names = dict(model.named_modules())
    for name in names:
        for end, behind in ((".linear", ".norm"), (".conv", ".norm"), (".conv1", ".norm1"), (".conv2", ".norm2")):
            if name.endswith(end):
                norm = name.removesuffix(end) + behind
                inner = f"{norm}.norm"
                if norm in names and not isinstance(names[norm], nn.Identity):
                    found[name] = inner if inner in names else norm
    return found


def stale(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed, ("mlp", "conv", "res"), ("batch",))
    name = draw.choice(norm_names(case.model))
    norm = case.model.get_submodule(name)
    with torch.no_grad():
        if draw.random() < 0.7:
            norm.running_var.mul_(10 ** (draw.choice((-1, 1)) * draw.uniform(1.5, 3)))
        else:
            norm.running_mean.add_(draw.uniform(6, 12) * norm.running_var.sqrt())
    case.kind, case.layers = "stale statistics", (name,)
    return case


def one_element(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed, ("mlp", "conv"), ("layer", "group"))
    if case.family.startswith("mlp"):
        k = draw.randrange(len(case.model.layers))
        width = case.model.layers[k].linear.out_features
        case.model.layers[k].norm = nn.GroupNorm(width, width)
        case.layers = (f"layers.{k}.norm",)
    else:
        case.model.layers.add_module("pool", nn.AdaptiveAvgPool2d(1))
        width = case.model.head.in_features
        case.model.layers.add_module("last", nn.GroupNorm(width, width, affine=draw.random() < 0.5))
        case.layers = ("layers.last",)
    case.kind = "one element"
    return case


def dead_normalizer(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed)
    name = draw.choice(norm_names(case.model))
    norm = case.model.get_submodule(name)
    with torch.no_grad():
        norm.weight.mul_(10 ** -draw.uniform(4, 8))
        keep = int(0.05 * norm.weight.numel())
        norm.weight[:keep] = 1.0
    case.kind, case.layers = "dead normalizer", (name,)
    return case


def outlier_weight(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed, ("mlp", "conv", "res", "vit"), (None,))
    if case.family.startswith("vit"):
        pool = [n for n in dict(case.model.named_modules()) if n.endswith((".attn.out", ".mlp.down", ".attn.value"))]
    else:
        pool = [n for n, m in case.model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    name = draw.choice(pool)
    with torch.no_grad():
        case.model.get_submodule(name).weight.mul_(10 ** draw.uniform(2.2, 3.5))
    case.kind, case.layers = "outlier weight", (name,)
    return case


def outlier_gain(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed)
    name = draw.choice(norm_names(case.model))
    gamma = case.model.get_submodule(name).weight
    with torch.no_grad():
        gamma[draw.randrange(gamma.numel())] *= draw.uniform(100, 1000)
    calibrated(case.model, images(seed)[1])
    case.kind, case.layers = "outlier gain", (name,)
    return case


def dead_activations(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed, ("mlp", "conv"), (None, "batch", "layer"))
    k = draw.randrange(len(case.model.layers))
    layer = case.model.layers[k]
    shifted = layer.norm if "norm" in layer._modules else layer[0]
    with torch.no_grad():
        shifted.bias.sub_(draw.uniform(20, 50))
    case.kind, case.layers = "dead activations", (f"layers.{k}.act",)
    return case


def diverged(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed, ("mlp", "conv", "res"), (None,))
    names = [n for n, m in case.model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    first, second = sorted(draw.sample(range(len(names)), 2))
    with torch.no_grad():
        for i in (first, second):
            case.model.get_submodule(names[i]).weight.mul_(1e22)
    case.kind, case.layers = "diverged", (names[second],)
    return case


class Bessel(nn.Module):
    """An operation without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


class Jump(nn.Module):
    """An operation without a finite slope."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.round(x)


def unknown_part(seed: int) -> Case:
    draw = random.Random(seed)
    case = healthy(seed, ("mlp", "conv"))
    k = draw.randrange(len(case.model.layers))
    jump = draw.random() < 0.5
    case.model.layers[k].act = Jump() if jump else Bessel()
    case.model.eval()
    case.kind = "unbounded part" if jump else "unknown part"
    case.layers = (f"layers.{k}.act.round" if jump else f"layers.{k}.act.special_bessel_j0",)
    return case


def trained(seed: int, epochs: int = 4) -> Case:
    """A network trained on digits for a few epochs."""
    draw = random.Random(seed)
    norm = draw.choice((None, *NORMS))
    case = healthy(seed, norms=(norm,))
    data = digits("train").shaped(1, 8, 8)
    train(case.model, data, epochs=epochs, batch_size=64, lr=2e-3, seed=seed)
    case.model.eval()
    case.family += " trained"
    return case


def rescaled(case: Case, seed: int) -> Case:
    """The same function written down otherwise: layers before normalizers, ReLU pairs, gains against the next layer."""
    draw = random.Random(seed)
    model = copy.deepcopy(case.model).double()
    with torch.no_grad():
        for weight, norm in feeding(model).items():
            _rescale_before(model.get_submodule(weight), model.get_submodule(norm), draw)
        if "layers" in model._modules:  # the stacks; the others have no such pairs
            for first, second in pairwise([*model.layers, model.head]):
                _rescale_across(first, second, draw)
    return Case(case.family + " rescaled", model, case.batch.double())


def _rescale_before(weight: nn.Module, norm: nn.Module, draw: random.Random) -> None:
    """(W, b) → t (W, b): a BatchNorm's statistics follow, other normalizers do not care (t large against ε)."""
    count = len(weight.weight)
    if isinstance(norm, nn.modules.batchnorm._BatchNorm):
        t = torch.tensor([10 ** draw.uniform(-1, 4) for _ in range(count)], dtype=torch.float64)
        variance = norm.running_var + norm.eps
        t = torch.maximum(t, 2 * (norm.eps / variance).sqrt())
        norm.running_mean.mul_(t)
        norm.running_var.copy_(t**2 * variance - norm.eps)
    else:
        t = torch.full((count,), 10 ** draw.uniform(0, 4), dtype=torch.float64)
    weight.weight.mul_(t.reshape(-1, *[1] * (weight.weight.ndim - 1)))
    weight.bias.mul_(t)


def _rescale_across(first: nn.Module, second: nn.Module, draw: random.Random) -> None:
    """Rows of one layer (or its normalizer's gain and shift) times t, columns of the next over t."""
    out = first.norm if "norm" in first._modules else first[0]
    inner = second[0] if isinstance(second, nn.Sequential) else second
    if isinstance(out, nn.Module) and "weight" in out._parameters and out.weight is not None:
        t = torch.tensor([10 ** draw.uniform(-2, 2) for _ in out.weight], dtype=torch.float64)
        out.weight.mul_(t.reshape(-1, *[1] * (out.weight.ndim - 1)))
        if "bias" in out._parameters and out.bias is not None:
            out.bias.mul_(t)
        inner.weight.div_(t.reshape(1, -1, *[1] * (inner.weight.ndim - 2)))


PLANTED: dict[str, Callable[[int], Case]] = {
    "explodes": explodes,
    "vanishes": vanishes,
    "tiny sigma": tiny_sigma,
    "epsilon decides": epsilon,
    "stale statistics": stale,
    "one element": one_element,
    "dead normalizer": dead_normalizer,
    "outlier weight": outlier_weight,
    "outlier gain": outlier_gain,
    "dead activations": dead_activations,
    "diverged": diverged,
    "unknown or unbounded part": unknown_part,
}
