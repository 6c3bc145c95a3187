"""What a nonlinear step does in a ball: the linear map in the middle, and the units whose slopes it leaves open."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY_SINGLE, UNIT, dot_error, house_up, size_up
from normgauge.instrument.local.curves import Curve, curve_of, secants_around, slopes_around
from normgauge.instrument.local.pieces import NotCarried, Piece, Push
from normgauge.instrument.local.turning import Turned, turned
from normgauge.instrument.rules.normalizer import Normalizer, of_step
from normgauge.instrument.trace.again import run_step
from normgauge.instrument.trace.step import Step
from normgauge.instrument.trace.true_slopes import TrueSlopes

SETTLED = 1e-7  # a slope known to this counts as rounding
ENTRIES = ("along_along", "along_across", "across_along", "across_across")
BOTH_BLOCKS = math.sqrt(2)  # entries along â and across are rows of both blocks
MOST_ENTRIES = 2**28  # of all columns of a step: 2 GiB
ULPS = 16  # of an activation's value and slope, as torch computes them in float64


@dataclass(frozen=True, slots=True)
class Open:
    """Units of a step whose slope is not settled.

    Attributes:
        select: tangents (count, *shape) of each value that the step reads to rows (units, count).
        columns: (units, *output): where what a unit adds enters the output.
        half: h of each unit.
        group: which multiplier each row has, counted from 0.
        entering: which one each column has.
        spread: ‖select‖, from above.
        slip: what rounding adds to what is selected, as a part of the tangents' norm.
    """

    select: Callable[[Sequence[Tensor]], Tensor]
    columns: Tensor
    half: Tensor
    group: Tensor
    entering: Tensor
    spread: float = 1.0
    slip: float = 0.0


@dataclass(frozen=True, slots=True)
class Bent:
    """A nonlinear step in the middle, and what is open of it."""

    piece: Piece
    open: Open | None


Reach = Callable[[Tensor, Curve], Tensor]
"""From an elementwise step's centre and its curve to how far each entry moves in the ball, errors included."""

Moves = Callable[[Sequence[Push]], list[float]]
"""From linear maps of the tangents of a step's input to how far each result moves in the ball, as a length."""


def activated(step: Step, rule: str, reach: Reach, error: float, secant: bool = False) -> Bent:
    """An elementwise step, its slopes or its secants; ``error`` is that of its input, as a length."""
    curve, here = curve_of(step, rule), step.inputs[0].tensor.detach()
    slope = _slope(step, here) if curve.bend or curve.kinks else torch.full_like(here, curve.low)
    far = reach(here, curve)
    around = secants_around(curve, here, slope, far, error) if secant else slopes_around(curve, here, slope, far)
    middle, half = around
    loose = half > SETTLED
    rest = float(torch.where(loose, 0.0, half).max()) if half.numel() else 0.0
    push: Push = lambda v: v[0] * middle  # noqa: E731
    gain = float((middle.abs() + half).max())
    value = step.outputs[0].tensor
    blur = ULPS * UNIT * (float(here.norm()) + float(value.norm())) + float(half.max()) * error
    piece = Piece(step, (step.inputs[0].index,), push, (size_up(gain),), rest + 4 * UNIT * gain, blur)
    if not bool(loose.any()):
        return Bent(piece, None)
    places = loose.reshape(-1).nonzero()[:, 0]
    half = half.reshape(-1)[places]
    select = lambda v: v[0].reshape(len(v[0]), -1)[:, places].T  # noqa: E731
    number = torch.arange(len(places))
    return Bent(piece, Open(select, unit_columns(places, value.shape), half, number, number))


def unit_columns(places: Tensor, shape: torch.Size) -> Tensor:
    """Columns (units, *shape), each of which enters at one place."""
    columns = empty_columns(len(places), shape.numel())
    columns[torch.arange(len(places)), places] = 1.0
    return columns.reshape(-1, *shape)


def empty_columns(*sizes: int) -> Tensor:
    """Zeros for columns of open units.

    Raises:
        NotCarried: where they need too much memory.
    """
    if math.prod(sizes) > MOST_ENTRIES:
        raise NotCarried("the columns of all open units need too much memory")
    return torch.zeros(sizes, dtype=torch.float64)


def _slope(step: Step, here: Tensor) -> Tensor:
    """φ' at the centre, by autograd on the step itself."""
    with torch.enable_grad(), TrueSlopes():
        leaf = here.clone().requires_grad_(True)
        out = run_step(step, lambda value: leaf * 1.0)[0]
        return torch.autograd.grad(out.sum(), leaf)[0].detach()


