"""Normalizers and activations written out in plain operations, recognised by what they compute.

`recognise` reads every product and quotient of a trace as a polynomial over the values it was made from (`algebra`).
Where that polynomial is (x − mean)·(variance + ε)^(−½) or x·Φ(x) in disguise, the last step is replaced by a marker
that depends on x alone; the marker must reproduce the recorded output, else the steps stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.rounding import size_up
from normgauge.instrument.rules.activation import GELU, GELU_TANH, MISH, SILU, elementwise
from normgauge.instrument.rules.algebra import ADDS, OVER, POWERS, TIMES, Foreign, Monomial, Poly, Reader, X, thawed
from normgauge.instrument.rules.flow import INF, Context, Flow, Gain, Transfer, endless, log_vector
from normgauge.instrument.rules.norm_batch import train_statistics
from normgauge.instrument.rules.norm_layer import over_last
from normgauge.instrument.rules.normalizer import SEVERAL, Normalizer, known_normalizer
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.response import read_response
from normgauge.instrument.rules.scalar import written_chain
from normgauge.instrument.rules.spread import decider, groupwise, smallest_spread
from normgauge.instrument.rules.worked import equal, number
from normgauge.instrument.trace.step import Step, Trace, Value, backward_slice

rules = Family("recognise")

DEEPEST = 24  # steps looked at behind a product
CLOSE = 1e-12  # a part: coefficients that are equal but for the order they were computed in
AGREES = 1e-9  # a part: what a formula and the steps it stands for may differ by in float64
PRINTED = 1e-8  # a part: constants such as √(2/π) are written with so many digits
PRODUCTS = TIMES | OVER
ENDS = PRODUCTS | set(ADDS) | set(POWERS) | {"pow"}
ENDS |= {"exp", "log", "log1p", "tanh", "sigmoid", "neg"}  # steps that may end a function of one number


def root_mean_square(x: Tensor, form: Normalizer) -> Tensor:
    """x divided by its root mean square over axes."""
    return form(x)


def standardize(x: Tensor, form: Normalizer) -> Tensor:
    """x less its mean, divided by its standard deviation over axes."""
    return form(x)


def smooth_gate(x: Tensor, kind: str, scale: float, beta: float) -> Tensor:
    """scale times GELU (tanh or erf), Mish, or x·sigmoid(beta·x)."""
    if kind == "swish":
        return scale * x * torch.sigmoid(beta * x)
    if kind == "mish":
        return scale * F.mish(x)
    return scale * F.gelu(x, approximate="tanh" if kind == "tanh" else "none")


def recognise(trace: Trace) -> Trace:
    """The same trace with written-out normalizers and activations as single steps."""
    if trace.output is None:
        return trace
    changed = False
    for step in trace.steps:
        values = {v.index for v in step.inputs}
        if step.module is None and not step.trouble and len(values) == 2 and step.kind.strip("_") in PRODUCTS:
            changed |= _replaced(step)
        elif step.module is None and not step.trouble and len(step.inputs) == 1:
            changed |= len(trace.consumers[step.inputs[0].index]) == 1 and _absorbed(step)
    changed |= _in_one_number(trace.output)
    if not changed:
        return trace
    return replace(trace, steps=backward_slice(trace.output), consumers={})


def _in_one_number(output: Value) -> bool:
    """Replace chains of elementwise steps over one value by one step each, the longest first; True if any was."""
    changed = False
    used = {step.index for step in backward_slice(output)}
    for step in reversed(backward_slice(output)):
        if step.index not in used or step.module is not None or step.trouble or step.kind.strip("_") not in ENDS:
            continue
        found = written_chain(step, _bases(step))
        if found is not None and _agrees(found[0](found[1].tensor, *found[2]), step.outputs[0].tensor):
            marker, base, given = found
            step.outputs[0].step = Step(step.index, marker, None, step.path, (base, *given), {}, (base,), step.outputs)
            changed, used = True, {s.index for s in backward_slice(output)}
    return changed


def _replaced(step: Step) -> bool:
    """Replace a product that ends a known formula by one step; True if it did."""
    output = step.outputs[0]
    for base in _bases(step):
        reader = Reader(base)
        try:
            poly, gone = reader.read(output)
        except (Foreign, RuntimeError, TypeError, OverflowError, ZeroDivisionError):
            continue
        if gone is not None or base.tensor.shape != output.tensor.shape:
            continue
        for match in (_division, _gate, read_response):
            found = match(poly, reader)
            if found is not None and _agrees(found[0](base.tensor, *found[1]), output.tensor):
                output.step = Step(step.index, found[0], None, step.path, (base, *found[1]), {}, (base,), step.outputs)
                return True
    return False


def _absorbed(step: Step) -> bool:
    """Make the constant that a recognised normalizer is multiplied by, or that is added to it, its gain or shift."""
    before, output, word = step.inputs[0].step, step.outputs[0], step.kind.strip("_").lstrip("ri")
    if before is None or before.target not in (standardize, root_mean_square) or before.path != step.path:
        return False
    base, form = before.args
    others = [given for given in step.args if isinstance(given, Tensor) and given.is_floating_point()]
    both = form.where == "inside" and (form.kind == "batch" or form.dims == (-1,))  # these rules know γ and β
    if not both or word not in ("mul", "add") or len(others) != 1 or len(step.args) != 2 or step.kwargs:
        return False
    if torch.broadcast_shapes(others[0].shape, base.tensor.shape) != base.tensor.shape:
        return False
    constant = along(others[0].detach().double(), form, base.tensor)
    if constant.ndim != 1:
        return False
    if word == "add":
        form = replace(form, beta=constant if form.beta is None else form.beta + constant)
    else:
        gamma = constant if form.gamma is None else form.gamma * constant
        form = replace(form, gamma=gamma, beta=None if form.beta is None else form.beta * constant)
    if not _agrees(form(base.tensor), output.tensor):
        return False
    output.step = Step(step.index, before.target, None, step.path, (base, form), {}, (base,), step.outputs)
    return True


def along(constant: Tensor, form: Normalizer, data: Tensor) -> Tensor:
    """A constant as a vector on the axis of the gains or of the shape of a group, where it varies nowhere else."""
    whole = constant.reshape((1,) * (data.ndim - constant.ndim) + constant.shape)
    varies = {d - data.ndim for d, n in enumerate(whole.shape) if n > 1}
    if form.axis != SEVERAL:
        axis = form.axis % data.ndim - data.ndim
        return whole.reshape(-1).expand(data.shape[axis]) if varies <= {axis} else whole
    count = len(form.dims)
    if form.dims != tuple(range(-count, 0)) or not varies <= set(form.dims):
        return whole
    return whole.reshape(whole.shape[-count:]).expand(data.shape[-count:])


def _bases(step: Step) -> Iterator[Value]:
    """Values behind a step, the earliest first."""
    seen: dict[int, Value] = {}
    front = list(step.inputs)
    for _ in range(DEEPEST):
        front = [v for v in front if v.index not in seen]
        seen.update((v.index, v) for v in front)
        steps = {
            v.step.index: v.step
            for v in front
            if v.step is not None and v.step.module is None and len(v.step.inputs) <= 2
        }
        front = [v for s in steps.values() for v in s.inputs]
        if not front or len(seen) > DEEPEST:
            break
    shape = step.outputs[0].tensor.shape
    return iter(v for _, v in sorted(seen.items()) if v.tensor.shape == shape and v.tensor.is_floating_point())


def _agrees(got: Tensor, want: Tensor) -> bool:
    exact = want.dtype == torch.float64
    return got.shape == want.shape and torch.allclose(
        got.double(), want.double(), rtol=AGREES if exact else 1e-4, atol=CLOSE if exact else 1e-5
    )


def _split(poly: Poly, kinds: tuple[str, ...]) -> tuple[Poly, Monomial]:
    """The factor of atoms of ``kinds`` common to all terms, and what is left."""
    shared = None
    rest: Poly = {}
    for monomial, c in poly.items():
        factor = tuple((a, p) for a, p in monomial if a[0] in kinds)
        if shared is not None and factor != shared:
            return {}, ()
        shared = factor
        rest[tuple((a, p) for a, p in monomial if a[0] not in kinds)] = c
    return rest, shared or ()


def _division(poly: Poly, reader: Reader) -> tuple[Callable[..., Tensor], tuple[Any, ...]] | None:
    """Read (x − mean)·D^(−1) off a polynomial."""
    rest, factor = _split(poly, ("root", "floor", "constant"))
    below = [(a, p) for a, p in factor if a[0] != "constant"]
    gammas = [(a, p) for a, p in factor if a[0] == "constant"]
    if len(below) != 1 or not rest or any(p != 1 for _, p in gammas):
        return None
    atom, p = below[0]
    read = _denominator(atom, p)
    if read is None:
        return None
    dims, centred, where, size, eps = read
    c = rest.pop(((X, 1.0),), 0.0)
    middle = ((("mean", dims, ((X, 1.0),)), 1.0),)
    if c == 0 or set(rest) != ({middle} if centred else set()) or (centred and abs(rest[middle] + c) > CLOSE * abs(c)):
        return None
    gamma = torch.full((1,), c / size, dtype=torch.float64, device=reader.base.tensor.device)
    for a, _ in gammas:
        gamma = gamma * reader.constants[a[1]].detach().double()
    ndim = len(reader.shape)
    over_batch = ndim > 1 and dims == frozenset(range(ndim)) - {1}
    kind = "rms" if not centred else "batch" if over_batch else "layer"
    form = Normalizer(kind, None, None, eps, dims=tuple(sorted(d - ndim for d in dims)), where=where)
    if gamma.numel() > 1 or float(gamma) != 1:
        form = replace(form, gamma=along(gamma, form, reader.base.tensor))
    return (standardize if centred else root_mean_square), (form,)


def _spread_of(poly: Poly) -> tuple[frozenset[int], bool, float, float] | None:
    """Axes, centred, k and ε of k·(mean x² − [mean x]²) + ε."""
    poly = dict(poly)
    eps = poly.pop((), 0.0)
    squares = [m for m in poly if len(m) == 1 and m[0][0][0] == "mean" and m[0][0][2] == ((X, 2.0),) and m[0][1] == 1]
    if len(squares) != 1 or eps < 0:
        return None
    k = poly.pop(squares[0])
    dims = squares[0][0][0][1]
    middle = ((("mean", dims, ((X, 1.0),)), 2.0),)
    centred = middle in poly
    if k <= 0 or set(poly) != ({middle} if centred else set()) or (centred and abs(poly[middle] + k) > 10 * CLOSE * k):
        return None
    return dims, centred, k, eps


def _denominator(atom: Any, p: float) -> tuple[frozenset[int], bool, str, float, float] | None:
    """What a denominator is: axes, whether centred, where ε stands, the factor taken out, and ε; None if unknown."""
    inner = thawed(atom[1])
    if atom[0] == "root" and p == -0.5:
        found = _spread_of(inner)
        return None if found is None else (found[0], found[1], "inside", math.sqrt(found[2]), found[3] / found[2])
    if p != -1:
        return None
    eps = atom[2] if atom[0] == "floor" else inner.pop((), 0.0)
    if len(inner) != 1 or eps < 0:
        return None
    ((monomial, c),) = inner.items()
    if len(monomial) != 1 or monomial[0][0][0] != "root" or monomial[0][1] != 0.5 or c <= 0:
        return None
    found = _spread_of(thawed(monomial[0][0][1]))
    if found is None or found[3] != 0:
        return None
    size = c * math.sqrt(found[2])
    return found[0], found[1], "floor" if atom[0] == "floor" else "outside", size, eps / size


def _gate(poly: Poly, reader: Reader) -> tuple[Callable[..., Tensor], tuple[Any, ...]] | None:
    """Read a GELU, Swish or Mish off a polynomial."""
    plain = ((X, 1.0),)
    functions = {a for m in poly for a, _ in m if a[0] in ("tanh", "erf", "sigmoid")}
    if len(functions) != 1:
        return None
    atom = functions.pop()
    product = tuple(sorted(((X, 1.0), (atom, 1.0)), key=repr))
    inner, c = thawed(atom[1]), poly.get(product, 0.0)
    if atom[0] in ("tanh", "erf") and set(poly) == {plain, product} and abs(poly[plain] - c) <= CLOSE * abs(c):
        a = math.sqrt(2 / math.pi) if atom[0] == "tanh" else math.sqrt(0.5)
        wanted = {plain: a, ((X, 3.0),): 0.044715 * a} if atom[0] == "tanh" else {plain: a}
        if set(inner) == set(wanted) and all(abs(inner[m] / w - 1) < PRINTED for m, w in wanted.items()):
            return smooth_gate, (atom[0], 2 * c, 1.0)
    if set(poly) != {product}:
        return None
    if atom[0] == "sigmoid" and set(inner) == {plain} and inner[plain] > 0:
        return smooth_gate, ("swish", c, inner[plain])
    if atom[0] == "tanh" and inner == {((("softplus", ((plain, 1.0),)), 1.0),): 1.0}:
        return smooth_gate, ("mish", c, 1.0)
    return None


@rules.add(root_mean_square, standardize, claim="T.L2")
def written_out_norm(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Normalizer written out in plain operations.

    y = γ·(x − mean)/D over axes, D = √(σ²+ε), σ + ε or max(σ, ε):
    ‖J‖ ≤ max|γ|/D(σ_min)  (the radial direction is shorter),  ‖y‖ ≤ √n max|γ|

    Holds:  as for layer normalization; recognised from the operations and checked against the recorded output.
    Source: Jacobian (1/D)(I − (σD'/D) x̂x̂ᵀ) with 0 ≤ σD' ≤ D, D increasing.

    Raises:
        SamplesMixed: when it runs over the samples.
    """
    form, data, flow = known_normalizer(step, ctx.dtype), step.inputs[0].tensor, incoming[0]
    ctx.keep_apart(flow, data, form.dims, "a normalizer")
    inside, group = form.where == "inside", data.shape[-len(form.dims) :]
    trailing = form.dims == tuple(range(-len(group), 0))
    if inside and form.kind == "batch" and (form.gamma is None or form.gamma.ndim == 1):
        transfer = train_statistics(data, form, flow, ctx)
    elif inside and trailing and (form.gamma is None or form.gamma.shape == group):
        transfer = over_last(step, form, flow, ctx)
    else:
        transfer = _elsewhere(data, form, flow, ctx)
    return endless(transfer, "a division by a spread that may be 0 in this scope", flow.covers)


