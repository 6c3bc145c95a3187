"""Elementwise activations: one table of constants, one rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.rounding import size_down, size_up
from normgauge.rules.combine import entry_by_entry, methods
from normgauge.rules.flow import INF, Context, Diagonal, Flow, Gain, Transfer, endless, log_vector
from normgauge.rules.registry import Family
from normgauge.rules.worked import JUMPS, at_sample, equal, number, worst
from normgauge.trace.step import Step, Value

rules = Family("activation")

Constant = Callable[[Step], float]
DIGITS = 1e-6  # the table's constants are right to so many digits, from above


def fixed(value: float) -> Constant:
    """A constant that no option changes."""
    return lambda step: value


def option(step: Step, position: int, name: str, default: float) -> float:
    """An activation's parameter, from the module or the call."""
    if step.module is not None:
        return float(getattr(step.module, name))
    return float(step.get(position, name, default))


def gelu_constant(step: Step) -> float:
    """1.128904… for the exact form, 1.128993… for the tanh form."""
    form = step.module.approximate if step.module is not None else step.kwargs.get("approximate", "none")
    return 1.1289934 if form == "tanh" else 1.1289045


def prelu_constant(step: Step) -> float:
    """max(1, |a|)."""
    return max(1.0, prelu_slope(step))


def prelu_slope(step: Step) -> float:
    """The largest |a|."""
    weight = step.module.weight if step.module is not None else step.get(1, "weight")
    return float(weight.detach().abs().max())


def rrelu_constant(step: Step) -> float:
    """max(1, |lower|, |upper|), whatever slope is drawn."""
    return max(1.0, *map(abs, rrelu_slopes(step)))


def rrelu_slopes(step: Step) -> tuple[float, float]:
    """The ends of the interval slopes are drawn from."""
    return option(step, 1, "lower", 1 / 8), option(step, 2, "upper", 1 / 3)


def elu_constant(step: Step) -> float:
    """max(1, α)."""
    return max(1.0, abs(option(step, 1, "alpha", 1.0)))


def slope_constant(step: Step) -> float:
    """max(1, |negative slope|)."""
    return max(1.0, abs(option(step, 1, "negative_slope", 0.01)))


def softplus_constant(step: Step) -> float:
    """1; ∞ where the switch to the identity at a low threshold is a visible jump, or β ≤ 0."""
    beta, threshold = option(step, 1, "beta", 1.0), option(step, 2, "threshold", 20.0)
    return 1.0 if beta > 0 and threshold >= 20 else INF


def celu_constant(step: Step) -> float:
    """1 for α > 0; exp(x/α) grows without bound otherwise."""
    return 1.0 if option(step, 1, "alpha", 1.0) > 0 else INF


def softplus_origin(step: Step) -> float:
    """Softplus(0) = ln 2 / β."""
    return math.log(2) / abs(option(step, 1, "beta", 1.0))


# activations whose constant is max(1, |options|)
FORMULAS: list[tuple[tuple[str, ...], str, Callable[[Step], list[float]]]] = [
    (("elu",), "max(1, |α|)", lambda step: [abs(option(step, 1, "alpha", 1.0))]),
    (("leakyrelu", "leaky_relu"), "max(1, |a|)", lambda step: [abs(option(step, 1, "negative_slope", 0.01))]),
    (("prelu",), "max(1, |a|)", lambda step: [prelu_slope(step)]),
    (("rrelu",), "max(1, |lower|, |upper|)", lambda step: list(map(abs, rrelu_slopes(step)))),
]

# |φ(0)| of the few activations that do not vanish at 0; it shifts the length of a row
ORIGIN: dict[str, Constant] = {
    **dict.fromkeys(("Sigmoid", "sigmoid", "sigmoid_", "Hardsigmoid", "hardsigmoid"), fixed(0.5)),
    **dict.fromkeys(("LogSigmoid", "logsigmoid", "log_sigmoid"), fixed(math.log(2))),
    **dict.fromkeys(("Softplus", "softplus"), softplus_origin),
    "cos": fixed(1.0),
}

