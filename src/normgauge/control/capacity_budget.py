"""`cap`: a projection behind the optimizer's step that keeps the folded bound under a budget."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch import nn

from normgauge.control.clipping import clip_maps, scale_map, scale_norm
from normgauge.control.folded_norms import FoldedNorms
from normgauge.control.plan import MapTerm, Plan, ScaleTerm, Term, joined_floats
from normgauge.control.unfollowed import Likeness, global_plan, unfollowed_steps
from normgauge.core.errors import InputError
from normgauge.core.rounding import log_above
from normgauge.instrument.rules import Registry
from normgauge.render.markup import clean

log = logging.getLogger("normgauge")
DECADE = math.log(10)
SPARE = 1e-5
"""Of a natural log: how far below the budget the projection aims, for the rounding of the weights it writes."""

CLIP = 0.02
"""Decades that are clipped, for each batch, of a map whose running statistics follow it by a tenth a batch. With all of
it at once a BatchNorm MLP on digits falls to 30 % at a constant rate of 0.01 (AdamW); 0.01 keeps 99 %, 0.04 95 %."""

ROUNDS = 8
HALVINGS = 50


class Cap:
    """Keeps the folded bound of a model under a budget: call it after every ``optimizer.step()``.

    Attributes:
        budget: log10 of what it holds the folded bound under.
        clip: decades a batch, of those that the running statistics behind a map have seen since the last call, that
            are clipped at most of it.
        log10: the proved folded bound when it was last called, after the projection; infinite where steps are not
            followed, and before the first call.
        controlled: the same without the steps that are not followed: what the budget is held against.
        taken: decades it has taken from each layer in all; the last call's are in ``last``.
        in_reach: whether the budget can be kept at all: skip paths, and what cannot be moved, may exceed it alone.
        uncontrolled: steps whose gains it does not know or cannot move, in words.
        unfollowed: those of them that may have other gains than it counts: while there is one, nothing is proved.
    """

    def __init__(self, plan: Plan, log10: float, clip: float, unfollowed: Sequence[str], likeness: Likeness) -> None:
        self.plan, self.budget, self.clip = plan, log10, clip
        self._unfollowed, self._likeness = tuple(unfollowed), likeness
        self.norms = FoldedNorms(plan)
        fixed = [term.name for term in plan.maps if not movable(term) and not term.weight.frozen]
        computed = (f"{name}: its weight is computed from other tensors, and counts as it is" for name in fixed)
        self.uncontrolled = (*plan.uncontrolled, *computed)
        self.unfollowed = (*self._unfollowed, *likeness.changes())
        self.log10, self.controlled, self.calls, self.in_reach = math.inf, math.inf, 0, True
        self._batches = {norm.name: norm.batches for norm in plan.normalizers}
        self.taken: dict[str, float] = {}
        self.last: dict[str, float] = {}

    @torch.no_grad()
    def __call__(self) -> float:
        """Project, and return log10 of the proved folded bound behind it: at most the budget, where it can be reached.

        Where steps without weights exceed the budget by themselves nothing is taken, and `in_reach` is False. Where
        a step is not followed, or a weight is no number, no bound is known: infinite.
        """
        self.calls, self.last = self.calls + 1, {}
        logs = self.norms.term_logs()
        free = [index for index, term in enumerate(self.plan.terms) if movable(term)]
        self.in_reach = not all(map(math.isfinite, logs)) or self._reaches(logs, free)
        for turn in range(ROUNDS):
            kept = self._total(logs) <= self.budget * DECADE
            if kept or not self.in_reach or not all(map(math.isfinite, logs)):
                break
            self._project(logs, first=turn == 0)
            logs = self.norms.term_logs()
        for name, decades in self.last.items():
            self.taken[name] = self.taken.get(name, 0.0) + decades
        known = all(one < math.inf for one in logs)  # False for nan too
        self.controlled = self._total(logs) / DECADE if known else math.inf
        self.in_reach = self.in_reach and self.controlled <= self.budget
        self._batches = {norm.name: norm.batches for norm in self.plan.normalizers}
        self.unfollowed = (*self._unfollowed, *self._likeness.changes())
        self.log10 = math.inf if self.unfollowed else self.controlled
        return self.log10

    @property
    def at_cap(self) -> list[str]:
        """The layers that the last call made smaller, the most first: they would be larger if they could."""
        return sorted(self.last, key=lambda name: -self.last[name])

    def __str__(self) -> str:
        """Say where the bound stands and which layers are at their cap."""
        if self.calls == 0:
            return f"no bound is known before the first call; budget 10^{self.budget:g}"
        head = f"folded bound 10^{self.controlled:.3f} under a budget of 10^{self.budget:g}"
        if self.unfollowed or not self.controlled < math.inf:
            why = "; ".join(map(clean, self.unfollowed)) or "a weight is no number, or a gain is infinite"
            return (
                f"no bound is proved ({why}); the budget of 10^{self.budget:g} is held against what is followed alone"
            )
        if not self.in_reach:
            return f"{head}, which is out of reach: steps that have no weight to take from exceed it alone"
        if not self.last:
            return f"{head}; no layer is at its cap"
        rows = ", ".join(
            f"{name} (−{self.last[name]:.1e} decades, −{self.taken[name]:.2f} in all)" for name in self.at_cap
        )
        return f"{head}; at their cap: {rows}"

    def _total(self, logs: list[float]) -> float:
        """Log of the folded bound, rounded up: a sum of a few hundred terms and as many joins."""
        arms = self.plan.arms()
        chains = [arm.const + math.fsum(logs[index] for index in arm.terms) for arm in arms]
        return log_above(self.plan.fold(chains, joined_floats, 0.0))

    def _project(self, logs: list[float], first: bool) -> None:
        """Bring every layer down to one level, the highest at which the bound keeps the budget.

        Singular values above it are clipped first: a normalizer would give a scale back, a clipped value comes back
        more slowly. Of a layer whose statistics are kept only ``clip`` goes a batch, since they must follow. What is
        left over is scaled, where no normalizer divides it away again: a layer to its level, or, where that was not
        enough, all of them alike.
        """
        free = {index: term for index, term in enumerate(self.plan.terms) if movable(term)}
        lasting = {index: term for index, term in free.items() if not (isinstance(term, MapTerm) and term.renormed)}
        lasting = lasting if self._reaches(logs, list(lasting)) else free
        if not first:
            self._take(lasting, dict.fromkeys(lasting, self._share(logs, list(lasting))))
            return
        level = self._level(logs, list(free))
        over = {index: logs[index] - level for index in free if logs[index] > level}
        clip_maps(
            self.norms, {id(free[index]): math.exp(self._gently(free[index], logs[index], level)) for index in over}
        )
        left = self.norms.term_logs()
        for index in over:
            if left[index] < logs[index]:
                self.last[_name(free[index])] = (logs[index] - left[index]) / DECADE
        self._take(lasting, {index: max(0.0, left[index] - level) for index in over if index in lasting})

    def _gently(self, term: MapTerm | ScaleTerm, log: float, level: float) -> float:
        """The level that a layer is clipped to in one call: its statistics follow from batch to batch."""
        behind = term.behind if isinstance(term, MapTerm) else None
        if behind is None:
            return level
        batches = max(1, behind.batches - self._batches[behind.name])
        return max(level, log - self.clip * batches * DECADE)

    def _reaches(self, logs: list[float], chosen: list[int]) -> bool:
        """Whether the budget can be kept by making these layers smaller, however much."""
        terms = dict.fromkeys((id(self.plan.terms[index]) for index in chosen), math.inf)
        return self._total(_less(logs, self.norms.moved(terms))) <= self.budget * DECADE

    def _take(self, free: dict[int, MapTerm | ScaleTerm], shares: dict[int, float]) -> None:
        """Scale layers down, each by its share of a natural log; a tensor that is used twice, once."""
        most: dict[object, tuple[float, MapTerm | ScaleTerm]] = {}
        for index, share in shares.items():
            term = free[index]
            if term.lever not in most or most[term.lever][0] < share:
                most[term.lever] = share, term
        for share, term in most.values():
            if share <= 0.0:
                continue
            name = _name(term)
            share = max(share, _step(term))
            self.last[name] = self.last.get(name, 0.0) + share / DECADE
            if isinstance(term, ScaleTerm):
                scale_norm(term.norm, math.exp(-share))
            else:
                scale_map(term, math.exp(-share))

    def _level(self, logs: list[float], chosen: list[int]) -> float:
        """The highest level, natural log, at which the bound keeps the budget if no chosen layer exceeds it."""

        def shares(level: float) -> list[float]:
            over = {id(self.plan.terms[index]): max(0.0, logs[index] - level) for index in chosen}
            return self.norms.moved(over)

        top = max(logs[index] for index in chosen)
        return top - self._halved(lambda down: self._total(_less(logs, shares(top - down))))

    def _share(self, logs: list[float], chosen: list[int]) -> float:
        """The share of each chosen layer, natural log, that brings the bound to the budget."""
        terms = [id(self.plan.terms[index]) for index in chosen]
        return self._halved(lambda share: self._total(_less(logs, self.norms.moved(dict.fromkeys(terms, share)))))

    def _halved(self, total: Callable[[float], float]) -> float:
        """The smallest argument at which a falling bound is below the budget, by halving."""
        goal = self.budget * DECADE - SPARE
        low, high = 0.0, 1.0
        while total(high) > goal and high < 2.0**10:
            high *= 2
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if total(middle) <= goal else (middle, high)
        return high


def _name(term: MapTerm | ScaleTerm) -> str:
    return term.name if isinstance(term, MapTerm) else term.norm.name


def _step(term: MapTerm | ScaleTerm) -> float:
    """The least natural log that a layer can give: less would be rounded away."""
    tensor = term.weight() if isinstance(term, MapTerm) else term.norm.gamma
    return 0.0 if tensor is None else 2 * torch.finfo(tensor.dtype).eps


def _less(logs: list[float], shares: list[float]) -> list[float]:
    return [log - share for log, share in zip(logs, shares, strict=True)]


def movable(term: Term) -> TypeGuard[MapTerm | ScaleTerm]:
    """Whether a term can be made smaller: a weight or gains of the model's own are behind it."""
    if isinstance(term, MapTerm):
        return term.weight.free or (term.behind is not None and term.behind.free)
    return isinstance(term, ScaleTerm) and term.norm.free


