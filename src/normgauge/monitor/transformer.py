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
from normgauge.monitor.heads import HeadGrams, HeadWeights, head_gains, head_grams, joined, product_norm
from normgauge.monitor.layers import SHOWN, WatchedLayer, is_transposed
from normgauge.monitor.maps import working
from normgauge.monitor.norms import MOST_READ
from normgauge.monitor.sheet import Sheet
from normgauge.render.numbers import shortened_names

HEADS_READ = 3 * MOST_READ  # entries of attentions whose small matrices are made in one go by a graph

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

    def front_form(self, row: int) -> Normalizer | None:
        """What the normalizer in front of a row is, or None."""
        front = self.front(row)
        return None if front is None else self.form(front)


@dataclass(frozen=True, slots=True)
class Placed:
    """An attention with the rows of its layers: those of queries, keys, values, and of the layer behind."""

    one: Attention
    rows: tuple[int, int, int, int]


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
        self._found: list[Placed] = []
        self._adapters: list[Adapter] = []
        self._lookups: list[int] = []

    def follow(self, layers: Sequence[WatchedLayer]) -> None:
        """Take in which layers there are: embeddings, the last matrix, and those with an adapter."""
        embeddings = [row for row, layer in enumerate(layers) if layer.role == "embedding" and not layer.gone]
        matrices = [row for row, layer in enumerate(layers) if layer.role == "matrix" and not layer.gone]
        head = matrices[-1:] if embeddings else []
        self._lookups = [row for row in embeddings + head if layers[row].tied is None]
        self._adapters = list(_adapters(layers))

    def attend(self, found: Mapping[nn.Module, Attention | None], layers: Sequence[WatchedLayer]) -> None:
        """Take in the attentions that were heard, by the layer behind each."""
        self._found = []
        missing = [_name_of(module, layers) for module, one in found.items() if one is None]
        for one in filter(None, found.values()):
            rows = [_row_of(source.module, layers) for source in (one.query, one.key, one.value)]
            query, key, value, out = (*rows, _row_of(one.out, layers, out=True))
            if query is None or key is None or value is None or out is None:
                missing.append(_name_of(one.out, layers))
            else:
                self._found.append(Placed(one, (query, key, value, out)))
        other = [_name_of(placed.one.out, layers) for placed in self._found if not placed.one.by_weights]
        told = [f"of {shortened_names(missing, SHOWN)} (not made by one watched weight each)"] if missing else []
        told += [f"of queries and keys of {shortened_names(other, SHOWN)} (normalized or changed)"] if other else []
        self.left_out = f"no gains of the heads in front {'; '.join(told)}." if told else ""

    def read(self, around: Surroundings, sheet: Sheet, *, frugal: bool = False) -> None:
        """Write down gains of heads, rows of embeddings, and adapters; of a few at a time where memory is saved."""
        together: dict[Hashable, list[Placed]] = {}
        for placed in self._found:
            alike = _alike(around, placed)
            if alike is not None:
                together.setdefault(alike, []).append(placed)
        for group in together.values():
            first = around.weight(group[0].rows[0])
            most = HEADS_READ // (4 * first.numel()) if frugal and first is not None else len(group)
            few = (group[begin : begin + max(1, most)] for begin in range(0, len(group), max(1, most)))
            _put_gains(group, joined([head_grams(_head_weights(around, some)) for some in few]), sheet)
        for row in self._lookups:
            weight = around.weight(row)
            if weight is not None:
                dim = 0 if is_transposed(around.layers[row].module) else 1
                sheet.put(sheet.layers[row], "row_max", torch.linalg.vector_norm(weight, dim=dim).amax())
        for adapter in self._adapters:
            sheet.put(sheet.layers[adapter.row], "adapter", _adapter_norm(adapter))

    @property
    def scaled(self) -> dict[int, float]:
        """What the logits of each attention are multiplied with over 1/√d, where it is known, by row of the queries."""
        known = ((x.rows[0], x.one) for x in self._found)
        factors = ((row, _times(one.scale, _times(one.query.factor, one.key.factor)), one.width) for row, one in known)
        return {row: factor * math.sqrt(width) for row, factor, width in factors if factor is not None}

    def read_logits(self, logits: Mapping[nn.Module, Tensor], sheet: Sheet) -> None:
        """Write down the largest logit of each attention."""
        seen = {placed.rows[0]: logits[placed.one.out] for placed in self._found if placed.one.out in logits}
        if seen:
            sheet.put_column(seen, "logit_max", torch.stack(list(seen.values())))


def _put_gains(group: Sequence[Placed], grams: HeadGrams, sheet: Sheet) -> None:
    gains = head_gains(grams)
    rows = [placed.rows[0] for placed in group]
    for name, found in (("qk_gain", gains.qk), ("ov_gain", gains.ov)):
        if found is not None:
            sheet.put_column(rows, name, found.amax(1))  # type: ignore[arg-type]
            cells = [(sheet.heads[row], (name, head)) for row in rows for head in range(found.shape[1])]
            sheet.cells += cells
            sheet.tensors.append(found.flatten())
    if gains.bound is not None:
        sheet.put_column(rows, "logit_bound", gains.bound.amax(1))


