"""Functions of one number, written out in plain operations: one bound for the whole instead of one for every step.

h/(1 + h²), 1/(1 + e^(−h)), √(h² + c) are Lipschitz though their parts are not. A chain of elementwise steps over one
value and plain numbers is a function φ of one variable; sup|φ'| is enclosed by interval arithmetic (`intervals`) on
boxes that are halved where it may be largest, and on the two tails. A chain over ‖u‖ or Σu² is a function of the
length of u, which moves by no more than u does: exp(−γ‖x − c‖²).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor

from normgauge.core.rounding import size_down, size_up
from normgauge.instrument.rules.algebra import ADDS, EUCLIDEAN, OVER, POWERS, TIMES, Foreign, norm_order
from normgauge.instrument.rules.combine import after_reduction
from normgauge.instrument.rules.flow import INF, Context, Diagonal, Flow, Gain, Transfer, log_vector
from normgauge.instrument.rules.intervals import Box, Enclosure, Tail
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import at_sample, equal
from normgauge.instrument.trace.step import Step, Value, axes_of

rules = Family("scalar")

Instruction = tuple[Any, ...]
Program = tuple[Instruction, ...]

STARTS = (4.0, 16.0, 64.0, 256.0)  # where tails may begin
ROUNDS, BOXES, SHARP = 40, 512, 1e-4
LONGEST = 40  # instructions
SQUASHES = {"tanh", "sigmoid", "erf", "sin", "cos"}
WILD = {"power", "exp", "log"}


@dataclass(frozen=True, slots=True)
class Dual(Generic[Enclosure]):
    """A function and its derivative."""

    value: Enclosure
    slope: Enclosure


def run(program: Program, variable: Dual[Enclosure]) -> Dual[Enclosure]:
    """The program's result for a variable."""
    known = [variable]
    for op, *given in program:
        known.append(_instruction(op, [known[g] if isinstance(g, int) else g for g in given], variable.value))
    return known[-1]


def _instruction(op: str, given: list[Any], like: Enclosure) -> Dual[Enclosure]:
    if op == "number":
        return Dual(like.number(given[0]), like.number(0.0))
    f, d = given[0].value, given[0].slope
    if op == "add":
        return Dual(f + given[1].value, d + given[1].slope)
    if op == "mul":
        g, e = given[1].value, given[1].slope
        if given[0] is given[1]:
            return Dual(f.power(2.0), like.number(2.0) * (f * d))
        return Dual(f * g, d * g + f * e)
    if op == "over":  # (f/g)' = (f'g − fg')/g², in one fraction, so that large terms may cancel
        g, e = given[1].value, given[1].slope
        return Dual(f * g.inverse(), (d * g + -(f * e)) * g.power(-2.0))
    if op == "neg":
        return Dual(-f, -d)
    if op == "power":
        p = given[1]
        return Dual(f.power(p), like.number(p) * (f.power(p - 1.0) * d))
    if op == "exp":
        value = f.exp()
        return Dual(value, value * d)
    if op == "log":
        return Dual(f.log(), d * f.inverse())
    if op == "abs":
        return Dual(f.absolute(), f.sign() * d)
    if op == "clamp":
        return Dual(f.clamped(given[1], given[2]), f.inside(given[1], given[2]) * d)
    value, slope = f.squash(given[1])
    return Dual(value, slope * d)


