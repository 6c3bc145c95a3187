"""Rules made wrong on purpose: every gain times 0.99, which an honest search must notice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from normgauge.instrument.rules import REGISTRY, Registry
from normgauge.instrument.rules.flow import Transfer

FACTOR = 0.99


def weakened(function: Callable[..., Transfer]) -> Callable[..., Transfer]:
    """The same rule with gains a little too small, and no form from which they could be computed afresh."""

    def rule(step: Any, incoming: Any, ctx: Any) -> Transfer:
        transfer = function(step, incoming, ctx)
        gains = tuple(
            dataclasses.replace(g, log=g.log + math.log(FACTOR), lo=-math.inf, form=None) for g in transfer.gains
        )
        return dataclasses.replace(transfer, gains=gains)

    rule.__doc__ = function.__doc__
    rule.__name__ = getattr(function, "__name__", "rule")
    return rule


def mutated(rule_id: str) -> Registry:
    """The registry with one rule weakened; measure with ``balance=False``."""
    functions = {r.id: r.function for r in REGISTRY.entries()}
    if rule_id not in functions:
        raise SystemExit(f"--mutate: expected one of {', '.join(functions)}, got {rule_id}")
    wrong = weakened(functions[rule_id])
    known = {target: REGISTRY.lookup(target) for target in REGISTRY.targets()}
    return REGISTRY.extended({t: wrong for t, rule in known.items() if rule is not None and rule.id == rule_id})