def _alike(around: Surroundings, placed: Placed) -> Hashable | None:
    """What attentions have in common that are measured together; None for one whose weights cannot be had."""
    weights = [around.weight(row) for row in placed.rows]
    if any(weight is None or weight.ndim != 2 for weight in weights):
        return None
    one = placed.one
    sources = [(s.start, s.size, s.spaced, s.kind, s.factor) for s in (one.query, one.key, one.value)]
    forms = [around.front_form(row) for row in placed.rows[:3]]
    normed = [None if f is None else (f.kind, f.gamma is None, f.beta is None) for f in forms]
    layers = [around.layers[row].module for row in placed.rows]
    turned = [(is_transposed(module), _bias(module) is None) for module in layers]
    shapes = [(w.shape, w.dtype, w.device) for w in weights if w is not None]
    same = (len(set(placed.rows[:3])), one.width, one.scale)
    return same, tuple(sources), tuple(normed), tuple(turned), tuple(shapes)


def _head_weights(around: Surroundings, group: Sequence[Placed]) -> HeadWeights:
    """The weights of attentions that are alike, as they are now."""
    first = group[0].one
    stacks: dict[int, Tensor] = {}  # what one weight makes together is copied once
    sides = [_stacked(around, [placed.rows[place] for placed in group], stacks) for place in range(4)]
    sources = (first.query, first.key, first.value)
    heads = [_by_head(source, side, first.width) for source, side in zip(sources, sides, strict=False)]
    forms = [[around.front_form(placed.rows[place]) for placed in group] for place in range(3)]
    gammas = [_beside([None if f is None else f.gamma for f in several], sides[0]) for several in forms]
    kinds = [None if several[0] is None else several[0].kind for several in forms[:2]]
    scale = _times(first.scale, _times(first.query.factor, first.key.factor))
    bounded = first.by_weights and all(kind in ("layer", "rms") for kind in kinds)
    offsets: list[Tensor | None] = [None, None]
    for place in range(2 if bounded else 0):
        modules = [around.layers[placed.rows[place]].module for placed in group]
        parts = [_beside([_bias(module) for module in modules], sides[0])]
        beta = _beside([None if f is None else f.beta for f in forms[place]], sides[0])
        parts.append(None if beta is None else (sides[place] @ beta[..., None])[..., 0])
        known = [part for part in parts if part is not None]
        offsets[place] = _by_head(sources[place], torch.stack(known).sum(0), first.width) if known else None
    return HeadWeights(
        heads[0] if first.by_weights else None,
        heads[1] if first.by_weights else None,
        heads[2],
        sides[3].mT.unflatten(1, (-1, first.width)),
        (gammas[0], gammas[1], gammas[2]),
        (offsets[0], offsets[1]),
        scale if bounded else None,
        "turned" in (first.query.kind, first.key.kind),
    )


def _stacked(around: Surroundings, rows: Sequence[int], stacks: dict[int, Tensor]) -> Tensor:
    """(attentions, outputs, inputs) in the precision of products."""
    if rows[0] not in stacks:
        weights = [w for row in rows if (w := around.weight(row)) is not None]
        wide = torch.stack(weights).to(working(weights[0]))
        stacks[rows[0]] = wide.mT if is_transposed(around.layers[rows[0]].module) else wide
    return stacks[rows[0]]


def _by_head(source: Source, outputs: Tensor, width: int) -> Tensor:
    """(attentions, heads, width, …) of (attentions, outputs, …)."""
    return source.heads(outputs.transpose(0, 1), width).movedim(2, 0)


def _beside(vectors: Sequence[Tensor | None], like: Tensor) -> Tensor | None:
    """Vectors of all attentions in one tensor; None where they have none."""
    known = [vector.detach() for vector in vectors if vector is not None]
    return torch.stack(known).to(like.dtype) if len(known) == len(vectors) else None


def _bias(module: nn.Module) -> Tensor | None:
    return module._parameters.get("in_proj_bias" if isinstance(module, nn.MultiheadAttention) else "bias")


def _times(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else abs(left * right)


def _name_of(module: nn.Module, layers: Sequence[WatchedLayer]) -> str:
    return next((layer.name for layer in layers if layer.module is module), type(module).__name__)


def _row_of(module: nn.Module, layers: Sequence[WatchedLayer], out: bool = False) -> int | None:
    """The row of a layer's matrix; of torch's own attention the one behind it, where that is asked for."""
    whole = isinstance(module, nn.MultiheadAttention)
    owner = module.out_proj if out and isinstance(module, nn.MultiheadAttention) else module
    name = "in_proj_weight" if whole and not out else "weight"
    found = [row for row, x in enumerate(layers) if x.module is owner and x.role == "matrix" and not (x.tied or x.gone)]
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
