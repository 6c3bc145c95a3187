"""Attention found in the graph of a pass, however it is written: which layers make queries, keys, values and output.

Nothing is asked by name. What goes into a layer is followed back, past what only moves numbers, to a fused attention of
torch's or to a product with a softmax; the queries, keys and values there are followed back to the layers that made
them. What lies between is told apart: nothing (`plain`), a rotation of positions (`turned`), or something else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

# Nodes of autograd that move, copy or repeat numbers
MOVING = frozenset({
    "View", "UnsafeView", "Reshape", "ReshapeAlias", "Permute", "Transpose", "T", "ToCopy", "Clone", "Squeeze", "Alias",
    "Unsqueeze", "Expand", "MkldnnReshape",
})  # fmt: skip
CUTTING = frozenset({"Split", "SplitWithSizes", "Slice", "Select", "Unbind", "Narrow"})
SCALING = frozenset({"Mul", "Div"})
TURNING = frozenset({"Add", "Sub", "Neg", "Cat", "Stack", "ViewAsComplex", "ViewAsReal", "Copy", "CopySlices"})
MASKING = frozenset({"MaskedFill", "Add", "Where", "NativeDropout", "FusedDropout"})

FUSED, SOFTMAXES, PRODUCTS = "ScaledDotProduct", ("Softmax", "SafeSoftmax"), ("Bmm", "Baddbmm")

MOST_NODES = 96  # followed back from queries, keys or values
MOST_HOPS = 16  # from a layer to the softmax in front of it, and from there to the product before

Kind = Literal["plain", "turned", "other"]


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of a layer's weight that make the queries, keys or values.

    Attributes:
        module: the layer.
        start, size: of its outputs; size 0 for all of them, below 0 for the third of that number.
        spaced: whether each head has its queries, keys and values side by side.
        kind: what lies between the layer and the attention.
        factor: that they are multiplied with there; None where that is not known.
    """

    module: nn.Module
    start: int = 0
    size: int = 0
    spaced: bool = False
    kind: Kind = "plain"
    factor: float | None = 1.0

    def heads(self, outputs: Tensor, width: int) -> Tensor:
        """The part of a weight (outputs, inputs) or of a bias (outputs) that belongs to each head."""
        if self.spaced:
            return outputs.unflatten(0, (-1, 3, width))[:, self.start]
        size = self.size if self.size >= 0 else outputs.shape[0] // 3
        first = self.start if self.size >= 0 else self.start * size
        return outputs[first : first + size if size else None].unflatten(0, (-1, width))


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention of a model.

    Attributes:
        out: the layer behind it, or the whole of torch's own module.
        query, key, value: what it is made of.
        width: of a head.
        scale: what products of queries and keys are multiplied with; None where that is not known.
    """

    out: nn.Module
    query: Source
    key: Source
    value: Source
    width: int
    scale: float | None

    @property
    def by_weights(self) -> bool:
        """Whether weights alone make queries and keys, up to a rotation of positions."""
        return self.query.kind != "other" and self.key.kind != "other"


@dataclass(frozen=True, slots=True)
class Products:
    """Queries and keys of one pass: (batch or batch·heads, …, positions, width) each, and what multiplies them.

    ``learnt`` is what multiplies them besides and is no number at hand: one for all heads, or one a head.
    """

    query: Tensor
    key: Tensor
    scale: float | None
    learnt: Tensor | None = None

    def largest(self, heads: int) -> Tensor | None:
        """The largest |logit| of the first sample over all pairs of positions, masked ones too.

        Args:
            heads: of a sample, where samples and heads share an axis.
        """
        if self.scale is None:
            return None
        query, key = (t.detach()[: 1 if t.ndim > 3 else heads] for t in (self.query, self.key))
        if query.ndim > 3 and query.shape[1] != key.shape[1]:
            key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        with torch.autocast(query.device.type, enabled=False):
            logits = query @ key.mT
            if self.learnt is not None:
                if self.learnt.numel() not in (1, logits.shape[-3]):
                    return None
                logits = logits * self.learnt.detach().reshape(-1, 1, 1)
            least, most = torch.aminmax(logits)
            return torch.maximum(-least, most) * abs(self.scale)


def kind_of(node: Any) -> str:
    """The name of a node without what all of them end in."""
    return re.sub(r"(Backward)?\d*$", "", node.name()).removeprefix("torch::autograd::")


def attention_behind(node: Any) -> tuple[Any, Any] | None:
    """The node of an attention whose output this is, moved at most; with the product of queries and keys.

    Returns:
        Twice the fused node, or the product with the values and that of queries and keys; None where it is another.
    """
    found = _through(node, MOVING)
    if found is None or kind_of(found).startswith(FUSED):
        return None if found is None else (found, found)
    if kind_of(found) not in PRODUCTS:
        return None
    softmax = _through(found.next_functions[0][0], MOVING | SCALING | MASKING)
    if softmax is None or kind_of(softmax) not in SOFTMAXES:
        return None
    logits = _through(softmax.next_functions[0][0], MOVING | SCALING | MASKING)
    return (found, logits) if logits is not None and kind_of(logits) in PRODUCTS else None


def products_of(found: tuple[Any, Any]) -> Products:
    """Queries and keys as autograd saved them, and what multiplies them on the way to the softmax."""
    values, logits = found
    if values is logits:
        scale = values._saved_scale
        query = values._saved_query
        return Products(query, values._saved_key, query.shape[-1] ** -0.5 if scale is None else float(scale))
    # A product with a sum starts with what is added to it.
    query, key = (
        (logits._saved_batch1, logits._saved_batch2)
        if kind_of(logits) == "Baddbmm"
        else (logits._saved_self, logits._saved_mat2)
    )
    softmax = _through(values.next_functions[0][0], MOVING | SCALING | MASKING)
    scale, learnt = _scale_between(softmax.next_functions[0][0], logits)
    return Products(query, key.mT, scale, learnt)


def sources_of(found: tuple[Any, Any], made: Mapping[int, nn.Module]) -> tuple[Source, Source, Source] | None:
    """The layers that make queries, keys and values; None where one of them comes from none or from several.

    Args:
        found: the attention.
        made: the layers by the number autograd gave to the node of their output.
    """
    values, logits = found
    skipped = 1 if kind_of(logits) == "Baddbmm" else 0
    ends = [logits.next_functions[skipped], logits.next_functions[skipped + 1]]
    ends.append(values.next_functions[2 if values is logits else 1])
    paths = [_path_to_layer(end, made) for end in ends]
    known = [path for path in paths if path is not None]
    if len(known) < 3:
        return None
    shared = len({module for module, _, _ in known}) == 1
    sources = [_source(module, path, shared, kinds) for module, path, kinds in known]
    query, key, value = sources
    return None if query is None or key is None or value is None else (query, key, value)


def told_apart(out: nn.Module, found: tuple[Any, Any], made: Mapping[int, nn.Module]) -> Attention | None:
    """An attention in front of a layer with the layers that make its parts; None where they cannot be told."""
    products, sources = products_of(found), sources_of(found, made)
    if sources is None:
        return None
    scale = products.scale if products.learnt is None else None
    return Attention(out, *sources, width=int(products.query.shape[-1]), scale=scale)


def own_attention(module: nn.MultiheadAttention) -> Attention | None:
    """Torch's own attention, where one weight makes queries, keys and values."""
    if module.in_proj_weight is None:
        return None
    query, key, value = (Source(module, place, -3) for place in range(3))
    return Attention(module, query, key, value, module.head_dim, module.head_dim**-0.5)


