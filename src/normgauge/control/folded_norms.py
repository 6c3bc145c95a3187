"""Every term of a plan from above, as plain numbers: what a budget is held against."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.control.plan import MapTerm, Plan, RowTerm, ScaleTerm, SpreadTerm
from normgauge.control.proved_norms import norms_from_above
from normgauge.control.warm_norms import MapGroup, channel_counts, grouped_maps, scaled_weights
from normgauge.core.rounding import house_up, log_outward


class FoldedNorms:
    """The terms of a plan in the weights that the model has now, each proved from above.

    Attributes:
        plan: whose terms they are.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.groups = grouped_maps(plan.maps)

    def term_logs(self) -> list[float]:
        """Return natural logs, one a term."""
        maps = self._map_logs()
        return [self._log(term, maps) for term in self.plan.terms]

    def moved(self, shares: dict[int, float]) -> list[float]:
        """Return how far each term's log goes down when those in ``shares`` give so much, by the id of the term.

        A tensor that is used twice gives the most that it is asked for; terms move with every tensor they are made of.
        """
        given: dict[object, float] = {}
        for term in self.plan.terms:
            if id(term) in shares and isinstance(term, MapTerm | ScaleTerm):
                given[term.lever] = max(given.get(term.lever, 0.0), shares[id(term)])
        return [
            0.0 if isinstance(term, SpreadTerm) else sum(given.get(lever, 0.0) for lever in term.levers)
            for term in self.plan.terms
        ]

    def whole(self, group: MapGroup) -> tuple[Tensor, Tensor]:
        """Return D_out W D_in of a group's maps, (maps, …), and D_out 1 D_in, in float64."""
        weights = group.weights().fixed.double()
        weights = weights - weights.mean(1, keepdim=True) if group.centred else weights
        outs, ins = (torch.stack(side) for side in zip(*map(self.scales, group.terms), strict=True))
        factors = scaled_weights(torch.ones_like(weights), outs, ins, group.spec, len(group.terms))
        return weights * factors, factors

    def scales(self, term: MapTerm) -> tuple[Tensor, Tensor]:
        """Return D_out and D_in of a map in float64."""
        weight = term.weight().detach()
        spec = term.spec
        out, inner = (weight.new_ones(n, dtype=torch.float64) for n in channel_counts(weight[None], spec, 1))
        if term.behind is not None:
            out = stored_scale(term.behind.scale())
        for norm in term.before:
            inner = inner * stored_scale(norm.scale())
        return out, inner

    def _map_logs(self) -> dict[int, float]:
        found: list[Tensor] = []
        for group in self.groups:
            found.append(norms_from_above(group, self.whole(group)[0]))
        values = torch.cat(found).tolist()
        terms = [term for group in self.groups for term in group.terms]
        return {id(term): log_outward(value) for term, value in zip(terms, values, strict=True)}

    def _log(self, term: object, maps: dict[int, float]) -> float:
        if isinstance(term, MapTerm):
            return maps[id(term)]
        if isinstance(term, RowTerm):
            return self._row(term, maps[id(term.map)])
        if isinstance(term, SpreadTerm):
            return log_outward(1 / math.sqrt(term.norm.form.least))
        assert isinstance(term, ScaleTerm)
        return log_outward(float(stored_scale(term.norm.scale()).max()))

    def _row(self, term: RowTerm, log: float) -> float:
        """log of the longest row of Wx + b behind a normalizer: x = γz + β with ‖z‖ ≤ √n."""
        assert term.norm is not None
        weight, bias = term.map.weight().detach().double(), term.map.weight.bias
        shift = weight.new_zeros(weight.shape[0]) if bias is None else bias.detach().double()
        beta, root = term.norm.form.beta, math.sqrt(weight.shape[1])
        if term.norm in term.map.before or term.norm.gamma is None:
            moved = shift if beta is None else shift + weight @ beta.detach().double()
            return log_outward(house_up(math.exp(log) * root + float(moved.norm())))
        reach = float(stored_scale(term.norm.scale()).max()) * root
        reach += 0.0 if beta is None else float(beta.detach().double().norm())
        return log_outward(house_up(math.exp(log) * reach + float(shift.norm())))


def stored_scale(scale: Tensor | None) -> Tensor:
    """A normalizer's scales in float64, from above: they were computed in the model's precision."""
    assert scale is not None
    room = 1 + 8 * torch.finfo(scale.dtype).eps
    return scale.detach().double() * room
