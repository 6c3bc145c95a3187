"""Scales through sums, means, norms and poolings."""

from __future__ import annotations

from normgauge.symmetry.graph import Node, Value
from normgauge.symmetry.labels import Labels

REDUCTIONS = {
    "sum": 1.0, "mean": 1.0, "amax": 1.0, "amin": 1.0, "max": 1.0, "min": 1.0, "linalg_vector_norm": 1.0, "var": 2.0,
    "std": 1.0, "cumsum": 1.0, "avg_pool1d": 1.0, "avg_pool2d": 1.0, "avg_pool3d": 1.0, "_adaptive_avg_pool2d": 1.0,
    "_adaptive_avg_pool3d": 1.0, "adaptive_max_pool2d": 1.0, "adaptive_max_pool3d": 1.0, "max_pool1d": 1.0,
    "max_pool2d_with_indices": 1.0, "max_pool3d_with_indices": 1.0, "upsample_linear1d": 1.0,
    "upsample_bilinear2d": 1.0, "upsample_bicubic2d": 1.0, "upsample_trilinear3d": 1.0,
}  # fmt: skip


def reduced(labels: Labels, node: Node) -> None:
    """What is summed must have one scale."""
    out, given = node.outputs[0], labels.of(node.args[0])
    if isinstance(node.arg(1), Value):
        labels.refuse(node)
        return
    pooled = "pool" in node.op or "upsample" in node.op
    dims = _spatial(node) if pooled else _dims(node, given.ndim)
    result = labels.torus.along(given, tuple(d % given.ndim for d in dims), keepdim=True) if given.ndim else given
    labels.fixed(node)
    if pooled or node.op == "cumsum":
        labels.made[out.index] = result.expand(out.shape)
        return
    if REDUCTIONS[node.op] != 1.0:
        result = labels.torus.combine([(REDUCTIONS[node.op], result)])
    labels.made[out.index] = result.reshape(out.shape)


def _spatial(node: Node) -> tuple[int, ...]:
    """The dimensions a pooling goes over, from its name."""
    return tuple(range(-int(next(c for c in node.op if c.isdigit())), 0))


def _dims(node: Node, ndim: int) -> tuple[int, ...]:
    """The dimensions a sum goes over; all where none are given."""
    dims = node.arg(2 if node.op == "linalg_vector_norm" else 1, node.kwargs.get("dim"))
    if dims is None or dims == []:
        return tuple(range(ndim))
    return tuple(dims) if isinstance(dims, list | tuple) else (dims,)
