"""Products of matrices: with a constant on either side, of two branches, and sums along an axis."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from normgauge.core.rounding import house_up, log_inward, size_up
from normgauge.instrument.rules.flow import INF, Commute, Context, Flow, Gain, SamplesMixed, Transfer
from normgauge.instrument.rules.product import LETTERS, build_product, transfer_of
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import at_sample, equal, largest_term, number, result, worst_sample
from normgauge.instrument.trace.step import Step, Value

rules = Family("projection")

FIXED = {
    "mm": "xy,yz->xz", "bmm": "axy,ayz->axz", "mv": "xy,y->x", "dot": "y,y->", "outer": "x,z->xz",
    "addmm": "xy,yz->xz", "baddbmm": "axy,ayz->axz", "addmv": "xy,y->x",
}  # fmt: skip


@rules.add(
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, torch.linalg.matmul,
    torch.mm, torch.Tensor.mm, torch.bmm, torch.Tensor.bmm, torch.mv, torch.Tensor.mv, torch.dot, torch.Tensor.dot,
    torch.outer, torch.Tensor.outer,
    claim="X.matmul", complex=True,
)  # fmt: skip
def matmul(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Product of matrices, batched or not.

    constant C: J is block diagonal with C's matrices, ‖J‖ = max over the batch of ‖C_b‖₂;
    branches: ‖AB − A'B'‖ ≤ sup‖A‖·‖ΔB‖ + sup‖B‖·‖ΔA‖,
    sup‖A‖ ≤ min(‖A(x0)‖ + radius, √rows·(longest row), √entries·(largest entry))

    Holds:  everywhere and exactly for a constant; for two branches where both are bounded, not Lipschitz otherwise.
    Source: ‖AB‖_F ≤ ‖A‖₂‖B‖_F; product rule.
    """
    other = next((step.kwargs[k] for k in ("other", "mat2", "vec", "vec2", "tensor") if k in step.kwargs), None)
    pair = (step.get(0, "input"), step.args[1] if len(step.args) > 1 else other)
    flows = list(incoming)
    if step.kind == "__rmatmul__":
        pair = (pair[1], pair[0])
        flows.reverse()
    found = transfer_of(build_product(pair, FIXED.get(step.kind, ""), flows), ctx)
    return replace(found, gains=found.gains[::-1]) if step.kind == "__rmatmul__" else found