def _path_to_layer(end: Any, made: Mapping[int, nn.Module]) -> tuple[nn.Module, list[Any], set[str]] | None:
    """The one layer that queries, keys or values come from, what the first way there cuts, and all on any way."""
    reached: dict[nn.Module, list[Any]] = {}
    kinds: set[str] = set()
    stack: list[tuple[Any, list[Any]]] = [(end, [])]
    seen: set[tuple[Any, int]] = set()
    while stack and len(seen) < MOST_NODES:
        (node, place), path = stack.pop()
        if node is None or (node, place) in seen:
            continue
        seen.add((node, place))
        if (module := made.get(node._sequence_nr())) is not None:
            reached.setdefault(module, path)
            continue
        kinds.add(kind_of(node))
        stack += [(after, [*path, (node, place)]) for after in reversed(node.next_functions)]
    if len(reached) != 1:
        return None
    ((found, path),) = reached.items()
    return found, path, kinds - {"AccumulateGrad"}


def _source(module: nn.Module, path: list[Any], shared: bool, kinds: set[str]) -> Source | None:
    between: Kind = "other"
    if kinds <= MOVING | CUTTING | SCALING:
        between = "plain"
    elif kinds <= MOVING | CUTTING | SCALING | TURNING:
        between = "turned"
    factor = _factor(path, between)
    if not shared:
        return Source(module, kind=between, factor=factor)
    cut = next(((node, place) for node, place in reversed(path) if kind_of(node) not in MOVING), None)
    if cut is None or kind_of(cut[0]) not in CUTTING:
        return None
    node, place = cut
    name = kind_of(node)
    if name in ("Select", "Unbind"):  # (…, 3, heads, width), whichever way it is turned
        return Source(module, int(node._saved_index) if name == "Select" else place, -3, kind=between, factor=factor)
    sizes = node._saved_self_sym_sizes
    dim = node._saved_dim - (node._saved_dim >> 63 << 64)  # autograd tells −1 as 2⁶⁴ − 1
    if dim % len(sizes) != len(sizes) - 1:  # (…, 3·heads, …, width), turned perhaps
        thirds = name == "Split" and 3 * node._saved_split_size == sizes[dim]
        return Source(module, place, -3, kind=between, factor=factor) if thirds else None
    if len(sizes) > 3:  # cut inside each head
        thirds = name == "Split" and 3 * node._saved_split_size == sizes[-1]
        return Source(module, place, -3, spaced=True, kind=between, factor=factor) if thirds else None
    if name == "Slice":
        start, end = (int(x) for x in (node._saved_start, node._saved_end))
        return Source(module, start % sizes[-1], min(end, sizes[-1]) - start % sizes[-1], kind=between, factor=factor)
    parts = [int(n) for n in node._saved_split_sizes] if name == "SplitWithSizes" else [int(node._saved_split_size)] * 9
    return Source(module, sum(parts[:place]), parts[place], kind=between, factor=factor)


