"""The twisted circulant around a zero-padded convolution, frequency by frequency.

One axis: n inputs, m outputs y_i = Σ_t K_t x[i·s + t·d − l], x read as zero outside [0, n), reading up to n − 1 + r.
Let N be a multiple of s with N ≥ n + l, N ≥ n + r and N ≥ m·s. Extend x by zeros to [0, N) and from there to all
integers by x[j + N] = e^{iθ} x[j]. The positions −l … −1 are those of N − l … N − 1 and n … n + r − 1 lie below N: both
read zeros whatever the phase, and may share cells. So the layer is the first m of the N/s outputs of this twisted
circulant map with only n of its N inputs free: a crop, whose norm is not larger, for every θ and on every axis
separately. On the waves e^{iωj}, ω = (2πk + θ)/N, the map is block diagonal: the s frequencies ω + 2πa/s fall on one
output wave, and with unit-norm waves the block is

    s^(−½) [ K̂(ω) | K̂(ω + 2π/s) | … ],    K̂(ω) = Σ_t K_t e^{iω(t·d − l)}

In several axes the factors multiply: 1/√(s₁…s_D), that is 1/s in two. For the kernel [1, 1, 1] with
l = r = 1, N = n + 1 and θ = π give 1 + 2cos(π/(n+1)), the exact norm.

Source: Sedghi, Gupta & Long, arXiv 1805.10408, for θ = 0 and circular padding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import UNIT, dot_error, house_up, size_up
from normgauge.instrument.spectral.conv_operator import ConvSpec

HELD = 2_000_000
"""Numbers held at once of the symbol where the Gram matrices are made from it."""

WORTH = 1e8
"""Multiplications that values instead of coefficients of a polynomial must save."""


@dataclass(frozen=True, slots=True)
class Twist:
    """A choice of circulant: its size per axis and, per axis, whether the wrap-around changes the sign (θ = π)."""

    sizes: tuple[int, ...]
    odd: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """The blocks of a twisted circulant at one of each pair ±ω of frequencies; real kernels repeat at −ω.

    Attributes:
        blocks: (frequency, group, c_out/groups, aliases·c_in/groups), complex128.
        error: bound of ‖computed − true‖ for every block.
    """

    blocks: Tensor
    error: float


def circulant_sizes(reach: tuple[int, ...], spec: ConvSpec, outputs: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest N per axis that the module's proof allows; for circular padding the input's own size."""
    if spec.padding_mode == "circular":
        return spec.input_size
    sizes = []
    for n, m, s, (left, _), e in zip(spec.input_size, outputs, spec.stride, spec.padding, reach, strict=True):
        beyond = max(0, (m - 1) * s + e - left - (n - 1))
        least = max(n + left, n + beyond, m * s)
        sizes.append(-(-least // s) * s)
    return tuple(sizes)


def sparse_circulant(
    reach: tuple[int, ...], stride: tuple[int, ...], sizes: tuple[int, ...], share: float
) -> tuple[tuple[int, ...], float]:
    """Smaller sizes N' per axis, and what their circulant's norm is multiplied by to bound that of every size.

    Between two frequencies of the N'-grid nothing rises by more than 1/cos(π·reach/(2N')) an axis: a trigonometric
    polynomial T of degree n with its maximum at ω₀ is at least ‖T‖·cos(n(ω − ω₀)) up to π/n from there, the next
    frequency is π/N' away at most, and uᴴK̂(ω)v has n = reach/2 once a phase is taken out.

    Source: M. Riesz, Jahresbericht der DMV 23 (1914) 354.

    Args:
        reach: distance between the first and the last tap.
        stride: of the layer, which divides each N'.
        sizes: of the circulant itself; no larger ones are returned.
        share: the part that the factor may exceed 1 by.
    """
    part = math.log1p(share) / len(sizes)
    found, factor = [], 1.0
    for n, s, e in zip(sizes, stride, reach, strict=True):
        least = math.ceil(math.pi * e / 2 / math.acos(math.exp(-part)))
        sparse = max(s, -(-least // s) * s)
        found.append(min(n, sparse))
        factor *= 1.0 if n <= sparse else size_up(1.0 / math.cos(math.pi * e / (2 * sparse)))
    return tuple(found), factor


def frequencies(twist: Twist, stride: tuple[int, ...], device: torch.device) -> Tensor:
    """One frequency of each pair ±ω modulo aliasing, with its aliases: (frequency, alias, axis) angles."""
    coarse = [n // s for n, s in zip(twist.sizes, stride, strict=True)]
    axes = [torch.arange(count, device=device) for count in coarse]
    index = torch.cartesian_prod(*axes).reshape(-1, len(coarse))  # (frequency, axis)
    count = torch.tensor(coarse, device=device)
    odd = torch.tensor(twist.odd, device=device)
    weights = torch.tensor([math.prod(coarse[i + 1 :]) for i in range(len(coarse))], device=device)
    mirrored = ((-index - odd) % count * weights).sum(1)
    index = index[torch.arange(len(index), device=device) <= mirrored]
    shifts = torch.cartesian_prod(*[torch.arange(s, device=device) for s in stride]).reshape(-1, len(coarse))
    fine = index[:, None, :] + shifts[None] * count
    sizes = torch.tensor(twist.sizes, dtype=torch.float64, device=device)
    return (2 * fine + odd) * (math.pi / sizes)


def symbol(weight: Tensor, spec: ConvSpec, waves: Tensor) -> Symbol:
    """Evaluates the blocks at ``waves``; ``weight`` is that of an ordinary convolution, float64.

    Each entry is a sum of T = taps products with phases right to 32 u·(1 + |angle|), so the error of a block is below
    (T + 32 (1 + largest angle)) 2u · ‖Σ_t |K_t|‖_F · √aliases · s^(−½).
    """
    taps = torch.cartesian_prod(
        *[
            torch.arange(k, device=weight.device) * d - left
            for k, d, (left, _) in zip(weight.shape[2:], spec.dilation, spec.padding, strict=True)
        ]
    ).reshape(-1, spec.axes)
    angles = waves @ taps.double().T  # (frequency, alias, tap)
    scale = math.prod(spec.stride) ** -0.5
    phases = torch.polar(torch.full_like(angles, scale), angles)
    kernel = weight.reshape(weight.shape[0] * weight.shape[1], -1)
    flat = torch.view_as_complex(
        torch.stack([phases.real @ kernel.T, phases.imag @ kernel.T], dim=-1)
    )  # (frequency, alias, c_out·c_in)
    blocks = flat.reshape(*flat.shape[:2], spec.groups, weight.shape[0] // spec.groups, weight.shape[1])
    blocks = blocks.permute(0, 2, 3, 1, 4).flatten(-2)
    terms = taps.shape[0] + 32 * (1.0 + float(angles.abs().max()))
    absolute = float(kernel.abs().sum(1).norm())
    return Symbol(blocks, 2 * UNIT * terms * absolute)


def pair_counts(stride: tuple[int, ...], waves: Tensor) -> Tensor:
    """For each frequency 1 where −ω is the same one modulo aliasing, else 2.

    It is, up to a multiple of 2π/s on every axis, exactly when 2ω·s is a multiple of 2π.
    """
    turns = waves[:, 0] * torch.tensor(stride, dtype=torch.float64, device=waves.device) / math.pi
    own = ((turns - turns.round()).abs() < 1e-6).all(1)
    return torch.where(own, 1.0, 2.0).double()


@dataclass(frozen=True, slots=True)
class GramPolynomial:
    """The Gram matrices of all blocks as one trigonometric polynomial, given by real matrices and functions of ω.

    With the taps t of a kernel, K̂ᴴK̂ = Σ_{t,t'} K_tᵀK_{t'} e^{iω(t'−t)}; with a stride the mean of K̂K̂ᴴ over the aliases
    keeps the differences that the stride divides. A few products of real matrices serve all frequencies. Either they
    are the coefficients, M(ω) = P₀ + Σ_δ (P_δ e^{iωδ} + P_δᵀ e^{−iωδ}), or the values at 2k − 1 equidistant ω_j an
    axis for k taps, which fix a polynomial of degree k − 1:

        M(ω) = Σ_j D(ω − ω_j) M(ω_j),   D(x) = Π_axes (1 + 2 cos x + … + 2 cos (k−1)x)/(2k − 1)

    Attributes:
        even: (term, group·order·order), what is multiplied by functions even in ω: P₀ and P_δ + P_δᵀ, or Re M(ω_j).
        odd: the same for the odd ones: 0 and P_δ − P_δᵀ, or Im M(ω_j).
        places: (term, axis): δ, what multiplies ω, or ω_j·dilation; one of each pair ±, zero first.
        order: rows of M.
        error: bound of ‖computed − true‖ for every M, its evaluation included.
        dilation: () for coefficients; for values what multiplies ω, one entry an axis.
        taps: for values, of the kernel.
    """

    even: Tensor
    odd: Tensor
    places: Tensor
    order: int
    error: float
    dilation: tuple[int, ...] = ()
    taps: tuple[int, ...] = ()

    def at(self, waves: Tensor) -> Tensor:
        """M at each frequency, (frequency·group, order, order), complex."""
        if self.dilation:
            angles = waves[:, 0] * self.places.new_tensor(self.dilation)
            near, far = (self._kernel(angles[:, None] - sign * self.places) for sign in (1, -1))
            far[:, 0] = 0.0  # zero is its own mirror image
            even, odd = near + far, near - far
        else:
            angles = waves[:, 0] @ self.places.T
            even, odd = angles.cos(), angles.sin()
        found = torch.complex(even @ self.even, odd @ self.odd)
        return found.reshape(-1, self.order, self.order)

    def _kernel(self, angles: Tensor) -> Tensor:
        """D of angles (frequency, node, axis)."""
        found = torch.ones_like(angles[..., 0])
        for line, k in zip(angles.unbind(-1), self.taps, strict=True):
            waves = torch.ones_like(line)
            for n in range(1, k):
                waves += 2.0 * (n * line).cos()
            found *= waves / (2 * k - 1)
        return found


def gram_polynomial(weight: Tensor, spec: ConvSpec, *, right: bool) -> GramPolynomial:
    """The polynomial of K̂ᴴK̂ (``right``, stride 1 only) or of the mean of K̂K̂ᴴ over the aliases, float64."""
    kernel = weight.reshape(spec.groups, -1, *weight.shape[1:])
    kernel = kernel.transpose(1, 2) if right else kernel
    kernel = kernel.movedim(2, -1).contiguous()  # (group, order, *taps, inner): what is cut below lies in long runs
    total = float(torch.linalg.vector_norm(kernel.flatten(2, -2), dim=(1, 3)).sum(1).max())
    square = house_up(total) ** 2
    if by_values_pays(kernel.shape[1], kernel.shape[-1], kernel.shape[2:-1], spec.stride):
        return _by_values(kernel, spec, square, right=right)
    return _by_coefficients(kernel, spec, square, right=right)


def value_products(taps: Sequence[int]) -> int:
    """Products of matrices that the values of a polynomial take: one half of N nodes, two each."""
    return math.prod(2 * k - 1 for k in taps)


def by_values_pays(order: int, inner: int, taps: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether so many multiplications less than by coefficients outweigh the steps around them."""
    count = math.prod(taps)
    less = (count * (count + 1) / 2 - value_products(taps)) * order**2 * inner
    return max(stride) == 1 and less > WORTH


def _by_coefficients(kernel: Tensor, spec: ConvSpec, square: float, *, right: bool) -> GramPolynomial:
    """The coefficients P_δ = Σ_t K_tᵀK_{t+δ}.

    Each is a sum of at most T·n products, T taps and n the inner side; together they are at most Σ_t|K_t| times itself,
    so ‖error‖ ≤ (`dot_error`(T·n) + what the phases lose)·(Σ_t‖K_t‖_F)², the last ``square``.
    """
    sizes, order = kernel.shape[2:-1], kernel.shape[1]
    shifts = _kept_shifts(sizes, spec)
    even, odd = (kernel.new_empty(len(shifts), spec.groups, order, order) for _ in range(2))
    for index, shift in enumerate(shifts):
        near, far = kernel, kernel
        for axis, (by, k) in enumerate(zip(shift, sizes, strict=True)):
            near = near.narrow(2 + axis, max(0, -by), k - abs(by))
            far = far.narrow(2 + axis, max(0, by), k - abs(by))
        part = near.flatten(2) @ far.flatten(2).mT  # Σ_t K_t K_{t+δ}ᵀ, of the transposed taps for the right side
        part = part if right else part.mT
        torch.sub(part, part.mT, out=odd[index])
        torch.add(part, part.mT if any(shift) else 0.0, out=even[index])
    places = [[by * d for by, d in zip(shift, spec.dilation, strict=True)] for shift in shifts]
    where = torch.tensor(places, dtype=torch.float64, device=kernel.device)
    largest = float(where.abs().sum(1).max()) * 2 * math.pi
    lost = dot_error(math.prod(sizes) * kernel.shape[-1]) + 2 * UNIT * (2 * len(places) + 32 * (1.0 + largest))
    return GramPolynomial(even.flatten(1), odd.flatten(1), where, order, lost * square)


def _by_values(kernel: Tensor, spec: ConvSpec, square: float, *, right: bool) -> GramPolynomial:
    """The values at all N = Π(2k − 1) nodes, one of each pair ±ω_j: for 3×3 taps half the work of the coefficients.

    With K̂(ω_j) = X + iY, its columns the order's, M = XᵀX + YᵀY ± i(XᵀY − YᵀX). Of C = (X + Y)ᵀ(X − Y) the symmetric
    part is XᵀX − YᵀY and the other one YᵀX − XᵀY: it and the symmetric product YᵀY give M.

    All sizes are parts of S², S = Σ_t‖K_t‖_F ≥ ‖K̂(ω_j)‖_F, the last ``square``. X and Y are sums over T taps with
    phases right to 8 u (1 + angle): e = `dot_error`(T) + 16 u (1 + angle). C loses `dot_error`(n), n the inner side, as
    ‖X + Y‖_F‖X − Y‖_F ≤ ‖X‖_F² + ‖Y‖_F², and enters both parts; 2YᵀY loses twice that; four additions 4u; M moves by
    2e + e² with K̂: ε = 5(`dot_error`(n) + e) covers them. As
    Σ_j D(ω − ω_j)² = D(0) = 1 an axis, Σ_j |D| ≤ √N, so that ε and the sum over j enter √N times, and N times the error
    of one D: a product over the axes of factors in [−1, 1], means of cosines and right to 8 u (k + 1 + angle).
    """
    sizes, order, inner = kernel.shape[2:-1], kernel.shape[1], kernel.shape[-1]
    nodes = [node for node in itertools.product(*[range(2 * k - 1) for k in sizes]) if node <= _mirrored(node, sizes)]
    counts = torch.tensor([2 * k - 1 for k in sizes], dtype=torch.float64, device=kernel.device)
    where = torch.tensor(nodes, dtype=torch.float64, device=kernel.device) * (2 * math.pi / counts)
    taps = torch.cartesian_prod(*[torch.arange(k, device=kernel.device) for k in sizes]).reshape(-1, len(sizes))
    angles = where @ taps.double().T  # (node, tap)
    phases = torch.stack([angles.cos(), angles.sin()], 1)  # (node, 2, tap)
    flat = kernel.flatten(2, -2).permute(2, 0, 3, 1).contiguous()  # (tap, group, inner, order)
    even, odd = (kernel.new_empty(len(nodes), spec.groups, order, order) for _ in range(2))
    some = max(1, HELD // (2 * flat[0].numel()))
    for first in range(0, len(nodes), some):
        part = phases[first : first + some]
        values = (part.flatten(0, 1) @ flat.flatten(1)).reshape(len(part), 2, spec.groups, inner, order)
        for index, (cosines, sines) in enumerate(values, first):
            if index == 0:  # of ω = 0 there are no sines
                even[0], odd[0] = _square(cosines), 0.0
                continue
            cross = (cosines + sines).mT @ (cosines - sines)
            turned = cross.mT.contiguous()
            torch.add(cross, turned, out=even[index]).div_(2).add_(_square(sines), alpha=2)
            torch.sub(*((turned, cross) if right else (cross, turned)), out=odd[index]).div_(2)
    count = math.prod(2 * k - 1 for k in sizes)
    largest = 2 * math.pi * sum((d + 1) * k for d, k in zip(spec.dilation, sizes, strict=True))
    product = 5 * (dot_error(inner) + dot_error(len(taps)) + 16 * UNIT * (1.0 + largest))
    nearby = 8 * len(sizes) * UNIT * (max(sizes) + 1.0 + largest)
    lost = math.sqrt(count) * (product + dot_error(count)) + count * nearby
    return GramPolynomial(even.flatten(1), odd.flatten(1), where, order, lost * square, spec.dilation, tuple(sizes))


def _mirrored(node: tuple[int, ...], taps: Sequence[int]) -> tuple[int, ...]:
    """The node at −ω_j."""
    return tuple(-j % (2 * k - 1) for j, k in zip(node, taps, strict=True))


def _square(matrices: Tensor) -> Tensor:
    """AᵀA of each (group, n, order); numpy sees of one on a processor that it is symmetric and makes half of it."""
    if len(matrices) == 1 and matrices.device.type == "cpu":
        array = matrices[0].numpy()
        return torch.from_numpy(array.T @ array)[None]
    return matrices.mT @ matrices


def _kept_shifts(sizes: Sequence[int], spec: ConvSpec) -> list[tuple[int, ...]]:
    """Differences of two taps, one of each pair ±δ, whose distance in pixels the stride divides."""
    return [
        shift
        for shift in itertools.product(*[range(1 - k, k) for k in sizes])
        if shift >= (0,) * len(shift)
        and not any(by * d % s for by, d, s in zip(shift, spec.dilation, spec.stride, strict=True))
    ]
