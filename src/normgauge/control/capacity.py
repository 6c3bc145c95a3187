"""The folded bound of a model as a number with a gradient: one matrix-vector pair a map and a handful of scalars."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.control.channel_scales import LiveNormalizer
from normgauge.control.gathered_slopes import GatheredWeights
from normgauge.control.plan import MapTerm, Plan, RowTerm, ScaleTerm, SpreadTerm, joined_tensors
from normgauge.control.warm_norms import SAME, channel_counts, grouped_maps


class Capacity:
    """Natural log of the folded bound of a plan, with its gradient.

    Where one map alone reads another, its channels are balanced first: rows of the first are scaled by d_c, columns of
    the second by 1/d_c. Any d leaves a bound a bound; d = (b/f)^½, with f the size that the chain before gives channel
    c and b its weight in the chain behind, makes the value independent of how a function's weights are scaled.

    Attributes:
        plan: the formula.
        balanced: whether hidden pairs are balanced.
    """

    def __init__(self, plan: Plan, balanced: bool = True) -> None:
        self.plan, self.balanced = plan, balanced
        self.groups = grouped_maps(plan.maps)
        place = plan.maps[0].weight()
        self.matrix, self.consts = (t.to(place.device, _working(place)) for t in plan.incidence())
        self.groups_of = {id(t): (g, k) for g, group in enumerate(self.groups) for k, t in enumerate(group.terms)}
        self._others = [term for term in plan.terms if isinstance(term, SpreadTerm | ScaleTerm)]
        self._order = self._places().to(place.device)
        self._ones: dict[tuple[int, torch.dtype], Tensor] = {}
        with torch.no_grad():
            self._calibrate(self.term_logs())

    def _places(self) -> Tensor:
        """Where each term's log stands: those of maps first, a group after the other, then what stands alone."""
        made = [term for group in self.groups for term in group.terms] + self._others
        where = {id(term): place for place, term in enumerate(made)}
        return torch.tensor([where[id(t.map if isinstance(t, RowTerm) else t)] for t in self.plan.terms])

    def _calibrate(self, logs: Tensor) -> None:
        """Let chains through attention begin with the gains that were measured: row terms count from here."""
        rows = torch.tensor([isinstance(term, RowTerm) for term in self.plan.terms], device=logs.device)
        self.consts = self.consts - self.matrix @ torch.where(rows, logs, torch.zeros_like(logs))

    def total(self, logs: Tensor) -> Tensor:
        """Fold the terms' logs into the log of the bound."""
        chains = (self.matrix @ logs + self.consts).unbind()
        return self.plan.fold(chains, joined_tensors, logs.new_zeros(()))

    def term_logs(self, turns: int = 1) -> Tensor:
        """Return the log of every term."""
        logs = self._map_logs(turns)
        for term in self._others:
            spread = isinstance(term, SpreadTerm)
            logs.append((term.norm.log_spread() if spread else _scale(term.norm).amax().log()).reshape(1))
        return torch.cat([log.to(self.matrix) for log in logs]).index_select(0, self._order)

    def layer_logs(self, logs: Tensor) -> dict[str, Tensor]:
        """Return the log gain of every map with the spread it feeds, and of what stands alone, by name."""
        found: dict[str, Tensor] = {}
        for term, log in zip(self.plan.terms, logs.unbind(), strict=True):
            if isinstance(term, MapTerm):
                found[term.name] = log
        for term, log in zip(self.plan.terms, logs.unbind(), strict=True):
            if isinstance(term, ScaleTerm | SpreadTerm):
                owner = term.owner if isinstance(term, SpreadTerm) else None
                name = term.norm.name if owner is None else owner.name
                found[name] = found[name] + log if name in found else log
        return found

    def _map_logs(self, turns: int) -> list[Tensor]:
        """The logs of the maps' norms, group by group."""
        weights = [group.weights() for group in self.groups]
        logs: list[Tensor] = []
        for group, weight, own in zip(self.groups, weights, self._scales(weights), strict=True):
            outs, ins = (side[0][None] if len(side) == 1 else torch.stack(side) for side in zip(*own, strict=True))
            logs.append(group.norms(weight, turns, (outs, ins)).log())
        return logs

    def _scales(self, weights: list[GatheredWeights]) -> list[list[tuple[Tensor, Tensor]]]:
        """D_out and D_in of each map of each group: normalizers' scales, then the balance of pairs."""
        scales: list[list[tuple[Tensor, Tensor]]] = []
        known: dict[int, Tensor] = {}
        for group, weight in zip(self.groups, weights, strict=True):
            sizes = channel_counts(weight.fixed, group.spec, len(group.terms))
            ones = [self._one(size, weight.fixed) for size in sizes]
            scales.append([_own_scales(term, ones, known) for term in group.terms])
        if self.balanced:
            self._balance(weights, scales)
        return scales

    def _one(self, size: int, like: Tensor) -> Tensor:
        if (size, like.dtype) not in self._ones:
            self._ones[size, like.dtype] = like.new_ones(size)
        return self._ones[size, like.dtype]

    def _balance(self, weights: list[GatheredWeights], scales: list[list[tuple[Tensor, Tensor]]]) -> None:
        """Scale hidden channels by d = (b/f)^½, f their size in the chain before, b their weight in the one behind."""
        if not any(term.next is not None for term in self.plan.maps):
            return
        squares: dict[int, Pairs] = {}
        paired = {id(end) for term in self.plan.maps if term.next is not None for end in (term, term.next)}
        for group, weight, own in zip(self.groups, weights, scales, strict=True):
            for index, (term, (out, inner)) in enumerate(zip(group.terms, own, strict=True)):
                if id(term) in paired:
                    squares[id(term)] = Pairs(weight, index, out * out, inner * inner)
        sizes, shares = self._sizes(squares), self._shares(squares)
        for term in self.plan.maps:
            if term.next is None:
                continue
            (g, k), (h, m) = self.groups_of[id(term)], self.groups_of[id(term.next)]
            factor = (shares[id(term.next)] / sizes[id(term)]).pow(0.25)
            scales[g][k] = scales[g][k][0] * factor, scales[g][k][1]
            scales[h][m] = scales[h][m][0], scales[h][m][1] / factor

    def _sizes(self, squares: dict[int, Pairs]) -> dict[int, Tensor]:
        """f² of what each map puts out: f_r² = Σ_c W_rc² f_c², with f = 1 where a chain begins."""
        found: dict[int, Tensor] = {}
        for term in self.plan.maps:
            if term.next is not None:
                before = next((found[id(t)] for t in self.plan.maps if t.next is term), None)
                found[id(term)] = _even(squares[id(term)].rows(before))
        return found

    def _shares(self, squares: dict[int, Pairs]) -> dict[int, Tensor]:
        """b² of what each map takes in: b_c² = Σ_r b_r² W_rc², with b = 1 where a chain ends."""
        found: dict[int, Tensor] = {}
        read = {id(term.next) for term in self.plan.maps if term.next is not None}
        for term in reversed(self.plan.maps):
            if id(term) in read:
                behind = None if term.next is None else found[id(term.next)]
                found[id(term)] = _even(squares[id(term)].columns(behind))
        return found


