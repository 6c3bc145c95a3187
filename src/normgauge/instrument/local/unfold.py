"""Attention and gated units as the steps they are made of: products, a softmax, a sigmoid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from normgauge.instrument.local.pieces import NotCarried
from normgauge.instrument.local.softmaxes import masked_softmax
from normgauge.instrument.rules.attention import Blocks, arrange
from normgauge.instrument.trace.step import Step, Value

LEAD = "abcdefgh"  # axes before those of queries, keys and channels
Ruled = tuple[Step, str, tuple[float, ...]]
"""A step, its rule and its gains."""


def unfolded(step: Step, rule: str, gains: tuple[float, ...], fresh: Iterator[int]) -> list[Ruled]:
    """The parts of a step, with numbers for the values between them; the step itself where it has none.

    Raises:
        NotCarried: for attention in a form that is not followed.
    """
    if rule == "attention.attention":
        return _attention(step, fresh)
    if rule == "softmax.glu":
        return _gate(step, fresh)
    return [(step, rule, gains)]


def _made(step: Step, target: Callable[..., Tensor], args: tuple[Any, ...], index: int) -> Step:
    """A part of a step: a function of values that are known."""
    inputs = tuple(arg for arg in args if isinstance(arg, Value))
    part = Step(step.index, target, None, step.path, args, {}, inputs)
    known = [arg.tensor.detach() if isinstance(arg, Value) else arg for arg in args]
    part.outputs = (Value(index, target(*known), part),)
    return part


def _last(step: Step, target: Callable[..., Tensor], args: tuple[Any, ...]) -> Step:
    """The part that makes what the step made."""
    part = _made(step, target, args, -1)
    part.outputs = step.outputs
    return part


def _gate(step: Step, fresh: Iterator[int]) -> list[Ruled]:
    """a·σ(b) of the two halves of an axis."""
    whole = step.inputs[0]
    axis = step.option(1, "dim", -1)
    size = whole.tensor.shape[axis] // 2
    halves = [_made(step, torch.narrow, (whole, axis, start, size), next(fresh)) for start in (0, size)]
    gate = _made(step, torch.sigmoid, (halves[1].outputs[0],), next(fresh))
    product = _last(step, torch.mul, (halves[0].outputs[0], gate.outputs[0]))
    parts = [(half, "shape.copy", (1.0,)) for half in halves]
    return [*parts, (gate, "activation.activation", (0.25,)), (product, "combine.multiply", ())]


def _attention(step: Step, fresh: Iterator[int]) -> list[Ruled]:
    """Logits, their scale, weights and the mixture of values.

    Raises:
        NotCarried: for operands that are constant or shared between heads, and masks that depend on the input.
    """
    blocks = arrange(step)
    operands = [step.get(place, name) for place, name in enumerate(("query", "key", "value"))]
    plain = all(isinstance(one, Value) for one in operands)
    if not isinstance(blocks, Blocks) or not plain or blocks.shared != 1:
        raise NotCarried("attention in this form")
    q, k, v = operands
    lead = LEAD[: q.tensor.ndim - 2]
    if not q.tensor.shape[:-2] == k.tensor.shape[:-2] == v.tensor.shape[:-2] or len(lead) != q.tensor.ndim - 2:
        raise NotCarried("attention in this form")
    products = _made(step, torch.einsum, (f"{lead}qx,{lead}kx->{lead}qk", q, k), next(fresh))
    made = products.outputs[0]
    logits = _made(step, torch.mul, (made, blocks.scale), next(fresh))
    mask = blocks.mask.expand(math.prod(made.tensor.shape[:-2]), -1, -1).reshape(made.tensor.shape)
    weights = _made(step, masked_softmax, (logits.outputs[0], mask), next(fresh))
    mixed = _last(step, torch.einsum, (f"{lead}qk,{lead}ky->{lead}qy", weights.outputs[0], v))
    return [
        (products, "projection.einsum", ()),
        (logits, "combine.multiply", (abs(blocks.scale),)),
        (weights, "softmax.softmax", ()),
        (mixed, "projection.einsum", ()),
    ]
