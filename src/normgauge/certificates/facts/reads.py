"""What a prediction depends on besides its input: every tensor that an operator of the forward is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from normgauge.certificates.facts.sample import device_of
from normgauge.core.errors import InputError
from normgauge.render.numbers import shortened_names

NUMBERS = 64  # tensors that hold one number each: more may spell something out


class Reads(TorchDispatchMode):
    """Collects the tensors that operators read and that no operator of this forward pass made.

    Attributes:
        found: these tensors, views of them included.
        opaque: operators whose weights are not tensors, such as the packed ones of quantized layers.
    """

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.made: dict[int, Any] = {}  # storages; kept, so that no address is used twice
        self.found: list[Tensor] = []
        self.opaque: list[str] = []
        self._foreign: set[int] = set()
        self._make(given)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs or {})):
            if isinstance(leaf, Tensor):
                self._read(leaf)
            elif isinstance(leaf, torch.ScriptObject):
                self.opaque.append(str(func))
        result = func(*args, **(kwargs or {}))
        loaded = any(isinstance(leaf, torch.UntypedStorage | torch.TypedStorage) for leaf in tree_leaves(args))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                (self._take if loaded else self._make)(leaf)  # what stands in a storage was there before: a file
        return result

    def _read(self, tensor: Tensor) -> None:
        storage = _storage(tensor)
        if storage is None or storage._cdata not in self.made:
            self._take(tensor)

    def _take(self, tensor: Tensor) -> None:
        storage = _storage(tensor)
        self.found.append(tensor)
        if storage is not None:
            self.made.pop(storage._cdata, None)
            self._foreign.add(storage._cdata)

    def _make(self, tensor: Tensor) -> None:
        storage = _storage(tensor)
        if (
            storage is not None and storage._cdata not in self._foreign
        ):  # a view of a tensor that was read is not a new one
            self.made[storage._cdata] = storage


def _storage(tensor: Tensor) -> Any:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse and opaque layouts have none
        return None


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes a tensor occupies; ``dense`` where no others lie between them."""

    start: int
    stop: int
    dense: bool
    exact: tuple[Any, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Region:
        """The region of a tensor; a tensor without memory of its own equals only itself."""
        if _storage(tensor) is None or tensor.device.type == "meta":
            return cls(0, -1, False, (id(tensor),))
        reach = 1 + sum((n - 1) * abs(step) for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        start, size = tensor.data_ptr(), tensor.element_size()
        exact = (start, tuple(tensor.shape), tensor.stride())
        return cls(start, start + reach * size, reach == tensor.numel(), exact)

    def holds(self, other: Region) -> bool:
        """Whether this region contains all of the other."""
        inside = self.start <= other.start and other.stop <= self.stop
        return self.exact == other.exact or (self.dense and other.start >= 0 and other.stop > 0 and inside)


def unpaid_reads(model: nn.Module, inputs: Tensor, paid: Sequence[Tensor], data_free: Sequence[str]) -> list[str]:
    """What the network reads that is not paid for and may hold something learnt.

    Args:
        model: in eval mode.
        inputs: a batch.
        paid: tensors of the model that are perturbed, drawn anew or otherwise accounted for.
        data_free: names of tensors, or of modules that hold them, fixed without D.

    Returns:
        One phrase for each thing, without repeats.

    Raises:
        InputError: for a name in ``data_free`` that the model does not have.
    """
    names = list(_named(model))
    strange = [name for name in data_free if not any(lies_under(known, name) for _, known in names)]
    if strange:
        few = ", ".join(name for _, name in names[:6])
        raise InputError(f"data_free: expected names of tensors the model holds, such as {few}; got {strange[0]!r}")
    reads = Reads(inputs)
    with torch.no_grad(), reads:
        model(inputs)
    free = [Region.of(tensor) for tensor in paid]
    free += [region for region, name in names if any(lies_under(name, one) for one in data_free)]
    said: dict[str, str] = {}
    numbers = 0
    for tensor in reads.found:
        region = Region.of(tensor)
        if any(one.holds(region) for one in free):
            continue
        if tensor.numel() <= 1 or says_nothing(tensor):
            numbers += 1
            continue
        name = next((name for one, name in names if one.holds(region)), "a nameless tensor")
        kind, sizes = str(tensor.dtype).removeprefix("torch."), "×".join(map(str, tensor.shape))
        said.setdefault(name, f"{name} ({kind}, {sizes})")
    more = [f"the packed weights of {op}" for op in dict.fromkeys(reads.opaque)]
    more += [f"{numbers} single numbers"] if numbers > NUMBERS else []
    return [*said.values(), *more]


def refuse_unpaid(model: nn.Module, inputs: Tensor, paid: Sequence[Tensor], data_free: Sequence[str]) -> None:
    """Refuse a network whose prediction depends on tensors that are not paid for.

    Raises:
        InputError: naming the tensors, and what to do.
    """
    left = unpaid_reads(model, inputs.clone().to(device_of(model)), paid, data_free)
    if left:
        raise InputError(
            f"the prediction depends on {shortened_names(left, 3)}, which may know D and is not paid for: "
            "make it a parameter or a float buffer, or name it in data_free= if it was fixed without D"
        )


def says_nothing(tensor: Tensor) -> bool:
    """Whether a tensor holds a common constant: one number repeated, 0, 1, 2, …, or a triangular mask."""
    if tensor.is_quantized or tensor.layout is not torch.strided or not tensor.numel():
        return False
    flat = tensor.detach().reshape(-1)
    if bool((flat == flat[0]).all()):
        return True
    if tensor.ndim and not tensor.is_complex():
        row = tensor.detach().reshape(-1, tensor.shape[-1])
        if bool((row == torch.arange(row.shape[1], device=row.device)).all()):
            return True
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    square = tensor.detach().reshape(-1, *tensor.shape[-2:])
    low = torch.ones(square.shape[-2:], dtype=torch.bool, device=tensor.device).tril()
    return all(bool((part == part[:, :1]).all()) for part in (square[:, low], square[:, ~low]))


def _named(model: nn.Module) -> Iterator[tuple[Region, str]]:
    """Tensors a model holds as parameters, buffers or plain attributes, with their names."""
    for prefix, module in model.named_modules():
        own = {k: v for k, v in module.__dict__.items() if k not in ("_parameters", "_buffers", "_modules")}
        for name, value in {**own, **module._parameters, **module._buffers}.items():
            for place, item in _inside(value):
                if isinstance(item, Tensor):
                    yield Region.of(item), ".".join(filter(None, (prefix, name, place)))


def _inside(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """A value, or what a list or dict of it holds, modules of plain lists included."""
    if isinstance(value, nn.Module) and place:
        for name, tensor in [*value.named_parameters(), *value.named_buffers()]:
            yield f"{place}.{name}", tensor
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _inside(item, f"{place}.{i}".strip("."))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _inside(item, f"{place}.{key}".strip("."))
    else:
        yield place, value


def lies_under(name: str, of: str) -> bool:
    """Whether a name is this one or lies under it."""
    return name == of or name.startswith(of + ".")