class ProgramWriter:
    """Writes the steps between a base value and another down as a program."""

    def __init__(self, base: Value) -> None:
        self.shape, self.base = base.tensor.shape, base
        self.places: dict[int, int] = {base.index: 0}
        self.program: list[Instruction] = []

    def emit(self, *instruction: Any) -> int:
        """Add an instruction and return its place.

        Raises:
            Foreign: when there are too many.
        """
        if len(self.program) >= LONGEST:
            raise Foreign
        self.program.append(instruction)
        return len(self.program)

    def read(self, operand: Any) -> int:
        """The place of an operand.

        Raises:
            Foreign: when it is neither a number nor made of the base.
        """
        if isinstance(operand, Tensor) and operand.numel() == 1 and operand.is_floating_point():
            operand = float(operand)
        if isinstance(operand, int | float) and not isinstance(operand, bool) and math.isfinite(operand):
            return self.emit("number", float(operand))
        if not isinstance(operand, Value):
            raise Foreign
        if operand.index not in self.places:
            step = operand.step
            if step is None or operand.index < self.base.index or operand.tensor.shape != self.shape or step.trouble:
                raise Foreign
            self.places[operand.index] = self.step(step)
        return self.places[operand.index]

    def step(self, step: Step) -> int:
        """The place of a step's result.

        Raises:
            Foreign: for a step that is not elementwise, or not known.
        """
        name = step.kind.strip("_").lower()
        first = step.args[0] if step.args else step.kwargs.get("input")
        if name in ADDS or name in TIMES or name in OVER:
            return self.binary(step, name, first, step.get(1, "other"))
        if name == "pow":
            exponent = step.get(1, "exponent")
            if not isinstance(exponent, int | float):
                raise Foreign
            return self.emit("power", self.read(first), float(exponent))
        if name in ("clamp", "clip", "clamp_min", "clamp_max"):
            low = None if name == "clamp_max" else step.get(1, "min")
            high = step.get(1, "max") if name == "clamp_max" else None if name == "clamp_min" else step.get(2, "max")
            if any(isinstance(limit, Value | Tensor) for limit in (low, high)):
                raise Foreign
            low, high = -INF if low is None else float(low), INF if high is None else float(high)
            return self.emit("clamp", self.read(first), min(low, high), high)
        if len(step.args) + len(step.kwargs) > 1:
            raise Foreign
        return self.unary(name, first)

    def unary(self, name: str, first: Any) -> int:
        """A function of one operand.

        Raises:
            Foreign: for one that is not known.
        """
        if name in SQUASHES:
            return self.emit("squash", self.read(first), name)
        if name in POWERS:
            return self.emit("power", self.read(first), POWERS[name])
        if name in ("exp", "log", "neg", "abs"):
            return self.emit(name, self.read(first))
        if name == "relu":
            return self.emit("clamp", self.read(first), 0.0, INF)
        if name == "log1p":
            return self.emit("log", self.emit("add", self.read(first), self.emit("number", 1.0)))
        if name == "expm1":
            return self.emit("add", self.emit("exp", self.read(first)), self.emit("number", -1.0))
        raise Foreign

    def binary(self, step: Step, name: str, first: Any, second: Any) -> int:
        """A sum, difference, product or quotient.

        Raises:
            Foreign: for options that are not known.
        """
        if set(step.kwargs) - {"other", "alpha", "input"}:
            raise Foreign
        alpha = step.kwargs.get("alpha", 1)
        if name in ("rsub", "rdiv", "rtruediv"):
            first, second = second, first
        if not isinstance(alpha, int | float) or (alpha != 1 and name not in ("add", "sub")):
            raise Foreign
        a, b = self.read(first), self.read(second)
        if name in TIMES:
            return self.emit("mul", a, b)
        if name in OVER:
            return self.emit("over", a, b)
        factor = float(ADDS[name] * alpha)
        if factor != 1:
            b = self.emit("neg", b) if factor == -1 else self.emit("mul", b, self.emit("number", factor))
        return self.emit("add", a, b)


def of_entries(x: Tensor, program: Program) -> Tensor:
    """What a program computes, in plain numbers, entry by entry."""
    known = [x]
    for op, *given in program:
        a: list[Any] = [known[g] if isinstance(g, int) else g for g in given]
        known.append(
            torch.full_like(x, a[0]) if op == "number"
            else a[0] + a[1] if op == "add"
            else a[0] * a[1] if op == "mul"
            else a[0] / a[1] if op == "over"
            else a[0] ** a[1] if op == "power"
            else torch.clamp(a[0], a[1], a[2]) if op == "clamp"
            else getattr(torch, a[1])(a[0]) if op == "squash"
            else getattr(torch, op)(a[0])
        )  # fmt: skip
    return known[-1]


def of_length(u: Tensor, program: Program, dims: tuple[int, ...], keep: bool) -> Tensor:
    """A function of the length of u over axes."""
    return of_entries(torch.linalg.vector_norm(u, dim=dims, keepdim=keep), program)


@functools.lru_cache(maxsize=256)
def whole_line(program: Program, low: float, high: float) -> tuple[float, float, float]:
    """sup|φ'|, inf φ and sup φ on [low, high], ends that may be infinite included; the best of several cuts."""
    found = [_cut(program, low, high, start) for start in (STARTS if math.isinf(high - low) else (INF,))]
    return min(f[0] for f in found), max(f[1] for f in found), min(f[2] for f in found)


