"""What is known on an edge of the graph (`Flow`) and what one step does to it (`Transfer`).

Everything is a float64 vector with one entry a sample (one entry in all when samples interact or the scope is
global), so a whole batch is measured at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.interval import LogInterval
from normgauge.core.rounding import log_above, log_joined, log_outward, size_up
from normgauge.instrument.spectral.enclosure import Enclosure

INF = math.inf
CHANCE = 1e-8
"""Of a wrong upper end, for each norm whose proof has a random start."""

CHANCES = "chances"
"""Where a context's cache keeps them."""


class SamplesMixed(Exception):
    """Raised by a rule when samples of the batch influence each other: measure the batch as one point instead."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What is known of a tensor h while the network's input x moves in the scope around x0.

    Attributes:
        slope: log of a Lipschitz bound of x ↦ h.
        radius: bound on ‖h(x) − h(x0)‖.
        row: the same for every row: a vector along the last axis, or one entry where the samples lie on that axis.
        norm: bound on the length of every row of h(x).
        low: lower bound on every entry of h(x); −high for complex numbers.
        high: upper bound on every entry, on its modulus for complex numbers.
        axis: the axis along which samples lie, sample-major; meaningless for a single sample.
        covers: h(x) takes every value of its space while x runs over the scope (which is then the whole space).
    """

    slope: Tensor
    radius: Tensor
    row: Tensor
    norm: Tensor
    low: Tensor
    high: Tensor
    axis: int = 0
    covers: bool = False

    @property
    def peak(self) -> Tensor:
        """Bound on the magnitude of every entry."""
        return torch.maximum(self.low.abs(), self.high.abs())


@dataclass(frozen=True, slots=True)
class Diagonal:
    """The Jacobian keeps channels apart: diag(scale) times something that commutes with channel weights."""

    scale: Tensor | None = None
    axis: int = 1


@dataclass(frozen=True, slots=True)
class Commute:
    """Channel weights along any axis but ``axes`` pass through unchanged (pooling, means, attention's average)."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """Entries are copied, never mixed: the step itself, run on labels, says which goes where."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix (out, in) applied along the last axis."""

    weight: Tensor

    def channels(self) -> tuple[int, int]:
        """How many go in and come out."""
        return self.weight.shape[1], self.weight.shape[0]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A convolution; channels lie on ``axis``. ``rough`` says that its norm could be proved more closely."""

    weight: Tensor
    spec: Any
    axis: int = 1
    rough: bool = False

    def channels(self) -> tuple[int, int]:
        """How many go in and come out."""
        first, second = self.weight.shape[0], self.weight.shape[1] * self.spec.groups
        return (first, second) if self.spec.transposed else (second, first)


@dataclass(frozen=True, slots=True)
class NormalizerMap:
    """diag(gamma)·M with ‖row c of M‖ at most exp(log_inverse[sample, c]); gamma lies on ``axis`` of the output.

    ``centred`` counts the equal parts of the last axis, to each of which a constant may be added that M ignores (so
    that a linear map before it may be replaced by its centred form); 0 where there are none. ``log_inverse`` has one
    column, or one a channel. ``log_moved`` bounds how far the output moves before gamma, log, one entry a sample.
    """

    gamma: Tensor | None
    axis: int
    centred: int
    log_inverse: Tensor
    log_moved: Tensor


Form = Diagonal | Commute | Move | Matrix | Kernel | NormalizerMap


@dataclass(frozen=True, slots=True)
class Gain:
    """How much one input of a step is stretched.

    Attributes:
        log: proved upper bound, log, one entry a sample.
        lo: log of a lower bound on the constant in the scope, −inf when none is known.
        form: how the bound changes when channels are weighted; None when it may not be weighted.
    """

    log: Tensor
    lo: float = -INF
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a step does to the facts about its inputs.

    Attributes:
        gains: one for each of the step's inputs.
        disjoint: the inputs reach disjoint parts of the output (concatenation), so their slopes add in squares.
        radius: a better bound on the output's radius than gains × radii.
        row, norm, low, high: facts about the output (see `Flow`); None when nothing better than the radius is known.
        axis: the sample axis of the output; None keeps that of the first input.
        onto: the step, of one input, reaches every value of its output's space where its input covers its own.
        unbounded: why the step has no finite constant here, where that is proved: not because bounds of its inputs
            are infinite, but on inputs that are reached (`Flow.covers`). See `endless`.
        no_bound: why no finite bound was found here, where one may exist (the gain is infinite without a proof).
        unknown: why nothing is known (no rule covers this use).
        weight: the trainable matrix or kernel, for the published quantities.
        spectral: enclosure of its operator norm (LogInterval).
        input_gain: log of the factor from ‖input‖ to the slope in the weights (0 for linear maps).
        sigma: for a normalizer, tensors and floats about its √(variance + ε).
        neutral: not worth a row in the table (pure shape changes).
        note: a sentence for the reader.
        worked: the rule's formula with this layer's numbers put in.
    """

    gains: tuple[Gain, ...]
    disjoint: bool = False
    radius: Tensor | None = None
    row: Tensor | None = None
    norm: Tensor | None = None
    low: Tensor | None = None
    high: Tensor | None = None
    axis: int | None = None
    onto: bool = False
    unbounded: str = ""
    no_bound: str = ""
    unknown: str = ""
    weight: Tensor | None = None
    spectral: Any = None
    input_gain: float = 0.0
    sigma: Mapping[str, Any] | None = None
    neutral: bool = False
    note: str = ""
    worked: str = ""


