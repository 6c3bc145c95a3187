"""Steps that only copy entries: the step itself, run on labels, says exactly where each one goes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normgauge.core.rounding import log_root, log_root_below
from normgauge.instrument.rules.flow import Context, Flow, Gain, Move, SamplesMixed, Transfer
from normgauge.instrument.rules.registry import Family, spellings
from normgauge.instrument.rules.worked import JUMPS, equal
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.trace.step import Step, Value, tensors_in
from normgauge.instrument.trace.tape import overlay, recast

rules = Family("shape")

PADS = ("ZeroPad", "ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad")
MODULES = (
    *(nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle, nn.Unfold),
    *(getattr(nn, f"{pad}{axes}d") for pad in PADS for axes in (1, 2, 3)),
)
NAMES = """
    reshape view view_as flatten unflatten ravel squeeze squeeze_ unsqueeze unsqueeze_ atleast_2d atleast_3d
    permute transpose transpose_ swapaxes swapaxes_ swapdims movedim moveaxis t t_ adjoint
    clone contiguous detach detach_ alias requires_grad_ resolve_conj resolve_neg reshape_as
    expand expand_as broadcast_to broadcast_tensors repeat repeat_interleave tile meshgrid
    roll flip fliplr flipud rot90 pixel_shuffle pixel_unshuffle channel_shuffle unfold as_strided
    narrow select index_select take_along_dim gather masked_select diagonal diag_embed tril triu
    chunk split split_with_sizes unsafe_chunk unsafe_split unbind tensor_split hsplit vsplit dsplit
    cat concat concatenate stack hstack vstack dstack column_stack
    where masked_fill masked_fill_ index_fill index_put index_put_ index_copy scatter slice_scatter select_scatter
    __getitem__ __setitem__ zero_ fill_ copy_
