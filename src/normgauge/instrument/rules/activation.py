"""Elementwise activations: one table of constants, one rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from normgauge.core.rounding import size_down, size_up
from normgauge.instrument.rules.combine import entry_by_entry
from normgauge.instrument.rules.flow import INF, Context, Diagonal, Flow, Gain, Transfer, endless, log_vector
from normgauge.instrument.rules.registry import Family, spellings
from normgauge.instrument.rules.worked import JUMPS, at_sample, equal, number, worst_sample
from normgauge.instrument.trace.step import Step, Value

rules = Family("activation")

DIGITS = 1e-6  # the table's constants are right to so many digits, from above
EVERYWHERE = (-INF, INF)
LEFT, RIGHT = -(2.0**-30), 1.0  # just before a kink, and well behind the one at 0
FAR = 40.0  # where what approaches its supremum has arrived, in float64


def hardly_switched(step: Step) -> bool:
    """Whether Softplus has β > 0 and goes over to the identity so far out that the jump there is only rounding."""
    return bool(step.option(1, "beta", 1.0) > 0 and step.option(2, "threshold", 20.0) >= 20)


Turns = tuple[tuple[float, ...], float]


def turning(bend: float, *kinks: float) -> Callable[[Step], Turns]:
    """The same kinks, and the same sup|φ''| between them, whatever the options of a step."""
    return lambda step: (kinks, bend)


def _size(step: Step, name: str, default: float) -> float:
    """The size of a step's first option."""
    return abs(float(step.option(1, name, default)))


@dataclass(frozen=True, slots=True)
class Activation:
    """What is known of an elementwise function φ.

    Attributes:
        names: what torch calls it: module, function and method, in place or not.
        constant: sup|φ'|, rounded up in the last digit shown; where ``slopes`` are listed, the larger of this and them.
        attained: points at one of which |φ'| reaches its supremum, or comes within float64 of it.
        span: range of φ.
        origin: |φ(0)|, which shifts the length of a row; divided by |β| where the first option is called that.
        text: how the constant depends on the options, or which form of the function this is.
        slopes: options whose size is a slope: (position, name, default).
        least: inf φ', rounded down in the last digit shown; where ``slopes`` are listed, the smaller of this and them.
        holds: whether there is a constant for these options.
        turns: from a step to where φ' jumps, and sup|φ''| between these places; None where that is not known.
    """

    names: str
    constant: float = 1.0
    attained: tuple[float, ...] = (RIGHT,)
    span: tuple[float, float] = EVERYWHERE
    origin: float = 0.0
    text: str = ""
    slopes: tuple[tuple[int, str, float | None], ...] = ()
    holds: Callable[[Step], bool] = lambda step: True
    least: float = 0.0
    turns: Callable[[Step], Turns] | None = None

    def steepest(self, step: Step) -> tuple[float, str]:
        """The constant for the options of a step, and which function with which options it belongs to, in words."""
        sizes = [
            float(torch.as_tensor(step.option(*slope), dtype=torch.float64).detach().abs().max())
            for slope in self.slopes
        ]
        value = max(self.constant, *sizes) if sizes else self.constant
        if sizes:
            return value, f"{step.kind} = {self.text} = max(1, {', '.join(map(number, sizes))})"
        return value, f"{step.kind} ({self.text})" if self.text else step.kind

    def slope_range(self, step: Step) -> tuple[float, float]:
        """Ends of the range of φ' for the options of a step: (φ(x) − φ(x'))/(x − x') lies between them."""
        options = [torch.as_tensor(step.option(*slope), dtype=torch.float64).detach() for slope in self.slopes]
        least = [float(option.min()) for option in options]
        return min([self.least, *least]), max([self.constant, *(float(option.max()) for option in options)])

    def start(self, step: Step) -> float:
        """|φ(0)| for the options of a step."""
        return self.origin / abs(step.option(1, "beta", 1.0)) if "Softplus" in self.names else self.origin


