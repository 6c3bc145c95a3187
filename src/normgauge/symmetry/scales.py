"""Which diagonal rescalings of the weights leave a network alone.

Every entry of every tensor gets a log scale, an unknown; every operation says how the scales of its result follow from
those of its arguments: a matrix product may change them freely if its weights move along, ReLU and sums hand them on,
a normalizer forgets the scale of what it normalizes, GELU allows only the scale 1. The solutions of these linear
equations are the rescalings that change nothing.

Holds:  for positive scales, any weights, and ε = 0 in the normalizers; checked on the model by `verify`.
Source: THEORY sections 5 and 11 for each operation by itself.
"""

from __future__ import annotations

from typing import Any

import torch

from normgauge.symmetry.graph import Graph, Node, Value
from normgauge.symmetry.labels import Labels, Use
from normgauge.symmetry.operations import (
    FORGETTING,
    HOMOGENEOUS,
    MOVING,
    POWERS,
    Normal,
    is_eps,
    normalization,
    replay,
    spread,
)
from normgauge.symmetry.products import PRODUCTS, agree
from normgauge.symmetry.torus import WILD, Torus


def label(graph: Graph, strict: bool = False) -> Labels:
    """Label every value of a graph, in order.

    Args:
        graph: what was recorded.
        strict: leave out scales that an ε makes visible; only BatchNorm's can be made up for, in its running variance.

    Returns:
        The labels and the equations between them.
    """
    labels = Labels(Torus(), graph, strict=strict)
    for node in graph.nodes:
        if any(out.floating for out in node.outputs):
            step(labels, node)
    if graph.output is not None:
        labels.torus.fix(labels.of(graph.output))
    for name in list(graph.state):
        agree(labels, name)
    return labels


def step(labels: Labels, node: Node) -> None:
    """What one operation does to the labels."""
    op, out = node.op, node.outputs[0]
    if "mixed" in node.kwargs:
        labels.refuse(node)
    elif op in MOVING:
        moved(labels, node)
    elif op in PRODUCTS:
        PRODUCTS[op](labels, node)
    elif (normal := normalization(node)) is not None:
        normalized(labels, node, normal)
    elif op in HOMOGENEOUS:
        labels.made[out.index] = labels.of(node.args[0]).expand(out.shape)
    elif op in POWERS:
        known = POWERS[op]
        power = float(node.arg(1)) if known is None else known
        labels.made[out.index] = labels.torus.combine([(power, labels.of(node.args[0]))])
    elif op in ("add", "sub", "rsub", "maximum", "minimum", "where"):
        added(labels, node)
    elif op in ("mul", "div"):
        multiplied(labels, node)
    elif op in REDUCTIONS:
        reduced(labels, node)
    elif op in FORGETTING:
        labels.pin(node)
    elif op == "embedding":
        embedded(labels, node)
    elif op == "_weight_norm_interface":
        weight_normed(labels, node)
    else:
        labels.refuse(node)


def moved(labels: Labels, node: Node) -> None:
    """Copies, views and cuts: the operation is run on the labels themselves."""
    sources = [v for v in node.inputs if v.floating]
    if not sources:  # whole numbers turned into floating ones
        for out in node.outputs:
            labels.made[out.index] = torch.zeros(out.shape, dtype=torch.long)
        return
    known = [labels.rearranged(v) for v in sources]
    if len(sources) == 1 and known[0] is not None:
        name, places = known[0]
        for out, result in zip(node.outputs, replay(node, {sources[0].index: places}), strict=True):
            labels.places[out.index] = (name, result)
        return
    given = {v.index: labels.of(v) for v in sources}
    for out, result in zip(node.outputs, replay(node, given, WILD), strict=True):
        labels.made[out.index] = result


def added(labels: Labels, node: Node) -> None:
    """A sum keeps a scale only if both sides have it; an ε beside a normalizer's variance does not count."""
    out = node.outputs[0]
    parts = [labels.of(v) for v in node.inputs if v.floating]
    numbers = [a for a in node.args if isinstance(a, int | float) and not isinstance(a, bool)]
    numbers += [float(v.tensor) for v in node.inputs if v.tensor is not None and v.shape.numel() == 1 and v.floating]
    if len(parts) > 1:
        parts = [p for p, v in zip(parts, [v for v in node.inputs if v.floating], strict=True) if not _tiny(v)] or parts
    if any(n != 0 and (labels.strict or not is_eps(n)) for n in numbers):
        for part in parts:
            labels.torus.fix(part)
    result = parts[0]
    for part in parts[1:]:
        result = labels.torus.same(result, part)
    labels.made[out.index] = result.expand(out.shape)


def _tiny(value: Value) -> bool:
    return value.tensor is not None and value.shape.numel() == 1 and is_eps(float(value.tensor))