""".split()  # noqa: SIM905 (a list of 90 strings would be harder to read)
FILLS = {"masked_fill": 2, "masked_fill_": 2, "index_fill": 3, "fill_": 1, "where": 1, "scatter": 3, "__setitem__": 2}
"""Steps that may write plain numbers, and how many arguments come before these."""

GETTERS = tuple(getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH", "data"))


def rerun_step(step: Step, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of the step's own function on other inputs of the same shapes; float constants become 0.

    In-place forms work on copies, so the result is read off the first argument.
    """
    supply = iter(inputs)

    def swap(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return next(supply).clone()
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return torch.zeros_like(leaf, dtype=torch.float64)
        return leaf

    args, kwargs = (
        tree_map(swap, part, is_leaf=lambda leaf: isinstance(leaf, Value)) for part in (step.args, step.kwargs)
    )
    if step.module is not None:
        if isinstance(step.module, nn.ConstantPad1d | nn.ConstantPad2d | nn.ConstantPad3d):
            return [F.pad(args[0], step.module.padding, value=0.0)]
        return tensors_in(step.module.forward(*args, **kwargs))
    if step.target is F.pad and step.get(2, "mode", "constant") == "constant":
        return [F.pad(args[0], step.get(1, "pad"), value=0.0)]
    if step.kind in FILLS:  # a number that is written is no entry of an input
        kept = args[: FILLS[step.kind]]
        args = (*kept, *(0.0 if isinstance(a, int | float) else a for a in args[len(kept) :]))
        kwargs = {**kwargs, "value": 0.0} if "value" in kwargs else kwargs
    if step.target is recast:  # its precision is too small for labels
        return [args[0]]
    out = step.target(*args, **kwargs)
    return tensors_in(out) if out is not None else [args[0]]


def copy_labels(step: Step) -> list[list[Tensor]]:
    """For each output and each input: 1 + the flat index of the input entry copied there, 0 where there is none."""
    if step.target is overlay:
        both = _overlay_labels(step)
        return [both[-len(step.inputs) :]]  # what was there before may be a constant
    tensors = [value.tensor for value in step.inputs]
    per_input = []
    for i in range(len(tensors)):
        given = [torch.zeros(t.shape, dtype=torch.float64, device=t.device) for t in tensors]
        labels = torch.arange(1, given[i].numel() + 1, dtype=torch.float64, device=given[i].device)
        given[i] = labels.reshape(given[i].shape)
        per_input.append(rerun_step(step, given))
    return [list(labels) for labels in zip(*per_input, strict=True)]


def _overlay_labels(step: Step) -> list[Tensor]:
    """Labels of the old contents where the memory was not written, and of the new contents where it was."""
    old, new = step.kwargs["old"], step.kwargs["new"]
    extent = 1 + max(sum((n - 1) * s for n, s in zip(*g[:2], strict=True)) + g[2] for g in (old, new))
    memory = torch.zeros(extent, dtype=torch.float64)
    count = math.prod(new[0])
    memory.as_strided(*new).copy_(torch.arange(1, count + 1, dtype=torch.float64).reshape(new[0]))
    fresh = memory.as_strided(*old).clone()
    kept = torch.arange(1, fresh.numel() + 1, dtype=torch.float64).reshape(old[0])
    return [torch.where(fresh > 0, 0.0, kept), fresh]


def most_copies(label: Tensor) -> int:
    """How often the most copied entry appears."""
    flat = label.reshape(-1).long()
    flat = flat[flat > 0]
    return int(torch.bincount(flat).max()) if flat.numel() else 0


def rows_met(label: Tensor, length: int) -> int:
    """From how many input rows, at most, an output row is made."""
    row = ((label.long() - 1) // max(length, 1)).where(label > 0, -1)
    row = row.reshape(-1, row.shape[-1] if row.ndim else 1).sort(1).values
    changes = (row[:, 1:] != row[:, :-1]) & (row[:, :-1] >= 0)
    return int(changes.sum(1).max()) + 1 if row.shape[1] > 1 and row.shape[0] else 1


def sample_axis(label: Tensor, shape: torch.Size, axis: int, samples: int) -> int | None:
    """Where the samples lie after the copy; None when every entry is constant.

    Raises:
        SamplesMixed: when they do not lie along one axis, sample-major.
    """
    each = shape[axis] // samples
    owner = torch.arange(shape[axis], device=label.device) // each
    owner = owner.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))]).expand(shape).reshape(-1)
    moved = torch.where(label > 0, owner[(label.long() - 1).clamp_min(0).reshape(-1)].reshape(label.shape), -1)
    if bool((moved < 0).all()):
        return None
    for candidate in range(label.ndim):
        if label.shape[candidate] % samples:
            continue
        want = torch.arange(label.shape[candidate], device=label.device) // (label.shape[candidate] // samples)
        want = want.reshape([-1 if i == candidate else 1 for i in range(label.ndim)])
        if bool(((moved == want) | (moved < 0)).all()):
            return candidate
    raise SamplesMixed("a reshuffle that does not keep samples apart")