# uppers are rounded up in the last digit shown; the range is (low, high) of the output, None when unbounded
TABLE: list[tuple[Constant, tuple[float, float] | None, tuple[object, ...]]] = [
    (
        fixed(1.0),
        (0.0, INF),
        (nn.ReLU, F.relu, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_, F.relu_),
    ),
    (fixed(1.0), (0.0, 6.0), (nn.ReLU6, F.relu6)),
    (fixed(1.0), (-1.0, 1.0), (nn.Tanh, torch.tanh, torch.Tensor.tanh, torch.tanh_, torch.Tensor.tanh_, F.tanh)),
    (fixed(1.0), (-1.0, 1.0), (nn.Softsign, F.softsign)),
    (softplus_constant, (0.0, INF), (nn.Softplus, F.softplus)),
    (fixed(1.0), (-INF, 0.0), (nn.LogSigmoid, F.logsigmoid)),
    (fixed(1.0), None, (nn.Tanhshrink, F.tanhshrink)),
    (fixed(1.0), None, (nn.Softshrink, F.softshrink)),
    (fixed(1.0), (-1.0, 1.0), (torch.sin, torch.Tensor.sin, torch.cos, torch.Tensor.cos)),
    (fixed(1.0), None, (torch.atan, torch.Tensor.atan, torch.arctan, torch.asinh, torch.Tensor.asinh)),
    (fixed(1.128379168), (-1.0, 1.0), (torch.erf, torch.Tensor.erf)),
    (
        fixed(0.25),
        (0.0, 1.0),
        (nn.Sigmoid, torch.sigmoid, torch.Tensor.sigmoid, F.sigmoid, torch.sigmoid_, torch.Tensor.sigmoid_),
    ),
    (fixed(0.1666666717), (0.0, 1.0), (nn.Hardsigmoid, F.hardsigmoid)),  # ⅙ as float32 has it: torch's own derivative
    (fixed(1.5), (-0.375, INF), (nn.Hardswish, F.hardswish)),
    (fixed(1.099840), (-0.2785, INF), (nn.SiLU, F.silu)),
    (fixed(1.088499), (-0.3089, INF), (nn.Mish, F.mish)),
    (fixed(1.758100), (-1.758100, INF), (nn.SELU, F.selu, torch.selu, torch.selu_, F.selu_)),
    (gelu_constant, (-0.1701, INF), (nn.GELU, F.gelu)),
    (elu_constant, None, (nn.ELU, F.elu, F.elu_)),
    (celu_constant, None, (nn.CELU, F.celu, torch.celu, torch.celu_, F.celu_)),
    (slope_constant, None, (nn.LeakyReLU, F.leaky_relu, F.leaky_relu_)),
    (rrelu_constant, None, (nn.RReLU, F.rrelu, torch.rrelu, F.rrelu_)),
    (prelu_constant, None, (nn.PReLU, F.prelu, torch.prelu, torch.Tensor.prelu)),
]
CONSTANTS = {target: (constant, span) for constant, span, targets in TABLE for target in targets}


def constant_of(step: Step) -> tuple[float, tuple[float, float] | None]:
    """The table's entry for a step (for a subclass, its ancestor's)."""
    if step.target in CONSTANTS:
        entry = CONSTANTS[step.target]
    else:
        entry = next(CONSTANTS[a] for a in step.target.__mro__ if a in CONSTANTS)
    return entry[0](step), entry[1]


