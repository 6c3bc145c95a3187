"""What transformers need besides norms: gains of heads, logits, rows of embeddings and heads, adapters of low rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.instrument.rules.normalizer import Normalizer
from normgauge.monitor.attention import Attention, Source
from normgauge.monitor.heads import HeadWeights, head_gains, product_norm
from normgauge.monitor.layers import SHOWN, WatchedLayer, is_transposed
from normgauge.monitor.maps import working
from normgauge.monitor.sheet import Sheet
from normgauge.render.numbers import shortened_names

ADAPTERS = (("lora_A", "lora_B"), ("lora_a", "lora_b"), ("lora_down", "lora_up"))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a reading knows of the layers of a model.

    Attributes:
        layers: all of them.
        weight: the weight of a row, or None.
        front: row of the normalizer in front of a row, or None.
        form: what the normalizer of a row is.
    """

    layers: Sequence[WatchedLayer]
    weight: Callable[[int], Tensor | None]
    front: Callable[[int], int | None]
    form: Callable[[int], Normalizer]


@dataclass(frozen=True, slots=True)
class Adapter:
    """A correction of low rank, scale·BA, beside the weight of a row."""

    row: int
    owner: nn.Module
    names: tuple[str, str]


class Transformers:
    """Measures what belongs to attentions, embeddings and adapters rather than to one matrix.

    Attributes:
        left_out: a sentence about attentions that were found and could not be read; empty where there are none.
    """

    def __init__(self) -> None:
        self.left_out = ""
        self._found: list[tuple[int, int, int, int, Attention]] = []  # rows of query, key, value and output
        self._adapters: list[Adapter] = []
        self._lookups: list[int] = []

    def follow(self, layers: Sequence[WatchedLayer]) -> None:
        """Take in which layers there are: embeddings, the last matrix, and those with an adapter."""
        embeddings = [row for row, layer in enumerate(layers) if layer.role == "embedding"]
        head = [row for row, layer in enumerate(layers) if layer.role == "matrix"][-1:] if embeddings else []
        self._lookups = [row for row in embeddings + head if layers[row].tied is None]
        self._adapters = list(_adapters(layers))

    def attend(self, found: Mapping[nn.Module, Attention | None], layers: Sequence[WatchedLayer]) -> None:
        """Take in the attentions that were heard, by the layer behind each."""
        self._found = []
        missing = [_name_of(module, layers) for module, one in found.items() if one is None]
        for one in filter(None, found.values()):
            rows = [_row_of(source.module, layers) for source in (one.query, one.key, one.value)]
            rows.append(_row_of(one.out, layers, out=True))
            known = [row for row in rows if row is not None]
            if len(known) < 4:
                missing.append(_name_of(one.out, layers))
            else:
                self._found.append((known[0], known[1], known[2], known[3], one))
        other = [_name_of(one.out, layers) for *_, one in self._found if not one.by_weights]
        told = [f"of {shortened_names(missing, SHOWN)} (not made by one watched weight each)"] if missing else []
        told += [f"of queries and keys of {shortened_names(other, SHOWN)} (normalized or changed)"] if other else []
        self.left_out = f"no gains of the heads in front {'; '.join(told)}." if told else ""

    def read(self, around: Surroundings, logits: Mapping[nn.Module, Tensor], sheet: Sheet) -> None:
        """Write down gains of heads, largest logits, rows of embeddings, and adapters."""
        together: dict[Hashable, list[tuple[int, HeadWeights]]] = {}
        for query, key, value, out, one in self._found:
            weights = _head_weights(around, (query, key, value, out), one)
            if weights is not None:
                together.setdefault(_alike(weights), []).append((query, weights))
            if one.out in logits:
                sheet.put(sheet.layers[query], "logit_max", logits[one.out])
        for group in together.values():
            _put_gains(group, sheet)
        for row in self._lookups:
            weight = around.weight(row)
            if weight is not None:
                dim = 0 if is_transposed(around.layers[row].module) else 1
                sheet.put(sheet.layers[row], "row_max", torch.linalg.vector_norm(weight, dim=dim).amax())
        for adapter in self._adapters:
            sheet.put(sheet.layers[adapter.row], "adapter", _adapter_norm(adapter))


def _put_gains(group: Sequence[tuple[int, HeadWeights]], sheet: Sheet) -> None:
    gains = head_gains([weights for _, weights in group])
    rows = [row for row, _ in group]
    for name, found in (("qk_gain", gains.qk), ("ov_gain", gains.ov)):
        if found is not None:
            sheet.put_column(rows, name, found.amax(1))  # type: ignore[arg-type]
            for row, numbers in zip(rows, found, strict=True):
                sheet.put_part(sheet.heads[row], [(name, head) for head in range(len(numbers))], numbers)
    if gains.bound is not None:
        sheet.put_column(rows, "logit_bound", gains.bound.amax(1))


def _alike(weights: HeadWeights) -> Hashable:
    shapes = tuple(None if t is None else tuple(t.shape) for t in (weights.query, weights.key, weights.value))
    return weights.out.device, weights.out.dtype, shapes, tuple(weights.out.shape), weights.scale, weights.turned


