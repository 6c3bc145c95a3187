"""What is learned from the passes of a step: σ as autograd saved it, inputs, sizes, precision."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from normgauge.instrument.rules.normalizer import of_torch
from normgauge.instrument.rules.tried import of_module
from normgauge.monitor.attention import (
    Attention,
    Products,
    attention_behind,
    own_attention,
    products_of,
    saving_is_plain,
    told_apart,
)
from normgauge.monitor.facts import Loss, Passes, behind
from normgauge.monitor.layers import WatchedLayer, by_channel, part_here
from normgauge.monitor.replay import Replay, compiled_part
from normgauge.monitor.schedule import clock

# Nodes of autograd whose second saved result is 1/√(σ² + ε)
LAYER_NORM = "NativeLayerNormBackward0"  # the only one that saves means and σ as one number a sample
SAVING = ("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm", "NativeLayerNorm", "NativeGroupNorm")

LINEAR = ("Addmm", "Mm", "Convolution", "Bmm", "Linear", "MkldnnConvolution", "CudnnConvolution")

MOST_TAKEN = 4  # layers fed by data that are looked at in one step


@dataclass(slots=True)
class ObservedSigma:
    """What was seen of one normalizer's σ in one step, over all passes of that step.

    Attributes:
        inverse: 1/σ of each channel, sample or group, one tensor a pass.
        means: what a LayerNorm takes off each group, one tensor a pass.
        feeding: identity of the parameter whose output goes straight into the normalizer, if any.
        half: whether it was given float16.
    """

    inverse: list[Tensor] = field(default_factory=list)
    means: list[Tensor] = field(default_factory=list)
    feeding: int | None = None
    half: bool = False


class Listener:
    """Hears the passes of a model through one hook of the process: nothing is attached to its modules.

    So a copy, a saved file or a scripted form of the model has nothing of it. The hook never raises into the forward
    pass, keeps no graph (only small vectors), and does nothing while a pass is compiled, traced or vectorized. Where
    the model is compiled, layers do not run as modules: a few samples run again where a step is read (`replay`).

    Args:
        model: the network, whose input is noted in every step, so that a loss that is not finite can be traced to it.
        on_error: told what failed.
        on_host: as for `schedule.clock`.

    Attributes:
        seconds: that the hook took in passes that are heard.
        spreads: what was heard of each normalizer in this step.
        frozen: mean σ² of the batch, for batch normalizations that do not use it although the network trains.
        sizes: largest spatial input of each convolution.
        fed_by: for each module with a weight, the normalizer whose output is its input as it is.
        given: the network's last input, where it is a tensor of floats.
        half: whether a product came out in float16.
        passes: what every pass tells at no cost.
        taken: root mean square of what each layer took that is fed by data, and not by other layers.
        attentions: what was found in front of each layer that has an attention there; None where it cannot be told.
        logits: largest attention logit in front of each of these layers in this step.
        entered: root mean square of what each matrix and convolution was given, for the first sample of this step.
        rich: whether the coming passes are asked for these.
        order: the layers with their places in the order in which they were first heard.
        calls: modules whose calls are to be told.
    """

    def __init__(self, model: nn.Module, on_error: Callable[[Exception], None], *, on_host: bool = True) -> None:
        self.seconds, self._clock = 0.0, clock(on_host=on_host)
        self._awake = False
        self._asleep: dict[nn.Module, None] = {model: None}  # what is heard of in every step
        self.calls: Mapping[nn.Module, Any] = self._asleep  # whose calls are to be told
        self.spreads: dict[nn.Module, ObservedSigma] = {}
        self.frozen: dict[nn.Module, Tensor] = {}
        self.sizes: dict[nn.Module, tuple[int, ...]] = {}
        self.fed_by: dict[nn.Module, nn.Module] = {}
        self.given: Tensor | None = None
        self.half = False
        self.passes = Passes()
        self.taken: list[Tensor] = []
        self.attentions: dict[nn.Module, Attention | None] = {}
        self.logits: dict[nn.Module, Tensor] = {}
        self.entered: dict[nn.Module, Tensor] = {}
        self.rich = True
        self.order: dict[nn.Module, int] = {}
        self._outputs: dict[int, nn.Module] = {}  # layers by the number of the node of what they made in this step
        self._channels: dict[nn.Module, bool] = {}  # which normalizers are batch normalizations
        self._feeding: dict[nn.Module, int | None] = {}  # what was in front of each normalizer at its last rich pass
        self._ordinary: set[nn.Module] = set()  # layers without an attention in front of them
        self._quiet: set[nn.Module] = set()  # layers that have told all they have to tell up to the next rich pass
        self._on_error = on_error
        self._model = model
        self._first: nn.Module | None = None
        self._parts: dict[nn.Module, list[Callable[[Any, Tensor, Any], None]]] = {}
        self._made: dict[int, tuple[weakref.ref[Tensor], nn.Module]] = {}
        self._take_off: Callable[[], object] | None = None
        self._replay: Replay | None = None
        self._replaying = False

    @property
    def awake(self) -> bool:
        """Whether the coming passes are heard."""
        return self._awake

    @awake.setter
    def awake(self, value: bool) -> None:
        self._awake = value
        self.calls = self._asleep
        if value:
            quiet = set() if self.rich else self._quiet
            self.calls = {module: parts for module, parts in self._parts.items() if module not in quiet}
        if value and self._take_off is None:
            part = compiled_part(self._model)
            self._replay = None if part is None else Replay(part)
            if self._replay is not None:
                self._take_off = self._replay.close
            else:
                self._take_off = _nothing if is_wrapped(self._model) else _hooked(self)
        if self._replay is not None:
            self._replay.listening = value

    def attach(self, layers: Sequence[WatchedLayer]) -> None:
        """Listen to the modules of these layers."""
        self._ordinary.clear()
        self._quiet.clear()
        self._feeding.clear()
        for layer in layers:
            parts = self._parts.setdefault(layer.module, [])
            self._parts.setdefault(self._model, [])
            if layer.role == "norm":
                parts[:] = [self._normalized]
            elif self._fed not in parts:
                parts += [self._fed, self._attended]
            if layer.role == "conv" and self._convolved not in parts:
                parts.append(self._convolved)
            if layer.role in ("matrix", "conv") and self._multiplied not in parts:
                self._first = self._first or layer.module
                self._asleep[self._first] = None
                parts.append(self._multiplied)

    def follow(self, module: nn.Module, attribute: str, places: dict[int, int], row: int) -> None:
        """Note the identity of a sharded weight in each pass, where it is another tensor than outside."""

        def note(module: nn.Module, given: Tensor, output: Any) -> None:
            places[id(getattr(module, attribute))] = row

        self._parts.setdefault(module, []).append(note)

    def close(self) -> None:
        """Hear nothing any more."""
        self.awake = False
        if self._take_off is not None:
            self._take_off()
        self.forget()

    def listen_again(self) -> None:
        """Hear the modules of a compiled model, which did not run as such in this step."""
        if self._replay is None:
            return
        take_off, self._replaying, awake = _hooked(self), True, self._awake
        began = self._clock()
        try:
            self._awake, self.calls = True, self._parts
            self._replay.again()
        finally:
            take_off()
            self._replaying, self._awake = False, awake
            self.calls = self._parts if awake else self._asleep
        self.seconds -= min(self.seconds, self._clock() - began)  # booked with the reading

    def forget(self) -> None:
        """Drop what was heard in the last step."""
        self.spreads.clear()
        self.frozen.clear()
        self._made.clear()
        self.taken.clear()
        self.logits.clear()
        self.entered.clear()
        self._outputs.clear()
        self.given = None

    def hear(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Take in one call of one module, as the hook tells it."""
        try:
            if module is self._model:
                self._enter(args, kwargs, output)
            elif module is self._first and torch.is_grad_enabled():
                self.passes.enter(args)
            elif isinstance(module, Loss) and torch.is_grad_enabled():
                self.passes.judge(module, args)
        except Exception as error:  # a measurement must never break the forward pass
            self._on_error(error)
        parts = self._parts.get(module) if self._awake else None
        if parts is None or not torch.is_grad_enabled():
            return
        began = self._clock()
        if module not in self.order:
            self.order[module] = len(self.order)
        given = args[0] if args and type(args[0]) is Tensor else _first_of(args, kwargs)
        try:
            if given is not None and not _is_vectorized(given):
                crossed = isinstance(module, nn.MultiheadAttention) and not _is_of_itself(args, kwargs, given)
                with torch.no_grad():
                    for part in parts:
                        if not (crossed and part == self._fed):
                            part(module, given, output)
                if self.rich and given.grad_fn is not None and parts == [self._fed, self._attended, self._multiplied]:
                    self._hush(module, output)
        except Exception as error:  # a measurement must never break the forward pass
            self._on_error(error)
        self.seconds += self._clock() - began

    def _hush(self, module: nn.Module, output: Any) -> None:
        """Hear a layer that is fed by others at rich passes alone; where products are float16, that is looked for."""
        if isinstance(output, Tensor) and output.dtype != torch.float16 and module is not self._first:
            self._quiet.add(module)

    def _enter(self, args: Any, kwargs: Any, output: Any) -> None:
        """Keep the input, of every step."""
        if torch.is_grad_enabled():
            self.passes.leave(self._model, output)
            tensors = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())
            given = next(tensors, None)
            self.given = None if given is None or _is_vectorized(given) else given.detach()

    def _multiplied(self, module: nn.Module, given: Tensor, output: Any) -> None:
        self.half |= isinstance(output, Tensor) and output.dtype == torch.float16
        # Data reach a layer without a graph, whatever the model did to them; behind a frozen layer so do activations.
        if given.grad_fn is None and len(self.taken) < MOST_TAKEN:
            trains = any(p is not None and p.requires_grad for p in module._parameters.values())
            if (trains or not self.taken) and given.is_floating_point() and given.numel():
                self.taken.append(_size(part_here(given)))
        if self.rich and given.is_floating_point() and given.numel() and module not in self.entered:
            self.entered[module] = _size(part_here(given)[:1])

    def _convolved(self, module: Any, given: Tensor, output: Any) -> None:
        size = tuple(given.shape[2 - module.weight.ndim :])
        known = self.sizes.get(module, size)
        # A larger input holds every smaller one: the norm at the largest seen bounds them all.
        self.sizes[module] = tuple(map(max, known, size))

    def _fed(self, module: nn.Module, given: Tensor, output: Any) -> None:
        made = self._made.get(id(given))
        if made is not None and made[0]() is given:
            self.fed_by[module] = made[1]
        elif (local := getattr(given, "_local_tensor", None)) is not None:  # as tensor parallel wraps it
            for ref, norm in self._made.values():
                output_here = ref()
                if output_here is not None and is_same_memory(output_here, local):
                    self.fed_by[module] = norm

    def _attended(self, module: nn.Module, given: Tensor, output: Any) -> None:
        """Look for an attention in front of a layer, at its first pass, and at its logits at every rich pass."""
        if not self.rich:
            return
        if isinstance(output, Tensor) and output.grad_fn is not None:
            self._outputs[output.grad_fn._sequence_nr()] = module
        if module in self._ordinary:
            return
        whole = module if isinstance(module, nn.MultiheadAttention) else None
        found = attention_behind(given.grad_fn if whole is None else _inputbehind(output[0].grad_fn))
        if found is None:
            self._ordinary.add(module)
            return
        plain = self.rich and saving_is_plain()
        products = products_of(found) if plain else None
        if products is not None and (largest := products.largest(_heads(module, given, products))) is not None:
            known = self.logits.get(module)
            self.logits[module] = largest if known is None else torch.maximum(known, largest)
        if module not in self.attentions and plain:
            told = told_apart(module, found, self._outputs) if whole is None else own_attention(whole)
            self.attentions[module] = told

    def _normalized(self, module: nn.Module, given: Tensor, output: Tensor) -> None:
        self._made[id(output)] = weakref.ref(output), module
        spread = self.spreads.setdefault(module, ObservedSigma())
        spread.half |= given.dtype == torch.float16
        channels = self._channels.get(module)
        if channels is None:
            channels = self._channels[module] = by_channel(module)
        if not (self._replaying and channels):  # σ of a few samples is not that of the batch
            node: Any = output.grad_fn
            if node is not None and node.name() != LAYER_NORM:
                node = behind(node)
            if node is not None and node.name() == LAYER_NORM:
                spread.means.append(node._saved_result1.detach())
                spread.inverse.append(node._saved_result2.detach())
            else:
                spread.inverse.append(inverse_sigma(module, given, output))
        if channels and not module.training:
            self.frozen[module] = given.float().var((0, *range(2, given.ndim)), correction=0).mean()
        if self.rich or module not in self._feeding:  # what feeds a layer seldom changes
            self._feeding[module] = weight_before(given)
        if spread.feeding is None:
            spread.feeding = self._feeding[module]


