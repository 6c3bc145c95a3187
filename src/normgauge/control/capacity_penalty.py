"""`penalty`: the capacity of a model as one term to add to a loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.control.capacity import Capacity
from normgauge.control.planning import make_plan
from normgauge.control.unfollowed import SHAKES, global_plan, unfollowed_steps
from normgauge.core.bound import Scope
from normgauge.core.errors import InputError
from normgauge.instrument.rules import Registry
from normgauge.instrument.session import Options, opened

DECADE = math.log(10)
WAYS = ("total", "layer")

EVERY = 12
"""Calls of which one is worked out, for 1 to 6 % of a step on a CPU. On digits 12 keeps as much as 8 does,
nearly nine tenths of the decades that 1 takes at the same weight and accuracy."""


class Penalty:
    """A differentiable capacity: call it after the forward pass and add what it returns to the loss.

    Attributes:
        by: ``total`` or ``layer``.
        target: decades below which nothing is asked for; None for none.
        every: on how many calls one is worked out; its value is then that many times as large, the others are 0.
        uncontrolled: steps that the value does not know, in words.
    """

    def __init__(
        self, capacity: Capacity, target: float | None, by: str, every: int, unfollowed: Sequence[str] = ()
    ) -> None:
        self.by, self.target, self.every = by, target, every
        self.uncontrolled = (*capacity.plan.uncontrolled, *unfollowed)
        self._capacity, self._calls = capacity, 0
        looking = capacity.plan.normalizers
        self._hooks = [norm.module.register_forward_pre_hook(self._hook(norm)) for norm in looking]

    def __call__(self) -> Tensor:
        """Return the penalty in decades, with its gradient, on the model's device."""
        due = self._calls % self.every == 0
        self._calls += 1
        if not due:
            return self._capacity.consts.new_zeros(())
        value = self._asked(self._capacity.term_logs()) * self.every
        for norm in self._capacity.plan.normalizers:
            norm.forget_graph()
        return value

    def log10(self) -> float:
        """Return log10 of the folded bound by the vectors reached: from below, and with σ as last seen."""
        with torch.no_grad():
            return float(self._capacity.total(self._capacity.term_logs())) / DECADE

    def layers(self) -> dict[str, float]:
        """Return the decades of each layer."""
        with torch.no_grad():
            logs = self._capacity.layer_logs(self._capacity.term_logs())
        return {name: float(log) / DECADE for name, log in logs.items()}

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()

    def _asked(self, logs: Tensor) -> Tensor:
        if self.by == "total":
            value = self._capacity.total(logs) / DECADE
            return value if self.target is None else (value - self.target).clamp_min(0.0)
        gains = torch.stack(list(self._capacity.layer_logs(logs).values())) / DECADE
        return (gains - (self.target or 0.0)).clamp_min(0.0).sum()

    def _hook(self, norm: Any) -> Any:
        def look(module: nn.Module, args: tuple[Any, ...]) -> None:
            if self._calls % self.every == 0 and args and isinstance(args[0], Tensor):
                norm.look(args[0])

        return look


def penalty(
    model: nn.Module,
    batch: Any,
    *,
    target: float | None = None,
    by: str = "total",
    every: int = EVERY,
    rules: Registry | None = None,
) -> Penalty:
    """Make a gauge-invariant penalty on a model's capacity: ``loss = loss + weight * penalty()``.

    The value is log10 of the folded bound: norms of linear maps with the normalizers beside them folded in, added up
    along chains and joined at additions, from singular vectors that stay warm: one product with each map and its
    transpose a call. It is an estimate from below. BatchNorm counts with its running statistics; LayerNorm, RMSNorm
    and GroupNorm with the geometric mean of the √(σ² + ε) that the last forward pass saw, which is observed and
    proves nothing. Gradients go through both: what a normalizer undoes is not rewarded.

    Args:
        model: traced once, and given hooks on its normalizers (`Penalty.close` takes them off).
        batch: what it is traced with.
        target: decades down to which the capacity is pushed; with ``by="layer"`` those of each layer (0 without).
        by: ``total`` for the whole bound, ``layer`` for the sum over layers of what each has above the target.
        every: work it out on one call in so many, with so many times the weight; 1 takes a little more of the capacity
            and costs a CPU 10 to 60 % of a step.
        rules: a registry with rules of your own.

    Raises:
        InputError: for an option that is not known, or a model without a linear map.
    """
    if by not in WAYS or every < 1:
        raise InputError(f"expected by in {', '.join(WAYS)} and every of at least 1, got by={by!r}, every={every}")
    with opened(model, batch, Options(rules=rules)) as session:
        plan = make_plan(session.model, session.composed(Scope.parse("point")))
    if not plan.maps:
        raise InputError("the model has no linear map whose weight could be controlled")
    # it proves nothing, so that one shake is enough for names
    unfollowed = unfollowed_steps(global_plan(model, batch, rules), model, batch, rules, SHAKES[:1])
    return Penalty(Capacity(plan), target, by, every, unfollowed)
