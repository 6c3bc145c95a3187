"""What is known about ATen operations: which move entries, which commute with scales, which normalize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from normgauge.geometry.symmetry.graph import GraphValue, Node, OperationGraph

VIEWS = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze",
    "split", "split_with_sizes", "unsafe_split", "unbind", "clone", "diagonal", "_reshape_alias", "unfold",
    "as_strided",
}  # fmt: skip
EMBEDDING = {"embedding", "_embedding_bag", "_embedding_bag_forward_only"}
INDEXING = {"index", "index_select", "gather"}
MOVING = VIEWS | INDEXING | {
    "cat", "stack", "flip", "roll", "repeat", "constant_pad_nd", "im2col", "pixel_shuffle", "pixel_unshuffle", "tril",
    "triu", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "channel_shuffle", "native_channel_shuffle", "_to_copy", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d",
}  # fmt: skip
HOMOGENEOUS = {"relu", "leaky_relu", "abs", "neg", "native_dropout", "rrelu_with_noise"}
POWERS: dict[str, float | None] = {"pow": None, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}
SOFTMAX = {"_softmax", "_safe_softmax"}
FORGETTING = SOFTMAX | {
    "gelu", "silu", "sigmoid", "tanh", "exp", "exp2", "elu", "softplus", "erf", "log", "log2", "log1p", "expm1", "sin",
    "cos", "hardswish", "hardsigmoid", "mish", "log_sigmoid_forward", "_log_softmax", "hardtanh", "clamp", "clamp_min",
    "clamp_max", "threshold", "logsumexp", "sign", "round", "floor", "topk", "argmax", "argmin",
}  # fmt: skip
COMPARING = {"gt", "lt", "ge", "le", "eq", "ne"}
FINITE = {"isnan", "isinf", "isfinite"}
BATCH_NORMS = {
    "native_batch_norm": 5, "_native_batch_norm_legit": 5, "cudnn_batch_norm": 5, "miopen_batch_norm": 5,
}  # fmt: skip
EPS = 1e-3  # a number this small added to a denominator is an ε


def is_eps(number: float) -> bool:
    """Whether a number is small enough to be there only to keep a division from failing."""
    return 0 < abs(number) <= EPS


def guards_denominator(graph: OperationGraph, node: Node) -> bool:
    """Whether a sum or a clamp only keeps a denominator away from zero: an ε, and nothing but denominators read it."""
    bounds = [a for a in node.args[1:] if isinstance(a, int | float)]
    bounds += [float(v.tensor) for v in node.inputs if v.tensor is not None and v.floating and v.shape.numel() == 1]
    if node.op not in ("add", "clamp_min", "clamp", "maximum") or len(bounds) != 1 or not is_eps(bounds[0]):
        return False
    stack, seen = list(node.outputs[:1]), 0
    while stack:
        value = stack.pop()
        for reader in graph.readers(value):
            if reader.op in VIEWS:
                stack.extend(reader.outputs)
            elif not _divides(reader, value):
                return False
            seen += 1
    return seen > 0


def _divides(node: Node, value: GraphValue) -> bool:
    """Whether a node takes a root or a negative power of a value, or divides by it."""
    if node.op == "pow":
        return isinstance(node.arg(1), int | float) and (node.args[1] < 0 or node.args[1] == 0.5)
    return node.op in ("sqrt", "rsqrt", "reciprocal") or (node.op == "div" and node.args[1] is value)


def is_zero(number: object) -> bool:
    """Whether an argument is the number 0."""
    return isinstance(number, int | float) and number == 0


def only_moves(node: Node) -> bool:
    """Whether a node only copies, moves or drops entries, the same ones for every batch."""
    if node.op not in MOVING or node.mixed or (node.op in INDEXING and node.chosen):
        return False
    if node.op == "constant_pad_nd":
        return is_zero(node.arg(2, 0)) or abs(node.args[2]) == float("inf")
    if node.op == "as_strided":  # another layout of the same entries, as pooling leaves it
        return list(node.args[1]) == list(node.args[0].shape) and len(node.args) < 4
    return not (node.op == "view" and isinstance(node.args[1], torch.dtype))


def source_of(value: GraphValue, *also: str) -> GraphValue:
    """What a value is a rearrangement of, looking through the operations in ``also`` too."""
    while (
        (node := value.node) is not None
        and (only_moves(node) or node.op in also)
        and isinstance(node.args[0], GraphValue)
    ):
        value = node.args[0]
    return value


@dataclass(frozen=True, slots=True)
class NormalizerNode:
    """A normalizer: entries in groups, each brought to mean zero and variance one; then a gain and a shift.

    Attributes:
        source: what is normalized.
        weight, bias: gain and shift.
        kind: ``layer``, ``group``, ``batch`` or ``rms``.
        size: entries of a group (layer, rms) or number of groups a sample (group).
        running: running mean and variance, if any.
        frozen: whether these take the place of the batch's own.
    """

    source: GraphValue
    weight: GraphValue | None
    bias: GraphValue | None
    kind: str
    size: int = 0
    running: tuple[GraphValue, ...] = ()
    frozen: bool = False

    @property
    def statistics(self) -> tuple[GraphValue, ...]:
        """Running mean and variance where they are a module's own, and not computed from others."""
        return self.running if all(v.role == "state" for v in self.running) else ()

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
        return vector if self.kind in ("layer", "rms") else along_axis(vector, 1, ndim)


