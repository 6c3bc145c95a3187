"""Fourier transforms, and the ways in and out of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from normgauge.core.rounding import size_up
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.rules.registry import Family, spellings
from normgauge.instrument.rules.worked import equal
from normgauge.instrument.trace.step import Step, axes_of

rules = Family("fourier")

KINDS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
BACK = {"ifft", "irfft", "ihfft"}  # divide by n unless told otherwise
HALVES = {"rfft", "ihfft"}  # their output is half a spectrum
DOUBLES = {"irfft", "hfft"}  # their input is half a spectrum, and the other half its mirror image
GETTERS = tuple(getattr(torch.Tensor, name).__get__ for name in ("real", "imag"))


def transforms() -> list[Any]:
    """Every transform of torch.fft, over one, two and any number of axes."""
    names = [f"{kind}{axes}" for kind in KINDS for axes in ("", "2", "n")]
    return [getattr(torch.fft, name) for name in names if callable(getattr(torch.fft, name, None))]


def transformed_axes(step: Step, ndim: int, one: bool) -> tuple[int, ...]:
    """The axes a transform runs over, in the order torch takes them, non-negative."""
    sizes, dims = step.get(1, "n" if one else "s"), step.get(2, "dim", -1 if one else None)
    if dims is None and step.kind.endswith("2"):
        dims = (-2, -1)
    if dims is None:
        dims = range(ndim) if sizes is None else range(ndim - len(sizes), ndim)
    return axes_of(dims, ndim)


@rules.add(*transforms(), claim="X.fourier", complex=True)
def transform(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Discrete Fourier transform over axes of n entries in all, plain, real, inverse or Hermitian.

    F is √n times a unitary map:  ‖J‖ = √n, inverse 1/√n, "ortho" 1;  cutting and padding with zeros add nothing;
    from real numbers to half a spectrum the same;  from half a spectrum √2 times that, since every entry but the
    first and the middle one counts twice (2 entries: not at all)

    Holds:  everywhere, exactly where nothing is cut; an upper bound else.
    Source: Parseval; the other half of the spectrum of real numbers is the conjugate of the first.
    """
    data, flow, out = step.inputs[0].tensor, incoming[0], step.outputs[0].tensor
    name = step.kind.removeprefix("fft_")
    kind, one = name.rstrip("2n"), name in KINDS  # whether it runs over a single axis
    axes = transformed_axes(step, data.ndim, one)
    ctx.keep_apart(flow, data, axes, step.kind)
    sizes = [out.shape[d] for d in axes]
    if kind in HALVES:
        given = step.get(1, "n" if one else "s")
        last = given if one else None if given is None else given[-1]
        sizes[-1] = data.shape[axes[-1]] if last is None or last == -1 else last
    n = math.prod(sizes)
    norm = step.get(3, "norm") or "backward"
    power = 0.0 if norm == "ortho" else 0.5 if (norm == "backward") != (kind in BACK) else -0.5
    mirrored = kind in DOUBLES and sizes[-1] > 2
    plain = n**power
    value = plain * (math.sqrt(2) if mirrored else 1.0)
    gain = Gain(ctx.log(value))
    reach = size_up(plain * math.sqrt(n) * flow.peak)
    along_rows = axes == (data.ndim - 1,)
    text = f"{'√2·' if mirrored else ''}n^{power:g} = {'√2·' if mirrored else ''}{n}^{power:g}"
    return Transfer(
        (gain,),
        row=size_up(value) * flow.row if along_rows else None,
        norm=size_up(value) * flow.norm if along_rows else None,
        low=-reach,
        high=reach,
        worked=equal(text, gain.log),
    )


@rules.add(
    *spellings("real", "imag", "conj", "conj_physical", "view_as_real", "view_as_complex"), *GETTERS,
    *spellings("to", "type", "type_as", "cfloat", "cdouble"),
    claim="X.fourier", complex=True,
)  # fmt: skip
def part(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Real and imaginary parts, conjugates, casts, and pairs of numbers read as complex ones or the other way round.

    an isometry, or a projection:  ‖J‖ = 1

    Holds:  everywhere, exactly.
    Source: |z|² = (Re z)² + (Im z)².
    """
    data, flow, out = step.inputs[0].tensor, incoming[0], step.outputs[0].tensor
    if not out.is_floating_point() and not out.is_complex():
        return ctx.unknown(incoming, f"a cast to {out.dtype}")
    pairs = step.kind == "view_as_complex"
    if pairs:
        ctx.keep_apart(flow, data, (-1,), step.kind)
    reach = size_up(flow.peak * (math.sqrt(2) if pairs else 1.0))
    low, high = (-reach, reach) if data.is_complex() or pairs else (flow.low, flow.high)
    same = data.shape == out.shape
    gain = Gain(ctx.full(0.0))
    others = (Gain(ctx.full(-math.inf)) for _ in incoming[1:])  # x.type_as(y) takes no numbers from y
    return Transfer(
        (gain, *others),
        row=flow.row if same else None,
        norm=flow.norm if same else None,
        low=low,
        high=high,
        axis=flow.axis % max(data.ndim, 1),
        neutral=True,
        worked=equal("an isometry or a projection", gain.log),
    )
