"""What a plan does not follow: gains that count as they were when the model was traced, though they may change."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from normgauge.control.plan import Plan
from normgauge.control.planning import make_plan
from normgauge.core.bound import Scope
from normgauge.core.errors import NormgaugeError
from normgauge.core.rounding import HOUSE
from normgauge.instrument.rules import Registry
from normgauge.instrument.session import Options, opened


def global_plan(model: nn.Module, batch: Any, rules: Registry | None) -> Plan:
    """The formula of a model's folded bound over all inputs."""
    with opened(model, batch, Options(rules=rules)) as session:
        return make_plan(session.model, session.composed(Scope.parse("global")))


def unfollowed_steps(plan: Plan, model: nn.Module, batch: Any, rules: Registry | None) -> list[str]:
    """Steps whose gain is infinite, or another one in a copy of the model whose parameters are all shaken.

    A plan says which tensors its terms are made of, and takes all other gains for constants. Whether they are is asked
    of the rules themselves, with other parameters: a factor of a product is bounded by the biases before it, a slope
    of a PReLU is a parameter, a weight may be computed from others that were 1 when the model was traced.
    """
    endless = [name for (name, _), log in plan.constants.items() if log == math.inf]
    found = [f"{name}: it has no finite bound, and is left out" for name in dict.fromkeys(endless)]
    try:
        other = global_plan(shaken_copy(model), batch, rules)
    except (NormgaugeError, RuntimeError, TypeError, ValueError) as error:
        return [*found, f"the model could not be measured with other weights ({type(error).__name__})"]
    return [*found, *dict.fromkeys(_stale(plan, other))]


def _stale(plan: Plan, other: Plan) -> Iterator[str]:
    for (name, place), log in plan.constants.items():
        again = other.constants.get((name, place), math.nan)
        if log != math.inf and not math.isclose(log, again, rel_tol=HOUSE, abs_tol=HOUSE) and log != again:
            yield f"{name}: its gain depends on parameters, and counts as when the model was traced"
    for name, where in plan.places.items():
        if other.places.get(name) != where:
            yield f"{name.split(' ', 1)[1]}: its weight is made of several tensors, of which one is followed"


@torch.no_grad()
def shaken_copy(model: nn.Module) -> nn.Module:
    """A copy in which no parameter has the values it had: matrices differ by a little, so that deep models still run.

    Slopes and scales become so large that a gain such as max(1, slope) shows them.
    """
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    for parameter in twin.parameters():
        if parameter.is_floating_point():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter)
            size = 0.5 * parameter.abs() + 0.1 * noise.abs() if parameter.ndim > 1 else 5 + noise.abs()
            parameter.add_(torch.where(parameter < 0, -size, size))
    return twin


class Likeness:
    """Whether a model is still the one that was traced: its modules, their settings and hooks, tensors not followed.

    Attributes:
        model: which.
    """

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.model = model
        self._followed = {id(norm.module) for norm in plan.normalizers}
        self._seen = self._look()

    def changes(self) -> list[str]:
        """What has changed since, in words."""
        now = self._look()
        if now == self._seen:
            return []
        names = [name for name in dict.fromkeys((*self._seen, *now)) if self._seen.get(name) != now.get(name)]
        return [f"{name or 'the model'}: it has changed since it was traced; make the cap anew" for name in names]

    def _look(self) -> dict[str, tuple[object, ...]]:
        return {name: self._facts(module) for name, module in self.model.named_modules()}

    def _facts(self, module: nn.Module) -> tuple[object, ...]:
        own = vars(module)
        settings = tuple(
            (key, value)
            for key, value in own.items()
            if isinstance(value, bool | int | float | str) and key != "training" and not key.startswith("_")
        )
        given = (*own["_forward_hooks"].values(), *own["_forward_pre_hooks"].values())
        hooks = tuple(id(hook) for hook in given if not str(hook.__module__).startswith("normgauge."))
        buffers = () if id(module) in self._followed else tuple((id(b), b._version) for b in module.buffers(False))
        return id(module), id(own.get("forward")), settings, hooks, buffers
