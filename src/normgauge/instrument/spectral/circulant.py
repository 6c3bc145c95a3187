"""Both ends of a convolution's norm: Lanczos from below, circulants around the layer from above."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, size_up
from normgauge.instrument.spectral.average import (
    MOST_DEFLATED,
    Pixels,
    WaveSet,
    averaged_upper,
    deflated_upper,
    wave_gram,
    wave_set,
)
from normgauge.instrument.spectral.conv_operator import (
    ConvSpec,
    apply_adjoint,
    apply_conv,
    conv_rounding,
    padding_constant,
)
from normgauge.instrument.spectral.power import KrylovBasis, Linear, krylov, seeded_start
from normgauge.instrument.spectral.symbol import Twist, circulant_sizes, sparse_circulant
from normgauge.instrument.spectral.waves import (
    Waves,
    circulant_top,
    gram_pieces,
    is_right,
    waves_above,
    whole_polynomial,
)

ConvMap = Callable[[Tensor, Tensor, ConvSpec], Tensor]

FIRST_STEPS = 60
MORE_STEPS = (48, 72, 96)
"""Sizes to which the Krylov space may grow while the bound is still too wide."""

LARGE, LARGE_IMAGE, COARSE = 3e8, 1e8, 1e-3
"""From so much work on, for all frequencies or for one product with the layer, a width that is not asked to be finer
than this gets one rough proof and no refinement."""

ROUGH, SPARSE, SLACK, FINE = 0.01, 0.008, 0.002, 0.0002
"""The width of a rough proof, what of it the frequencies left out and the level tried may take, and what the level of
any other proof of a large layer takes: without it each piece whose norm is a little larger would be tried twice."""

ROUGHLY = "rough circulant"
"""The method of such a proof."""

LONG = 10_000
"""Vectors with more entries are followed in float32."""

MOST_WAVES = 160
"""More waves than this make the averaged bound cost more than it brings."""


@dataclass(frozen=True, slots=True)
class Surround:
    """The ordinary zero-padded or circular convolution whose circulants are used, and what multiplies its norm."""

    base: ConvSpec
    outputs: tuple[int, ...]
    factor: float
    twists: tuple[Twist, ...]


def surround(kernel: Tensor, spec: ConvSpec) -> Surround:
    """The circulants to use around a layer.

    A transposed layer is the adjoint of a convolution on its output size. Circular padding whose outputs step evenly
    around the circle is a circulant already. All other paddings that copy pixels are the valid convolution on the
    padded size after the padding, whose norm multiplies.
    """
    base, outputs = spec, spec.output_size(kernel)
    if spec.transposed:
        base, outputs = spec.adjoint(kernel), spec.input_size
    if base.padding_mode == "circular" and all(
        n % s == 0 and m * s <= n for n, s, m in zip(base.input_size, base.stride, outputs, strict=True)
    ):
        return Surround(base, outputs, 1.0, (Twist(base.input_size, (0,) * base.axes),))
    factor = padding_constant(base)
    if base.padding_mode != "zeros":
        padded = tuple(n + sum(p) for n, p in zip(base.input_size, base.padding, strict=True))
        base = replace(base, input_size=padded, padding=(), padding_mode="zeros")
    sizes = circulant_sizes(base.reach(kernel), base, outputs)
    return Surround(base, outputs, factor, (Twist(sizes, (1,) * base.axes), Twist(sizes, (0,) * base.axes)))


def _oriented(kernel: Tensor, spec: ConvSpec, right: bool) -> tuple[Linear, tuple[int, ...]]:
    """x ↦ AᵀA x on vectors, A the layer or its adjoint, whichever starts on the side where the waves live.

    In float32 it finds a direction several times as fast; what is said of the direction is computed in float64.
    """
    first: ConvMap = apply_conv
    second: ConvMap = apply_adjoint
    shape = spec.input_shape(kernel)
    if right == spec.transposed:
        first, second, shape = apply_adjoint, apply_conv, spec.output_shape(kernel)

    def normal(x: Tensor) -> Tensor:
        return second(kernel, first(kernel, x.reshape(1, *shape), spec), spec).reshape(-1)

    return normal, shape


def steepest_groups(kernel: Tensor, spec: ConvSpec) -> tuple[Tensor, ConvSpec]:
    """The layer with those of its channel groups alone that may have its norm.

    Groups do not mix, so its norm is the largest of theirs. A circulant bounds each of them from above; those whose
    bound lies below what a few Lanczos steps find in the most promising one are left out.
    """
    around = surround(kernel, spec)
    if _work(kernel, around) > LARGE:
        return kernel, spec
    twist, parts = around.twists[0], kernel.reshape(spec.groups, -1, *kernel.shape[1:])
    pieces = gram_pieces(kernel, around.base, twist, whole_polynomial(kernel, around.base, twist), once=True)
    caps = torch.stack([piece.known.reshape(-1, spec.groups).amax(0) for piece in pieces()]).amax(0)
    one, alone = parts[int(caps.argmax())], replace(spec, groups=1)
    normal, shape = _oriented(one, alone, is_right(kernel, around.base))
    space = krylov(normal, seeded_start((math.prod(shape),), one), FIRST_STEPS, 1e-3)
    reached = _lower(space, normal, conv_rounding(one, alone))
    left = size_up(caps.sqrt() * around.factor) > reached
    left[caps.argmax()] = True
    return parts[left].flatten(0, 1), replace(spec, groups=int(left.sum()))


def circulant_ends(kernel: Tensor, spec: ConvSpec, width: float, *, below: bool = True) -> tuple[float, float, str]:
    """Lower and upper end of the norm, and the method of the upper; stops once they are within ``width``.

    Args:
        kernel: the layer's weight, float64, largest entry about 1.
        spec: the layer.
        width: log(upper/lower) to reach.
        below: False gives 0 for the lower end where its search costs as much as the upper end: of a large layer, of a
            large image, and of any where a rough upper end will do.
    """
    around = surround(kernel, spec)
    right = is_right(kernel, around.base)
    large = _work(kernel, around) > LARGE
    wide = kernel.numel() * math.prod(around.outputs) > LARGE_IMAGE
    if not below and (large or width >= (COARSE if wide else ROUGH)):
        return 0.0, _single(kernel, around, 0.0, width >= ROUGH) * around.factor, "twisted circulant"
    normal, shape = _oriented(kernel, spec, right)
    quick, start = normal, seeded_start((math.prod(shape),), kernel)
    if len(start) > LONG and kernel.device.type == "cpu":
        quick, start = _oriented(kernel.float(), spec, right)[0], start.float()
    coarse = below and width >= COARSE and (large or wide)
    width = max(width, ROUGH) if coarse else width
    space = krylov(quick, start, FIRST_STEPS, math.sqrt(width) / (5 if coarse else 6))
    error = conv_rounding(kernel, spec)
    lower = _lower(space, normal, error)
    goal = lower * math.exp(0.99 * width) / around.factor
    if coarse:
        return lower, _single(kernel, around, goal, rough=True) * around.factor, ROUGHLY
    pixels = _pixels(kernel, around, right)
    upper, name, waves = _without_vectors(kernel, around, pixels, goal, width)
    if upper <= goal or waves is None or around.factor != 1.0:
        return lower, upper * around.factor, name
    product = wave_gram(waves)
    noise = 3 * (upper + error) * error
    for steps in MORE_STEPS:
        before = upper
        tops = torch.linalg.qr(space.leading(MOST_DEFLATED).double().T)[0].T
        images = torch.stack([normal(top) for top in tops])
        upper = min(upper, math.sqrt(deflated_upper(waves, product, pixels, tops, images, noise)))
        stuck = steps > MORE_STEPS[1] and upper > 0.999 * before
        if upper <= lower * math.exp(0.99 * width) or steps > len(start) or stuck:
            break
        space = krylov(quick, start, steps, 1e-4, space, pairs=4)
        lower = max(lower, _lower(space, normal, error))
    return lower, upper, "deflated circulants"


def _work(kernel: Tensor, around: Surround) -> float:
    """Multiplications that a proof for every frequency takes, but for a factor."""
    base = around.base
    order = min(kernel.shape[0] // base.groups, kernel.shape[1] * math.prod(base.stride))
    return math.prod(around.twists[0].sizes) / math.prod(base.stride) / 2 * base.groups * float(order) ** 3


def _single(kernel: Tensor, around: Surround, least: float, rough: bool) -> float:
    """The norm of one circulant from above, not below ``least``: a few thousandths above what all choices give.

    A ``rough`` proof is up to a hundredth above that.
    """
    twist, factor = around.twists[0], 1.0
    if rough:
        sizes, factor = sparse_circulant(around.base.reach(kernel), around.base.stride, twist.sizes, SPARSE)
        twist = replace(twist, sizes=sizes)
    pieces = gram_pieces(kernel, around.base, twist, whole_polynomial(kernel, around.base, twist), once=True)
    return math.sqrt(circulant_top(pieces, (least / factor) ** 2, 2 * (SLACK if rough else FINE))) * factor


def _lower(space: KrylovBasis, normal: Linear, error: float) -> float:
    """‖A v‖ at the top Ritz vector, from ⟨v, AᵀA v⟩, less its rounding: two maps of error each and a long sum."""
    top = space.top.double()
    value = float(top @ normal(top)) / float(top @ top)
    sigma = math.sqrt(max(value, 0.0))
    value -= 2 * error * (sigma + error) + 6 * len(top) * UNIT * value
    return math.sqrt(max(value, 0.0))


def _without_vectors(
    kernel: Tensor, around: Surround, pixels: Pixels, goal: float, width: float
) -> tuple[float, str, WaveSet | None]:
    """The best of single twists and their average, its name, and the waves it used where there are any.

    The waves reach as far down as the border of the layer can move its norm, O(1/N²); first a part of that, which is
    often enough and has fewer waves.
    """
    whole = whole_polynomial(kernel, around.base, around.twists[0])
    pieces = [gram_pieces(kernel, around.base, around.twists[0], whole)]
    depth = min(0.2, 100.0 / max(around.twists[0].sizes) ** 2)
    upper, name, waves = math.inf, "twisted circulant", None
    for share in (0.5, 1.0):
        parts: list[Waves] = []
        for index, twist in enumerate(around.twists):
            if index == len(pieces):
                pieces.append(gram_pieces(kernel, around.base, twist, whole))
            found = waves_above(pieces[index], goal**2 * (1.0 - share * depth))
            if found is None and waves is None:
                found = waves_above(pieces[index], goal**2 * (1.0 - 0.1 * depth))
            if found is None:
                bound = upper if waves else math.sqrt(circulant_top(pieces[index], goal**2))
                return min(upper, bound), name, waves
            parts.append(found)
            upper = min(upper, math.sqrt(found.top))
            if upper <= goal:
                return upper, name, None
        if len(parts) == 1:
            return upper, name, None
        waves, name = wave_set(parts, pixels, MOST_WAVES), "averaged circulants"
        upper = min(upper, math.sqrt(averaged_upper(waves, wave_gram(waves))))
        # More waves help a little; a bound that is far off needs the layer's own vectors.
        if upper <= goal or upper > goal * (1.0 + width):
            break
    return upper, name, waves


def _pixels(kernel: Tensor, around: Surround, right: bool) -> Pixels:
    base = around.base
    cells = math.prod(around.twists[0].sizes)
    if right:
        return Pixels(base.input_shape(kernel), (1,) * base.axes, base.groups, cells)
    shape = (kernel.shape[0], *around.outputs)
    return Pixels(shape, base.stride, base.groups, cells // math.prod(base.stride))
