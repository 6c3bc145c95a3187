"""Scales through matrix products, convolutions, sums and poolings: the weights of a product move along."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from normgauge.geometry.symmetry.graph import GraphValue, Node
from normgauge.geometry.symmetry.labels import FIXED, WILD, Labels, Torus, Use
from normgauge.geometry.symmetry.operations import along_axis

REDUCTIONS = {
    "sum": 1.0, "mean": 1.0, "amax": 1.0, "amin": 1.0, "max": 1.0, "min": 1.0, "linalg_vector_norm": 1.0, "var": 2.0,
    "std": 1.0, "cumsum": 1.0, "avg_pool1d": 1.0, "avg_pool2d": 1.0, "avg_pool3d": 1.0, "_adaptive_avg_pool2d": 1.0,
    "_adaptive_avg_pool3d": 1.0, "adaptive_max_pool2d": 1.0, "adaptive_max_pool3d": 1.0, "max_pool1d": 1.0,
    "max_pool2d_with_indices": 1.0, "max_pool3d_with_indices": 1.0, "upsample_linear1d": 1.0,
    "upsample_bilinear2d": 1.0, "upsample_bicubic2d": 1.0, "upsample_trilinear3d": 1.0,
}  # fmt: skip
TOO_MANY = 200_000  # equations for one tensor; beyond, its scales are fixed


def product_labels(labels: Labels, left: GraphValue, right: GraphValue) -> Tensor:
    """Labels of left @ right for matrices or batches of them."""
    for weight, other, transposed in ((right, left, False), (left, right, True)):
        rearranged = labels.rearranged(weight)
        if rearranged is not None:
            name, places = rearranged
            given = labels.of(other)
            if transposed:
                places, given = places.mT, given.mT
            if places.ndim == 3 and not bool((places == places[:1]).all()):
                continue
            places = places[0] if places.ndim == 3 else places  # (in, out)
            columns = labels.torus.along(given, tuple(range(given.ndim - 1)))
            rows = labels.torus.fresh(places.shape[1])
            labels.uses.setdefault(name, []).append(Use(places, rows[None, :], columns[:, None]))
            shape = (*given.shape[:-1], places.shape[1])
            return rows.expand(shape).mT if transposed else rows.expand(shape)
    a, b = labels.of(left), labels.of(right)
    if a.ndim == 2:
        return bilinear_labels(labels.torus, a, b)
    return torch.stack([bilinear_labels(labels.torus, x, y) for x, y in zip(a, b, strict=True)])


def bilinear_labels(torus: Torus, a: Tensor, b: Tensor) -> Tensor:
    """Two values multiplied, (n, k) by (k, m): a + b must not depend on k."""
    rows, row = torch.unique(a, dim=0, return_inverse=True)
    columns, column = torch.unique(b, dim=1, return_inverse=True)
    terms = torus.combine([(1.0, rows[:, :, None]), (1.0, columns[None, :, :])])  # (rows, k, columns)
    return torus.along(terms, (1,))[row][:, column]


def _mm(labels: Labels, node: Node) -> None:
    *added, left, right = node.args
    result = product_labels(labels, left, right)
    if added and node.kwargs.get("beta", 1) != 0:  # otherwise the first argument is not read
        result = labels.torus.same(result, labels.of(added[0]))
    labels.give(node, result)


def _mv(labels: Labels, node: Node) -> None:
    """A matrix or a vector times a vector."""
    torus, (left, right) = labels.torus, node.args[:2]
    terms = torus.combine([(1.0, labels.of(left)), (1.0, labels.of(right))])
    labels.give(node, torus.along(terms, (-1,)))


def _convolution(labels: Labels, node: Node) -> None:
    source, weight, bias = node.args[:3]
    transposed, groups = node.args[6], node.args[8]
    given, out = labels.of(source), node.outputs[0]
    columns = labels.torus.along(given, tuple(d for d in range(given.ndim) if d != 1))  # (in,)
    ones = (1,) * (given.ndim - 2)
    inside = columns.reshape(groups, -1)  # (groups, in/groups)
    if transposed:  # weight (in, out/groups, ...)
        column = columns.reshape(-1, 1, *ones)
    else:  # weight (out, in/groups, ...)
        column = inside.repeat_interleave(out.shape[1] // groups, 0).reshape(out.shape[1], -1, *ones)
    rearranged = labels.rearranged(weight)
    if rearranged is None:
        rows = _computed(labels, labels.of(weight), column, groups if transposed else 0)
    else:
        name, places = rearranged
        rows = labels.torus.fresh(out.shape[1])
        each = rows.reshape(groups, -1).repeat_interleave(inside.shape[1], 0) if transposed else rows[:, None]
        labels.uses.setdefault(name, []).append(Use(places, each.reshape(*each.shape, *ones), column))
    result = along_axis(rows, 1, given.ndim).expand(out.shape)
    if bias is not None:
        result = labels.torus.same(result, along_axis(labels.of(bias), 1, given.ndim))
    labels.give(node, result)


def _computed(labels: Labels, weight: Tensor, column: Tensor, groups: int) -> Tensor:
    """Labels of output channels for a kernel that is computed: weight + column must not depend on what is summed."""
    terms = labels.torus.combine([(1.0, weight), (1.0, column)])
    if not groups:
        return labels.torus.along(terms, tuple(range(1, terms.ndim)))
    apart = terms.reshape(groups, -1, *terms.shape[1:])  # (groups, in/groups, out/groups, ...)
    return labels.torus.along(apart, (1, *range(3, apart.ndim))).reshape(-1)


PRODUCTS: dict[str, Callable[[Labels, Node], None]] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), _mm),
    **dict.fromkeys(("mv", "dot", "vdot"), _mv),
    "convolution": _convolution,
}


def equate_uses(labels: Labels, name: str) -> None:
    """A weight used more than once has one scale for every entry."""
    uses, torus = labels.uses.get(name, []), labels.torus
    every = list(uses)
    if name in labels.base and uses:
        base = labels.base[name]
        every.insert(0, Use(torch.arange(len(base)), base, torch.tensor(FIXED)))
    for other in every[1:]:
        first = every[0]
        same = next((u for u in (other, _transposed(other)) if _matching(first, u)), None)
        a, b = (first, other) if same is None else (_short(first), _short(same))
        size = labels.graph.state[name].shape.numel()
        if same is not None and _apart(a, b):
            _aligned(torus, a, b)
        elif max(a.places.numel(), b.places.numel()) <= TOO_MANY:
            _entrywise(torus, a, b, size)
        else:
            for labelled in (first.row, first.column, other.row, other.column):
                torus.fix(labelled)


def _transposed(use: Use) -> Use:
    return Use(use.places.mT, use.row.mT, use.column.mT) if use.places.ndim == 2 else use


def _matching(a: Use, b: Use) -> bool:
    return a.places.ndim >= 2 and a.places.shape == b.places.shape and bool((a.places == b.places).all())


def _short(use: Use) -> Use:
    """A kernel's first tap: all its taps have the same scale."""
    places, row, column = (t.flatten(2)[..., 0] if t.ndim > 2 else t for t in (use.places, use.row, use.column))
    return Use(places, row, column)


