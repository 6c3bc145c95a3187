"""Global response normalization: every channel times its share of the channels' lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normgauge.core.rounding import house_up, size_down, size_up
from normgauge.instrument.rules.algebra import Poly, Reader, X, thawed
from normgauge.instrument.rules.flow import INF, Context, Flow, Gain, Transfer, log_vector
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import at_sample, equal, number, worst_sample
from normgauge.instrument.trace.step import Step

rules = Family("response")


@dataclass(frozen=True, slots=True)
class Response:
    """y = scale·x·g/(mean g + ε), g = ‖x‖ over ``lengths``, the mean over ``channels``."""

    lengths: tuple[int, ...]
    channels: tuple[int, ...]
    eps: float
    scale: float


def global_response(x: Tensor, form: Response) -> Tensor:
    """The written-out formula of a `Response`."""
    g = torch.linalg.vector_norm(x, dim=form.lengths, keepdim=True)
    return form.scale * x * g / (g.mean(form.channels, keepdim=True) + form.eps)


def read_response(poly: Poly, reader: Reader) -> tuple[Callable[..., Tensor], tuple[Any, ...]] | None:
    """Read x·g/(mean g + ε) off a polynomial: one monomial of x, √(k·mean x²) and 1/(b·mean √(k·mean x²) + ε)."""
    if len(poly) != 1:
        return None
    ((monomial, c),) = poly.items()
    powers = dict(monomial)
    roots = {p: atom for atom, p in monomial if atom[0] == "root"}
    if len(monomial) != 3 or powers.get(X) != 1.0 or set(roots) != {0.5, -1.0}:
        return None
    square, below = thawed(roots[0.5][1]), thawed(roots[-1.0][1])
    eps = below.pop((), 0.0)
    if len(square) != 1 or len(below) != 1 or not eps > 0:
        return None
    (((inner,), k),) = ((m, f) for m, f in square.items()) if all(len(m) == 1 for m in square) else (((None,), 0.0),)
    ((outer, b),) = below.items()
    if inner is None or inner[1] != 1.0 or inner[0][0] != "mean" or inner[0][2] != ((X, 2.0),) or k <= 0 or b <= 0:
        return None
    if len(outer) != 1 or outer[0][1] != 1.0 or outer[0][0][0] != "mean" or outer[0][0][2] != ((roots[0.5], 0.5),):
        return None
    lengths, channels = inner[0][1], outer[0][0][1]
    if lengths & channels:
        return None
    size = math.sqrt(k / math.prod(reader.shape[d] for d in lengths))  # √(k·mean x²) = size·‖x‖
    form = Response(tuple(sorted(lengths)), tuple(sorted(channels)), eps / (b * size), c / b)
    return global_response, (form,)


@rules.add(global_response, claim="X.grn")
def response(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Global response normalization, y = s·x·n, n = g/(mean g + ε), g the lengths of C channels.

    L ≤ |s|·(2·sup n + sup‖n²‖₂/√C),  n ≤ C and ‖n²‖₂ ≤ C² always:  L ≤ |s|·(2C + C^(3/2));
    in a ball of radius r:  n_c ≤ (g_c + r)/(mean g − r/√C + ε)

    Holds:  everywhere; the channels and what their lengths run over must be different axes.
    Source: dy = n·dx + x·dn, ‖x·dn‖ = ‖n·dg − n²·d mean g‖ over the channels, |d mean g| ≤ ‖dg‖/√C, ‖dg‖ ≤ ‖dx‖.
            Formula of Woo et al. 2023 (ConvNeXt V2).
    """
    form: Response = step.args[1]
    data, flow = step.inputs[0].tensor, incoming[0]
    ctx.keep_apart(flow, data, (*form.lengths, *form.channels), "a normalizer")
    g = torch.linalg.vector_norm(data.detach().double(), dim=form.lengths, keepdim=True).cpu()  # one a channel
    axis = flow.axis % data.ndim if ctx.samples > 1 else -1
    order = [axis] * (axis >= 0) + [d for d in range(data.ndim) if d != axis and d not in form.channels]
    count = math.prod(data.shape[d] for d in form.channels)
    g = g.permute([*order, *form.channels]).reshape(ctx.samples, -1, count)
    r = size_up(flow.radius[:, None, None])
    mean = (size_down(g.mean(2, keepdim=True)) - r / math.sqrt(count)).nan_to_num(nan=0.0, neginf=0.0)
    n = ((g + r) / (mean.clamp_min(0.0) + form.eps)).nan_to_num(nan=INF, posinf=INF).clamp_max(float(count))
    most, fourth = n.amax((1, 2)), n.pow(4).sum(2).sqrt().amax(1).clamp_max(float(count) ** 2)
    slope = house_up(abs(form.scale) * (2 * most + fourth / math.sqrt(count)))
    log = log_vector(slope)
    share, square = (number(float(size[worst_sample(log)])) for size in (most, fourth))
    put_in = f"{number(abs(form.scale))}·(2·{share} + {square}/√{count})"
    reach = house_up((abs(form.scale) * most * flow.peak).nan_to_num(nan=INF, posinf=INF))
    worked = equal(f"{at_sample(log)}|s|·(2·sup n + sup‖n²‖/√C) = {put_in}", log)
    return Transfer((Gain(log),), low=-reach, high=reach, worked=worked)