def _cut(program: Program, low: float, high: float, start: float) -> tuple[float, float, float]:
    """The three bounds of `whole_line` with tails beyond ±start."""
    slope, least, most = 0.0, INF, -INF
    for sign, end in ((1, high), (-1, -low)):
        if end > start:
            tail = Tail.variable(start, sign)
            got = run(program, Dual(tail, tail.number(float(sign))))
            slope = max(slope, got.slope.highest(), (-got.slope).highest())
            least, most = min(least, -(-got.value).highest()), max(most, got.value.highest())
    left, right = max(low, -start), min(high, start)
    if left > right:
        return slope, least, most
    if slope == INF:
        return INF, -INF, INF
    return _middle(program, left, right, slope, least, most)


def _middle(
    program: Program, left: float, right: float, slope: float, least: float, most: float
) -> tuple[float, float, float]:
    """The three bounds on [left, right] by boxes; those where the slope may be largest are halved while that helps."""
    grid = torch.linspace(-1, 1, BOXES + 1, dtype=torch.float64)
    edges = left + (right - left) * (grid.sign() * grid.abs().pow(2) + 1) / 2  # finer around the middle
    edges[0], edges[-1] = left, right
    low, high = edges[:-1], edges[1:]
    values = slope_bounds(program, low, high)
    least, most = min(least, float(values[1].min())), max(most, float(values[2].max()))
    steep, settled = values[0], slope
    for _ in range(ROUNDS):
        top = max(float(steep.max()), settled)
        middle = (low + high) / 2
        reached = slope_bounds(program, middle, middle)[3]
        seen = max(settled, float(reached.max()))
        if top <= seen * (1 + SHARP) or len(low) > 64 * BOXES:
            break
        open_ = steep > seen * (1 + SHARP)
        settled = max(settled, float(steep[~open_].max()) if bool((~open_).any()) else 0.0)
        low, middle, high = low[open_], middle[open_], high[open_]
        low, high = torch.cat([low, middle]), torch.cat([middle, high])
        steep = slope_bounds(program, low, high)[0]
    return max(float(steep.max()), settled), least, most


