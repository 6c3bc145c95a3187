"""What is known about ATen operations: which move entries, which commute with scales, which normalize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from normgauge.symmetry.graph import Node, Value

MOVING = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze",
    "cat", "stack", "split", "split_with_sizes", "unbind", "chunk", "clone", "contiguous", "flip", "roll", "index",
    "index_select", "gather", "repeat", "constant_pad_nd", "im2col", "pixel_shuffle", "pixel_unshuffle", "unfold",
    "diagonal", "tril", "triu", "reflection_pad1d", "reflection_pad2d", "replication_pad2d", "_reshape_alias",
    "movedim", "channel_shuffle", "_to_copy", "swapaxes", "narrow", "upsample_nearest1d", "upsample_nearest2d",
    "unsafe_split",
}  # fmt: skip
HOMOGENEOUS = {"relu", "leaky_relu", "abs", "neg", "native_dropout", "clone", "rrelu_with_noise", "clamp_min"}
POWERS: dict[str, float | None] = {
    "pow": None, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "square": 2.0,
}  # fmt: skip
SOFTMAX = {"_softmax", "_safe_softmax"}
FORGETTING = SOFTMAX | {
    "gelu", "silu", "sigmoid", "tanh", "exp", "elu", "softplus", "erf", "log", "log1p", "expm1", "sin", "cos",
    "hardswish", "hardsigmoid", "mish", "celu", "selu", "log_sigmoid_forward", "_log_softmax", "hardtanh", "clamp",
    "logsumexp", "_prelu_kernel", "sign", "round", "floor", "bernoulli", "topk", "argmax",
}  # fmt: skip
BATCH_NORMS = {
    "native_batch_norm": 5, "_native_batch_norm_legit": 5, "cudnn_batch_norm": 5, "miopen_batch_norm": 5,
}  # fmt: skip
EPS = 1e-3  # a number this small added to a tensor is an ε


def is_eps(number: float) -> bool:
    """Whether a number is added only to keep a division from failing."""
    return 0 < abs(number) <= EPS


@dataclass(frozen=True, slots=True)
class Normal:
    """A normalizer: entries in groups, each brought to mean zero and variance one; then a gain and a shift.

    Attributes:
        source: what is normalized.
        weight, bias: gain and shift.
        kind: ``layer``, ``group``, ``batch`` or ``rms``.
        size: entries of a group (layer, rms) or number of groups a sample (group).
        statistics: running mean and variance, if any.
        frozen: whether these take the place of the batch's own.
    """

    source: Value
    weight: Value | None
    bias: Value | None
    kind: str
    size: int = 0
    statistics: tuple[Value, ...] = ()
    frozen: bool = False

    @property
    def axis(self) -> int:
        """The dimension of channels; −1 for the last."""
        return -1 if self.kind in ("layer", "rms") else 1

    @property
    def centres(self) -> bool:
        """Whether means are taken off."""
        return self.kind != "rms"

    def groups(self, entries: Tensor) -> Tensor:
        """Entries of the source as (groups, entries of one)."""
        if self.kind == "batch":
            return entries.transpose(0, 1).reshape(entries.shape[1], -1)
        if self.kind == "group":
            return entries.reshape(entries.shape[0] * self.size, -1)
        return entries.reshape(-1, self.size)

    def over_channels(self, vector: Tensor, ndim: int) -> Tensor:
        """Gain or shift in a shape that broadcasts to the source."""
        return vector if self.kind in ("layer", "rms") else spread(vector, 1, ndim)


def spread(vector: Tensor, axis: int, ndim: int) -> Tensor:
    """A vector along ``axis`` of a tensor with ``ndim`` dimensions."""
    return vector.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


def normalization(node: Node) -> Normal | None:
    """The normalizer a node is, or None."""
    op, args = node.op, node.args
    if op == "native_layer_norm":
        return Normal(args[0], args[2], args[3], "layer", int(torch.Size(args[1]).numel()))
    if op == "_fused_rms_norm":
        return Normal(args[0], args[2], None, "rms", int(torch.Size(args[1]).numel()))
    if op == "native_group_norm":
        return Normal(args[0], args[1], args[2], "group", int(args[6]))
    if op in BATCH_NORMS:
        legit = isinstance(args[3], bool)  # the form without running statistics
        training = args[3] if legit else args[5]
        running = () if legit else tuple(v for v in args[3:5] if v is not None)
        statistics = running if all(v.role == "state" for v in running) else ()
        return Normal(args[0], args[1], args[2], "batch", statistics=statistics, frozen=not training)
    return None


def replay(node: Node, given: Mapping[int, Tensor], fill: int = -1) -> list[Tensor]:
    """Run an operation that only moves entries on whole numbers in place of them; new entries become −1.

    Args:
        node: the operation.
        given: numbers for the values it reads, by index.
        fill: numbers for floating values not given.

    Returns:
        Numbers for every output.
    """

    def put(leaf: object) -> object:
        if not isinstance(leaf, Value):
            return leaf
        if leaf.index in given:
            return given[leaf.index].double().contiguous() + 1.0  # zeros that the operation puts in turn into −1
        if not leaf.floating:
            return leaf.tensor
        return torch.full(leaf.shape, fill + 1.0, dtype=torch.float64)

    args, kwargs = tree_map(put, (node.args, node.kwargs))
    if node.op == "_to_copy":
        return [args[0].long() - 1]
    if node.op == "clone":
        return [args[0].long() - 1]
    if node.op in ("view", "_unsafe_view", "_reshape_alias"):
        return [args[0].reshape(args[1]).long() - 1]
    out = node.func(*args, **kwargs)
    return [t.long() - 1 for t in tree_leaves(out) if isinstance(t, Tensor)]
