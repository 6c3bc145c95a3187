"""How far values move in a ball, measured with channel weights, so that it does not depend on the gauge.

In a ball the slope of a normalizer depends on how far its input moves, and a radius that goes from step to step by the
rules' own gains is a product of norms: max|γ| counts where γ is undone by the next map, and ‖W‖ where only PW is read.
With weights D on every value (`balance`)

    ‖D(h − h₀)‖ ≤ R·Π‖D_v J D_u⁻¹‖,    ‖h − h₀‖ ≤ max 1/D · ‖D(h − h₀)‖

for *every* choice of D. With the weights of the balanced bound at the samples, which knows no radius, the radii are the
same in every gauge, and so is what the rules make of them. The radii of the weights that fold normalizers hold as well,
and so do the rules' own; the smallest counts.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from normgauge.core.rounding import log_above, size_up
from normgauge.instrument.balance.bounds import fold_weights, is_moderate
from normgauge.instrument.balance.ties import tie_weights
from normgauge.instrument.balance.weighted import Key, Weighting
from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.flow import (
    Flow,
    Form,
    Gain,
    Kernel,
    Matrix,
    NormalizerMap,
    Transfer,
    anchored_flow,
    chain_gains,
    join_logs,
    log_vector,
)
from normgauge.instrument.trace.step import Step, Value

Weights = dict[int, Tensor]
Norms = dict[tuple[int, Key], float]
"""Log norms of weighted maps, by the choice of weights and the place of the map."""


class WeightedRadii:
    """Radii of all values of a ball under channel weights, found while the rules are asked again.

    Args:
        parts: the composition with the rules' own radii.
        theta: free log weights to use beside those that fold normalizers; None, or weights of another graph, for none.
        norms: of the maps under these weights, kept from one ball to the next.
    """

    def __init__(self, parts: Composition, theta: Tensor | None, norms: Norms) -> None:
        self.parts, self.norms = parts, norms
        self.weighting = Weighting(parts, tie_weights(parts), rough=True)
        chosen = [fold_weights(self.weighting)]
        if theta is not None and len(theta) == self.weighting.free and is_moderate(theta):
            chosen.append(theta)
        starts = {source.index: log_vector(parts.flows[source.index].radius) for source in parts.trace.sources}
        self.choices: list[tuple[Weights, dict[int, Tensor]]] = [
            (self.weighting.log_weights(weights), dict(starts)) for weights in chosen
        ]

    def seen(self, step: Step, incoming: tuple[Flow, ...]) -> tuple[Flow, ...]:
        """The flows into a step with the smaller radii."""
        form = _only_form(self.parts.transfers[step.outputs[0].index])
        centring = isinstance(form, NormalizerMap) and form.centred > 0
        return tuple(self._narrowed(v, flow, centring) for v, flow in zip(step.inputs, incoming, strict=True))

    def _narrowed(self, value: Value, flow: Flow, centring: bool) -> Flow:
        unread = (
            self.weighting.means_unread.get(value.index, 0) > 0
        )  # perhaps the radius of another value, but for means
        if unread and not centring:
            return flow
        logs = [moved[value.index] + _most(weights.get(value.index), -1) for weights, moved in self.choices]
        reach = size_up(log_above(torch.stack(logs).amin(0)).exp())
        radius, row = torch.minimum(flow.radius, reach), torch.minimum(flow.row, reach)
        if torch.equal(row, flow.row) and torch.equal(radius, flow.radius):
            return flow
        if unread:  # the mean apart it moves no farther, which is all that a centring normalizer asks
            return replace(flow, radius=radius, row=row)
        known = Transfer((), norm=flow.norm, low=flow.low, high=flow.high)
        return anchored_flow(value.tensor, flow.slope, radius, row, flow.axis, self.parts.ctx, known)

    def follow(self, step: Step, out: Value, transfer: Transfer) -> None:
        """Carry the weighted radii over a step: by its weighted gains, or by what its output moves at most anyway."""
        form = _only_form(transfer)
        for choice, (weights, moved) in enumerate(self.choices):
            arms = [
                chain_gains(self._gain(choice, (out.index, k), value, out, gain), moved[value.index])
                for k, (value, gain) in enumerate(zip(step.inputs, transfer.gains, strict=True))
            ]
            log, after = join_logs(arms, transfer.disjoint), weights.get(out.index)
            if transfer.radius is not None:
                log = torch.minimum(log, log_vector(transfer.radius) + _most(after))
            if isinstance(form, NormalizerMap) and after is not None:
                scaled = after if form.gamma is None else after + form.gamma.log()
                log = torch.minimum(log, form.log_moved + scaled.max())
            moved[out.index] = log

    def _gain(self, choice: int, key: Key, value: Value, out: Value, gain: Gain) -> Tensor:
        """The weighted gain; of a linear map it is the same in every ball."""
        weights, at = self.choices[choice][0], (choice, key)
        before, after = weights.get(value.index), weights.get(out.index)
        if not isinstance(gain.form, Matrix | Kernel):
            return self.weighting.weighted(key, value, out, gain, before, after)
        if at not in self.norms:
            self.norms[at] = float(self.weighting.weighted(key, value, out, gain, before, after).max())
        return torch.full_like(gain.log, self.norms[at])


def _most(weights: Tensor | None, sign: int = 1) -> Tensor | float:
    return 0.0 if weights is None else (sign * weights).max()


def _only_form(transfer: Transfer) -> Form | None:
    return transfer.gains[0].form if len(transfer.gains) == 1 else None