def _size(tensor: Tensor) -> Tensor:
    """Root mean square."""
    dtype = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else None
    return torch.linalg.vector_norm(tensor, dtype=dtype).div_(math.sqrt(tensor.numel()))


def _first_of(args: Any, kwargs: Any) -> Tensor | None:
    """The first tensor that a module was given."""
    return next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), None)


def is_same_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are views of the same numbers, all of them."""
    return one.shape == other.shape and one.data_ptr() == other.data_ptr()


def _is_vectorized(given: Tensor) -> bool:
    """Whether a tensor stands for many inside torch.func: its numbers cannot be taken out."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(given))


def _is_of_itself(args: Any, kwargs: Any, given: Tensor) -> bool:
    """Whether queries, keys and values of an attention are made from one tensor."""
    three = [*args[:3], *(kwargs[name] for name in ("query", "key", "value") if name in kwargs)]
    return all(one is given for one in three)


def is_wrapped(model: nn.Module) -> bool:
    """Whether torch.compile made another module of this one: torch would warn of a hook when that is called."""
    return any(isinstance(by, dict) and by.get("_orig_mod") is model for by in gc.get_referrers(model))


def _nothing() -> None:
    pass


def _hooked(listener: Listener) -> Callable[[], object]:
    """Let the process tell a listener of every call of a module, as long as it lives; returns what ends that."""
    heard, compiling = weakref.ref(listener), torch.compiler.is_compiling

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if compiling():
            return
        known = heard()
        # This is asked at every call of every module, so the quick question comes first.
        if known is not None and module in known.calls and not torch.jit.is_tracing():
            known.hear(module, args, kwargs, output)

    handle = torch_modules.register_module_forward_hook(hook, with_kwargs=True)
    return weakref.finalize(listener, _unhooked, handle)


