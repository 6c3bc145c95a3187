"""Every fact a composition states about a trace, held against traces of other points of the scope.

What a rule says of its output (`norm`, `low`, `high`, `row`, `radius`), where it says the samples lie (`axis`), how
much it says each input is stretched (`gains`) and whether these add in squares (`disjoint`): each is compared with
what the step did there. A step is run by itself to take its Jacobian in one input while the others stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.flow import SamplesMixed, Transfer
from normgauge.instrument.testing.bench import dense_jacobian
from normgauge.instrument.trace.again import run_step
from normgauge.instrument.trace.step import Step, Trace, Value

SLACK = 1e-9
CARRIED = 1e-9  # of a value's size: rounding that earlier steps, normalizers above all, have amplified
ROUNDING = 1e-12  # of the sizes involved: what float64 may lose on the way through a small network
JACOBIAN = 1e-6  # relative: autograd's own rounding where it divides by something small
MOST_ENTRIES = 1024  # of a step whose dense Jacobian is taken


@dataclass(frozen=True, slots=True, order=True)
class BrokenFact:
    """A false fact: the step that states it, and a sentence."""

    step: int
    text: str


def facts_broken(parts: Composition, there: Trace) -> Iterator[BrokenFact]:
    """Values at another point of the scope that leave the ranges, rows, lengths or radii stated for them."""
    for before, after in zip(parts.trace.steps, there.steps, strict=True):
        for old, new in zip(before.outputs, after.outputs, strict=True):
            if comparable(new):
                found = list(_outside(parts, before, old, new, stated=True))
                yield from found or _outside(parts, before, old, new, stated=False)


def _outside(parts: Composition, step: Step, old: Value, new: Value, stated: bool) -> Iterator[BrokenFact]:
    """Broken facts among those that the rule states itself, or those that follow from them and the centre."""
    flow = parts.flows[old.index]
    facts: Any = parts.transfers[old.index] if stated else flow
    there = parts.ctx.rows(new.tensor, flow.axis)
    change, sizes = moved_rows(parts, old, new)
    loss = CARRIED * (1 + sizes)
    seen = {
        "radius": row_lengths(change),
        "row": torch.linalg.vector_norm(change, dim=2).amax(1),
        "norm": torch.linalg.vector_norm(there, dim=2).amax(1),
        "high": there.amax((1, 2)),
        "low": there.amin((1, 2)),
    }
    for name, got in seen.items():
        limit = getattr(facts, name)
        if limit is None:
            continue
        sign = -1.0 if name == "low" else 1.0
        excess = sign * (got - limit) - SLACK * limit.abs() - loss
        if bool((excess > 0).any()):
            at = int(excess.argmax())
            word = "states" if stated else "leads to"
            side = "at least" if name == "low" else "at most"
            yield broken_fact(parts, step, f"{word} {name}: expected {side} {limit[at]:.9g}, got {got[at]:.9g}")


def steps_broken(parts: Composition, first: Trace, second: Trace) -> Iterator[BrokenFact]:
    """Steps that stretch the difference of two points of the scope by more than their gains."""
    for own, a, b in zip(parts.trace.steps, first.steps, second.steps, strict=True):
        for position, (out_a, out_b) in enumerate(zip(a.outputs, b.outputs, strict=True)):
            value = own.outputs[position]
            if not comparable(out_a, out_b):
                continue
            transfer, (change, sizes) = parts.transfers[value.index], moved_rows(parts, value, out_b, out_a)
            got, loss = row_lengths(change), ROUNDING * sizes
            lost = (1e4 if "norm" in own.kind.lower() else 1.0) * ROUNDING  # a normalizer divides it by √ε
            allowed = torch.zeros_like(got)
            for gain, own_in, in_a, in_b in zip(transfer.gains, own.inputs, a.inputs, b.inputs, strict=True):
                change, sizes = moved_rows(parts, own_in, in_b, in_a)
                part = torch.where(gain.log == torch.inf, torch.inf, gain.log.exp() * row_lengths(change))
                allowed = torch.hypot(allowed, part) if transfer.disjoint else allowed + part
                loss = loss + gain.log.exp().clamp_min(1.0) * lost * sizes
            excess = got - allowed * (1 + SLACK) - loss - 1e-100  # squares underflow
            if bool((excess > 0).any()):
                at = int(excess.argmax())
                yield broken_fact(
                    parts,
                    own,
                    f"states gains: expected its output to move by at most {allowed[at]:.9g}, got {got[at]:.9g}",
                )


def jacobians_broken(parts: Composition, point: Trace) -> Iterator[BrokenFact]:
    """Steps whose Jacobian at a point of the scope breaks a gain, the samples' axis or the claim to be disjoint."""
    for own, there in zip(parts.trace.steps, point.steps, strict=True):
        for position, value in enumerate(own.outputs):
            sizes = [v.tensor.numel() for v in (*own.inputs, value)]
            if own.trouble or max(sizes) > MOST_ENTRIES or min(sizes) == 0:
                continue
            dense = step_jacobians(there, position)
            if dense is not None:
                yield from _steeper(parts, own, value, dense)


