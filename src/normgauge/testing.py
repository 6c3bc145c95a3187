"""`check_rule`: the contract every rule must meet, for the library's own rules and for anybody else's.

    check_rule(lambda: nn.LayerNorm(5), (3, 5))                       # a module
    check_rule(F.softplus, (2, 4))                                    # a function of one tensor
    check_rule(MyLayer, (2, 4), rules=REGISTRY.extended({MyLayer: my_rule}), attained=0.99)

A network of that one layer is measured in every scope, with the balanced bound and without. Then, in float64, dense
Jacobian norms and secant slopes at points of the scope must stay below the bound, and outputs of the ball within the
displacement promised. A worked formula must end with the gain.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.bound import Scope
from normgauge.core.reading import LayerRecord, Reading
from normgauge.measure import readings
from normgauge.rules import Registry
from normgauge.rules.worked import stated
from normgauge.trace.untouched import untouched

SLACK = 1e-9
ROUNDING = 1e-13  # of the outputs' size: what their difference may lose
PRINTED = 1e-3  # relative room for a number that was rounded to be read
SCALES = (1.0, 1e-3, 30.0)


class OneStep(nn.Module):
    """A network of one layer."""

    def __init__(self, layer: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        """The layer's output, or the first of several."""
        out = self.layer(x)
        return out[0] if isinstance(out, tuple | list) else out


@dataclass(frozen=True, slots=True)
class Bench:
    """The layer under test, the point it is measured at and the generator all random choices come from."""

    model: OneStep
    x: Tensor
    mode: str
    generator: torch.Generator
    memory: dict[str, Tensor]

    def function(self, x: Tensor) -> Tensor:
        """The layer as a map of one tensor; state and random numbers are the same at every call."""
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self.memory[name])
        torch.default_generator.manual_seed(0)
        return self.model(x)

    def noise(self) -> Tensor:
        """A standard normal tensor of the input's shape."""
        return torch.randn(self.x.shape, dtype=torch.float64, generator=self.generator)


def check_rule(
    target: Callable[..., Any],
    inputs: Tensor | Sequence[int],
    *,
    rules: Registry | None = None,
    scopes: Sequence[str] = ("global", "ball:0.1", "point"),
    attained: float | bool = False,
    seed: int = 0,
    mode: str = "eval",
    unknown: bool = False,
) -> dict[str, float]:
    """Test one rule against dense Jacobians, secants and displacements.

    Args:
        target: a module, a class or factory of modules without arguments, or a function of one tensor.
        inputs: the batch, or its shape.
        rules: the registry that holds the rule; normgauge's own without it.
        scopes: where to test.
        attained: the part of the bound that must be found somewhere (True: 0.999) in each scope with a finite bound.
        seed: of weights, inputs and points.
        mode: eval or train.
        unknown: whether an infinite bound for want of a rule is accepted.

    Returns:
        The largest slope found as a part of the bound, by scope (0 where the bound is infinite).

    Raises:
        AssertionError: saying what was expected, what was found, in which scope and at which point.
    """
    bench = make_bench(target, inputs, mode, seed)
    shares: dict[str, float] = {}
    for scope in scopes:
        torch.default_generator.manual_seed(0)
        options: dict[str, Any] = {"mode": mode, "rules": rules, "search": False}
        pair = [readings(bench.model, bench.x, (scope,), balance=balance, **options)[0] for balance in (False, True)]
        for reading in pair:
            _consistent(reading, unknown)
        if pair[1].log_upper > pair[0].log_upper + SLACK:
            raise AssertionError(f"{scope}: expected balancing to lower {pair[0].log_upper}, got {pair[1].log_upper}")
        with untouched(bench.model, torch.float64, bench.x.device, mode == "train", bench.x.dtype):
            shares[scope] = _attacked(bench, pair[1])
    least = 0.999 if attained is True else float(attained)
    for scope, share in shares.items():
        if 0 < share < least:
            raise AssertionError(f"{scope}: expected a slope of at least {least} of the bound, found {share:.6f} of it")
    return shares


def make_bench(target: Callable[..., Any], inputs: Tensor | Sequence[int], mode: str, seed: int) -> Bench:
    """Build the network in float64; random weights and inputs come from ``seed``."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        model = OneStep(target() if is_factory(target) else target).double().train(mode == "train")
        x = inputs.detach().double() if isinstance(inputs, Tensor) else torch.randn(tuple(inputs), dtype=torch.float64)
        memory = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        return Bench(model, x, mode, torch.Generator().manual_seed(seed), memory)
    finally:
        torch.set_rng_state(state)


def is_factory(target: Callable[..., Any]) -> bool:
    """A class of modules, or a callable that takes nothing; torch's own functions may have no signature."""
    if isinstance(target, type | nn.Module):
        return isinstance(target, type)
    try:
        return not inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False