def _apart(*uses: Use) -> bool:
    """Whether rows and columns each run along one dimension."""
    return all(1 in t.shape for use in uses for t in (use.row, use.column))


def _aligned(torus: Torus, a: Use, b: Use) -> None:
    """row_a − column_a = row_b − column_b, where each is a row or a column: one row and one column say it all."""
    parts = [t.expand(a.places.shape) for t in (a.row, a.column, b.row, b.column)]
    for cut in ((0, slice(None)), (slice(None), 0)):
        r, c, r2, c2 = (p[cut] for p in parts)
        torus.fix(torus.combine([(1.0, r), (-1.0, c), (-1.0, r2), (1.0, c2)]))


def _entrywise(torus: Torus, a: Use, b: Use, size: int) -> None:
    table = torch.full((4, size), WILD)
    for k, use in ((0, a), (2, b)):
        table[k, use.places.reshape(-1)] = use.row.expand(use.places.shape).reshape(-1)
        table[k + 1, use.places.reshape(-1)] = use.column.expand(use.places.shape).reshape(-1)
    both = table[:, (table != WILD).all(0)]
    torus.fix(torus.combine([(1.0, both[0]), (-1.0, both[1]), (-1.0, both[2]), (1.0, both[3])]))


def reduced(labels: Labels, node: Node) -> None:
    """What is summed must have one scale."""
    given = labels.of(node.args[0])
    if isinstance(node.arg(1), GraphValue):
        labels.refuse(node)
        return
    pooled = "pool" in node.op or "upsample" in node.op  # over as many dimensions as its name says
    dims = tuple(range(-int(re.sub(r"\D", "", node.op)), 0)) if pooled else _dims(node, given.ndim)
    result = labels.torus.along(given, tuple(d % given.ndim for d in dims), keepdim=True) if given.ndim else given
    labels.fixed(node)
    if REDUCTIONS[node.op] != 1.0:
        result = labels.torus.combine([(REDUCTIONS[node.op], result)])
    labels.give(node, result if pooled or node.op == "cumsum" else result.reshape(node.outputs[0].shape))


def _dims(node: Node, ndim: int) -> tuple[int, ...]:
    """The dimensions a sum goes over; all where none are given."""
    dims = node.arg(2 if node.op == "linalg_vector_norm" else 1, node.kwargs.get("dim"))
    if dims is None or dims == []:
        return tuple(range(ndim))
    return tuple(dims) if isinstance(dims, list | tuple) else (dims,)