@rules.add(*MODULES, *spellings(*NAMES), F.pad, *GETTERS, overlay, recast, claim="X.copies", complex=True)
def copy(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Copying of entries: views, permutations, slices, padding, concatenation, stacking, masking, in-place writes.

    ‖J‖ = √(largest number of copies of one entry), counted;  branches that fill disjoint parts add in squares

    Holds:  everywhere, exactly (zero, replicate, reflect and circular padding, repeat and expand included).
    Source: the columns of J are orthogonal, with squared length the number of copies.
    """
    return copy_outputs(step, incoming, ctx)[0]


def copy_outputs(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> list[Transfer]:
    """One transfer for each output of a copying step."""
    condition = (
        step.get(0, "condition") if step.kind == "where" else step.get(1, "mask") if "masked" in step.kind else None
    )
    if isinstance(condition, Value):
        why = "a choice that depends on the data may be discontinuous"
        worked = equal(f"the choice may jump: {JUMPS}", ctx.full(math.inf))
        found = Transfer(tuple(Gain(ctx.full(math.inf)) for _ in incoming), no_bound=why, worked=worked)
        return [found] * len(step.outputs)
    refused = _refusal(step)
    if refused:
        return [ctx.unknown(incoming, refused)] * len(step.outputs)
    tables = copy_labels(step)
    return [_copied(step, tables[v.position if len(tables) > 1 else 0], incoming, ctx, v) for v in step.outputs]


def _refusal(step: Step) -> str:
    """Why a step that usually only copies does more here; empty when it only copies."""
    if any(not v.tensor.is_floating_point() and not v.tensor.is_complex() for v in step.inputs):
        return "indices or masks that depend on the data"
    if step.kwargs.get("accumulate") or step.kwargs.get("reduce") or ("index_put" in step.kind and len(step.args) > 3):
        return "writes that add up"
    data = step.inputs[0].tensor
    if step.kind == "as_strided" and not (
        data.is_contiguous() and data.untyped_storage().nbytes() == data.numel() * data.element_size()
    ):
        return "strides over memory that is not the tensor's own, in order"
    return ""


def _copied(step: Step, table: list[Tensor], incoming: tuple[Flow, ...], ctx: Context, output: Value) -> Transfer:
    out = output.tensor
    table = [label.to(out.device) for label in table]
    if table[0].shape != out.shape:
        return ctx.unknown(incoming, "copying that could not be replayed")
    if not _replays(step, table, out):
        why = "copying that does not replay (memory read in another layout?)"
        return ctx.unknown(incoming, why)
    gains: list[Gain] = []
    row, norm, axis, most = [], [], None, 0
    low, high = ctx.full(math.inf), ctx.full(-math.inf)
    shared = torch.stack([label > 0 for label in table]).any(0)
    for value, label, flow in zip(step.inputs, table, incoming, strict=True):
        count = most_copies(label)
        most = max(most, count)
        gains.append(Gain(ctx.full(log_root(count)), log_root_below(count), Move()))
        if not count:
            continue
        single = value.tensor.ndim == 0 or (ctx.samples > 1 and flow.axis % value.tensor.ndim == value.tensor.ndim - 1)
        met = rows_met(label, 1 if single else value.tensor.shape[-1])
        width = out.shape[-1] if out.ndim else 1
        repeats = 1 if count == 1 else _row_repeats(label, width)
        factor = math.sqrt(met * repeats)
        row.append(factor * flow.row)
        norm.append(factor * flow.norm)
        low, high = torch.minimum(low, flow.low), torch.maximum(high, flow.high)
        if ctx.samples > 1:
            found = sample_axis(label, value.tensor.shape, flow.axis, ctx.samples)
            if axis is not None and found is not None and axis != found:
                raise SamplesMixed("branches whose samples lie on different axes")
            axis = found if axis is None else axis
    constants = bool((~shared).any())
    fixed = to_double(out)[~shared] if constants else out.new_zeros(0)
    if constants and fixed.numel():
        ends = (-fixed.abs(), fixed.abs()) if fixed.is_complex() else (fixed, fixed)
        low, high = low.clamp_max(float(ends[0].min())), high.clamp_min(float(ends[1].max()))
    tied = not constants or not fixed.numel() or bool((fixed == 0).all())
    return Transfer(
        tuple(gains),
        disjoint=True,
        row=torch.stack(row).square().sum(0).sqrt() if row else None,
        norm=torch.stack(norm).square().sum(0).sqrt() if norm and tied else None,
        low=low if row else None,
        high=high if row else None,
        axis=axis,
        onto=most == 1 and not constants,
        neutral=most <= 1,
        worked=equal(f"√(most copies of one entry) = √{most}", *(g.log for g in gains)),
    )


def _replays(step: Step, table: list[Tensor], out: Tensor) -> bool:
    """Whether the labels fetch, from the recorded inputs, what the step really gave."""
    for value, label in zip(step.inputs, table, strict=True):
        here = label > 0
        fetched = value.tensor.detach().to(out.device).reshape(-1)[label[here].long() - 1]
        got = out.detach()[here]
        got = got if out.is_complex() else got.to(fetched.dtype)
        if not torch.equal(_numbers(fetched.to(got.dtype)), _numbers(got)):
            return False
    return True


def _numbers(tensor: Tensor) -> Tensor:
    """The real entries, with NaN and infinities replaced by numbers."""
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).nan_to_num()


def _row_repeats(label: Tensor, width: int) -> int:
    """How often one entry appears within one output row, at most."""
    rows = label.reshape(-1, width).sort(1).values
    place = torch.arange(width, device=label.device).expand(rows.shape)
    fresh = torch.ones_like(rows, dtype=torch.bool)
    fresh[:, 1:] = rows[:, 1:] != rows[:, :-1]
    start = torch.where(fresh, place, 0).cummax(1).values
    return int(torch.where(rows > 0, place - start + 1, 1).max())