def normalized(step: Step, native: torch.dtype, moved: Moves, error: float, secant: bool = False) -> Bent:
    """A normalizer over groups, ε inside the root: Layer-, RMS-, Group- and InstanceNorm, however they are written.

    In the middle diag(γ) M of `turning`, which is J(c) = diag(γ)(P − zzᵀ/n)/s where nothing moves, z the normalized
    centre and s = √(σ² + ε); h = sup‖J(u) − M‖ without γ, which enters the columns as it is.

    Args:
        step: the step.
        native: the model's precision.
        moved: how far linear maps of its input move in the ball.
        error: of its input, as a length.
        secant: secants from the sample in place of Jacobians.

    Raises:
        NotCarried: for another normalizer, or one that may divide by zero.
    """
    norm, data = of_step(step, native), step.inputs[0].tensor.detach()
    if (
        norm is None
        or norm.stored is not None
        or norm.where != "inside"
        or norm.kind in ("batch", "length", "response")
    ):
        raise NotCarried("a normalizer that is not followed here")
    layout = Layout(norm, data.shape)
    groups = layout.split(data)  # (groups, entries)
    n = layout.entries
    centred = groups - groups.mean(1, keepdim=True) if norm.centred else groups
    lengths = torch.linalg.vector_norm(centred, dim=1)
    lead = torch.where(lengths > TINY_SINGLE, 1 / lengths, 0.0)[:, None] * centred
    gamma = layout.gains(norm)
    # what the mean and the difference from it lose is a move of the group as well
    blurred = (error + dot_error(n) * torch.linalg.vector_norm(groups, dim=1)).tolist()
    boxes = _boxes(moved, layout, norm.centred, lead, blurred)
    around = [_turned(box, float(length), n, norm, secant) for box, length in zip(boxes, lengths, strict=True)]
    told = torch.tensor([(t.along, t.across, t.gain, t.most) for t in around], dtype=torch.float64)
    along, across, gains, most = told.T
    if not bool(most.isfinite().all()):
        raise NotCarried("it may divide by zero in this ball")
    push = lambda v: layout.join(gamma * _middle(layout.split_all(v[0]), lead, along, across, norm.centred))  # noqa: E731
    loose = most > SETTLED
    steep = float(gamma.abs().max())
    rest = 2 * float(torch.where(loose, 0.0, most).max()) * steep
    gain = size_up(float((gamma.abs().amax(1) * gains).max()))
    slip = rest + 4 * dot_error(n) * gain * 3
    blur = 4 * dot_error(n) * (gain * float(data.norm()) + float(step.outputs[0].tensor.norm()))
    blur += 2 * float(most.max()) * steep * error
    piece = Piece(step, (step.inputs[0].index,), push, (gain,), slip, blur)
    if not bool(loose.any()):
        return Bent(piece, None)
    which = loose.nonzero()[:, 0]
    if not math.isfinite(sum(map(sum, boxes))):
        return Bent(piece, _whole_groups(layout, which, most[which], gamma, norm.centred))
    halves = torch.tensor([_row_halves(around[g], boxes[g]) for g in which.tolist()], dtype=torch.float64)
    return Bent(piece, _open_groups(layout, which, halves, gamma, lead, norm.centred, secant))


def _whole_groups(layout: Layout, which: Tensor, half: Tensor, gamma: Tensor, centred: bool) -> Open:
    """A block a group, where nothing is known of how far it moves: ‖J − M‖ ≤ h is all there is to say."""
    n, count = gamma.shape[1], len(which)

    def select(tangents: Sequence[Tensor]) -> Tensor:
        part = layout.split_all(tangents[0])[:, which]
        part = part - part.mean(2, keepdim=True) if centred else part
        return part.flatten(1).T

    eye = torch.eye(n, dtype=torch.float64)
    eye = eye - 1 / n if centred else eye
    columns = empty_columns(count, n, layout.count, n)
    columns[torch.arange(count), :, which] = gamma[which][:, None, :] * eye
    group = torch.arange(count).repeat_interleave(n)
    half = half.repeat_interleave(n)
    return Open(select, layout.join(columns.flatten(0, 1)), half, group, group, slip=4 * dot_error(n))


def _row_halves(turn: Turned, box: tuple[float, float]) -> tuple[float, ...]:
    """h of the rows of a group's two blocks: what moves along â from â and from across, and across from both.

    (x + y)² ≤ (1 + t) x² + (1 + 1/t) y² for every t > 0, equal where t = y/x: as if both moved as far as they can.
    """
    found = []
    for first, second in ((turn.along_along, turn.along_across), (turn.across_along, turn.across_across)):
        x, y = max(first * box[0], TINY_SINGLE), max(second * box[1], TINY_SINGLE)
        found += [house_up(first * math.sqrt(1 + y / x)), house_up(second * math.sqrt(1 + x / y))]
    return tuple(found)