def along_axis(vector: Tensor, axis: int, ndim: int) -> Tensor:
    """A vector along ``axis`` of a tensor with ``ndim`` dimensions."""
    return vector.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


def normalization(node: Node) -> NormalizerNode | None:
    """The normalizer a node is, or None."""
    op, args = node.op, node.args
    if op == "native_layer_norm":
        return NormalizerNode(args[0], args[2], args[3], "layer", int(torch.Size(args[1]).numel()))
    if op == "_fused_rms_norm":
        return NormalizerNode(args[0], args[2], None, "rms", int(torch.Size(args[1]).numel()))
    if op == "native_group_norm":
        return NormalizerNode(args[0], args[1], args[2], "group", int(args[6]))
    if op in BATCH_NORMS:
        legit = isinstance(args[3], bool)  # the form without running statistics
        training = args[3] if legit else args[5]
        running = () if legit else tuple(v for v in args[3:5] if v is not None)
        return NormalizerNode(args[0], args[1], args[2], "batch", running=running, frozen=not training)
    return None


def own_bias(node: Node) -> GraphValue | None:
    """The bias that is an operation's own argument."""
    normal = normalization(node)
    if normal is not None:
        return normal.bias
    place = {"addmm": 0, "convolution": 2}.get(node.op)
    bias: GraphValue | None = None if place is None else node.args[place]
    return bias


def channel_axis(node: Node) -> int:
    """The dimension of channels in what an operation makes; −1 for the last."""
    normal = normalization(node)
    return 1 if node.op == "convolution" or (normal is not None and normal.axis == 1) else -1


def channels_of(node: Node) -> Tensor:
    """For every entry of what an operation makes, its channel."""
    shape, axis = node.outputs[0].shape, channel_axis(node)
    return along_axis(torch.arange(shape[axis]), axis, len(shape)).expand(shape)


def mean_dims(node: Node, ndim: int) -> list[int]:
    """The dimensions a mean goes over."""
    return [d % ndim for d in node.arg(1) or range(ndim)]


def subtracts_mean(node: Node) -> bool:
    """Whether a node is x − mean(x)."""
    mean = node.args[1].node if node.op == "sub" and len(node.inputs) == 2 else None
    return mean is not None and mean.op == "mean" and mean.args[0] is node.args[0] and bool(mean.arg(2))


def replay_entries(node: Node, given: Mapping[int, Tensor], fill: int = -1) -> list[Tensor]:
    """Run an operation that only moves entries on whole numbers in place of them; new entries become −1.

    Args:
        node: the operation.
        given: numbers for the values it reads, by index.
        fill: numbers for floating values not given.

    Returns:
        Numbers for every output.
    """
    views = node.op in VIEWS

    def put(leaf: object) -> object:
        if not isinstance(leaf, GraphValue):
            return leaf
        if leaf.index in given:
            numbers = given[leaf.index]
            return numbers if views else numbers.double().contiguous() + 1.0  # zeros that are put in turn into −1
        if not leaf.floating:
            return leaf.tensor
        return torch.full(leaf.shape, fill + 1.0, dtype=torch.float64)

    args, kwargs = tree_map(put, (node.args, node.kwargs))
    if node.op in ("view", "_unsafe_view", "_reshape_alias"):
        return [args[0].reshape(args[1])]
    if node.op in ("clone", "as_strided"):
        return [args[0]]
    if node.op == "_to_copy":
        return [args[0].long() - 1]
    if node.op == "constant_pad_nd":
        args = args[:2]
    out = node.func(*args, **kwargs)
    results = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
    return results if views else [t.long() - 1 for t in results]