def _elsewhere(data: Tensor, form: Normalizer, flow: Flow, ctx: Context) -> Transfer:
    """The transfer of a normalizer with groups along any axes, or with ε outside the root."""
    axis, dims = flow.axis % data.ndim if ctx.samples > 1 else -1, [d % data.ndim for d in form.dims]
    order = [axis] * (axis >= 0) + [d for d in range(data.ndim) if d != axis and d not in dims] + dims
    size = math.prod(data.shape[d] for d in dims)
    groups = data.detach().double().permute(order).reshape(ctx.samples, -1, size)
    whole_rows, rows = -1 in form.dims, form.dims == (-1,)
    top = size_up(1.0 if form.gamma is None else float(form.gamma.abs().max()))
    if form.where == "inside":
        same = torch.full((size if rows else 1,), top, dtype=torch.float64)
        found = groupwise(groups, same, None, form.eps, flow, ctx, centred=form.centred, gamma_axis=-1, rows=rows)
        gains = (Gain(found.gains[0].log, -INF),)
        return replace(found, gains=gains, norm=found.norm if whole_rows else None)
    spread = (groups.var(2, unbiased=False) if form.centred else groups.square().mean(2)).cpu()
    reach = (torch.minimum(flow.row, flow.radius) if rows else flow.radius)[:, None]
    floor = smallest_spread(spread.sqrt(), reach, size)
    slope = top / (floor + form.eps if form.where == "outside" else floor.clamp_min(form.eps))
    cap = size_up(top * math.sqrt(size))
    moved = torch.minimum((slope * reach).nan_to_num(nan=INF, posinf=INF), torch.full_like(slope, 2 * cap))
    radius = moved.square().sum(1).sqrt()
    log = log_vector(slope.amax(1))
    who = decider(log, slope, spread.sqrt(), reach, "group")
    how, symbol, least = who.floor(size, form.centred)
    below = f"max({symbol or '0'}, ε)", f"max({least}, {number(form.eps)})"
    if form.where == "outside":
        below = f"({symbol or '0'} + ε)", f"({least} + {number(form.eps)})"
    return Transfer(
        (Gain(log),),
        radius=radius,
        row=moved.amax(1) if rows else radius,
        norm=ctx.full(cap) if whole_rows else None,
        low=ctx.full(-cap),
        high=ctx.full(cap),
        worked=equal(f"{who.place}{how}max|γ|/{below[0]} = {number(top)}/{below[1]}", log),
    )


