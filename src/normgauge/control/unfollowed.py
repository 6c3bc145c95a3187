"""What a plan does not follow: gains that count as they were when the model was traced, though they may change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.control.held_state import RUNNING, differing, held_state, lasting, not_compared
from normgauge.control.parameter_uses import gating_parameters, own_statistics
from normgauge.control.plan import Plan
from normgauge.control.planning import make_plan
from normgauge.core.bound import Scope
from normgauge.core.errors import NormgaugeError
from normgauge.core.rounding import HOUSE
from normgauge.instrument.rules import Registry
from normgauge.instrument.session import Options, no_fast_path, opened
from normgauge.instrument.trace import unwrap
from normgauge.instrument.trace.copied import copied

Shake = Callable[[Tensor, Tensor], Tensor]
"""A parameter and noise of its shape, none of it negative, to other values."""


def global_plan(model: nn.Module, batch: Any, rules: Registry | None) -> Plan:
    """The formula of a model's folded bound over all inputs."""
    with opened(model, batch, Options(rules=rules)) as session:
        plan = make_plan(session.model, session.composed(Scope.parse("global")))
        plan.reads += session.size_notes
        return plan


def unfollowed_steps(
    plan: Plan, model: nn.Module, batch: Any, rules: Registry | None, shakes: Sequence[Shake] | None = None
) -> list[str]:
    """Steps whose gain is infinite, or another one in a copy of the model whose parameters are all shaken.

    A plan says which tensors its terms are made of, and takes all other gains for constants. Whether they are is asked
    of the rules themselves, with other parameters: a factor of a product is bounded by the biases before it, a slope
    of a PReLU is a parameter, a weight may be computed from others that were 1 when the model was traced. Every shake
    takes as long as the plan itself. Unless some are given they are `SHAKES`, and `FAR` too where factors are bounded;
    and a parameter that enters otherwise than as a weight, gains or a bias is named, whatever shaking shows.
    """
    endless = [name for (name, _), log in plan.constants.items() if log == math.inf]
    found = [f"{name}: it has no finite bound, and is left out" for name in dict.fromkeys(endless)]
    found += _branching(plan)
    if shakes is None:
        found += _gating(unwrap(model), batch)
        shakes = (*SHAKES, *FAR) if _has_products(plan) else SHAKES
    for shake in shakes:
        try:
            other = global_plan(shaken_copy(model, shake), batch, rules)
        except NormgaugeError as error:
            return [*found, f"the model could not be measured with other weights ({error})"]
        except (RuntimeError, TypeError, ValueError) as error:
            return [*found, f"the model could not be measured with other weights ({type(error).__name__})"]
        found += [*_stale(plan, other), *_branching(other)]
    return list(dict.fromkeys(found))


def _branching(plan: Plan) -> list[str]:
    """That the path depends on the data, where it does: a bound over all inputs is then of no one path."""
    return [f"not every input takes the path that was traced ({'; '.join(plan.reads)})"] if plan.reads else []


def _gating(model: nn.Module, batch: Any) -> list[str]:
    """Parameters that may gate; also that they could not be looked at."""
    try:
        with no_fast_path():
            return gating_parameters(model, batch)
    except Exception as error:  # a forward may raise anything
        return [f"how parameters enter the model could not be looked at ({type(error).__name__})"]


def _has_products(plan: Plan) -> bool:
    """Whether a gain may come from the range of a factor: a step of several inputs that is no sum."""
    many = Counter(name for name, _ in plan.constants)
    return any(count > 1 and not any(word in name for word in SUMS) for name, count in many.items())


def _stale(plan: Plan, other: Plan) -> Iterator[str]:
    for (name, place), log in plan.constants.items():
        again = other.constants.get((name, place), math.nan)
        if log != math.inf and not math.isclose(log, again, rel_tol=HOUSE, abs_tol=HOUSE) and log != again:
            yield f"{name}: its gain depends on parameters, and counts as when the model was traced"
    if plan.shape != other.shape:
        yield "which steps the model takes depends on its parameters"
    for name, where in plan.places.items():
        if other.places.get(name) != where:
            yield f"{name.split(' ', 1)[1]}: its weight is made of several tensors, of which one is followed"


