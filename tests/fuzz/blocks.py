"""Single operations for random networks, by the number of axes of their input (batch included)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]
Maker = Callable[[Random, Shape], nn.Module | None]
MAKERS: dict[int, list[tuple[str, Maker]]] = {2: [], 3: [], 4: []}


class Fn(nn.Module):
    """A function under a name that says how to write it; tensors it needs are buffers."""

    def __init__(self, name: str, function: Callable[..., Tensor], **constants: Tensor) -> None:
        super().__init__()
        self.name, self.function = name, function
        self.constants = tuple(constants)  # so that the module counts as fixed once built and is looked at once
        for key, tensor in constants.items():
            self.register_buffer(key, tensor)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, **{key: getattr(self, key) for key in self.constants})

    def extra_repr(self) -> str:
        return self.name


def maker(*axes: int) -> Callable[[Maker], Maker]:
    def register(function: Maker) -> Maker:
        for n in axes:
            MAKERS[n].append((function.__name__, function))
        return function

    return register


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


MODULES = [
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.CELU, nn.Tanh, nn.ReLU6, nn.Hardtanh, nn.Softsign, nn.Softplus, nn.LogSigmoid,
    nn.Tanhshrink, nn.Softshrink, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.SELU, nn.Sigmoid, nn.Hardsigmoid,
    nn.PReLU, nn.RReLU, nn.Identity,
]  # fmt: skip
FUNCTIONS = [
    "relu", "leaky_relu", "elu", "celu", "tanh", "relu6", "hardtanh", "softsign", "softplus", "logsigmoid",
    "tanhshrink", "softshrink", "gelu", "silu", "mish", "hardswish", "selu", "sigmoid", "hardsigmoid", "rrelu",
]  # fmt: skip
METHODS = ["relu", "tanh", "sigmoid", "abs", "neg", "sin", "cos", "erf", "atan", "asinh"]


@maker(2, 3, 4)
def activation(rng: Random, shape: Shape) -> nn.Module:
    kind = rng.choice(["module", "options", "function", "method", "clamp"])
    if kind == "module":
        return rng.choice(MODULES)()
    if kind == "options":
        return rng.choice([
            nn.LeakyReLU(rng.choice([-1.5, 0.3, 2.0])), nn.ELU(rng.choice([0.5, 2.5])), nn.CELU(0.3), nn.GELU("tanh"),
            nn.PReLU(shape[1]), nn.Softplus(beta=3.0), nn.Hardtanh(-0.2, 3.0), nn.RReLU(0.5, 1.7), nn.Softshrink(0.2),
            nn.Threshold(0.3, 0.3),
        ])  # fmt: skip
    if kind == "function":
        name = rng.choice(FUNCTIONS)
        return Fn(f"F.{name}", getattr(F, name))
    if kind == "method":
        name = rng.choice(METHODS)
        return Fn(f"x.{name}()", lambda x: getattr(x, name)())
    low, high = sorted((rng.uniform(-2, 1), rng.uniform(-1, 2)))
    return Fn(f"clamp({low:.2f}, {high:.2f})", lambda x: x.clamp(low, high))


@maker(2, 3)
def linear(rng: Random, shape: Shape) -> nn.Module:
    n = shape[-1]
    out = rng.choice([n, rng.randint(1, 7)])
    layer = nn.Linear(n, out, bias=rng.random() < 0.7)
    kind = rng.choice(
        ["plain", "plain", "weight_norm", "old_weight_norm", "spectral_norm", "old_spectral_norm", "function"]
    )
    if kind == "weight_norm":
        return nn.utils.parametrizations.weight_norm(layer, dim=rng.choice([0, 1, None]))
    if kind == "old_weight_norm":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # deprecated, and still met in the wild
            return nn.utils.weight_norm(layer)
    if kind == "spectral_norm":
        return nn.utils.parametrizations.spectral_norm(layer)
    if kind == "old_spectral_norm":
        return nn.utils.spectral_norm(layer)
    if kind == "function":
        return Fn("F.linear", lambda x, w, b: F.linear(x, w, b), w=noise(out, n), b=noise(out))
    return layer


@maker(2, 3, 4)
def product_with_constant(rng: Random, shape: Shape) -> nn.Module:
    n = shape[-1]
    kind = rng.choice(["matmul", "rmatmul", "einsum", "addmm", "cumsum", "mul", "div", "muladd", "prescale"])
    if kind == "matmul":
        return Fn("x @ w", lambda x, w: x @ w, w=noise(n, rng.randint(1, 5)))
    if kind == "rmatmul" and len(shape) > 2:
        return Fn("w @ x", lambda x, w: torch.matmul(w, x), w=noise(rng.randint(1, 5), shape[-2]))
    if kind == "einsum":
        letters = "abcd"[: len(shape)]
        keep = rng.choice(letters[1:])
        equation = f"{letters},{keep}z->{letters.replace(keep, 'z')}"
        size = shape[letters.index(keep)]
        return Fn(f"einsum({equation})", lambda x, w: torch.einsum(equation, x, w), w=noise(size, rng.randint(1, 5)))
    if kind == "addmm" and len(shape) == 2:
        return Fn("addmm", lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=1.5), w=noise(n, 4), b=noise(4))
    if kind == "cumsum":
        return Fn("cumsum", lambda x: x.cumsum(-1))
    if kind == "mul":
        wide = [rng.choice([1, s]) for s in shape[1:]]
        return Fn(f"x * c{wide}", lambda x, c: x * c, c=noise(*wide))
    if kind == "div":
        return Fn("x / c", lambda x, c: x / c, c=noise(n).abs() + 0.1)
    if kind == "prescale":
        return Fn("2.5 - x", lambda x: 2.5 - x)
    return Fn("0.5 * x + c", lambda x, c: torch.add(c, x, alpha=0.5), c=noise(n))


@maker(2, 3, 4)
def softmax(rng: Random, shape: Shape) -> nn.Module:
    axis = rng.randint(1, len(shape) - 1)
    return rng.choice([
        nn.Softmax(axis), nn.Softmin(axis), nn.LogSoftmax(axis), Fn(f"F.softmax({axis})", lambda x: F.softmax(x, axis)),
        Fn("softmax of 9x", lambda x: (9 * x).softmax(axis)), Fn("10 tanh(x/10)", lambda x: 10 * torch.tanh(x / 10)),
    ])  # fmt: skip


@maker(2, 3, 4)
def rearrangement(rng: Random, shape: Shape) -> nn.Module:
    axis = rng.randint(1, len(shape) - 1)
    size = shape[axis]
    order = list(range(size))
    rng.shuffle(order)
    index, first = torch.tensor(order), torch.zeros(1, *shape[2:], dtype=torch.long)
    kinds: list[Callable[[], nn.Module]] = [
        lambda: Fn(f"roll({axis})", lambda x: x.roll(1, axis)),
        lambda: Fn(f"flip({axis})", lambda x: x.flip(axis)),
        lambda: Fn(f"index_select({axis})", lambda x, i: x.index_select(axis, i), i=index),
        lambda: Fn(f"narrow({axis})", lambda x: x.narrow(axis, 0, max(1, size - 1))),
        lambda: Fn("flatten", lambda x: x.flatten(1)),
        lambda: Fn("unsqueeze", lambda x: x.unsqueeze(axis) if x.ndim < 4 else x),
        lambda: Fn("expand", lambda x: x[:, None].expand(-1, 2, *x.shape[1:]).reshape(len(x), -1)),
        lambda: Fn("repeat", lambda x: torch.cat([x, x], axis)),
        lambda: Fn("stack", lambda x: torch.stack([x, 2 * x], 1).flatten(1, 2)),
        lambda: Fn("where", lambda x, m: torch.where(m, x, 0.5), m=noise(*shape[1:]) > 0),
        lambda: Fn("masked_fill", lambda x, m: x.masked_fill(m, -2.0), m=noise(*shape[1:]) > 0.5),
        lambda: Fn("scatter", lambda x, i: x.scatter(1, i[None].expand(len(x), *i.shape), 30.0), i=first),
        lambda: Fn("tril", lambda x: x.tril() if x.ndim > 2 else x),
        lambda: Fn("transpose", lambda x: x.transpose(-1, -2) if x.ndim > 2 else x),
        lambda: Fn("across the batch", lambda x: x.transpose(0, 1)),
        lambda: Fn("as_strided", lambda x: x.T.as_strided(x.shape, (1, len(x))) if x.ndim == 2 else x),
    ]  # fmt: skip
    if len(shape) == 4:
        kinds.append(lambda: Fn("permute", lambda x: x.permute(0, 2, 3, 1)))
        kinds.append(lambda: nn.PixelUnshuffle(shape[-1]) if shape[-1] == shape[-2] else nn.Flatten(2))
        kinds.append(lambda: nn.Unfold(2))
    if len(shape) == 2 and size % 2 == 0:
        kinds.append(lambda: nn.Unflatten(1, (2, size // 2)))
    return rng.choice(kinds)()