GATES = {"tanh": GELU_TANH, "erf": GELU, "swish": SILU, "mish": MISH}


@rules.add(smooth_gate, claim="X.activations")
def written_out_gate(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """GELU, Swish or Mish written out in plain operations.

    ½x(1 + tanh(√(2/π)(x + 0.044715x³))): 1.1289934;  ½x(1 + erf(x/√2)): 1.1289045;
    x·sigmoid(βx): 1.09984;  x·tanh(softplus x): 1.088499

    Holds:  everywhere; recognised from the operations and checked against the recorded output.
    Source: maximum of the derivative; β only rescales the axis.
    """
    kind, scale, beta = step.args[1:]
    row = GATES[kind]
    value, low = row.constant, row.span[0]
    span = (scale * low / beta, INF) if scale > 0 else (-INF, scale * low / beta)
    shape = step.outputs[0].tensor.shape
    found = elementwise(abs(scale) * value, span, incoming[0], ctx, shape[-1] if shape else 1)
    gate = {"tanh": "GELU (tanh form)", "erf": "GELU (erf form)", "swish": f"x·sigmoid({number(beta)}x)"}
    text = f"|scale|·sup|φ'| of {gate.get(kind, kind)} = {number(abs(scale))}·{number(value)}"
    return replace(found, worked=equal(text, found.gains[0].log))