def cap(model: nn.Module, batch: Any, *, log10: float, clip: float = CLIP, rules: Registry | None = None) -> Cap:
    """Make a projection that keeps a model's folded bound under ``10**log10``: ``cap()`` after ``optimizer.step()``.

    The bound holds for all inputs of the traced size, for the model in eval mode: norms of linear maps with the
    normalizers beside them folded in, proved from above, multiplied along chains and added at additions; LayerNorm,
    RMSNorm and GroupNorm count with 1/√ε (`bounded` makes that a number of choice), attention with its rows' longest
    lengths. What is too much is taken from the largest layers: all are brought down to one level, singular value by
    singular value, and what is left over is scaled away. Any optimizer will do: its state is not touched. Steps whose
    gains depend on parameters in a way that is not followed are named in `Cap.unfollowed`, and nothing is proved then.

    Args:
        model: traced, and a copy of it with other weights; modules, settings and hooks must stay as they are.
        batch: what it is traced with.
        log10: the budget in decades.
        clip: decades a batch that are clipped at most of a map with running statistics behind it; the rest is scaled,
            where no normalizer gives it back. More of it makes smaller layers, and large steps unsafe.
        rules: a registry with rules of your own.

    Raises:
        InputError: for a budget that is not finite, a negative clip, or a model without a linear map.
    """
    if not math.isfinite(log10) or not clip >= 0:
        raise InputError(f"expected a finite budget and a clip of at least 0, got log10={log10}, clip={clip}")
    plan = global_plan(model, batch, rules)
    if not plan.maps:
        raise InputError("the model has no linear map whose weight could be controlled")
    unfollowed = unfollowed_steps(plan, model, batch, rules)
    made = Cap(plan, log10, clip, unfollowed, Likeness(model, plan, batch))
    if made.unfollowed:
        log.warning("cap proves no bound of this model: %s", "; ".join(map(clean, made.unfollowed)))
    return made