GELU = Activation(
    "GELU gelu", 1.1289045, (2**0.5,), (-0.1701, INF), text="erf form", least=-0.1289045, turns=turning(0.797885)
)
GELU_TANH = replace(GELU, constant=1.1289934, attained=(1.4185040,), text="tanh form", least=-0.1289934)
SILU = Activation("SiLU silu", 1.099840, (2.3993573,), (-0.2785, INF), least=-0.099840, turns=turning(0.5))
MISH = Activation("Mish mish", 1.088499, (1.4905712,), (-0.3089, INF), least=-0.112527, turns=turning(0.644205))
TABLE = [
    Activation("ReLU relu relu_", span=(0.0, INF), turns=turning(0.0, 0.0)),
    Activation("ReLU6 relu6", span=(0.0, 6.0), turns=turning(0.0, 0.0, 6.0)),
    Activation("Tanh tanh tanh_", 1.0, (0.0,), (-1.0, 1.0), turns=turning(0.769801)),
    Activation("Softsign softsign", 1.0, (0.0,), (-1.0, 1.0), turns=turning(2.0)),
    Activation(
        "Softplus softplus", 1.0, (FAR,), (0.0, INF), math.log(2), holds=hardly_switched,
        turns=lambda step: ((), size_up(_size(step, "beta", 1.0) / 4)),
    ),
    Activation("LogSigmoid logsigmoid", 1.0, (-FAR,), (-INF, 0.0), math.log(2), turns=turning(0.25)),
    Activation("Tanhshrink tanhshrink", 1.0, (FAR,), turns=turning(0.769801)),
    Activation("Softshrink softshrink", turns=lambda step: ((-(edge := _size(step, "lambd", 0.5)), edge), 0.0)),
    Activation("sin", 1.0, (0.0,), (-1.0, 1.0), least=-1.0, turns=turning(1.0)),
    Activation("cos", 1.0, (math.pi / 2,), (-1.0, 1.0), 1.0, least=-1.0, turns=turning(1.0)),
    Activation("atan arctan asinh", 1.0, (0.0,)),
    Activation("erf", 1.128379168, (0.0,), (-1.0, 1.0), turns=turning(0.967883)),
    Activation("Sigmoid sigmoid sigmoid_", 0.25, (0.0,), (0.0, 1.0), 0.5, turns=turning(0.0962251)),
    Activation(  # ⅙ as float32 has it, as in torch
        "Hardsigmoid hardsigmoid", 0.1666666717, (0.0,), (0.0, 1.0), 0.5, turns=turning(0.0, -3.0, 3.0)
    ),
    Activation("Hardswish hardswish", 1.5, (3.0 + LEFT,), (-0.375, INF), least=-0.5, turns=turning(1 / 3, -3.0, 3.0)),
    SILU,
    MISH,
    Activation("SELU selu selu_", 1.758100, (LEFT,), (-1.758100, INF), turns=turning(1.758100, 0.0)),
    GELU,
    Activation(
        "ELU elu elu_", 1.0, (RIGHT, LEFT), text="max(1, |α|)", slopes=((1, "alpha", 1.0),),
        turns=lambda step: ((0.0,), size_up(_size(step, "alpha", 1.0))),
    ),
    Activation(
        "CELU celu celu_", holds=lambda step: step.option(1, "alpha", 1.0) > 0,  # else exp(x/α) has no bound
        turns=lambda step: ((), size_up(1 / _size(step, "alpha", 1.0))),
    ),
    Activation(
        "LeakyReLU leaky_relu leaky_relu_", 1.0, (RIGHT, LEFT),
        text="max(1, |a|)", slopes=((1, "negative_slope", 0.01),), least=1.0, turns=turning(0.0, 0.0),
    ),
    Activation(
        "RReLU rrelu rrelu_", 1.0, (RIGHT, LEFT),
        text="max(1, |lower|, |upper|)", slopes=((1, "lower", 1 / 8), (2, "upper", 1 / 3)), least=1.0,
    ),
    Activation(
        "PReLU prelu", 1.0, (RIGHT, LEFT),
        text="max(1, |a|)", slopes=((1, "weight", None),), least=1.0, turns=turning(0.0, 0.0),
    ),
]  # fmt: skip
ACTIVATIONS = {target: row for row in TABLE for target in spellings(*row.names.split())}


def activation_of(step: Step) -> Activation:
    """The table's row for a step (for a subclass, its ancestor's)."""
    targets = step.target.__mro__ if step.module is not None else (step.target,)
    row = next(ACTIVATIONS[target] for target in targets if target in ACTIVATIONS)
    return GELU_TANH if row is GELU and step.option(1, "approximate", "none") == "tanh" else row


