"""Every term of a plan from above, as plain numbers: what a budget is held against."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.control.plan import MapTerm, Plan, RowTerm, ScaleTerm, SpreadTerm
from normgauge.control.proved_norms import norms_from_above
from normgauge.control.warm_norms import channel_counts, grouped_maps, scaled_weights
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

    def moves(self, chosen: list[int]) -> list[float]:
        """Return how often each term's log moves by a share that the ``chosen`` terms give."""
        given = {id(self.plan.terms[index]) for index in chosen}
        keys = {t.weight.key for t in self.plan.maps if id(t) in given}
        norms = {id(t.norm) for t in self.plan.terms if isinstance(t, ScaleTerm) and id(t) in given}

        def times(term: object) -> float:
            if isinstance(term, RowTerm):
                return float(term.map.weight.key in keys) + float(id(term.norm) in norms)
            if isinstance(term, MapTerm):
                return float(term.weight.key in keys)
            return float(id(term) in given)

        return [times(term) for term in self.plan.terms]

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
            weights = group.weights().detach().double()
            outs, ins = (torch.stack(side) for side in zip(*map(self.scales, group.terms), strict=True))
            whole = scaled_weights(weights, outs, ins, group.spec, len(group.terms))
            found.append(norms_from_above(group, whole))
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
