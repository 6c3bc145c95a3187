"""What hooks learn from the passes of a step that is read: σ as autograd saved it, inputs, sizes, precision."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.instrument.rules.normalizer import of_torch
from normgauge.instrument.rules.tried import of_module
from normgauge.monitor.layers import WatchedLayer, by_channel

# Nodes of autograd whose second saved result is 1/√(σ² + ε)
SAVING = ("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm", "NativeLayerNorm", "NativeGroupNorm")

# Nodes that move or copy numbers: followed on the way from a normalizer to the weight in front of it
PASSING = ("View", "UnsafeView", "Reshape", "Permute", "Transpose", "T", "ToCopy", "Clone", "Squeeze", "Unsqueeze")

LINEAR = ("Addmm", "Mm", "Convolution", "Bmm", "Linear", "MkldnnConvolution", "CudnnConvolution")

MOST_HOPS = 6


@dataclass(slots=True)
class ObservedSigma:
    """What was seen of one normalizer's σ in one step, over all passes of that step.

    Attributes:
        inverse: 1/σ of each channel, sample or group, one tensor a pass.
        feeding: identity of the parameter whose output goes straight into the normalizer, if any.
    """

    inverse: list[Tensor] = field(default_factory=list)
    feeding: int | None = None


class Listener:
    """Hooks that are attached only for the steps that are read: even an idle hook costs microseconds a call.

    A hook never raises into the forward pass, keeps no graph (only small vectors), and does nothing while a compiler
    traces it.

    Args:
        model: the network, at whose door one hook is always on.
        on_error: told what failed.

    Attributes:
        seconds: that the normalizers' hooks took.
        spreads: what was heard of each normalizer in this step.
        frozen: mean σ² of the batch, for batch normalizations that do not use it although the network trains.
        sizes: largest spatial input of each convolution.
        given: the network's last input, where it is a tensor of floats.
        half: whether the first product came out in float16.
    """

    def __init__(self, model: nn.Module, on_error: Callable[[Exception], None]) -> None:
        self.seconds = 0.0
        self.spreads: dict[nn.Module, ObservedSigma] = {}
        self.frozen: dict[nn.Module, Tensor] = {}
        self.sizes: dict[nn.Module, tuple[int, ...]] = {}
        self.given: Tensor | None = None
        self.half = False
        self._on_error = on_error
        self._first: nn.Module | None = None
        self._registers: list[Callable[[], Any]] = []
        self._handles: list[Any] = []
        self._awake = False
        self._door = model.register_forward_pre_hook(self._enter, with_kwargs=True)

    def __getstate__(self) -> dict[str, Any]:
        """What a copied or saved model keeps of its listener: hooks that do nothing, without monitor or run file."""
        return {"_awake": False, "sizes": {}, "given": None, "half": False}

    @property
    def awake(self) -> bool:
        """Whether the coming passes are heard."""
        return self._awake

    @awake.setter
    def awake(self, value: bool) -> None:
        self._awake = value
        if value and not self._handles:
            self._handles = [register() for register in self._registers]
        elif not value and not _compiles():  # a change of hooks would compile everything anew
            self._take_off()

    def attach(self, layers: Sequence[WatchedLayer]) -> None:
        """Listen to the modules of these layers."""
        for layer in layers:
            if layer.role == "norm":
                self._add(partial(layer.module.register_forward_hook, self._normalized))
            if layer.role == "conv":
                self._add(partial(layer.module.register_forward_pre_hook, self._convolved))
            if layer.role in ("matrix", "conv") and self._first is None:
                self._first = layer.module
                self._add(partial(layer.module.register_forward_hook, self._multiplied))

    def follow(self, module: nn.Module, attribute: str, places: dict[int, int], row: int) -> None:
        """Note the identity of a sharded weight in each pass, where it is another tensor than outside."""

        def enter(module: nn.Module, args: Any) -> None:
            if not torch.compiler.is_compiling():
                places[id(getattr(module, attribute))] = row

        self._add(partial(module.register_forward_pre_hook, enter))

    def close(self) -> None:
        """Take every hook off."""
        self._awake = False
        self._take_off()
        self._door.remove()
        self.forget()

    def forget(self) -> None:
        """Drop what was heard in the last step."""
        self.spreads.clear()
        self.frozen.clear()
        self.given = None

    def _add(self, register: Callable[[], Any]) -> None:
        self._registers.append(register)
        if self._handles:
            self._handles.append(register())

    def _take_off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Keep the input at every step, so that a loss that is not finite can be traced to it."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        tensors = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())
        given = next(tensors, None)
        self.given = None if given is None else given.detach()

    def _multiplied(self, module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling() and isinstance(output, Tensor):
            self.half = output.dtype == torch.float16

    def _normalized(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not self._awake or not torch.is_grad_enabled():
            return
        began = time.perf_counter()
        try:
            self._hear(module, args[0], output)
        except Exception as error:  # a measurement must never break the forward pass
            self._on_error(error)
        self.seconds += time.perf_counter() - began

    def _convolved(self, module: Any, args: Any) -> None:
        if torch.compiler.is_compiling() or not args:
            return
        size = tuple(args[0].shape[2 - module.weight.ndim :])
        known = self.sizes.get(module, size)
        # A larger input holds every smaller one: the norm at the largest seen bounds them all.
        self.sizes[module] = tuple(map(max, known, size))

    def _hear(self, module: nn.Module, given: Tensor, output: Tensor) -> None:
        spread = self.spreads.setdefault(module, ObservedSigma())
        with torch.no_grad():
            spread.inverse.append(inverse_sigma(module, given, output))
            if not module.training and by_channel(module):
                self.frozen[module] = given.float().var((0, *range(2, given.ndim)), correction=0).mean()
        if spread.feeding is None:
            spread.feeding = weight_before(given)


def inverse_sigma(module: nn.Module, given: Tensor, output: Tensor) -> Tensor:
    """1/√(σ² + ε) as this pass used it: saved by autograd, from stored statistics, or computed from the input."""
    form = of_torch(module, given.dtype) or of_module(module)
    if form is not None and form.stored is not None:
        return form.below(form.stored[1]).reciprocal()
    node = _behind(output.grad_fn)
    if node is not None and node.name().startswith(SAVING):
        saved = getattr(node, "_saved_result2", None)
        if isinstance(saved, Tensor) and saved.numel():
            return saved.detach()
    if node is not None and node.name() == "SyncBatchNormBackward":
        return node.saved_tensors[3].detach()  # of the batch of all processes
    assert form is not None
    return form.below(form.variance(given.detach().float())).reciprocal().flatten()


def weight_before(given: Tensor) -> int | None:
    """The parameter whose linear map made this tensor, by identity; None where something else did."""
    node = _behind(given.grad_fn)
    if node is None or not node.name().startswith(LINEAR):
        return None
    for parent, _ in node.next_functions:
        leaf = _behind(parent)
        variable = getattr(leaf, "variable", None)
        if isinstance(variable, Tensor) and variable.ndim >= 2:
            return id(variable)
    return None


def _behind(node: Any) -> Any:
    """The first node that does more than move numbers."""
    for _ in range(MOST_HOPS):
        if node is None or node.name().removesuffix("Backward0") not in PASSING:
            return node
        node = node.next_functions[0][0]
    return node


def _compiles() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters) and counters["frames"]["total"] > 0