@rules.add(
    torch.addmm,
    torch.Tensor.addmm,
    torch.baddbmm,
    torch.Tensor.baddbmm,
    torch.addmv,
    torch.Tensor.addmv,
    claim="X.matmul",
)
def add_product(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """β·C + α·AB.

    L ≤ |β|·√copies·L_C + |α|·L_AB

    Holds:  as for the product of A and B.
    Source: triangle inequality.

    Raises:
        SamplesMixed: when the samples of C and AB do not lie side by side.
    """
    names = {"addmv": ("mat", "vec"), "baddbmm": ("batch1", "batch2")}.get(step.kind, ("mat1", "mat2"))
    added, pair = step.get(0, "input"), (step.get(1, names[0]), step.get(2, names[1]))
    alpha, beta = (abs(float(step.kwargs.get(name, 1))) for name in ("alpha", "beta"))
    flows, out = list(incoming), step.outputs[0].tensor
    gains: tuple[Gain, ...] = ()
    terms: dict[str, str] = {}
    if isinstance(added, Value):
        flow = flows.pop(0)
        if ctx.samples > 1 and added.tensor.shape != out.shape:
            raise SamplesMixed("broadcasting across samples")
        copies = out.numel() // max(added.tensor.numel(), 1)
        terms["|β|·√copies"] = f"{number(beta)}·√{copies}"
        gains = (Gain(ctx.log(beta * math.sqrt(copies))),)
        if not flows:
            return Transfer(gains, axis=flow.axis, worked=_terms_worked(terms, gains))
    found = transfer_of(build_product(pair, FIXED[step.kind], flows), ctx)
    if ctx.samples > 1 and gains and found.axis != incoming[0].axis % out.ndim:
        raise SamplesMixed("operands whose samples lie on different axes")
    plain = not gains and alpha == 1
    shift = math.log(alpha) if alpha else -INF
    gains = (*gains, *(g if plain else Gain(g.log + shift) for g in found.gains))
    inner = [g.log for g in found.gains]
    terms["|α|·‖AB‖"] = f"{number(alpha)}·{largest_term(result(float(log[worst_sample(*inner)]), 6) for log in inner)}"
    worked = found.worked if plain else _terms_worked(terms, gains)
    if isinstance(added, Value):
        return replace(found, gains=gains, row=None, norm=None, low=None, high=None, weight=None, worked=worked)
    constant = beta * added.detach().double().expand(out.shape)
    length = float(torch.linalg.vector_norm(constant, dim=-1).max())
    top = float(constant.abs().max())
    facts = (found.row, found.norm, found.low, found.high)
    row, norm, low, high = (None if fact is None else size_up(alpha) * fact for fact in facts)
    return replace(
        found,
        gains=gains,
        row=row,
        norm=None if norm is None else norm + house_up(length),
        low=None if low is None else low - house_up(top),
        high=None if high is None else high + house_up(top),
        weight=found.weight if plain else None,
        spectral=found.spectral if plain else None,
        worked=worked,
    )


def _terms_worked(terms: dict[str, str], gains: tuple[Gain, ...]) -> str:
    """The formula with its numbers: the larger of the gains in C and in the product."""
    logs = [g.log for g in gains]
    return equal(f"{at_sample(*logs)}{largest_term(terms)} = {largest_term(terms.values())}", *logs)


def spelled_out(equation: str, ndims: tuple[int, int]) -> str:
    """An equation with its arrow, and letters for its dots."""
    sides, arrow, out = equation.partition("->")
    free = "".join(c for c in LETTERS if c not in equation)
    terms, dots = [], ""
    for term, ndim in zip(sides.split(","), ndims, strict=True):
        count = ndim - len(term.replace("...", ""))
        own = free[:8][8 - count :] if "..." in term else ""
        dots = own if len(own) > len(dots) else dots
        terms.append(term.replace("...", own))
    if not arrow:
        joined = "".join(terms)
        out = dots + "".join(sorted(c for c in set(joined) - set(dots) if joined.count(c) == 1))
    return f"{','.join(terms)}->{out.replace('...', dots)}"


@rules.add(torch.einsum, claim="X.matmul", complex=True)
def einsum(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Einstein sum of two operands that is a batched product of matrices.

    as `matmul`: letters of both operands and the result are a batch, letters of both operands alone are summed

    Holds:  as for matmul; diagonals, three operands and sums over one operand's own axis are not covered.
    Source: every such sum is a product of matrices after a permutation of axes.
    """
    operands = step.args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    equation = str(step.args[0]).replace(" ", "")
    if len(operands) != 2 or not isinstance(step.args[0], str):
        return ctx.unknown(incoming, f"einsum {equation}")
    equation = spelled_out(equation, tuple(o.tensor.ndim if isinstance(o, Value) else o.ndim for o in operands))  # type: ignore[arg-type]
    product = build_product(operands, equation, list(incoming))
    if product.trouble:
        return ctx.unknown(incoming, f"einsum {equation}: {product.trouble}")
    return transfer_of(product, ctx)


@rules.add(torch.cumsum, torch.Tensor.cumsum, torch.Tensor.cumsum_, claim="X.cumsum")
def cumsum(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Running sum along an axis of n entries.

    ‖J‖ = 1/(2 sin(π/(4n+2))), the norm of the triangle of ones

    Holds:  everywhere, exactly.
    Source: the inverse of JJᵀ is tridiagonal with eigenvalues 4 sin²((2k−1)π/(4n+2)).
    """
    data, flow = step.inputs[0].tensor, incoming[0]
    dim = step.get(1, "dim") % max(data.ndim, 1)
    ctx.keep_apart(flow, data, (dim,), step.kind)
    n = data.shape[dim] if data.ndim else 1
    value = 1 / (2 * math.sin(math.pi / (4 * n + 2)))
    stretch = house_up(value if dim == data.ndim - 1 else float(n))
    gain = Gain(ctx.log(value), log_inward(value), Commute((dim,)))
    return Transfer(
        (gain,),
        row=stretch * flow.row,
        norm=stretch * flow.norm,
        low=torch.minimum(flow.low, n * flow.low),
        high=torch.maximum(flow.high, n * flow.high),
        axis=flow.axis,
        worked=equal(f"1/(2·sin(π/(4n+2))) = 1/(2·sin(π/{4 * n + 2}))", gain.log),
    )
