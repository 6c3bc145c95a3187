"""Which diagonal rescalings of the weights leave a network alone.

Every entry of every tensor gets a log scale, an unknown; every operation says how the scales of its result follow from
those of its arguments: a matrix product may change them freely if its weights move along, ReLU and sums hand them on,
a normalizer forgets the scale of what it normalizes, GELU allows only the scale 1. The solutions of these linear
equations are the rescalings that change nothing.

Holds:  for positive scales, any weights, and ε = 0 in the normalizers; checked on the model by `verify`.
Source: THEORY sections 5 and 11 for each operation by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from normgauge.geometry.symmetry.graph import GraphValue, Node, OperationGraph
from normgauge.geometry.symmetry.labels import FIXED, WILD, Labels, Torus, Use
from normgauge.geometry.symmetry.normed import estimates, spectrally_normed, weight_normed
from normgauge.geometry.symmetry.operations import (
    COMPARING,
    EMBEDDING,
    FINITE,
    FORGETTING,
    HOMOGENEOUS,
    INDEXING,
    POWERS,
    NormalizerNode,
    along_axis,
    guards_denominator,
    is_zero,
    normalization,
    only_moves,
    replay_entries,
)
from normgauge.geometry.symmetry.products import PRODUCTS, REDUCTIONS, equate_uses, reduced


def label_graph(graph: OperationGraph, strict: bool = False) -> Labels:
    """Label every value of a graph, in order.

    Args:
        graph: what was recorded.
        strict: leave out scales that an ε makes visible; only BatchNorm's can be made up for, in its running variance.

    Returns:
        The labels and the equations between them.
    """
    labels = Labels(Torus(), graph, strict=strict)
    divided = {} if strict else estimates(graph)
    labels.skipped.update(*(e.parts for e in divided.values()))
    for node in graph.nodes:
        if node.index in labels.skipped:
            labels.fixed(node)
        elif node.index in divided:
            spectrally_normed(labels, node, divided[node.index])
        elif any(out.floating for out in node.outputs):
            step(labels, node)
        else:
            label_comparison(labels, node)
    if graph.output is not None:
        labels.torus.fix(labels.of(graph.output))
    for name in list(graph.state):
        equate_uses(labels, name)
    labels.tie_unread()
    return labels


def step(labels: Labels, node: Node) -> None:
    """What one operation does to the labels."""
    op = node.op
    if node.mixed:
        labels.refuse(node)
    elif only_moves(node):
        label_move(labels, node)
    elif op in INDEXING:
        looked_up(labels, node)
    elif op in PRODUCTS:
        PRODUCTS[op](labels, node)
    elif (normal := normalization(node)) is not None:
        normalized(labels, node, normal)
    elif op in HOMOGENEOUS or bends_at_zero(labels, node):
        labels.give(node, labels.of(node.args[0]))
    elif op in POWERS and isinstance(node.args[0], GraphValue) and not isinstance(node.arg(1), GraphValue):
        known = POWERS[op]
        power = float(node.args[1]) if known is None else known
        labels.give(node, labels.torus.combine([(power, labels.of(node.args[0]))]))
    elif op in SPECIAL:
        SPECIAL[op](labels, node)
    elif op in REDUCTIONS:
        reduced(labels, node)
    elif op in FORGETTING:
        labels.pin(node)
    else:
        labels.refuse(node)


def label_comparison(labels: Labels, node: Node) -> None:
    """Whole numbers and truth values made of floating ones, or a number that Python read."""
    read, other = any(v.floating and labels.graph.weighed(v) for v in node.inputs), node.arg(1)
    sign = node.op in COMPARING and is_zero(other)  # that of an entry does not change
    if not read or sign or node.op in FINITE:
        return
    if node.op in COMPARING and isinstance(other, GraphValue) and other.floating:
        labels.torus.same(labels.of(node.args[0]), labels.of(other))
    elif node.op in FORGETTING | COMPARING:
        labels.pin(node)
    else:
        labels.refuse(node)


def bends_at_zero(labels: Labels, node: Node) -> bool:
    """A clamp at 0, or at the ε of a denominator."""
    if node.op in ("clamp_min", "clamp", "clamp_max", "threshold"):
        limits = [a for a in node.args[1:] if a is not None]
        return all(is_zero(a) for a in limits) or (not labels.strict and guards_denominator(labels.graph, node))
    return False


def label_move(labels: Labels, node: Node) -> None:
    """Copies, views and cuts: the operation is run on the labels themselves."""
    sources = [v for v in node.inputs if v.floating]
    if not sources:  # whole numbers turned into floating ones
        labels.fixed(node)
        return
    known = [labels.rearranged(v) for v in sources]
    if len(sources) == 1 and known[0] is not None:
        name, places = known[0]
        results = replay_entries(node, {sources[0].index: places})
        if all(bool((r >= 0).all()) for r in results):
            for out, result in zip(node.outputs, results, strict=True):
                labels.places[out.index] = (name, result)
            return
    given = {v.index: labels.of(v) for v in sources}
    for out, result in zip(node.outputs, replay_entries(node, given, WILD), strict=True):
        labels.made[out.index] = result


def looked_up(labels: Labels, node: Node) -> None:
    """Entries chosen by the batch: another batch chooses others, so all that may be chosen have one scale."""
    source = node.args[0]
    dims = _indexed(node.args[1]) if node.op == "index" else [node.args[1]]
    rearranged = labels.rearranged(source)
    if rearranged is not None and dims == [0] and rearranged[1].ndim == 2:  # a table
        labels.give(node, column_variables(labels, *rearranged))
    else:
        tied = labels.torus.along(labels.of(source), tuple(dims), keepdim=True).expand(source.shape)
        labels.give(node, *replay_entries(node, {source.index: tied}))


def _indexed(indices: Sequence[GraphValue | None]) -> list[int]:
    """The dimensions that are indexed; a mask stands for as many as it has."""
    dims: list[int] = []
    place = 0
    for index in indices:
        mask = index is not None and index.tensor is not None and index.tensor.dtype in (torch.bool, torch.uint8)
        size = len(index.shape) if index is not None and mask else 1
        dims += [] if index is None else range(place, place + size)
        place += size
    return dims


def added(labels: Labels, node: Node) -> None:
    """A sum keeps a scale only if all its parts have it; an ε beside a denominator does not count."""
    eps = not labels.strict and guards_denominator(labels.graph, node)
    terms = node.args[1:] if node.op == "where" else node.args[:2]
    result = torch.tensor(WILD)
    for term in terms:
        if isinstance(term, GraphValue) and (term.role != "constant" or not eps):
            result = labels.torus.same(result, labels.of(term))
        elif not isinstance(term, GraphValue) and not eps and not is_zero(term) and abs(term) != float("inf"):
            result = labels.torus.same(result, torch.tensor(FIXED))
    labels.give(node, result)


def filled(labels: Labels, node: Node) -> None:
    """Entries replaced by a number: 0 and infinities suit any scale."""
    given, number = labels.of(node.args[0]), node.arg(2)
    free = not isinstance(number, GraphValue) and (is_zero(number) or abs(number) == float("inf"))
    if isinstance(number, GraphValue) or not free:
        labels.torus.same(given, labels.of(number) if isinstance(number, GraphValue) else torch.tensor(FIXED))
    labels.give(node, given)


def multiplied(labels: Labels, node: Node) -> None:
    """A product or quotient: its log scales add or subtract."""
    factors = ((1.0, node.args[0]), (-1.0 if node.op == "div" else 1.0, node.arg(1)))
    terms = [(sign, labels.of(v)) for sign, v in factors if isinstance(v, GraphValue) and v.floating]
    if node.kwargs.get("rounding_mode") is not None:
        labels.refuse(node)
    elif not terms:
        labels.fixed(node)
    else:
        alone = len(terms) == 1 and terms[0][0] == 1
        labels.give(node, terms[0][1] if alone else labels.torus.combine(terms))


def sloped(labels: Labels, node: Node) -> None:
    """PReLU: the scale goes through, the slopes keep theirs."""
    labels.torus.fix(labels.of(node.args[1]))
    labels.give(node, labels.of(node.args[0]))


def gated(labels: Labels, node: Node) -> None:
    """GLU: one half times the sigmoid of the other."""
    value, gate = labels.of(node.args[0]).chunk(2, node.arg(1, -1))
    labels.torus.fix(gate)
    labels.give(node, value)


def normalized(labels: Labels, node: Node, normal: NormalizerNode) -> None:
    """A normalizer: one scale in each group, which is forgotten; then gain and shift."""
    given, torus = labels.of(normal.source), labels.torus
    if normal.frozen:
        mean, variance = normal.running
        result = torus.same(given, along_axis(labels.of(mean), normal.axis, given.ndim))
        result = torus.combine([(1.0, result), (-0.5, along_axis(labels.of(variance), normal.axis, given.ndim))])
    else:
        groups = normal.groups(given)
        first = torus.along(groups, (1,))
        if labels.strict and not normal.statistics:
            torus.fix(first)
        if normal.statistics:
            names = (normal.statistics[0].name, normal.statistics[1].name)
            if labels.strict:  # a normalizer used twice has one variance to make up with
                for other in [label for name, _, label in labels.statistics if name == names[0]]:
                    torus.same(first, other)
            labels.statistics.append((*names, first))
        result = torch.zeros_like(given)
    if normal.weight is not None:
        gain = normal.over_channels(labels.of(normal.weight), given.ndim)
        result = torus.combine([(1.0, result), (1.0, gain)]) if normal.frozen else gain.expand(given.shape)
    if normal.bias is not None:
        result = torus.same(result, normal.over_channels(labels.of(normal.bias), given.ndim))
    labels.fixed(node)
    labels.give(node, result)


def embedded(labels: Labels, node: Node) -> None:
    """A table: one scale a column, for all its rows."""
    rearranged = labels.rearranged(node.args[0])
    if rearranged is None:
        labels.refuse(node)
    elif node.op == "embedding" and not node.chosen and node.args[1].tensor is not None:  # rows of a table by position
        labels.places[node.outputs[0].index] = (rearranged[0], rearranged[1][node.args[1].tensor])
    else:
        labels.give(node, column_variables(labels, *rearranged))


def column_variables(labels: Labels, name: str, places: torch.Tensor) -> torch.Tensor:
    """New variables for the columns of a table."""
    made = labels.torus.fresh(places.shape[1])
    labels.uses.setdefault(name, []).append(Use(places, made[None, :], torch.zeros(1, 1, dtype=torch.long)))
    return made


SPECIAL: dict[str, Callable[[Labels, Node], None]] = {
    **dict.fromkeys(("add", "sub", "rsub", "maximum", "minimum", "where"), added),
    **dict.fromkeys(("mul", "div"), multiplied),
    **dict.fromkeys(EMBEDDING, embedded),
    "masked_fill": filled,
    "_prelu_kernel": sloped,
    "glu": gated,
    "_weight_norm_interface": weight_normed,
}
