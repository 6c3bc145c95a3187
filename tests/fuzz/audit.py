"""Every value and every step of a trace against what its flow and its gains promise."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.compose import Composition
from normgauge.trace.step import Trace

SLACK = 1e-9
CARRIED = 1e-9  # of a value's size: rounding that earlier steps, normalizers above all, have amplified
ROUNDING = 1e-12  # of the sizes involved: what float64 may lose on the way through a small network


def per_sample(parts: Composition, tensor: Tensor, axis: int) -> Tensor:
    """(samples, rows, length)."""
    return parts.ctx.rows(tensor, axis)


def rounding(kind: str) -> float:
    """What float64 may lose in a step, as a part of its sizes: a normalizer divides it by √ε."""
    return 1e4 * ROUNDING if "norm" in kind.lower() else ROUNDING


def lengths(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows.flatten(1), dim=1)


def facts_broken(parts: Composition, moved: Trace) -> Iterator[str]:
    """Values at another point of the scope that leave the ranges, rows, lengths or radii proved for them."""
    for before, after in zip(parts.trace.steps, moved.steps, strict=True):
        for old, new in zip(before.outputs, after.outputs, strict=True):
            flow = parts.flows[old.index]
            if (
                not old.tensor.is_floating_point()
                or not bool(torch.isfinite(new.tensor).all())
                or new.tensor.numel() == 0
            ):
                continue
            here, there = (per_sample(parts, v.tensor, flow.axis) for v in (old, new))
            change = there - here
            loss = CARRIED * (1 + lengths(here) + lengths(there))
            row = torch.linalg.vector_norm(there, dim=2).amax(1)
            checks = {
                "radius": (lengths(change), flow.radius),
                "row": (torch.linalg.vector_norm(change, dim=2).amax(1), flow.row),
                "norm": (row, flow.norm),
                "high": (there.amax((1, 2)), flow.high),
                "low": (-there.amin((1, 2)), -flow.low),
            }
            for name, (got, most) in checks.items():
                if bool((got > most + SLACK * most.abs() + loss).any()):
                    yield f"{before.name} ({before.kind}): {name} is at most {most.tolist()}, got {got.tolist()}"


def steps_broken(parts: Composition, first: Trace, second: Trace) -> Iterator[str]:
    """Steps that stretch the difference of two points of the scope by more than their gains."""
    for own, a, b in zip(parts.trace.steps, first.steps, second.steps, strict=True):
        for position, (out_a, out_b) in enumerate(zip(a.outputs, b.outputs, strict=True)):
            value = own.outputs[position]
            transfer, flow = parts.transfers[value.index], parts.flows[value.index]
            if not out_a.tensor.is_floating_point() or out_a.tensor.numel() == 0:
                continue
            pair = [per_sample(parts, v.tensor, flow.axis) for v in (out_a, out_b)]
            if not all(bool(torch.isfinite(p).all()) for p in pair):
                continue
            got = lengths(pair[0] - pair[1])
            loss = ROUNDING * (lengths(pair[0]) + lengths(pair[1]))
            allowed = torch.zeros_like(got)
            for gain, own_in, in_a, in_b in zip(transfer.gains, own.inputs, a.inputs, b.inputs, strict=True):
                axis = parts.flows[own_in.index].axis
                ends = [per_sample(parts, v.tensor, axis) for v in (in_a, in_b)]
                size = lengths(ends[0] - ends[1])
                part = torch.where(gain.log == torch.inf, torch.inf, gain.log.exp() * size)
                allowed = torch.hypot(allowed, part) if transfer.disjoint else allowed + part
                loss = loss + gain.log.exp().clamp_min(1.0) * rounding(own.kind) * (lengths(ends[0]) + lengths(ends[1]))
            if bool((got > allowed * (1 + SLACK) + loss + 1e-100).any()):  # squares underflow
                yield f"{own.name} ({own.kind}): its gains allow {allowed.tolist()}, got {got.tolist()}"