def _consistent(reading: Reading, unknown: bool) -> None:
    """The reading agrees with itself.

    Raises:
        AssertionError: when it does not.
    """
    if reading.unknown and not unknown:
        what = "; ".join(f"{f.name}: {f.why}" for f in reading.unknown)
        raise AssertionError(f"{reading.scope}: expected a rule that covers this use, got {what}")
    if reading.log_lower > reading.log_upper + SLACK:
        raise AssertionError(
            f"{reading.scope}: lower {reading.log_lower} above upper {reading.log_upper} (natural logs)"
        )
    for row in reading.layers:
        if row.gain.lo > row.gain.hi + SLACK:
            raise AssertionError(f"{reading.scope}: {row.name} has a gain from {row.gain.lo} to {row.gain.hi}")
        if row.worked:
            _worked_out(reading, row)


def _worked_out(reading: Reading, row: LayerRecord) -> None:
    """The formula with the layer's numbers in it ends with the layer's gain.

    Raises:
        AssertionError: when it does not.
    """
    said = stated(row.worked)
    if said is None:
        raise AssertionError(
            f"{row.name}: expected a text that ends with '= number' or 'in [a, b]', got {row.worked!r}"
        )
    if said.hi != row.gain.hi and not abs(said.hi - row.gain.hi) <= PRINTED:
        raise AssertionError(f"{reading.scope}: expected the gain {math.exp(row.gain.hi):.5g}, got {row.worked!r}")


def _points(bench: Bench, scope: Scope) -> Iterator[tuple[str, Tensor]]:
    """The centre; in a ball its inside and surface; anywhere, inputs of several scales and nearly constant ones."""
    yield "the centre", bench.x
    if scope.kind == "global":
        for scale in SCALES:
            yield f"a random point of scale {scale:g}", scale * bench.noise()
        yield "a nearly constant point", 0.5 + 1e-6 * bench.noise()
        yield "a nearly zero point", 1e-6 * bench.noise()
        peak = 1e-3 * bench.noise()
        peak.view(-1)[peak.numel() // 2] = 5.0
        yield "a lone peak", peak
    elif scope.kind == "ball":
        for count, part in enumerate((0.999, 0.5, 1e-3, 0.999)):
            shift, sample = torch.zeros_like(bench.x), count % len(bench.x)
            shift[sample] = bench.noise()[sample]  # one sample moves: a ball of it, and of the batch as one point
            yield f"sample {sample} at {part:g} of the radius", bench.x + part * scope.radius / shift.norm() * shift


def _attacked(bench: Bench, reading: Reading) -> float:
    """The largest slope found in the scope, as a part of the bound.

    Raises:
        AssertionError: when it is more than all of it.
    """
    scope, upper = reading.scope, math.exp(min(reading.log_upper, 700.0))
    if math.isinf(reading.log_upper) and reading.log_upper > 0:
        return 0.0
    best = 0.0
    for name, x in _points(bench, scope):
        slope, direction = jacobian_norm(bench.function, x)
        found = [(slope, f"the Jacobian at {name}")]
        if scope.kind != "point":
            reach = 1e-3 if scope.kind == "global" else 4e-4 * scope.radius
            found.append((_secant(bench, x, x + reach * direction), f"a secant from {name}"))
            found.append((_secant(bench, bench.x, x), f"the secant from the centre to {name}"))
        for value, where in found:
            if value > upper * (1 + SLACK) + ROUNDING:
                raise AssertionError(f"{scope}: expected slopes up to {upper:.12g}, got {value:.12g}: {where}\n{x}")
            best = max(best, value)
        if scope.kind == "ball" and reading.displacement is not None:
            _inside(bench, reading, x, name)
    return best / upper if upper > 0 else 1.0


def _secant(bench: Bench, a: Tensor, b: Tensor) -> float:
    """A slope that was seen, less its rounding."""
    with torch.no_grad():
        first, second = bench.function(a), bench.function(b)
    gap = float((a - b).norm())
    seen = float((first - second).norm()) - ROUNDING * float(first.norm() + second.norm())
    return seen / gap if gap > 0 else 0.0


def _inside(bench: Bench, reading: Reading, x: Tensor, name: str) -> None:
    """The output moves no farther than the reading says.

    Raises:
        AssertionError: when it does.
    """
    assert reading.displacement is not None
    with torch.no_grad():
        moved = float((bench.function(x) - bench.function(bench.x)).norm())
    most = math.exp(min(reading.displacement, 700.0))
    if moved > most * (1 + SLACK) + ROUNDING:
        raise AssertionError(
            f"{reading.scope}: expected the output to move by {most:.12g}, got {moved:.12g} at {name}\n{x}"
        )


def jacobian_norm(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, Tensor]:
    """‖J(x)‖₂ from the dense Jacobian, row by row, and the direction that attains it."""
    leaf = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        out = function(leaf * 1.0)  # layers that write in place may not write to a leaf
        rows = [
            torch.autograd.grad(entry, leaf, retain_graph=True, allow_unused=True)[0]
            for entry in (out.reshape(-1) if out.requires_grad else ())
        ]
    dense = torch.stack([torch.zeros_like(leaf) if row is None else row for row in rows] or [torch.zeros_like(leaf)])
    dense = dense.flatten(1)
    if not bool(torch.isfinite(dense).all()):  # beyond float64, nothing was found
        return 0.0, torch.zeros_like(x)
    _, sizes, right = torch.linalg.svd(dense, full_matrices=False)
    return float(sizes[0]), right[0].reshape(x.shape)


__all__ = ["check_rule"]