def clamp_limits(step: Step) -> tuple[object, object]:
    """Both limits of a clamp as they were given: numbers, tensors, values or None."""
    if step.module is not None:
        return step.module.min_val, step.module.max_val
    if "clamp_max" in step.kind:
        return None, step.get(1, "max")
    if "hardtanh" in step.kind:
        return step.get(1, "min_val", -1.0), step.get(2, "max_val", 1.0)
    return step.get(1, "min"), step.get(2, "max")


def slope_range(step: Step, rule: str) -> tuple[float, float] | None:
    """Ends of the range of slopes of an elementwise step of one value that has a constant; None for any other."""
    if rule == "activation.activation":
        return activation_of(step).slope_range(step)
    if rule == "activation.modulus":
        return (-1.0, -1.0) if "neg" in step.kind else (-1.0, 1.0)
    return (0.0, 1.0) if rule in ("activation.clamp", "activation.jump") else None


def elementwise(
    value: float,
    span: tuple[float, float],
    flow: Flow,
    ctx: Context,
    length: int = 1,
    origin: float | None = 0.0,
) -> Transfer:
    """The transfer of an elementwise map φ with a given constant, range and |φ(0)|: |φ(x)| ≤ L|x| + |φ(0)|."""
    low, high, norm = ctx.full(-INF), ctx.full(INF), None
    if origin is not None:
        reach = size_up(value * flow.peak) + origin
        low, high = -reach, reach
        norm = size_up(value * flow.norm) + origin * math.sqrt(length)
    attained = math.log(value) - DIGITS if value and ctx.scope.kind == "global" else -INF
    return Transfer(
        (Gain(ctx.log(value), attained, Diagonal()),),
        row=value * flow.row,
        norm=norm,
        low=low.clamp_min(span[0]),
        high=high.clamp_max(span[1]),
    )