@dataclass(frozen=True, slots=True)
class Pairs:
    """The squared entries of D_out W D_in, summed over a kernel: one map of a group, and the squared scales."""

    weights: GatheredWeights
    index: int
    out: Tensor
    inner: Tensor

    def rows(self, given: Tensor | None) -> Tensor:
        """Σ_c (D_out W D_in)_rc² · given_c."""
        return self.out * self.weights.rows(self.index, self.inner if given is None else self.inner * given)

    def columns(self, given: Tensor | None) -> Tensor:
        """Σ_r given_r · (D_out W D_in)_rc²."""
        return self.inner * self.weights.columns(self.index, self.out if given is None else self.out * given)


def _own_scales(term: MapTerm, ones: list[Tensor], known: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
    """The scales of the normalizers beside a map; each normalizer is asked once."""

    def scale(norm: LiveNormalizer) -> Tensor:
        if id(norm) not in known:
            known[id(norm)] = _scale(norm)
        return known[id(norm)]

    out, inner = ones
    out = out if term.behind is None else scale(term.behind).to(out)
    for norm in term.before:
        inner = inner * scale(norm).to(inner)
    return out, inner


def _scale(norm: LiveNormalizer) -> Tensor:
    found = norm.scale()
    assert found is not None
    return found


def _even(squares: Tensor) -> Tensor:
    """The same up to a factor, which cancels: the largest is 1, and none is 0."""
    top = squares.detach().amax().clamp_min(float(torch.finfo(squares.dtype).tiny))
    return squares / top + SAME


def _working(place: Tensor) -> torch.dtype:
    return torch.float64 if place.dtype == torch.float64 else torch.float32
