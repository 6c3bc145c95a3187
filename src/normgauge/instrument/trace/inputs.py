"""What the user gives and the model returns: arguments, the measured tensor, the measured output, and their checks."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from normgauge.core.errors import InputError
from normgauge.core.first_notes import FIXED, INPUT, OUTPUT, PADDING
from normgauge.instrument.trace.decoder import decoder_note
from normgauge.instrument.trace.lent import lends
from normgauge.instrument.trace.place import free_memory
from normgauge.render.numbers import shortened_names

LOADING_NOTES = "loading_notes"  # attribute of a model from a file: what its readings must say of how it was loaded
NAMED = 5  # inputs and outputs beside the measured one; the others are counted
COPIES = 3  # of the batch that any measurement holds at once: in float64, moved, and what the first layer makes of it


@dataclass(frozen=True, slots=True)
class Call:
    """How the model is called, and which of its inputs is measured.

    Attributes:
        args, kwargs: the call.
        name: what the measured input is called.
        notes: what was assumed.
        native: the precision the model itself works in: that of the measured tensor, of the weights for an integer one.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    notes: tuple[str, ...] = ()
    native: torch.dtype = torch.float32

    @property
    def measured(self) -> Tensor:
        """The tensor that is measured."""
        return dict(named_tensors((self.args, self.kwargs)))[self.name]


