"""Max pooling in a ball: windows whose largest entry is decided, and windows where several may win."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.rounding import UNIT, house_up
from normgauge.instrument.local.blocks import Bent, Open, unit_columns
from normgauge.instrument.local.pieces import NotCarried, Piece
from normgauge.instrument.spectral.conv_operator import per_axis
from normgauge.instrument.trace.step import Step

Differs = Callable[[Tensor, Tensor], Tensor]
"""From places of two sets of entries to how far each pair's difference moves in the ball, errors included."""

CHUNK = 2**24


def window_places(step: Step) -> Tensor:
    """For each output of a two-dimensional max pooling the places of its window's entries, −1 for padding.

    Raises:
        NotCarried: for other forms of pooling.
    """
    if "2d" not in step.kind.lower() or "adaptive" in step.kind.lower() or step.option(5, "ceil_mode", False):
        raise NotCarried("max pooling in this form")
    size = step.option(1, "kernel_size")
    options = [step.option(place, name, usual) for place, name, usual in ((2, "stride", None), (3, "padding", 0))]
    dilation = step.option(4, "dilation", 1)
    kernel, stride = per_axis(size, 2), per_axis(options[0] or size, 2)
    shape = step.inputs[0].tensor.shape
    numbers = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64).reshape(-1, 1, *shape[-2:])
    found = F.unfold(numbers, kernel, per_axis(dilation, 2), per_axis(options[1], 2), stride)
    return found.transpose(1, 2).reshape(-1, math.prod(kernel)).long() - 1


def pooled(step: Step, gain: float, differs: Differs, error: float) -> Bent:
    """Max pooling: the winner where it is decided, else the mean of those m that may win.

    The slope to each entry of an open window lies within √(1 − 1/m) of the mean's, along the centred entries.
    ``error`` is that of its input, as a length.
    """
    places, here = window_places(step), step.inputs[0].tensor.detach().reshape(-1)
    real = places >= 0
    entries = torch.where(real, here[places.clamp_min(0)], -math.inf)
    winner = entries.argmax(1)
    alive = torch.zeros_like(real)
    alive[torch.arange(len(places)), winner] = True
    rivals = (real & ~alive).nonzero()
    first, second = places[rivals[:, 0], winner[rivals[:, 0]]], places[rivals[:, 0], rivals[:, 1]]
    close = here[first] - here[second] <= differs(first, second)
    alive[rivals[close, 0], rivals[close, 1]] = True
    count = alive.sum(1)
    share = alive / count[:, None].double()
    out = step.outputs[0].tensor

    def push(v: list[Tensor]) -> Tensor:
        flat, size = v[0].reshape(len(v[0]), -1), max(1, CHUNK // places.numel())
        parts = [(part[:, places.clamp_min(0)] * share).sum(2) for part in flat.split(size)]
        return torch.cat(parts).reshape(-1, *out.shape)

    undecided = (count > 1).nonzero()[:, 0]
    blur = gain * error if len(undecided) else 0.0
    slip = 4 * places.shape[1] * UNIT * gain
    piece = Piece(step, (step.inputs[0].index,), push, (gain,), house_up(slip), house_up(blur))  # type: ignore[arg-type]
    if not len(undecided):
        return Bent(piece, None)
    window, which = alive[undecided].nonzero().T
    entry = places[undecided][window, which]
    own, weights = places[undecided].clamp_min(0), share[undecided]

    def select(tangents: Sequence[Tensor]) -> Tensor:
        flat = tangents[0].reshape(len(tangents[0]), -1)
        mean = (flat[:, own] * weights).sum(2)
        return (flat[:, entry] - mean[:, window]).T

    half = house_up((1 - 1 / count[undecided].double()).sqrt())[window]
    opened = Open(select, unit_columns(undecided, out.shape), half, window, torch.arange(len(undecided)), gain, slip)
    return Bent(piece, opened)
