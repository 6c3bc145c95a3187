"""The folded bound of a model as a number with a gradient: one matrix-vector pair a map and a handful of scalars."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.control.channel_scales import LiveNormalizer
from normgauge.control.plan import MapTerm, Plan, RowTerm, ScaleTerm, SpreadTerm, joined_tensors
from normgauge.control.warm_norms import SAME, channel_counts, channel_squares, grouped_maps


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
        with torch.no_grad():
            self._calibrate(self.term_logs())

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
        rows: list[Tensor] = []
        for term in self.plan.terms:
            if isinstance(term, MapTerm):
                rows.append(logs[id(term)])
            elif isinstance(term, RowTerm):
                rows.append(logs[id(term.map)])
            elif isinstance(term, SpreadTerm):
                rows.append(term.norm.log_spread())
            else:
                rows.append(_scale(term.norm).amax().log())
        return torch.stack([row.to(self.matrix) for row in rows])

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

    def _map_logs(self, turns: int) -> dict[int, Tensor]:
        weights = [group.weights() for group in self.groups]
        scales = self._scales(weights)
        logs: dict[int, Tensor] = {}
        for index, (group, weight) in enumerate(zip(self.groups, weights, strict=True)):
            outs, ins = (torch.stack(side) for side in zip(*scales[index], strict=True))
            found = group.norms(weight, turns, (outs, ins)).clamp_min(torch.finfo(weight.dtype).tiny).log()
            logs |= {id(term): log for term, log in zip(group.terms, found.unbind(), strict=True)}
        return logs

    def _scales(self, weights: list[Tensor]) -> list[list[tuple[Tensor, Tensor]]]:
        """D_out and D_in of each map of each group: normalizers' scales, then the balance of pairs."""
        scales: list[list[tuple[Tensor, Tensor]]] = []
        known: dict[int, Tensor] = {}
        for group, weight in zip(self.groups, weights, strict=True):
            sizes = channel_counts(weight, group.spec, len(group.terms))
            ones = [weight.new_ones(size) for size in sizes]
            scales.append([_own_scales(term, ones, known) for term in group.terms])
        if self.balanced:
            self._balance(weights, scales)
        return scales

    def _balance(self, weights: list[Tensor], scales: list[list[tuple[Tensor, Tensor]]]) -> None:
        """Scale hidden channels by d = (b/f)^½, f their size in the chain before, b their weight in the one behind."""
        if not any(term.next is not None for term in self.plan.maps):
            return
        squares: dict[int, Pairs] = {}
        paired = {id(end) for term in self.plan.maps if term.next is not None for end in (term, term.next)}
        for group, weight, own in zip(self.groups, weights, scales, strict=True):
            if not paired & {id(term) for term in group.terms}:
                continue
            found = channel_squares(weight)
            each = (found.squeeze(0),) if len(found) == 1 else found.unbind()  # whose gradient would be a copy
            for term, square, (out, inner) in zip(group.terms, each, own, strict=True):
                squares[id(term)] = Pairs(square, out.square(), inner.square())
        sizes, shares = self._sizes(squares), self._shares(squares)
        for term in self.plan.maps:
            if term.next is None:
                continue
            (g, k), (h, m) = self.groups_of[id(term)], self.groups_of[id(term.next)]
            factor = (shares[id(term.next)] / sizes[id(term)]).sqrt().sqrt()
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
    """The squared entries of D_out W D_in, summed over a kernel: W² and the squared scales."""

    square: Tensor
    out: Tensor
    inner: Tensor

    def rows(self, given: Tensor | None) -> Tensor:
        """Σ_c (D_out W D_in)_rc² · given_c."""
        return self.out * (self.square @ (self.inner if given is None else self.inner * given))

    def columns(self, given: Tensor | None) -> Tensor:
        """Σ_r given_r · (D_out W D_in)_rc²."""
        return self.inner * ((self.out if given is None else self.out * given) @ self.square)


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
    return (squares / top).clamp_min(SAME)


def _working(place: Tensor) -> torch.dtype:
    return torch.float64 if place.dtype == torch.float64 else torch.float32