def _open_groups(
    layout: Layout, which: Tensor, halves: Tensor, gamma: Tensor, lead: Tensor, centred: bool, secant: bool
) -> Open:
    """Two blocks a group: one direction along â, n across; the entries along â and across it are rows of both.

    What a secant leaves open across is a number times each entry, and nothing from along: every entry is a unit.
    """
    n, count, lead = gamma.shape[1], len(which), lead[which]

    def select(tangents: Sequence[Tensor]) -> Tensor:
        part = layout.split_all(tangents[0])[:, which]
        part = part - part.mean(2, keepdim=True) if centred else part
        own = (part * lead).sum(2, keepdim=True)
        rest = part - own * lead
        return torch.cat([own, rest, rest] if secant else [own, rest, own, rest], dim=2).flatten(1).T

    eye = torch.eye(n, dtype=torch.float64)
    eye = eye - 1 / n if centred else eye
    inside = torch.cat([lead[:, None, :], eye - lead[:, :, None] * lead[:, None, :]], dim=1)  # (groups, 1 + n, n)
    columns = empty_columns(count, 1 + n, layout.count, n)
    columns[torch.arange(count), :, which] = gamma[which][:, None, :] * inside
    along, across = torch.zeros(1 + n, dtype=torch.long), torch.ones(1 + n, dtype=torch.long)
    single = 1 + torch.arange(n)
    group, entering = (
        (torch.cat([along, single]), torch.cat([along[:1], single]))
        if secant
        else (torch.cat([along, across]), torch.cat([along[:1], across[1:]]))
    )
    shift = (int(group.max()) + 1) * torch.arange(count)[:, None]
    repeats = torch.tensor([1, n, 0 if secant else 1, n])
    half = halves.repeat_interleave(repeats, 1).flatten()
    group, entering = ((shift + which).flatten() for which in (group, entering))
    slip = 12 * dot_error(n)
    return Open(select, layout.join(columns.flatten(0, 1)), half, group, entering, BOTH_BLOCKS, slip)


def _boxes(
    moved: Moves, layout: Layout, centred: bool, lead: Tensor, errors: Sequence[float]
) -> list[tuple[float, float]]:
    """How far each group moves along its own direction and how far across it, over √n."""

    def part(v: Sequence[Tensor], g: int) -> Tensor:
        rows = layout.split_all(v[0])[:, g]
        return rows - rows.mean(1, keepdim=True) if centred else rows

    def aside(v: Sequence[Tensor], g: int) -> Tensor:
        rows = part(v, g)
        return rows - (rows @ lead[g])[:, None] * lead[g]

    root, groups = math.sqrt(layout.entries), range(layout.count)
    across = moved([lambda v, g=g: aside(v, g) for g in groups])  # type: ignore[misc]
    along = moved([lambda v, g=g: part(v, g) @ lead[g][:, None] for g in groups])  # type: ignore[misc]
    both = zip(along, across, errors, strict=True)
    return [(house_up(a + error) / root, house_up(b + error) / root) for a, b, error in both]


def _turned(box: tuple[float, float], length: float, entries: int, norm: Normalizer, secant: bool) -> Turned:
    """What `turning` says of one group, with the rounding of its mean and its direction."""
    root = math.sqrt(entries)
    still = length <= TINY_SINGLE  # a group of zeros has no direction
    found = turned(0.0 if still else length / root, box[0], box[1] + (length if still else 0.0), norm.eps, secant)
    slack = dot_error(entries) * 8 * found.gain
    raised = {name: house_up(getattr(found, name) + slack) for name in ENTRIES}
    return dataclasses.replace(found, **raised)


def _middle(tangents: Tensor, lead: Tensor, along: Tensor, across: Tensor, centred: bool) -> Tensor:
    """a'·ââᵀ + a·(P − ââᵀ) for tangents (count, groups, entries)."""
    tangents = tangents - tangents.mean(2, keepdim=True) if centred else tangents
    part = (tangents * lead).sum(2, keepdim=True)
    return tangents * across[:, None] + part * lead * (along - across)[:, None]


class Layout:
    """How the entries of a value lie in the groups of a normalizer."""

    def __init__(self, norm: Normalizer, shape: torch.Size) -> None:
        index = torch.arange(math.prod(shape)).reshape(shape)
        if norm.kind == "group":
            order = index.reshape(shape[0] * norm.count, -1)
        elif norm.kind == "instance":
            order = index.reshape(shape[0] * shape[1], -1)
        else:
            size = math.prod(shape[d] for d in norm.dims)
            order = index.movedim(norm.dims, tuple(range(-len(norm.dims), 0))).reshape(-1, size)
        self.shape, self.order = shape, order
        self.count, self.entries = order.shape
        self.back = torch.empty(order.numel(), dtype=torch.long)
        self.back[order.reshape(-1)] = torch.arange(order.numel())

    def split(self, data: Tensor) -> Tensor:
        """(groups, entries) of a value."""
        return data.reshape(-1)[self.order]

    def split_all(self, tangents: Tensor) -> Tensor:
        """(count, groups, entries) of tangents."""
        return tangents.reshape(len(tangents), -1)[:, self.order]

    def join(self, groups: Tensor) -> Tensor:
        """Tangents of the value again."""
        return groups.reshape(len(groups), -1)[:, self.back].reshape(-1, *self.shape)

    def gains(self, norm: Normalizer) -> Tensor:
        """γ for every entry, (groups, entries)."""
        if norm.gamma is None:
            return torch.ones(self.count, self.entries, dtype=torch.float64)
        gamma = norm.spread_out(norm.gamma.detach().double(), len(self.shape))
        return self.split(gamma.expand(self.shape).contiguous())
