"""Which directions of weight space change nothing, counted by linear algebra alone.

The Jacobian of all outputs by all weights is written out in float64, with the ε of the normalizers taken out and
dropout off; its null space is what a symmetry finder can find. Nothing here knows about symmetries.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

EPS_NAMES = ("eps", "variance_epsilon", "layer_norm_eps", "rms_norm_eps", "layer_norm_epsilon")
NO_EPS = 1e-30
CUT = 1e-9  # singular values below this part of the largest are zero


@dataclass(frozen=True, slots=True)
class Truth:
    """What the Jacobian says.

    Attributes:
        nullity: dimension of the null space; weights with a gradient of exactly 0 (rows of a table that no word or
            position reads) are left out.
        weights: columns.
        rows: outputs.
        kept: the smallest singular value that counts, over the largest; dropped: the largest that does not.
        names: the weights, in the order of the columns.
        jacobian: columns divided by ``scale``.
    """

    nullity: int
    weights: int
    rows: int
    kept: float
    dropped: float
    names: dict[str, slice]
    jacobian: Tensor
    scale: Tensor

    def change(self, tangent: Tensor) -> float:
        """‖J t‖ / (‖J‖ ‖t‖), the largest of all rows of ``tangent``."""
        scaled = tangent * self.scale
        size = scaled.norm(dim=1).clamp_min(1e-300)
        top = float(torch.linalg.matrix_norm(self.jacobian, 2))
        return float(((scaled @ self.jacobian.T).norm(dim=1) / size).max()) / top


class Double(TorchFunctionMode):
    """Keeps models in double precision that would turn to single on their way, and drops nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in (torch.float32, torch.float16):
            kwargs["dtype"] = torch.float64
        if "dropout" in getattr(func, "__name__", ""):
            return args[0]
        if getattr(func, "__name__", "") == "scaled_dot_product_attention":
            kwargs["dropout_p"], args = 0.0, args[:4]
        single = func is Tensor.float or (func is Tensor.to and torch.float32 in args)
        if single and args[0].dtype == torch.float64:
            return args[0]
        return func(*args, **kwargs)


class Signs(TorchDispatchMode):
    """Sees whether some unit is on (or off) for all samples: then it is linear there, by accident."""

    def __init__(self) -> None:
        super().__init__()
        self.on: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("relu", "leaky_relu", "_prelu_kernel", "relu_", "leaky_relu_"):
            self.on.append((args[0] > 0).double().mean(0))
        return func(*args, **(kwargs or {}))


def mixed(model: nn.Module, batches: Sequence[Any]) -> bool:
    """Whether every unit, at every pixel, is on for at least three samples and off for three others."""
    seen: list[Tensor] = []
    for batch in batches:
        with torch.no_grad(), Signs() as signs:
            model(batch)
        seen = [a + b for a, b in zip(seen, signs.on, strict=True)] if seen else signs.on
    least = 2.5 / len(batches[0])
    return all(bool(((s > least) & (s < len(batches) - least)).all()) for s in seen)


class Frozen(nn.Module):
    """A BatchNorm in eval mode whose statistics are weights like any others."""

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        assert norm.running_mean is not None and norm.running_var is not None
        self.running_mean, self.running_var = nn.Parameter(norm.running_mean), nn.Parameter(norm.running_var)
        self.own = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        def along(t: Tensor) -> Tensor:
            return t.reshape(1, -1, *[1] * (x.ndim - 2))

        out = (x - along(self.running_mean)) / (along(self.running_var) + self.own).sqrt()
        return out if self.weight is None else out * along(self.weight) + along(self.bias)


def prepared(model: nn.Module, mode: str) -> nn.Module:
    """A copy in float64, without ε, dropout and padding rows, and with frozen statistics as weights."""
    twin = copy.deepcopy(model).double()
    frozen = {n for n, m in model.named_modules() if mode == "eval" or (model.training and not m.training)}
    twin.train(mode == "train")
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and name in frozen and module.running_mean is not None:
            parent, _, last = name.rpartition(".")
            setattr(twin.get_submodule(parent), last, Frozen(module))
        for key in EPS_NAMES:
            if isinstance(module.__dict__.get(key), float):
                module.__dict__[key] = NO_EPS
        if isinstance(module, nn.RMSNorm):
            module.eps = NO_EPS
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, nn.Embedding):
            module.padding_idx = None
        if type(module).__name__ == "_SpectralNorm":
            module.eval()
    return twin


def tensor_of(returned: Any) -> Tensor:
    """The output that is looked at."""
    if isinstance(returned, Tensor):
        return returned
    if "logits" in returned:
        return returned["logits"]
    return returned[0] if isinstance(returned, tuple) else next(iter(returned.values()))


def rows_of(model: nn.Module, batches: Iterable[Any], weights: Sequence[Tensor]) -> Tensor:
    """The Jacobian, one batch after the other."""
    rows = []
    for batch in batches:
        with Double():
            out = tensor_of(model(*batch) if isinstance(batch, tuple) else model(batch)).reshape(-1)
        for units in torch.eye(len(out), dtype=out.dtype).split(256):
            found = torch.autograd.grad(
                out, weights, units, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            rows.append(
                torch.cat(
                    [
                        torch.zeros(len(units), w.numel(), dtype=out.dtype) if g is None else g.reshape(len(units), -1)
                        for w, g in zip(weights, found, strict=True)
                    ],
                    1,
                )
            )
    return torch.cat(rows)


def truth(model: nn.Module, batches: Sequence[Any], mode: str) -> Truth:
    """Count the directions that change no output on ``batches``."""
    twin = prepared(model, mode)
    doubled = [
        tuple(t.double() if t.is_floating_point() else t for t in (b if isinstance(b, tuple) else (b,)))
        for b in batches
    ]
    with Double():
        first = tensor_of(twin(*doubled[0]))
    named = dict(twin.named_parameters())
    used = torch.autograd.grad(first.sum(), list(named.values()), allow_unused=True)
    named = {n: p for (n, p), g in zip(named.items(), used, strict=True) if g is not None}
    jacobian = rows_of(twin, doubled, list(named.values()))
    scale = jacobian.norm(dim=0)
    scale = torch.where(scale > CUT * scale.max(), scale, scale.max())
    jacobian = jacobian / scale
    values = torch.linalg.svdvals(jacobian)
    rank = int((values > CUT * values[0]).sum())
    unread = int((jacobian == 0).all(0).sum())
    places, start = {}, 0
    for name, weight in named.items():
        places[name] = slice(start, start + weight.numel())
        start += weight.numel()
    kept = float(values[rank - 1] / values[0])
    dropped = float(values[rank] / values[0]) if rank < len(values) else 0.0
    return Truth(start - rank - unread, start, len(jacobian), kept, dropped, places, jacobian, scale)