def _unhooked(handle: Any) -> None:
    handle.remove()
    torch_modules._global_forward_hooks_with_kwargs.pop(handle.id, None)  # what torch's own handle forgets


def inverse_sigma(module: nn.Module, given: Tensor, output: Tensor) -> Tensor:
    """1/√(σ² + ε) as this pass used it: saved by autograd, from stored statistics, or computed from the input."""
    node = behind(output.grad_fn)
    if module.training and (saved := _saved_by(node)) is not None:  # stored statistics leave nothing saved
        return saved
    form = of_torch(module, given.dtype) or of_module(module)
    if form is not None and form.stored is not None:
        return form.below(form.stored[1]).reciprocal()
    if (saved := _saved_by(node)) is not None:
        return saved
    if node is not None and node.name() == "SyncBatchNormBackward":
        return node.saved_tensors[3].detach()  # of the batch of all processes
    assert form is not None
    return form.below(form.variance(given.detach().float())).reciprocal().flatten()


def _saved_by(node: Any) -> Tensor | None:
    """1/√(σ² + ε) as autograd saved it at this node, if it did."""
    if node is None or not node.name().startswith(SAVING):
        return None
    saved = getattr(node, "_saved_result2", None)
    return saved.detach() if isinstance(saved, Tensor) and saved.numel() else None


def _heads(module: Any, given: Tensor, products: Products) -> int:
    """Heads of a sample."""
    if isinstance(module, nn.MultiheadAttention):
        return module.num_heads
    return products.query.shape[0] // (given.shape[0] if given.ndim > 2 else 1)


def _inputbehind(node: Any) -> Any:
    """What goes into the linear map that made this, as a node."""
    linear = behind(node)
    if linear is None or not linear.name().startswith(LINEAR):
        return None
    return linear.next_functions[1 if linear.name().startswith("Addmm") else 0][0]


def weight_before(given: Tensor) -> int | None:
    """The parameter whose linear map made this tensor, by identity; None where something else did."""
    node = behind(given.grad_fn)
    if node is None or not node.name().startswith(LINEAR):
        return None
    for parent, _ in node.next_functions:
        leaf = behind(parent)
        variable = getattr(leaf, "variable", None)
        if isinstance(variable, Tensor) and variable.ndim >= 2:
            return id(variable)
    return None
