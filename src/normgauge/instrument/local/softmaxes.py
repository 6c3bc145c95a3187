"""Softmax and its logarithm in a ball, row by row.

J = diag(p) − ppᵀ maps into, and sees only, what is centred over the entries of a row that are not masked. It changes by
at most κρ where the centred logits move by ρ, with κ = min(√2/(3√3), 3 sup‖J‖): its change along a unit u is
diag(q) − qpᵀ − pqᵀ with q = Ju. Where that says little, 0 ≼ J ≼ sup‖J‖ puts it within half of that of its middle.
The logarithm has J = I − 1pᵀ, and p moves by at most sup‖J‖ρ. Secants are means of J from the sample on: half as far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normgauge.core.rounding import LOG_SOFTMAX, dot_error, house_up, size_up
from normgauge.instrument.local.blocks import SETTLED, Bent, Moves, Open, empty_columns
from normgauge.instrument.local.pieces import Piece
from normgauge.instrument.rules.attention import softmax_weights
from normgauge.instrument.rules.softmax import axis_of, odds_range, steepest_softmax
from normgauge.instrument.trace.step import Step

SOFTMAXES = ("softmax.softmax", "softmax.log_softmax")
TURN = size_up(math.sqrt(2) / (3 * math.sqrt(3)))
"""How fast the Jacobian of softmax changes, at most."""


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax along the last axis of logits to which a mask is added, as attention has it."""
    return softmax_weights(logits + mask)


class Rows:
    """The rows of a softmax: how a value's entries lie in them, and which may not be attended to."""

    def __init__(self, step: Step) -> None:
        data = step.inputs[0].tensor.detach()
        masked = step.target is masked_softmax
        dim = data.ndim - 1 if masked else axis_of(step, data.ndim)
        self.shape = data.shape
        self.order = torch.arange(data.numel()).reshape(data.shape).movedim(dim, -1).reshape(-1, data.shape[dim])
        self.sign = -1.0 if "softmin" in step.kind.lower() or isinstance(step.module, nn.Softmin) else 1.0
        logits = self.sign * data.reshape(-1)[self.order]
        if masked:
            logits = logits + step.args[1].expand(data.shape).reshape(-1)[self.order]
        self.open = logits > -math.inf  # (rows, entries)
        self.weights = softmax_weights(logits)
        self.logs = torch.log_softmax(logits, 1).nan_to_num(nan=-math.inf)
        self.sizes = torch.linalg.vector_norm(logits.masked_fill(~self.open, 0.0), dim=1)

    def split(self, tangents: Tensor) -> Tensor:
        """(count, rows, entries) of tangents."""
        return self.sign * tangents.reshape(len(tangents), -1)[:, self.order]

    def centred(self, part: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Split tangents of some rows without their mean, which a softmax does not see, nor what is masked."""
        seen = self.open[rows].double()
        mean = (part * seen).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp_min(1.0)
        return (part - mean) * seen

    def join(self, part: Tensor) -> Tensor:
        """Tangents of the value again."""
        back = torch.empty(self.order.numel(), dtype=torch.long)
        back[self.order.reshape(-1)] = torch.arange(self.order.numel())
        return part.reshape(len(part), -1)[:, back].reshape(-1, *self.shape)


def softened(step: Step, rule: str, moved: Moves, error: float, secant: bool = False) -> Bent:
    """A softmax or its logarithm; ``error`` is that of its input, as a length."""
    rows = Rows(step)
    count, n = rows.order.shape
    lost = LOG_SOFTMAX + dot_error(n)
    far = moved([lambda v, g=g: rows.centred(rows.split(v[0])[:, g], g) for g in range(count)])  # type: ignore[misc]
    reach = house_up(torch.tensor(far, dtype=torch.float64) + error + dot_error(n) * rows.sizes)
    slope = steepest_softmax(*odds_range(rows.logs[:, None], reach))[0]
    way = reach / 2 if secant else reach
    logarithm = rule == "softmax.log_softmax"
    if logarithm:
        half = torch.minimum(slope * way, torch.full_like(way, math.sqrt(2)))
        near = torch.ones(count, dtype=torch.bool)
    else:
        turned = torch.minimum(torch.full_like(slope, TURN), 3 * slope) * way
        near = turned <= slope / 2
        half = torch.where(near, turned, slope / 2)
    half = size_up(half) + 4 * lost
    weights = rows.weights

    def push(v: Sequence[Tensor]) -> Tensor:
        part = rows.split(v[0])
        mean = (weights * part).sum(-1, keepdim=True)
        if logarithm:
            return rows.join(part - mean)
        flat = (slope / 2)[:, None] * rows.centred(part)
        return rows.join(torch.where(near[:, None], weights * (part - mean), flat))

    root = math.sqrt(n) if logarithm else 1.0
    loose = half > SETTLED
    gain = house_up(1 + root) if logarithm else house_up(float(slope.max()) + lost)
    slip = float(torch.where(loose, 0.0, half).max()) * root + 6 * dot_error(n) * root
    sizes = 1 + rows.logs.abs().nan_to_num(posinf=0.0) if logarithm else torch.ones_like(weights)
    blur = lost * float(torch.linalg.vector_norm(sizes)) + float(half.max()) * root * error
    piece = Piece(step, (step.inputs[0].index,), push, (gain,), house_up(slip), house_up(blur))
    which = loose.nonzero()[:, 0]
    return Bent(piece, _open_rows(rows, which, half, logarithm) if len(which) else None)


def _open_rows(rows: Rows, which: Tensor, half: Tensor, logarithm: bool) -> Open:
    """A block a row: all its entries go in, and what comes out is centred, or the same for all of them."""
    n, count = rows.order.shape[1], len(which)
    inside = torch.ones(count, 1, n) if logarithm else rows.centred(torch.eye(n).expand(count, n, n).mT, which[:, None])
    columns = empty_columns(count, inside.shape[1], len(rows.order), n)
    columns[torch.arange(count), :, which] = inside.double()
    number = torch.arange(count)
    return Open(
        lambda v: rows.centred(rows.split(v[0])[:, which], which).flatten(1).T,
        rows.join(columns.flatten(0, 1)),
        half[which].repeat_interleave(n),
        number.repeat_interleave(n),
        number.repeat_interleave(inside.shape[1]),
        slip=4 * dot_error(n),
    )