def _head_weights(around: Surroundings, rows: tuple[int, int, int, int], one: Attention) -> HeadWeights | None:
    """The weights of an attention's heads as they are now."""
    query, key, value, out = (_oriented(around, row) for row in rows)
    if query is None or key is None or value is None or out is None:
        return None
    fronts = [around.front(row) for row in rows[:3]]
    forms = [None if front is None else around.form(front) for front in fronts]
    gammas = [None if form is None or form.gamma is None else form.gamma.detach() for form in forms]
    sides = [source.heads(w, one.width) for source, w in ((one.query, query), (one.key, key), (one.value, value))]
    bounded = (
        one.by_weights
        and one.scale is not None
        and all(f is not None and f.kind in ("layer", "rms") for f in forms[:2])
    )
    factor = _times(one.query.factor, one.key.factor)
    pair = zip(rows[:2], (one.query, one.key), forms[:2], (query, key), strict=True)
    offsets = [_offset(around, row, source, form, w, one.width) if bounded else None for row, source, form, w in pair]
    return HeadWeights(
        sides[0] if one.by_weights else None,
        sides[1] if one.by_weights else None,
        sides[2],
        out.T.unflatten(0, (-1, one.width)),
        (gammas[0], gammas[1], gammas[2]),
        (offsets[0], offsets[1]),
        _times(one.scale, factor) if bounded else None,
        "turned" in (one.query.kind, one.key.kind),
    )


def _offset(
    around: Surroundings, row: int, source: Source, form: Normalizer | None, weight: Tensor, width: int
) -> Tensor | None:
    """What a layer gives where the normalized input is 0: Wβ + bias."""
    module = around.layers[row].module
    bias = module._parameters.get("in_proj_bias" if isinstance(module, nn.MultiheadAttention) else "bias")
    beta = None if form is None or form.beta is None else form.beta.detach()
    parts = [] if bias is None else [bias.detach().to(weight.dtype)]
    parts += [] if beta is None else [weight @ beta.to(weight.dtype)]
    return source.heads(torch.stack(parts).sum(0), width) if parts else None


def _oriented(around: Surroundings, row: int) -> Tensor | None:
    """The weight of a row as (outputs, inputs), in the precision of products."""
    weight = around.weight(row)
    if weight is None or weight.ndim != 2:
        return None
    wide = weight.to(working(weight))
    return wide.T if is_transposed(around.layers[row].module) else wide


def _times(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else abs(left * right)


def _name_of(module: nn.Module, layers: Sequence[WatchedLayer]) -> str:
    return next((layer.name for layer in layers if layer.module is module), type(module).__name__)


def _row_of(module: nn.Module, layers: Sequence[WatchedLayer], out: bool = False) -> int | None:
    """The row of a layer's matrix; of torch's own attention the one behind it, where that is asked for."""
    whole = isinstance(module, nn.MultiheadAttention)
    owner = module.out_proj if out and isinstance(module, nn.MultiheadAttention) else module
    name = "in_proj_weight" if whole and not out else "weight"
    found = [row for row, x in enumerate(layers) if x.module is owner and x.role == "matrix" and x.tied is None]
    named = [row for row in found if layers[row].attribute == name]
    return next(iter(named or found)) if len(found) == 1 or named else None


def _adapters(layers: Sequence[WatchedLayer]) -> list[Adapter]:
    """Corrections of low rank, beside or around the weight they correct."""
    found = []
    for row, layer in enumerate(layers):
        owners = [layer.module, layer.parent] if layer.role == "matrix" else []
        places = ((owner, names) for owner in owners if owner is not None for names in ADAPTERS)
        fitting = (place for place in places if _corrects(layer, *place))
        found += [Adapter(row, *place) for place in fitting][:1]
    return found


def _corrects(layer: WatchedLayer, owner: nn.Module, names: tuple[str, str]) -> bool:
    """Whether a module holds the two factors of a correction of this layer's weight."""
    a, b = (factor_of(owner, name) for name in names)
    if a is None or b is None or layer.attribute in names or layer.module in _children(owner, names):
        return False
    shapes = ((b.shape[0], a.shape[-1]), (a.shape[-1], b.shape[0]))  # the second for a weight that is transposed
    return a.ndim == b.ndim == 2 and a.shape[0] == b.shape[1] and layer.shape in shapes


def _children(owner: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    return [part for name in names if (child := owner._modules.get(name)) is not None for part in child.modules()]


def factor_of(owner: nn.Module, name: str) -> Tensor | None:
    """One factor of an adapter: a parameter, the weight of a layer, or that of the first of several."""
    parameter = owner._parameters.get(name)
    if parameter is not None:
        return parameter.detach()
    child = owner._modules.get(name)
    if isinstance(child, nn.ModuleDict):
        child = next(iter(child.values()), None)
    weight = None if child is None else child._parameters.get("weight")
    return None if weight is None else weight.detach()


def _adapter_norm(adapter: Adapter) -> Tensor:
    """‖scale·BA‖₂, the same however B and A share their scale."""
    a, b = (factor_of(adapter.owner, name) for name in adapter.names)
    assert a is not None and b is not None  # found so
    a, b = a.to(working(a)), b.to(working(b))
    return product_norm(a @ a.T, b.T @ b) * _scaling(adapter.owner)


def _scaling(owner: nn.Module) -> float:
    given: Any = getattr(owner, "scaling", 1.0)
    value = next(iter(given.values()), 1.0) if isinstance(given, Mapping) else given
    number = float(value) if isinstance(value, int | float) else 1.0
    return abs(number) if math.isfinite(number) else 1.0
