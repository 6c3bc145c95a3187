"""The σ of every normalizer at the steps that are read, taken from what autograd saved anyway."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.monitor.hooks import Sleeper
from normgauge.rules.normalizer import of_torch
from normgauge.rules.tried import of_module

SAVING = ("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm", "NativeLayerNorm", "NativeGroupNorm")
"""Nodes of autograd whose second saved result is 1/√(σ² + ε)."""

PASSING = ("View", "UnsafeView", "Reshape", "Permute", "Transpose", "T", "ToCopy", "Clone", "Squeeze", "Unsqueeze")
"""Nodes that move or copy numbers: followed on the way from a normalizer to the weight in front of it."""

LINEAR = ("Addmm", "Mm", "Convolution", "Bmm", "Linear", "MkldnnConvolution", "CudnnConvolution")

MOST_HOPS = 6


@dataclass(slots=True)
class Spread:
    """What was seen of one normalizer's σ in one step, over all passes of that step.

    Attributes:
        inverse: 1/σ of each channel, sample or group, one tensor a pass.
        feeding: identity of the parameter whose output goes straight into the normalizer, if any.
    """

    inverse: list[Tensor] = field(default_factory=list)
    feeding: int | None = None


class Listener(Sleeper):
    """Hooks on the normalizers, awake only during the steps that are read.

    A hook never raises into the forward pass, keeps no graph (only the small saved vector), and does nothing while a
    compiler traces it.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        self.seconds = 0.0
        self.spreads: dict[nn.Module, Spread] = {}
        self.sizes: dict[nn.Module, tuple[int, ...]] = {}  # largest spatial input of each convolution
        self._on_error = on_error

    def attach(self, norms: list[nn.Module], convs: list[nn.Module]) -> None:
        """Listen to these modules."""
        for module in norms:
            self._hooks.add(partial(module.register_forward_hook, self._normalized))
        for module in convs:
            self._hooks.add(partial(module.register_forward_pre_hook, self._convolved))

    def follow(self, module: nn.Module, attribute: str, places: dict[int, int], row: int) -> None:
        """Note the identity of a sharded weight in each pass: it is another tensor then."""

        def enter(module: nn.Module, args: Any) -> None:
            del args
            if not torch.compiler.is_compiling():
                places[id(getattr(module, attribute))] = row

        self._hooks.add(partial(module.register_forward_pre_hook, enter))

    def detach(self) -> None:
        """Take every hook off."""
        self._hooks.take_off()

    def forget(self) -> None:
        """Drop what was heard in the last step."""
        self.spreads.clear()

    def _normalized(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not self.awake or not torch.is_grad_enabled():
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
        spread = self.spreads.setdefault(module, Spread())
        with torch.no_grad():
            spread.inverse.append(inverse_sigma(module, given, output))
        if spread.feeding is None:
            spread.feeding = weight_before(given)


def inverse_sigma(module: nn.Module, given: Tensor, output: Tensor) -> Tensor:
    """1/√(σ² + ε) as this pass used it: saved by autograd, from stored statistics, or computed from the input."""
    form = of_torch(module, given.dtype) or of_module(module)
    if form is not None and form.stored is not None and of_torch(module) is None:
        form = of_module(module, given)  # its statistics as they are now
    if form is not None and form.stored is not None:
        return torch.rsqrt(form.stored[1] + form.eps)
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
