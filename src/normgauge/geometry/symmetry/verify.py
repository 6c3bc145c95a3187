"""Symmetries tried on the model itself: run steadily, down to ATen, with other weights, and without ε."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from normgauge.geometry.symmetry.generators import Generator
from normgauge.geometry.symmetry.graph import plain_kernels
from normgauge.geometry.symmetry.operations import is_eps
from normgauge.instrument.rules.expand import expansion_of
from normgauge.instrument.trace.inputs import Call, pick_output
from normgauge.instrument.trace.untouched import iterates

EPS_AT = {
    "native_layer_norm": 4, "native_group_norm": 7, "native_batch_norm": 7, "_native_batch_norm_legit": -1,
    "_fused_rms_norm": 3,
}  # fmt: skip
NOTHING = 1e-40  # small enough not to matter, large enough not to divide by zero
EXACT = 1e-9  # largest relative change of the output for a symmetry, in float64 and without ε


class WithoutEps(TorchDispatchMode):
    """Takes ε out of every normalizer.

    Args:
        calls: which operations, counted as they run, add the ε of a normalizer written by hand.
    """

    def __init__(self, calls: frozenset[int]) -> None:
        super().__init__()
        self.calls, self.count = calls, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.count += 1
        changed = list(args)
        frozen = name == "native_batch_norm" and not args[5]  # its variance takes its ε along
        if name in EPS_AT and not frozen and len(args) > EPS_AT[name]:
            changed[EPS_AT[name]] = NOTHING
        elif self.count in self.calls:
            numbers = [isinstance(a, int | float) or (isinstance(a, Tensor) and a.numel() == 1) for a in args]
            changed = [NOTHING if one and is_eps(float(a)) else a for a, one in zip(args, numbers, strict=True)]
        return func(*changed, **(kwargs or {}))


class WeightTrial:
    """A model that is run with other weights.

    Attributes:
        run: the model's output for the batch, with the weights it now holds.
        live: these weights and buffers, by name.
        state: copies of them as they were.
        calls: as for `WithoutEps`.
    """

    def __init__(
        self,
        run: Callable[[], Tensor],
        live: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        calls: frozenset[int] = frozenset(),
    ) -> None:
        self.run, self.live, self.state, self.calls = run, live, state, calls
        self.runs = 0
        self.unmoved: dict[bool, Tensor] = {}
        self.statistics = frozenset(name for name, tensor in live.items() if not isinstance(tensor, nn.Parameter))

    def output(self, changed: Mapping[str, Tensor] | None = None, eps: bool = True) -> Tensor:
        """The output with some tensors exchanged; everything is put back."""
        self.fill(changed or {})
        self.runs += 1
        try:
            with torch.no_grad(), plain_kernels(), nullcontext() if eps else WithoutEps(self.calls):
                return self.run()
        finally:
            moved = (*(changed or {}), *self.statistics)  # train mode moves these
            self.fill({name: self.state[name] for name in moved})

    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Write ``tensors`` into the model."""
        with torch.no_grad():
            for name, tensor in tensors.items():
                self.live[name].copy_(tensor)

    def defect(self, changed: Mapping[str, Tensor], eps: bool = True) -> float:
        """Relative change of the output."""
        if eps not in self.unmoved:
            self.unmoved[eps] = self.output(eps=eps)
        return relative(self.unmoved[eps], self.output(changed, eps=eps))


def relative(before: Tensor, after: Tensor) -> float:
    """‖after − before‖ / ‖before‖; infinite where something is not a number."""
    if not bool(torch.isfinite(after).all()) or not bool(torch.isfinite(before).all()):
        return float("inf")
    size = float(before.norm())
    change = float((after - before).norm())
    return change / size if size > 0 else (0.0 if change == 0 else float("inf"))


def random_move(generator: Generator, state: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """One move of a family: scales between ½ and 2, shifts and mixings of the size of the weights."""
    source = torch.Generator().manual_seed(seed)
    numbers = 2 * torch.rand(generator.count, generator=source, dtype=torch.float64) - 1
    if generator.what.startswith(("channels mixed", "rotation", "mixed into")):
        return generator.move(state, numbers / max(1.0, generator.count**0.5))
    if generator.what.startswith("scale"):
        return generator.move(state, numbers * 0.69)
    size = float(state[generator.parameters[0]].square().mean().sqrt())
    return generator.move(state, numbers * (size or 1.0))


def write_out(model: nn.Module) -> None:
    """Make recurrent layers run by their equations, since a fused kernel writes all gates into one tensor."""
    for module in model.modules():
        own = not isinstance(module, nn.RNNBase | nn.RNNCellBase) or "forward" in module.__dict__
        written = None if own else expansion_of(type(module))
        if written is not None:
            module.__dict__["forward"] = partial(written, module)


DROPPING = {"dropout1d", "dropout2d", "dropout3d"} | {
    kind + end for kind in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout") for end in ("", "_")
}


class Steady(TorchFunctionMode):
    """Turns dropout off, and keeps float64 where the model would cast to less: rounding would hide a defect."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs |= {} if len(args) > 4 else {"dropout_p": 0.0}
        elif getattr(func, "__name__", "") in DROPPING:
            return args[0] if args else kwargs["input"]
        cast = func in (Tensor.to, Tensor.float, Tensor.type_as, Tensor.type, Tensor.half, Tensor.bfloat16)
        if cast and args[0].dtype == torch.float64:
            out = func(*args, **kwargs)
            return out if not out.is_floating_point() or out.dtype == torch.float64 else args[0]
        if kwargs.get("dtype") in (torch.float32, torch.float16, torch.bfloat16):
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def runner(
    model: nn.Module, call: Call, output: str | None, mode: str, frozen: set[nn.Module], notes: list[str]
) -> Callable[[], Tensor]:
    """A function that returns the model's output in a mode, the same every time; remarks go into ``notes``."""

    def run() -> Tensor:
        for module in model.modules():
            still = isinstance(module, nn.modules.dropout._DropoutNd) or iterates(module)
            module.training = mode == "train" and module not in frozen and not still
        with torch.random.fork_rng(devices=[]), Steady():
            torch.manual_seed(0)
            picked, said = pick_output(model(*call.args, **call.kwargs), output)
            notes[:] = said
        assert picked is not None
        return picked

    return run