def slope_bounds(program: Program, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """On every box: sup|φ'|, inf φ, sup φ, and a lower bound of sup|φ'|."""
    box = Box(low, high)
    got = run(program, Dual(box, box.number(1.0)))
    value, slope = got.value, got.slope
    sure = torch.maximum(slope.lo, -slope.hi).clamp_min(0.0)
    return torch.maximum(slope.lo.abs(), slope.hi.abs()), value.lo, value.hi, sure


def written_chain(step: Step, bases: Iterator[Value]) -> tuple[Any, Value, tuple[Any, ...]] | None:
    """The one step for a chain that ends in ``step``: function, input, arguments; None without a finite constant."""
    if step.outputs[0].tensor.dtype != torch.float64 and not step.outputs[0].tensor.is_floating_point():
        return None
    for base in bases:
        writer = ProgramWriter(base)
        try:
            writer.read(step.outputs[0])
        except (Foreign, RuntimeError, TypeError, ValueError, OverflowError):
            continue
        program = tuple(writer.program)
        if len(program) - sum(i[0] == "number" for i in program) < 2 or not any(_wild(program, i) for i in program):
            continue
        for marker, value, arguments, low in _forms(base, program):
            if whole_line(arguments[0], low, INF)[0] < INF:
                return marker, value, arguments
    return None


def _wild(program: Program, instruction: Instruction) -> bool:
    """Whether an instruction has no constant of its own on the whole line."""
    op, *given = instruction
    fixed = [g > 0 and program[g - 1][0] == "number" for g in given if isinstance(g, int)]
    return op in WILD or (op == "mul" and not any(fixed)) or (op == "over" and not fixed[1])


def _forms(base: Value, program: Program) -> Iterator[tuple[Any, Value, tuple[Any, ...], float]]:
    """The ways to write a chain: as a function of a length, where the base is one or its square; then of the base."""
    found = _length(base)
    if found is not None:
        value, squared, dims, keep = found
        inner: Program = (("power", 0, 2.0),) if squared else (("clamp", 0, 0.0, INF),)
        moved = tuple(tuple(g + 1 if isinstance(g, int) else g for g in i) for i in program)
        yield of_length, value, ((*inner, *moved), dims, keep), 0.0
    yield of_entries, base, (program,), -INF


def _length(base: Value) -> tuple[Value, bool, tuple[int, ...], bool] | None:
    """For a base that is a length: the vector, whether the base is squared, the axes, and whether they are kept."""
    step = base.step
    if step is None or step.module is not None or len(step.inputs) != 1 or step.trouble:
        return None
    name, source = step.kind.strip("_"), step.inputs[0]
    if name in ("norm", "vector_norm", "linalg_vector_norm", "linalg_norm"):
        dim, squared = step.get(2, "dim"), False
        if norm_order(step) not in EUCLIDEAN or not isinstance(dim, int | tuple | list):
            return None
    elif name == "sum":
        dim, squared, inner = step.get(1, "dim"), True, source.step
        if dim is None or isinstance(dim, bool) or inner is None or inner.module is not None:
            return None
        kind = inner.kind.strip("_")
        twice = kind in TIMES and len(inner.inputs) == 2 and inner.inputs[0] is inner.inputs[1]
        if not (kind == "square" or twice or (kind == "pow" and inner.get(1, "exponent") in (2, 2.0))):
            return None
        source = inner.inputs[0]
    else:
        return None
    dims = axes_of(dim, source.tensor.ndim)
    return (source, squared, dims, base.tensor.ndim == source.tensor.ndim) if dims else None


def on_ranges(program: Program, low: Tensor, high: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """sup|φ'|, inf φ and sup φ on one interval a sample, none of which reaches below ``floor``."""
    anywhere = whole_line(program, floor, INF)[0]
    finite = torch.isfinite(low) & torch.isfinite(high)
    share = torch.linspace(0, 1, BOXES + 1, dtype=torch.float64)
    edges = low.nan_to_num(neginf=0.0)[:, None] * (1 - share) + high.nan_to_num(posinf=0.0)[:, None] * share
    edges[:, 0], edges[:, -1] = low, torch.maximum(low, high)
    edges = edges.cummax(1).values
    steep, least, most, _ = slope_bounds(program, edges[:, :-1], edges[:, 1:])
    found = [steep.amax(1).clamp_max(anywhere), least.amin(1), most.amax(1)]
    for i in (~finite).nonzero().flatten().tolist():
        for column, value in zip(found, whole_line(program, float(low[i]), float(high[i])), strict=True):
            column[i] = value
    return found[0].clamp_max(anywhere), found[1], found[2]


@rules.add(of_entries, of_length, claim="X.scalar")
def scalar_function(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Function φ of one number, or of the length of a vector, written out in plain operations.

    ‖J‖ ≤ sup|φ'| over the range of its argument;  |‖u‖ − ‖u'‖| ≤ ‖u − u'‖

    Holds:  over the range in the scope, on the whole line where there is none; recognised from the operations and
            checked against the recorded output.
    Source: interval arithmetic with derivatives, rounded outwards, on boxes and tails (`rules.intervals`).
    """
    flow, data, program = incoming[0], step.inputs[0].tensor, step.args[1]
    low, high, row, axis = flow.low, flow.high, flow.row, flow.axis
    same = step.target is of_entries
    if not same:
        dims, keep = step.args[2:]
        axis = after_reduction(step, flow, ctx, dims, data)
        lengths = torch.linalg.vector_norm(data.detach().double(), dim=dims, keepdim=keep)
        centre = ctx.rows(lengths, axis).flatten(1).cpu()
        rows = dims == (data.ndim - 1,) and not (ctx.samples > 1 and flow.axis % data.ndim == data.ndim - 1)
        move = flow.row if rows else flow.radius
        low, high = size_down((centre.amin(1) - move).clamp_min(0.0)), size_up(centre.amax(1) + move)
        high = torch.minimum(high, flow.norm) if rows else high
        row = flow.radius
    slope, least, most = on_ranges(program, low, high, -INF if same else 0.0)
    log = log_vector(slope)
    gain = Gain(log, form=Diagonal() if same else None)
    return Transfer(
        (gain,),
        row=size_up(slope * row).nan_to_num(nan=INF, posinf=INF),
        low=least,
        high=most,
        axis=axis,
        worked=equal(f"{at_sample(log)}sup|φ'| of {len(program)} operations on one number", log),
    )