def elementwise(
    value: float,
    span: tuple[float, float] | None,
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
    if span is not None:
        low, high = low.clamp_min(span[0]), high.clamp_max(span[1])
    gain = Gain(ctx.log(value), math.log(value) - DIGITS if value and ctx.scope.kind == "global" else -INF, Diagonal())
    return Transfer((gain,), row=value * flow.row, norm=norm, low=low, high=high)


@rules.add(*CONSTANTS, claim="T.D4")
def activation(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Elementwise activation.

    J = diag(φ'(x_i)),  ‖J‖ ≤ sup|φ'|: ReLU, Tanh, Softplus, ... 1; GELU 1.1289045 (erf), 1.1289934 (tanh);
    SiLU 1.09984; Mish 1.088499; Hardswish 1.5; SELU 1.7581; Sigmoid ¼; Hardsigmoid ⅙;
    LeakyReLU, PReLU, RReLU max(1, |a|); ELU max(1, |α|)

    Holds:  everywhere; the supremum is attained or approached. Softplus is log(1 + exp(βx))/β: where torch goes over to
            x, at βx = 20, its values jump by 10⁻¹⁰ of their size, which counts as rounding.
    Source: maximum of the derivative.
    """
    value, span = constant_of(step)
    if value == INF:
        return Transfer((Gain(ctx.full(INF)),), unknown=f"{step.kind} with these parameters")
    names = [t.__name__ for t in step.target.__mro__] if step.module is not None else [step.kind]
    origin = next((ORIGIN[name](step) for name in names if name in ORIGIN), 0.0)
    shape = step.outputs[0].tensor.shape
    found = elementwise(value, span, incoming[0], ctx, shape[-1] if shape else 1, origin)
    return replace(found, worked=equal(f"sup|φ'| of {_spelled(step, names)}", found.gains[0].log))


@rules.add(*methods("abs", "__abs__", "neg", "__neg__"), claim="T.D4", complex=True)
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


def _spelled(step: Step, names: list[str]) -> str:
    """An activation and the options its constant depends on: the formula with them put in, where there is one."""
    for kinds, formula, options in FORMULAS:
        if any(name.lower().rstrip("_") in kinds for name in names):
            values = ", ".join(number(value) for value in options(step))
            return f"{step.kind} = {formula} = max(1, {values})"
    if any(name.lower() == "gelu" for name in names):
        return f"{step.kind} ({'tanh' if gelu_constant(step) > 1.12895 else 'erf'} form)"
    return step.kind


@rules.add(
    nn.Hardtanh,
    F.hardtanh,
    F.hardtanh_,
    torch.clamp,
    torch.Tensor.clamp,
    torch.clip,
    torch.Tensor.clip,
    torch.Tensor.clamp_,
    torch.clamp_min,
    torch.Tensor.clamp_min,
    torch.clamp_max,
    torch.Tensor.clamp_max,
    claim="X.clamp",
)
def clamp(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Clamping to an interval.

    y = min(max(x, a), b),  ‖J‖ ≤ 1,  a ≤ y ≤ b

    Holds:  everywhere; limits that are branches count like operands of `maximum`.
    Source: projection onto a convex set.
    """
    if step.module is not None:
        limits: tuple[object, object] = (step.module.min_val, step.module.max_val)
    elif "clamp_max" in step.kind:
        limits = (None, step.get(1, "max"))
    elif "hardtanh" in step.kind:
        limits = (step.get(1, "min_val", -1.0), step.get(2, "max_val", 1.0))
    else:
        limits = (step.get(1, "min"), step.get(2, "max"))
    if any(isinstance(v, Tensor | Value) for v in limits):
        return entry_by_entry(step, incoming, ctx, (step.get(0, "input"), *limits))
    low, high = (None if v is None else float(v) for v in limits)  # type: ignore[arg-type]
    low = low if low is None or high is None else min(low, high)  # torch gives the upper limit where they cross
    span = (-INF if low is None else low, INF if high is None else high)
    found = elementwise(1.0, span, incoming[0], ctx, origin=None)
    text = f"sup|φ'| of a clamp to [{number(span[0])}, {number(span[1])}]"
    return replace(found, worked=equal(text, found.gains[0].log))


@rules.add(torch.maximum, torch.minimum, torch.Tensor.maximum, torch.Tensor.minimum, claim="X.maximum")
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
    nn.Hardshrink,
    F.hardshrink,
    torch.Tensor.hardshrink,
    nn.Threshold,
    F.threshold,
    F.threshold_,  # type: ignore[attr-defined]
    torch.round,
    torch.Tensor.round,
    torch.floor,
    torch.Tensor.floor,
    torch.ceil,
    torch.Tensor.ceil,
    torch.sign,
    torch.Tensor.sign,
    torch.argmax,
    torch.Tensor.argmax,
    torch.gt,
    torch.Tensor.gt,
    torch.Tensor.__gt__,
    torch.lt,
    torch.Tensor.lt,
    torch.Tensor.__lt__,
    torch.ge,
    torch.Tensor.ge,
    torch.Tensor.__ge__,
    torch.le,
    torch.Tensor.le,
    torch.Tensor.__le__,
    torch.eq,
    torch.Tensor.eq,
    torch.Tensor.__eq__,
    torch.ne,
    torch.Tensor.ne,
    torch.Tensor.__ne__,
    torch.heaviside,
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
        limit, fill = (option(step, 1, "threshold", 0.0), option(step, 2, "value", 0.0))
        if limit == fill:  # x if x > t else t: a shifted ReLU
            found = elementwise(1.0, (limit, INF), incoming[0], ctx, origin=None)
            return replace(found, worked=equal(f"sup|φ'| of max(x, {number(limit)})", found.gains[0].log))
    worked = equal(f"{step.kind} jumps: {JUMPS}", ctx.full(INF))
    gains = tuple(Gain(ctx.full(INF)) for _ in incoming)
    return endless(Transfer(gains, worked=worked), f"{step.kind} is discontinuous", _jumps(step, incoming[0]))


def _jumps(step: Step, flow: Flow) -> bool:
    """Whether a jump of a map of numbers to numbers is surely reached; what is made of a truth value may not jump."""
    if not flow.covers or len(step.inputs) > 1:
        return False
    if "hardshrink" in step.kind.lower():
        return option(step, 1, "lambd", 0.5) > 0
    return step.kind in FLAT or "threshold" in step.kind.lower()


def ranged(low: Tensor, high: Tensor, slope: Tensor, flow: Flow, formula: str, end: Tensor) -> Transfer:
    """An elementwise map whose slope depends on the range of its input; rows stretch by the same factor.

    ``formula`` says how: ``text = put in``, with {} where the deciding end of the range is put in.
    """
    log = log_vector(slope)
    worked = equal(at_sample(log) + formula.format(number(float(end[worst(log)]))), log)
    row = (slope * flow.row).nan_to_num(nan=INF, posinf=INF)
    return Transfer((Gain(log, form=Diagonal()),), row=row, low=low, high=high, worked=worked)


@rules.add(torch.exp, torch.Tensor.exp, torch.Tensor.exp_, claim="X.range")
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


@rules.add(
    torch.log,
    torch.Tensor.log,
    torch.sqrt,
    torch.Tensor.sqrt,
    torch.rsqrt,
    torch.Tensor.rsqrt,
    torch.reciprocal,
    torch.Tensor.reciprocal,
    claim="X.range",
)
def steep_at_zero(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Logarithm, square root and reciprocals.

    log: 1/a;  √x: 1/(2√a);  1/√x: ½a^(−3/2);  1/x: a^(−2), where a = inf x

    Holds:  where the input stays above a > 0; not Lipschitz otherwise.
    Source: derivative, decreasing in x.
    """
    return steep(step.kind, incoming[0])


@rules.add(torch.log1p, torch.Tensor.log1p, claim="X.range")
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


def steep(kind: str, flow: Flow) -> Transfer:
    """One of the maps of `steep_at_zero` on the range of ``flow``."""
    a, b = size_down(flow.low.clamp_min(0.0)), flow.high.clamp_min(0.0)
    slope, low, high, formula = {
        "log": (1 / a, a.log(), b.log(), "1/inf x = 1/{}"),
        "sqrt": (0.5 / a.sqrt(), a.sqrt(), b.sqrt(), "1/(2√inf x) = 1/(2·√{})"),
        "rsqrt": (0.5 * a.pow(-1.5), b.rsqrt(), a.rsqrt(), "½·(inf x)^(−1.5) = 0.5·{}^(−1.5)"),
        "reciprocal": (a.pow(-2), 1 / b, 1 / a, "1/(inf x)² = 1/{}²"),
    }[kind]
    found = ranged(low, high, slope, flow, formula, a)
    return endless(found, f"{kind} of an input that is not bounded away from 0", flow.covers)


@rules.add(torch.square, torch.Tensor.square, torch.pow, torch.Tensor.pow, torch.Tensor.__pow__, claim="X.range")
def power(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Power with a constant exponent.

    ‖J‖ ≤ p·sup|x|^(p−1) for p ≥ 1

    Holds:  where the input is bounded; for integers p ≥ 1 of any sign of x, else x ≥ 0.
    Source: derivative.
    """
    flow = incoming[0]
    exponent = 2.0 if step.kind == "square" else step.get(1, "exponent")
    if isinstance(exponent, Value | Tensor) or not isinstance(step.get(0, "input"), Value):
        return Transfer(tuple(Gain(ctx.full(INF)) for _ in incoming), unknown="a power that is not a plain number")
    p = float(exponent)
    if p < 1 or (p != int(p) and bool((flow.low < 0).any())):
        if p in (0.5, -0.5, -1.0):
            return steep({0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}[p], flow)
        return Transfer((Gain(ctx.full(INF)),), unknown=f"the power {p:g}")
    slope = size_up(p * flow.peak.pow(p - 1))
    low = ctx.full(0.0) if p == int(p) and int(p) % 2 == 0 else flow.low.sign() * flow.low.abs().pow(p)
    high = flow.peak.pow(p) if p == int(p) and int(p) % 2 == 0 else flow.high.sign() * flow.high.abs().pow(p)
    formula = f"p·sup|x|^(p−1) = {number(p)}·{{}}^{number(p - 1)}"
    found = ranged(low, high, slope, flow, formula, flow.peak)
    return endless(found, "a power of an unbounded input", flow.covers and p > 1)