def _away(parameter: Tensor, noise: Tensor) -> Tensor:
    """Farther from 0, vectors so far that a gain such as max(1, slope) shows; matrices by a little: deep models run."""
    size = 0.5 * parameter.abs() + 0.1 * noise if parameter.ndim > 1 else 5 + noise
    return parameter + torch.where(parameter < 0, -size, size)


def _across(parameter: Tensor, noise: Tensor) -> Tensor:
    """As far on the other side of 0: of relu(−scale), sign(scale) or a branch one side shows nothing."""
    return -_away(parameter, noise)


def _near(parameter: Tensor, noise: Tensor) -> Tensor:
    """Nearly 0: what divides by a scale, and stops where it is large, shows."""
    return parameter * (0.5 + 0.1 * noise if parameter.ndim > 1 else 0.01 * (1 + noise))


def _gone(parameter: Tensor, noise: Tensor) -> Tensor:
    """At 0; matrices so near to it that one can still be told from another."""
    return 1e-9 * _near(parameter, noise) if parameter.ndim > 1 else torch.zeros_like(parameter)


def _times(factor: float) -> Shake:
    """So many times farther from 0, or on its other side: a gate may open far from where a parameter is."""
    return lambda parameter, noise: factor * (parameter + torch.where(parameter < 0, -0.1 * noise, 0.1 * noise))


SHAKES: tuple[Shake, ...] = (_away, _across, _near)
FAR: tuple[Shake, ...] = (_gone, *(_times(sign * size) for size in (1e2, 1e4, 1e8) for sign in (1, -1)))
SUMS = ("(add", "(sub", "(__add__", "(__radd__", "(__sub__", "(__rsub__", "(__iadd__", "(cat", "(stack", "(concat")


@torch.no_grad()
def shaken_copy(model: nn.Module, shake: Shake) -> nn.Module:
    """A copy in which no parameter has the values it had."""
    twin = copied(model)
    generator = torch.Generator().manual_seed(0)
    for parameter in twin.parameters():
        if parameter.is_floating_point():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter)
            parameter.copy_(shake(parameter, noise.abs()))
    return twin


class Likeness:
    """Whether a model is still the one that was traced: its modules, their settings and hooks, and all else it holds.

    What a model reads from outside itself (a global, a file, what a hook closes over) is not seen. What it holds and
    nobody can compare counts as changed.

    Attributes:
        model: which.
    """

    def __init__(self, model: nn.Module, plan: Plan, batch: Any) -> None:
        self.model = unwrap(model)
        alone, self._normalizers = _statistics(self.model, batch), {id(norm.module) for norm in plan.normalizers}
        self._followed = {key: names for key, names in alone.items() if key in self._normalizers}
        self._seen = lasting(held_state(self.model, self._followed))

    def changes(self) -> list[str]:
        """What has changed since, in words."""
        now = held_state(self.model, self._followed)
        changed = differing(self._seen, now)
        return [f"{name or 'the model'}: {self._why(name, now.get(name, []))}" for name in changed]

    def _why(self, name: str, leaves: list[Any]) -> str:
        unknown = not_compared(leaves)
        if unknown:
            return f"it holds {', '.join(unknown)}, and whether that changes cannot be seen"
        path, _, key = name.rpartition(".")
        if name not in dict(self.model.named_buffers(remove_duplicate=False)):
            return "it has changed since it was traced; make the cap anew"
        running = key in RUNNING and id(self.model.get_submodule(path)) in self._normalizers
        why = "more than its normalizer's own step may read it" if running else "what depends on it is not followed"
        return f"this buffer has changed since it was traced, and {why}; a new cap lasts until it moves again"


def _statistics(model: nn.Module, batch: Any) -> dict[int, Set[str]]:
    """The running statistics that only their own normalizer reads; none where that could not be looked at."""
    try:
        with no_fast_path():
            return own_statistics(model, batch)
    except Exception:  # a forward may raise anything
        return {}