def _steeper(parts: Composition, step: Step, value: Value, dense: dict[int, Tensor]) -> Iterator[BrokenFact]:
    """Facts that the Jacobians of one output break, sample by sample; ``dense`` has one Jacobian for each input."""
    transfer = parts.transfers[value.index]
    try:
        rows = members(parts, value.tensor, parts.flows[value.index].axis)
        columns = {
            v.index: members(parts, v.tensor, parts.flows[v.index].axis) for v in step.inputs if v.index in dense
        }
    except SamplesMixed:
        return
    gains = gains_by_value(transfer, step)
    for index, jacobian in dense.items():
        which = [v.index for v in step.inputs].index(index)
        for own in range(len(rows)):
            for other in range(len(rows)):
                crossed = jacobian[rows[own]][:, columns[index][other]]
                size = float(crossed.abs().max()) if crossed.numel() else 0.0
                if own != other and size > ROUNDING * (1 + float(jacobian.abs().max())):
                    axis = parts.flows[value.index].axis
                    yield broken_fact(
                        parts,
                        step,
                        f"states axis: expected samples apart along axis {axis} of its output, got sample {own} "
                        f"moved by sample {other} with slope {size:.9g}",
                    )
                    return
            got = float(torch.linalg.matrix_norm(jacobian[rows[own]][:, columns[index][own]], 2))
            most = float(gains[index][own])
            if got > most * (1 + JACOBIAN) + ROUNDING:
                yield broken_fact(
                    parts,
                    step,
                    f"states a gain for input {which}: expected at most {most:.9g}, got the slope {got:.9g}",
                )
                return
    if transfer.disjoint and len(dense) > 1:
        yield from _joined(parts, step, dense, gains, rows, columns)


def _joined(
    parts: Composition,
    step: Step,
    dense: dict[int, Tensor],
    gains: dict[int, Tensor],
    rows: list[Tensor],
    columns: dict[int, list[Tensor]],
) -> Iterator[BrokenFact]:
    """Samples for which slopes may not add in squares: [J_1/g_1, J_2/g_2, ...] has a norm above 1."""
    for sample in range(len(rows)):
        scaled = []
        for index, jacobian in dense.items():
            gain = float(gains[index][sample])
            if 0 < gain < math.inf:
                scaled.append(jacobian[rows[sample]][:, columns[index][sample]] / gain)
        if len(scaled) > 1:
            got = float(torch.linalg.matrix_norm(torch.cat(scaled, 1), 2))
            if got > 1 + JACOBIAN:
                yield broken_fact(
                    parts,
                    step,
                    "states disjoint: expected inputs that reach disjoint parts of the output, "
                    f"got {got:.9g} times what adding in squares allows",
                )
                return


def gains_by_value(transfer: Transfer, step: Step) -> dict[int, Tensor]:
    """The gain of each value; a value that is used several times may be stretched by all of its gains together."""
    found: dict[int, Tensor] = {}
    for value, gain in zip(step.inputs, transfer.gains, strict=True):
        here, before = gain.log.exp(), found.get(value.index)
        if before is None:
            found[value.index] = here
        else:
            found[value.index] = torch.hypot(before, here) if transfer.disjoint else before + here
    return found


def step_jacobians(step: Step, position: int) -> dict[int, Tensor] | None:
    """Dense Jacobians of one output in each input by itself; None where the step does not repeat what it did."""
    leaves = {v.index: v.tensor.detach().clone() for v in step.inputs}
    if not all(t.dtype == torch.float64 and bool(torch.isfinite(t).all()) for t in leaves.values()):
        return None
    want = step.outputs[position].tensor
    if want.dtype != torch.float64 or not bool(torch.isfinite(want).all()):
        return None
    found = {}
    for index, leaf in leaves.items():
        try:
            with torch.enable_grad():
                leaf.requires_grad_()
                out = run_step(step, lambda value: leaves[value.index] * 1.0)[position]
                if out.shape != want.shape or not torch.allclose(out, want, rtol=1e-9, atol=1e-12):
                    return None
                dense = dense_jacobian(out, leaf)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return None  # a step that cannot be run by itself; what it did to differences is audited all the same
        leaf.requires_grad_(False)
        if not bool(torch.isfinite(dense).all()):
            return None
        found[index] = dense
    return found


def members(parts: Composition, tensor: Tensor, axis: int) -> list[Tensor]:
    """The flat positions of the entries that belong to each sample."""
    places = torch.arange(tensor.numel(), dtype=torch.float64).reshape(tensor.shape)
    return list(parts.ctx.rows(places, axis).flatten(1).long())


def comparable(*values: Value) -> bool:
    """Whether all values are floating point, not empty, and finite."""
    found = [value.tensor for value in values]
    return all(t.is_floating_point() and t.numel() > 0 and bool(torch.isfinite(t).all()) for t in found)


def moved_rows(parts: Composition, own: Value, new: Value, old: Value | None = None) -> tuple[Tensor, Tensor]:
    """The rows of a value's change from ``old`` (or itself) to ``new``, and the sum of its lengths at both."""
    axis, a, b = parts.flows[own.index].axis, new.tensor, (old or own).tensor
    change = a - b if a.is_complex() else a.double() - b.double()  # before moduli are taken
    rows, first, second = (parts.ctx.rows(tensor, axis) for tensor in (change, b, a))
    return rows, row_lengths(first) + row_lengths(second)


def broken_fact(parts: Composition, step: Step, what: str) -> BrokenFact:
    """A finding that names the step, its rule and the fact."""
    rule = parts.rules.get(step.index)
    who = f"the rule {rule.id}" if rule is not None else "no rule, which"
    return BrokenFact(step.index, f"{step.name} ({step.kind}): {who} {what}")


def row_lengths(rows: Tensor) -> Tensor:
    """The length of each sample's entries."""
    return torch.linalg.vector_norm(rows.flatten(1), dim=1)