def named_tensors(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in tuples, lists, mappings and dataclasses, with a path such as ``input`` or ``batch.mask``."""
    if isinstance(tree, Tensor):
        yield prefix or "input", tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from named_tensors(value, f"{prefix}.{key}" if prefix else str(key))
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            yield from named_tensors(getattr(tree, field.name), f"{prefix}.{field.name}" if prefix else field.name)
    elif isinstance(tree, tuple | list):
        for i, value in enumerate(tree):
            yield from named_tensors(value, f"{prefix}.{i}" if prefix else str(i))


def map_tensors(change: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return the same structure with ``change`` applied to every tensor; parts without tensors are kept as they are."""
    if isinstance(tree, Tensor):
        return change(tree)
    if next(named_tensors(tree), None) is None:
        return tree
    if isinstance(tree, Mapping):
        values = {key: map_tensors(change, value) for key, value in tree.items()}
        if type(tree) is dict:
            return values
        filled: Any = copy.copy(tree)
        for key, value in values.items():
            filled[key] = value
        return filled
    if dataclasses.is_dataclass(tree):
        twin = copy.copy(tree)
        for field in dataclasses.fields(tree):
            object.__setattr__(twin, field.name, map_tensors(change, getattr(tree, field.name)))  # frozen ones too
        return twin
    parts = [map_tensors(change, value) for value in tree]
    return type(tree)(*parts) if isinstance(tree, tuple) and type(tree) is not tuple else type(tree)(parts)


def make_call(model: nn.Module, batch: Any, wanted: str | None = None) -> Call:
    """Turn a batch into a call: a tensor is the one argument, a mapping keywords, a tuple positional arguments.

    Raises:
        InputError: when the batch holds no tensor that can be measured, or the model no weights yet.
    """
    check_initialized(model)
    notes: list[str] = [*getattr(model, LOADING_NOTES, ())]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = {}
    if isinstance(batch, Tensor):
        args = (batch,)
    elif isinstance(batch, Mapping):
        args, kwargs = (), dict(batch)
    elif isinstance(batch, tuple | list) and batch:
        args = tuple(batch)
        most = positional_limit(model)
        if most is not None and len(args) > most:
            notes.append(f"the batch has {len(args)} parts and the model takes {most}: the rest (labels?) was left out")
            args = args[:most]
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        args = (batch,)
    else:
        wanted_form = "batch: expected a tensor, a tuple of tensors or a dict of them"
        several = "; give one batch of it, such as next(iter(loader))" if isinstance(batch, Iterable) else ""
        raise InputError(f"{wanted_form}, got {type(batch).__name__}{several}")
    tensors = dict(named_tensors((args, kwargs)))
    if not tensors:
        raise InputError(f"batch: expected at least one tensor, got {type(batch).__name__} without any{_cure(batch)}")
    name = choose(tensors, wanted)
    check_dense(name, tensors[name])
    if tensors[name].numel() == 0 or tensors[name].ndim == 0:
        raise InputError(
            f"batch: expected at least one sample in {argument_name(name)}, got shape {tuple(tensors[name].shape)}"
        )
    check_memory(model, tensors)
    if len(tensors) > 1:
        others = [argument_name(other) for other in tensors if other != name]
        notes.append(f"{INPUT}{argument_name(name)}{FIXED}{shortened_names(others, NAMED)}")
    notes += decoder_note(model, args, kwargs)
    floats = [tensors[name], *model.parameters(), torch.zeros(())]
    native = next(tensor.dtype for tensor in floats if tensor.is_floating_point())
    return Call(args, kwargs, name, tuple(notes), native)


def _cure(batch: Any) -> str:
    """What to do about tokens that are lists, or words that are no tokens yet."""
    if isinstance(batch, Mapping) and "input_ids" in batch:
        return '; pass return_tensors="pt", padding=True to the tokenizer'
    if isinstance(batch, tuple | list) and all(isinstance(part, str) for part in batch):
        return '; give what the tokenizer makes of the text: tokenizer(texts, return_tensors="pt", padding=True)'
    return ""


def unfit_names(model: nn.Module, call: Call) -> str:
    """What of the named parts of a batch a failed forward does not name, and what it takes; empty where it names all.

    A forward with ``**kwargs`` swallows names that it does not know, and fails for another reason.
    """
    try:
        known = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return ""
    takes = [p.name for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unknown = [name for name in call.kwargs if name not in takes]
    if not takes or not unknown:
        return ""
    return f"; it takes {shortened_names(takes, NAMED)}, and the batch gives {shortened_names(unknown, NAMED)}"


def padding_mask(call: Call) -> Tensor | None:
    """The ``attention_mask`` of a batch of rows where it hides positions; None elsewhere."""
    masks = {name.rpartition(".")[2]: tensor for name, tensor in named_tensors((call.args, call.kwargs))}
    mask = masks.get("attention_mask")
    return None if mask is None or mask.ndim != 2 or bool(mask.all()) else mask


def padding_note(call: Call, output: Tensor) -> list[str]:
    """Whether positions behind ``attention_mask`` are in the measured output; nothing where they cannot be told."""
    mask = padding_mask(call)
    if mask is None or output.ndim < 3 or output.shape[:2] != mask.shape:
        return []
    hidden = (mask == 0).to(output.device)
    count = f"{int(hidden.sum())} of {hidden.numel()} positions are padding"
    if not bool(output.detach()[hidden].any()):
        return [f"{count} and are left out of the output"]
    return [f"{PADDING}{count} and are in the output; multiply it by the mask, or give sentences of one length"]


def argument_name(name: str) -> str:
    """Return a readable name: ``0.0`` is the first positional argument, ``1.mask`` the keyword mask."""
    kind, _, rest = name.partition(".")
    if kind == "0":
        return "input" if rest in ("", "0") else f"input {rest}"
    return rest or name


def choose(tensors: Mapping[str, Tensor], wanted: str | None) -> str:
    """The measured input: the one named, else the first floating one, else the first.

    Raises:
        InputError: when the name is not among them.
    """
    if wanted is not None:
        for name in tensors:
            if wanted in (name, argument_name(name), name.partition(".")[2]):
                return name
        raise InputError(f"input: expected one of {', '.join(argument_name(n) for n in tensors)}, got {wanted!r}")
    floating = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
    return floating[0] if floating else next(iter(tensors))


def positional_limit(model: nn.Module) -> int | None:
    """How many positional arguments ``forward`` takes; None for any number."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def check_initialized(model: nn.Module) -> None:
    """Refuse a model whose weights have no shape yet.

    Raises:
        InputError: naming the first of them.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise InputError(
                f"weight {name} has no shape yet: it belongs to a lazy module. Run the model on one batch, then measure"
            )


def check_dense(name: str, tensor: Tensor) -> None:
    """Refuse a measured tensor that is not a dense array of real numbers.

    Raises:
        InputError: saying how to make it one.
    """
    if tensor.is_nested:
        raise InputError(
            f"{argument_name(name)}: expected one dense tensor, got a nested one; pad it with .to_padded_tensor(0)"
        )
    if tensor.layout != torch.strided:
        raise InputError(f"{argument_name(name)}: expected a dense tensor, got {tensor.layout}; give it as .to_dense()")
    if tensor.is_complex():
        raise InputError(
            f"{argument_name(name)}: expected real numbers, got {tensor.dtype}; give torch.view_as_real of it to a "
            "model that puts the two halves together again"
        )


def check_memory(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Refuse what cannot be copied: a tensor expanded from a few numbers counts with all its entries.

    Raises:
        InputError: naming the largest tensor and what its copy would take.
    """
    sizes = {f"weight {n}": 8 * p.numel() for n, p in (*model.named_parameters(), *model.named_buffers())}
    if lends(model):  # one weight at a time, and what its norm is proved with
        largest = max(sizes, key=lambda name: sizes[name])
        sizes = {largest: COPIES * sizes[largest]}
    sizes |= {argument_name(name): COPIES * 8 * tensor.numel() for name, tensor in tensors.items()}
    needed, free = sum(sizes.values()), free_memory(next(iter(tensors.values())).device)
    if needed > free:
        largest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"measuring takes about {needed / 1e9:.3g} GB for copies in float64 and {free / 1e9:.3g} GB are free; most "
            f"of it is for {largest}; give a smaller batch or a part of the model"
        )


def check_finite(model: nn.Module, call: Call) -> None:
    """Refuse NaN and infinite weights and inputs; a buffer may hold −∞, as masks of attention do.

    Raises:
        InputError: naming the first such tensor.
    """
    places: list[tuple[str, Tensor]] = [(f"weight {n}", p) for n, p in model.named_parameters()]
    places += [(f"buffer {n}", b) for n, b in model.named_buffers()]
    places += [(argument_name(n), t) for n, t in named_tensors((call.args, call.kwargs)) if n == call.name]
    for name, tensor in places:
        data = tensor.detach()
        if data.is_quantized or data.is_nested or data.device.type == "meta":
            continue
        data = data if data.layout == torch.strided else data.to_dense()
        if data.is_floating_point() and data.itemsize == 1:  # float8 knows neither
            data = data.float()
        if not (data.is_floating_point() or data.is_complex()) or bool(torch.isfinite(data).all()):
            continue
        if name.startswith("buffer") and not bool((torch.isnan(data) | torch.isposinf(data)).any()):
            continue
        what = "NaN" if bool(torch.isnan(data).any()) else "an infinite value"
        raise InputError(f"{name} holds {what}; a bound on it would mean nothing. Mend or reload it and measure again")


def check_place(model: nn.Module, call: Call) -> None:
    """Refuse an input on another device or of another precision than the weights.

    Raises:
        InputError: saying what was expected.
    """
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    tensor = call.measured
    if weight is None:
        return
    if tensor.device != weight.device:
        raise InputError(
            f"{argument_name(call.name)}: expected a tensor on {weight.device} like the weights, got {tensor.device}"
        )
    if tensor.is_floating_point() and tensor.dtype != weight.dtype:
        raise InputError(
            f"{argument_name(call.name)}: expected {weight.dtype} like the weights, got {tensor.dtype}; "
            f"convert it with .to({weight.dtype})"
        )


def pick_output(returned: Any, wanted: str | None = None) -> tuple[Tensor, list[str]]:
    """The measured output: the one named, else ``logits``, else the first floating tensor.

    Raises:
        InputError: when nothing returned is a floating tensor, saying what was.
    """
    found = {n: t for n, t in named_tensors(returned) if t.is_floating_point() or t.is_complex()}
    if not found:
        raise InputError(f"output: expected a floating tensor, the model returned {describe_output(returned)}")
    if wanted is not None:
        if wanted not in found:
            raise InputError(f"output: expected one of {', '.join(found)}, got {wanted!r}")
        name = wanted
    else:
        name = "logits" if "logits" in found else next(iter(found))
    if not found[name].numel():
        raise InputError(f"output: expected at least one number, {name} has shape {tuple(found[name].shape)}")
    others = [n for n in found if n != name]
    note = [f"{OUTPUT}{name}; not measured: {shortened_names(others, NAMED)}"] if others else []
    return found[name], note


def describe_output(returned: Any) -> str:
    """A short description of what a model gave back."""
    if isinstance(returned, Tensor):
        return f"a tensor of {returned.dtype}"
    if isinstance(returned, tuple | list):
        return f"a {type(returned).__name__} of {', '.join(type(r).__name__ for r in returned[:4]) or 'nothing'}"
    if isinstance(returned, Mapping):
        return f"a {type(returned).__name__} with {', '.join(map(str, list(returned)[:4])) or 'nothing'}"
    return f"a {type(returned).__name__}"