@dataclass(slots=True)
class Context:
    """What a rule may use: the scope, the number of samples, tolerances, and a cache for enclosures.

    Attributes:
        scope: where the bound is to hold.
        samples: how many samples are measured side by side; 1 when the batch is one point.
        width: relative width asked of spectral enclosures.
        cache: enclosures by weight and layout, shared by all scopes of one measurement.
        training: whether the batch map of train mode is measured.
        dtype: the model's own precision (the measurement runs in float64).
    """

    scope: Scope
    samples: int
    width: float = 1e-3
    cache: dict[Any, Any] = field(default_factory=dict)
    training: bool = False
    dtype: torch.dtype = torch.float32

    def full(self, value: float) -> Tensor:
        """One entry a sample, all equal to ``value``."""
        return torch.full((self.samples,), value, dtype=torch.float64)

    def log(self, value: float) -> Tensor:
        """log(value) a sample, rounded outwards; log 0 = −inf."""
        return self.full(log_outward(value))

    def once(self, key: Hashable, held: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for all scopes; ``held`` is kept alive, so that its id belongs to it alone."""
        if key not in self.cache:
            self.cache[key] = (make(), held)
        return self.cache[key][0]

    def accepted(self, found: Enclosure) -> LogInterval:
        """The interval of an enclosure that is used; its chance of being wrong counts in the reading's own."""
        if found.chance:
            self.cache.setdefault(CHANCES, []).append(found.chance)
        return found.log

    def unknown(self, inputs: Sized, why: str) -> Transfer:
        """The transfer of a step about which nothing is known, with the reason."""
        return Transfer(tuple(Gain(self.full(INF)) for _ in range(len(inputs))), unknown=why)

    def keep_apart(self, flow: Flow, tensor: Tensor, axes: Iterable[int], what: str) -> None:
        """Refuse to measure samples one by one where a step works along ``axes`` and one of them holds the samples.

        Raises:
            SamplesMixed: naming ``what`` mixes them.
        """
        ndim = max(tensor.ndim, 1)
        if self.samples > 1 and flow.axis % ndim in {axis % ndim for axis in axes}:
            raise SamplesMixed(f"{what} over the samples")

    def rows(self, tensor: Tensor, axis: int) -> Tensor:
        """A tensor as (samples, rows, length of a row) in float64.

        Raises:
            SamplesMixed: when ``axis`` does not hold the samples.
        """
        data = tensor.detach()
        if data.is_complex():
            data = data.abs()
        if data.dtype != torch.float64:
            data = data.to(torch.float64)
        if data.numel() == 0:  # an expert without tokens, a head without passive channels
            return data.new_zeros(self.samples, 0, 0)
        if self.samples == 1:
            return data.reshape(1, -1, data.shape[-1] if data.ndim else 1)
        if not data.ndim:
            raise SamplesMixed("one number for all samples")
        axis = axis % data.ndim
        if data.shape[axis] % self.samples:
            raise SamplesMixed(f"axis {axis} of shape {tuple(data.shape)} does not hold {self.samples} samples")
        length = data.shape[-1] if axis != data.ndim - 1 else 1
        return data.movedim(axis, 0).reshape(self.samples, -1, length)


def log_vector(values: Tensor) -> Tensor:
    """The logarithm of each entry, rounded outwards."""
    return log_above(values.to(torch.float64).log())


def apply_gain(gain: Tensor, amount: Tensor) -> Tensor:
    """exp(gain)·amount with 0·∞ = ∞: an infinite factor means "no bound"."""
    product = gain.exp() * amount
    return torch.where(torch.isinf(amount) | torch.isinf(gain) & (gain > 0), INF, product).nan_to_num(
        nan=INF, posinf=INF
    )


def chain_gains(gain: Tensor, slope: Tensor) -> Tensor:
    """log of the product of two constants; +inf absorbs."""
    return torch.where((gain == INF) | (slope == INF), INF, gain + slope)


def join_logs(logs: list[Tensor], disjoint: bool) -> Tensor:
    """log of Σ exp(l), or of √Σ exp(l)² for disjoint parts, rounded outwards."""
    stacked = torch.stack(logs)
    if len(logs) == 1:
        return stacked[0]
    total = torch.logsumexp(2 * stacked, 0) / 2 if disjoint else torch.logsumexp(stacked, 0)
    total = torch.where((stacked == INF).any(0), INF, total)
    total = torch.where((stacked == -INF).all(0), -INF, total)
    return log_joined(total, len(logs))


def endless(transfer: Transfer, why: str, proved: bool) -> Transfer:
    """The transfer with the reason for an infinite gain, if it has one: no constant exists, or no bound was found."""
    if not any(bool((g.log == INF).any()) for g in transfer.gains):
        return transfer
    return replace(transfer, unbounded=why) if proved else replace(transfer, no_bound=why)


def settle_flow(centre: Tensor, transfer: Transfer, incoming: tuple[Flow, ...], ctx: Context) -> Flow:
    """The flow behind a step: slopes from its gains, all other facts from the best that is known."""
    slope = join_logs(
        [chain_gains(g.log, f.slope) for g, f in zip(transfer.gains, incoming, strict=True)], transfer.disjoint
    )
    parts = [apply_gain(g.log, f.radius) for g, f in zip(transfer.gains, incoming, strict=True)]
    radius = torch.stack(parts).square().sum(0).sqrt() if transfer.disjoint else torch.stack(parts).sum(0)
    if transfer.radius is not None:
        radius = torch.minimum(radius, transfer.radius)
    axis = incoming[0].axis if transfer.axis is None else transfer.axis
    row = radius if transfer.row is None else torch.minimum(radius, transfer.row)
    flow = anchored_flow(centre, slope, size_up(radius), size_up(row), axis, ctx, transfer)
    return replace(flow, covers=transfer.onto and len(incoming) == 1 and incoming[0].covers)


def anchored_flow(
    centre: Tensor, slope: Tensor, radius: Tensor, row: Tensor, axis: int, ctx: Context, known: Transfer | None = None
) -> Flow:
    """The flow whose norms and ranges follow from the centre: a row and its entries move by at most ``row``."""
    data = ctx.rows(centre, axis)
    if data.numel() == 0:
        zero = ctx.full(0.0)
        return Flow(slope, radius, row, zero, zero, zero, axis)
    norm = torch.linalg.vector_norm(data, dim=2).amax(1).cpu() + row
    low, high = data.amin((1, 2)).cpu() - row, data.amax((1, 2)).cpu() + row
    if known is not None:
        norm = norm if known.norm is None else torch.minimum(norm, known.norm)
        low = low if known.low is None else torch.maximum(low, known.low)
        high = high if known.high is None else torch.minimum(high, known.high)
    if centre.is_complex():  # sizes are moduli, and the parts of a number may have any sign
        low = -high
    peak = torch.maximum(low.abs(), high.abs())
    norm = size_up(torch.minimum(norm, peak * math.sqrt(data.shape[2])))
    return Flow(slope, radius, row, norm, torch.maximum(low, -norm), torch.minimum(high, norm), axis)