def _through(node: Any, passed: frozenset[str]) -> Any:
    """The first node on the way back that is none of these; None after too many."""
    for _ in range(MOST_HOPS):
        if node is None or kind_of(node) not in passed:
            return node
        node = node.next_functions[0][0]
    return None


def _scale_between(node: Any, last: Any) -> tuple[float | None, Tensor | None]:
    """The product of all numbers that logits are multiplied with or divided by before the softmax, and one tensor."""
    scale: float | None = 1.0
    learnt: Tensor | None = None
    while node is not last and scale is not None:
        if kind_of(node) in SCALING:
            scaled = _scaled(scale, node)
            if scaled is None and learnt is None and isinstance(node._saved_other, Tensor):
                other = node._saved_other
                learnt = other if kind_of(node) == "Mul" else other.reciprocal()
            else:
                scale = scaled
        node = node.next_functions[0][0]
    return scale, learnt


def _factor(path: list[Any], between: Kind) -> float | None:
    """What queries, keys or values are multiplied with; a rotation multiplies with tensors, and changes no length."""
    factor: float | None = 1.0
    for node, _ in path:
        if kind_of(node) in SCALING and factor is not None:
            scaled = _scaled(factor, node)
            factor = factor if scaled is None and between == "turned" else scaled
    return factor


def _scaled(scale: float, node: Any) -> float | None:
    """A number times or over what a node multiplies with or divides by; None where that is no number at hand."""
    other = node._saved_other
    if isinstance(other, Tensor):
        if other.ndim or other.device.type != "cpu":
            return None
        other = other.item()
    made = scale * float(other) if kind_of(node) == "Mul" else scale / float(other)
    return made if math.isfinite(made) else None


def saving_is_plain() -> bool:
    """Whether autograd saves numbers as they are: inside a checkpoint, looking at one would run the pass again."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is None