@rules.add(*ACTIVATIONS, claim="T.D4")
def activation(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Elementwise activation.

    J = diag(φ'(x_i)),  ‖J‖ ≤ sup|φ'|: ReLU, Tanh, Softplus, ... 1; GELU 1.1289045 (erf), 1.1289934 (tanh);
    SiLU 1.09984; Mish 1.088499; Hardswish 1.5; SELU 1.7581; Sigmoid ¼; Hardsigmoid ⅙;
    LeakyReLU, PReLU, RReLU max(1, |a|); ELU max(1, |α|)

    Holds:  everywhere; the supremum is attained or approached. Softplus is log(1 + exp(βx))/β: where torch goes over to
            x, at βx = 20, its values jump by 10⁻¹⁰ of their size, which counts as rounding.
    Source: maximum of the derivative.
    """
    row, shape = activation_of(step), step.outputs[0].tensor.shape
    if not row.holds(step):
        return ctx.unknown(incoming, f"{step.kind} with these parameters")
    value, what = row.steepest(step)
    found = elementwise(value, row.span, incoming[0], ctx, shape[-1] if shape else 1, row.start(step))
    return replace(found, worked=equal(f"sup|φ'| of {what}", found.gains[0].log))


@rules.add(*spellings("abs", "__abs__", "neg", "__neg__"), claim="T.D4", complex=True)
def modulus(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Modulus, of real or complex entries, and change of sign.

    ||a| − |b|| ≤ |a − b|,  |−a + b| = |a − b|:  ‖J‖ = 1

    Holds:  everywhere, exactly.
    Source: reverse triangle inequality.
    """
    flow, minus = incoming[0], "neg" in step.kind
    low, high = (-flow.high, -flow.low) if minus else (ctx.full(0.0), flow.peak)
    gain = Gain(ctx.full(0.0), 0.0, Diagonal())
    worked = equal("sup|φ'| of " + step.kind, gain.log)
    return Transfer((gain,), row=flow.row, norm=flow.norm, low=low, high=high, worked=worked)


@rules.add(
    *spellings("Hardtanh", "hardtanh", "hardtanh_", "clamp", "clip", "clamp_", "clamp_min", "clamp_max"),
    claim="X.clamp",
)
def clamp(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Clamping to an interval.

    y = min(max(x, a), b),  ‖J‖ ≤ 1,  a ≤ y ≤ b

    Holds:  everywhere; limits that are branches count like operands of `maximum`.
    Source: projection onto a convex set.
    """
    limits = clamp_limits(step)
    if any(isinstance(v, Tensor | Value) for v in limits):
        return entry_by_entry(step, incoming, ctx, (step.get(0, "input"), *limits))
    low, high = (None if v is None else float(v) for v in limits)  # type: ignore[arg-type]
    low = low if low is None or high is None else min(low, high)  # torch gives the upper limit where they cross
    span = (-INF if low is None else low, INF if high is None else high)
    found = elementwise(1.0, span, incoming[0], ctx, origin=None)
    text = f"sup|φ'| of a clamp to [{number(span[0])}, {number(span[1])}]"
    return replace(found, worked=equal(text, found.gains[0].log))


@rules.add(*spellings("maximum", "minimum"), claim="X.maximum")
def maximum(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Larger or smaller of two tensors, entry by entry.

    each entry comes from one operand:  L ≤ √(L_a² + L_b²), each times √copies where broadcasting repeats it

    Holds:  everywhere; a constant operand adds nothing.
    Source: |max(a, b) − max(a', b')| ≤ max(|a − a'|, |b − b'|).
    """
    return entry_by_entry(step, incoming, ctx, (step.get(0, "input"), step.get(1, "other")))


FLAT = {  # where each of these steps jumps
    "sign": lambda x: x == 0,
    "floor": lambda x: x == x.round(),
    "ceil": lambda x: x == x.round(),
    "round": lambda x: (2 * x == (2 * x).round()) & (x != x.round()),
}


@rules.add(
    *spellings("Hardshrink", "hardshrink", "Threshold", "threshold", "threshold_", "heaviside", "argmax"),
    *spellings("round", "floor", "ceil", "sign", "gt", "__gt__", "lt", "__lt__", "ge", "__ge__", "le", "__le__"),
    *spellings("eq", "__eq__", "ne", "__ne__"),
    claim="X.jump",
)
def jump(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Discontinuous map.

    no constant exists: |f(x) − f(x')| stays put while |x − x'| → 0

    Holds:  on a ball and everywhere. At a single point sign, floor, ceil and round are flat unless they jump there.
    Source: definition.
    """
    plain = step.kind in FLAT and len(step.args) + len(step.kwargs) == 1  # round has decimals
    if plain and ctx.scope.kind == "point" and not bool(FLAT[step.kind](step.inputs[0].tensor).any()):
        zero, flat = ctx.full(0.0), ctx.full(-INF)
        return Transfer((Gain(flat),), radius=zero, row=zero, worked=equal(f"{step.kind} is flat at the samples", flat))
    if step.kind == "threshold" or isinstance(step.module, nn.Threshold):
        limit, fill = (step.option(1, "threshold", 0.0), step.option(2, "value", 0.0))
        if limit == fill:  # x if x > t else t: a shifted ReLU
            found = elementwise(1.0, (limit, INF), incoming[0], ctx, origin=None)
            return replace(found, worked=equal(f"sup|φ'| of max(x, {number(limit)})", found.gains[0].log))
    worked = equal(f"{step.kind} jumps: {JUMPS}", ctx.full(INF))
    gains = tuple(Gain(ctx.full(INF)) for _ in incoming)
    return endless(Transfer(gains, worked=worked), f"{step.kind} is discontinuous", _jumps(step, incoming[0]))


def _jumps(step: Step, flow: Flow) -> bool:
    """Whether the scope surely reaches a jump; comparisons do not count, for what is made of them may not jump."""
    if not flow.covers or len(step.inputs) > 1:
        return False
    if "hardshrink" in step.kind.lower():
        return step.option(1, "lambd", 0.5) > 0
    return step.kind in FLAT or "threshold" in step.kind.lower()


def ranged(low: Tensor, high: Tensor, slope: Tensor, flow: Flow, formula: str, end: Tensor) -> Transfer:
    """The transfer of an elementwise map whose slope depends on the range of its input.

    ``formula`` says how: ``text = put in``, with {} where the deciding end of the range is put in.
    """
    log = log_vector(slope)
    worked = equal(at_sample(log) + formula.format(number(float(end[worst_sample(log)]))), log)
    row = (slope * flow.row).nan_to_num(nan=INF, posinf=INF)
    return Transfer((Gain(log, form=Diagonal()),), row=row, low=low, high=high, worked=worked)


@rules.add(*spellings("exp", "exp_"), claim="X.range")
def exponential(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Exponential.

    ‖J‖ ≤ exp(sup x)

    Holds:  where the input is bounded above; not Lipschitz on the whole line.
    Source: derivative.
    """
    flow = incoming[0]
    slope = size_up(flow.high.exp())
    transfer = ranged(flow.low.exp(), flow.high.exp(), slope, flow, "exp(sup x) = exp({})", flow.high)
    return endless(transfer, "exp of an input that is not bounded above", flow.covers)


@rules.add(*spellings("log", "sqrt", "rsqrt", "reciprocal"), claim="X.range")
def steep_at_zero(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Logarithm, square root and reciprocals.

    log: 1/a;  √x: 1/(2√a);  1/√x: ½a^(−3/2);  1/x: a^(−2), where a = inf x

    Holds:  where the input stays above a > 0; not Lipschitz otherwise.
    Source: derivative, decreasing in x.
    """
    return steep_transfer(step.kind, incoming[0])


@rules.add(*spellings("log1p"), claim="X.range")
def log_of_one_more(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """log(1 + x).

    ‖J‖ ≤ 1/(1 + a), where a = inf x

    Holds:  where the input stays above a > −1; not Lipschitz otherwise.
    Source: derivative, decreasing in x.
    """
    flow = incoming[0]
    room = size_down((1 + flow.low).clamp_min(0.0))
    found = ranged(room.log(), flow.high.clamp_min(-1.0).log1p(), 1 / room, flow, "1/(1 + inf x) = 1/{}", room)
    return endless(found, "log1p of an input that is not bounded away from −1", flow.covers)


def steep_transfer(kind: str, flow: Flow) -> Transfer:
    """The transfer of one of the maps of `steep_at_zero` on the range of ``flow``."""
    a, b = size_down(flow.low.clamp_min(0.0)), flow.high.clamp_min(0.0)
    slope, low, high, formula = {
        "log": (1 / a, a.log(), b.log(), "1/inf x = 1/{}"),
        "sqrt": (0.5 / a.sqrt(), a.sqrt(), b.sqrt(), "1/(2√inf x) = 1/(2·√{})"),
        "rsqrt": (0.5 * a.pow(-1.5), b.rsqrt(), a.rsqrt(), "½·(inf x)^(−1.5) = 0.5·{}^(−1.5)"),
        "reciprocal": (a.pow(-2), 1 / b, 1 / a, "1/(inf x)² = 1/{}²"),
    }[kind]
    found = ranged(low, high, slope, flow, formula, a)
    return endless(found, f"{kind} of an input that is not bounded away from 0", flow.covers)


@rules.add(*spellings("square", "pow", "__pow__"), claim="X.range")
def power(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Power with a constant exponent.

    ‖J‖ ≤ p·sup|x|^(p−1) for p ≥ 1

    Holds:  where the input is bounded; for integers p ≥ 1 of any sign of x, else x ≥ 0.
    Source: derivative.
    """
    flow = incoming[0]
    exponent = 2.0 if step.kind == "square" else step.get(1, "exponent")
    if isinstance(exponent, Value | Tensor) or not isinstance(step.get(0, "input"), Value):
        return ctx.unknown(incoming, "a power that is not a plain number")
    p = float(exponent)
    if p < 1 or (p != int(p) and bool((flow.low < 0).any())):
        if p in (0.5, -0.5, -1.0):
            return steep_transfer({0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}[p], flow)
        return ctx.unknown(incoming, f"the power {p:g}")
    slope = size_up(p * flow.peak.pow(p - 1))
    low = ctx.full(0.0) if p == int(p) and int(p) % 2 == 0 else flow.low.sign() * flow.low.abs().pow(p)
    high = flow.peak.pow(p) if p == int(p) and int(p) % 2 == 0 else flow.high.sign() * flow.high.abs().pow(p)
    formula = f"p·sup|x|^(p−1) = {number(p)}·{{}}^{number(p - 1)}"
    found = ranged(low, high, slope, flow, formula, flow.peak)
    return endless(found, "a power of an unbounded input", flow.covers and p > 1)