def multiplied(labels: Labels, node: Node) -> None:
    """Scales multiply."""
    out, (a, b) = node.outputs[0], (node.args[0], node.arg(1))
    sign = -1.0 if node.op == "div" else 1.0
    terms = [(s, labels.of(v)) for s, v in ((1.0, a), (sign, b)) if isinstance(v, Value) and v.floating]
    alone = len(terms) == 1 and terms[0][0] == 1
    labels.made[out.index] = (terms[0][1] if alone else labels.torus.combine(terms)).expand(out.shape)


REDUCTIONS = {
    "sum": 1.0, "mean": 1.0, "amax": 1.0, "amin": 1.0, "linalg_vector_norm": 1.0, "var": 2.0, "std": 1.0,
    "avg_pool2d": 1.0, "avg_pool1d": 1.0, "_adaptive_avg_pool2d": 1.0, "max_pool2d_with_indices": 1.0, "cumsum": 1.0,
    "upsample_bilinear2d": 1.0,
}  # fmt: skip


def reduced(labels: Labels, node: Node) -> None:
    """What is summed must have one scale."""
    out, given = node.outputs[0], labels.of(node.args[0])
    if "pool" in node.op or "upsample" in node.op:
        dims: Any = tuple(range(2 - given.ndim, 0)) if given.ndim > 2 else ()
        result = labels.torus.along(given, tuple(d % given.ndim for d in dims), keepdim=True)
        labels.made[out.index] = result.expand(out.shape)
        for other in node.outputs[1:]:
            labels.made[other.index] = torch.zeros(other.shape, dtype=torch.long)
        return
    position = 2 if node.op == "linalg_vector_norm" else 1
    dims = node.arg(position, node.kwargs.get("dim"))
    dims = (
        tuple(range(given.ndim))
        if dims is None or dims == []
        else tuple(dims)
        if isinstance(dims, list | tuple)
        else (dims,)
    )
    result = labels.torus.along(given, tuple(d % given.ndim for d in dims), keepdim=True)
    if node.op == "cumsum":
        labels.made[out.index] = result.expand(out.shape)
        return
    if REDUCTIONS[node.op] != 1.0:
        result = labels.torus.combine([(REDUCTIONS[node.op], result)])
    labels.made[out.index] = result.reshape(out.shape)


def normalized(labels: Labels, node: Node, normal: Normal) -> None:
    """A normalizer: one scale in each group, which is forgotten; then gain and shift."""
    out, torus = node.outputs[0], labels.torus
    given = labels.of(normal.source)
    if normal.frozen:
        mean, variance = normal.statistics
        result = torus.same(given, spread(labels.of(mean), normal.axis, given.ndim))
        result = torus.combine([(1.0, result), (-0.5, spread(labels.of(variance), normal.axis, given.ndim))])
    else:
        groups = normal.groups(given)
        first = torus.along(groups, (1,))
        labels.normalizers.append((normal.kind, normal.weight.name if normal.weight is not None else "", first))
        if labels.strict and not normal.statistics:
            torus.fix(first)
        if normal.statistics:
            mean, variance = normal.statistics
            labels.statistics.append((mean.name, variance.name, first))
        result = torch.zeros_like(given)
    if normal.weight is not None:
        gain = normal.over_channels(labels.of(normal.weight), given.ndim)
        result = torus.combine([(1.0, result), (1.0, gain)]) if normal.frozen else gain.expand(given.shape)
    if normal.bias is not None:
        result = torus.same(result, normal.over_channels(labels.of(normal.bias), given.ndim))
    labels.made[out.index] = result.expand(out.shape)
    for other in node.outputs[1:]:
        labels.made[other.index] = torch.zeros(other.shape, dtype=torch.long)


def embedded(labels: Labels, node: Node) -> None:
    """A table: one scale a column, for all its rows."""
    out, rearranged = node.outputs[0], labels.rearranged(node.args[0])
    if rearranged is None:
        labels.refuse(node)
        return
    name, places = rearranged
    if not labels.graph.given(node.args[1]) and node.args[1].tensor is not None:  # rows of a table by position
        labels.places[out.index] = (name, places[node.args[1].tensor])
        return
    columns = labels.torus.fresh(places.shape[1])
    labels.uses.setdefault(name, []).append(Use(places, columns[None, :], torch.zeros(1, 1, dtype=torch.long)))
    labels.made[out.index] = columns.expand(out.shape)


def weight_normed(labels: Labels, node: Node) -> None:
    """w = g v/‖v‖ reaches every w, so it is followed as a weight of its own; the length of v is free besides."""
    direction, length, out = node.args[0], node.args[1], node.outputs[0]
    if direction.role != "state" or length.role != "state":
        labels.refuse(node)
        return
    name = f"{direction.name} (weight norm)"
    labels.normed[name] = (direction.name, length.name, int(node.arg(2, 0)))
    labels.graph.state[name] = Value(-1 - len(labels.normed), out.shape, name, "state")
    labels.places[out.index] = (name, torch.arange(out.shape.numel()).reshape(out.shape))
    for other in node.outputs[1:]:
        labels.made[other.index] = torch.zeros(other.shape, dtype=torch.long)
