"""The waves of a twisted circulant whose gain exceeds a level, and a proof that no others do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import TINY, eigenvalue_error
from normgauge.instrument.spectral.conv_operator import ConvSpec
from normgauge.instrument.spectral.dense import frobenius_norms, gram, proved_below
from normgauge.instrument.spectral.random_start import batched_lanczos
from normgauge.instrument.spectral.symbol import (
    GramPolynomial,
    Twist,
    by_values_pays,
    frequencies,
    gram_polynomial,
    pair_counts,
    symbol,
    value_products,
)
from normgauge.instrument.trace.place import is_out_of_memory

CHUNK_ENTRIES, CHUNK_AFAR = 1 << 20, 1 << 22
"""Complex numbers held at once, in main memory and on a device; larger symbols are walked in pieces.

Main memory of 16 MB is used again from piece to piece; much more would come as fresh pages each time.
"""

KEPT_ENTRIES = 12_000_000
"""Complex numbers of Gram matrices kept for a second look at another level."""

SCREENING, PROMISING, FIRST_GUESS = 4, 8, 16
"""Power iterations for all blocks, how many of them get Lanczos steps, and how many steps at first."""

EIGEN_WORK = 2e8
"""Most Σ order³ spent on diagonalizing blocks: about half a second of one core."""


@dataclass(frozen=True, slots=True)
class Waves:
    """Eigenvectors of the circulant's CᴴC above ``level``; the rest of the spectrum is proved to lie at or below.

    Attributes:
        level: proved bound of everything else.
        values: (count,) eigenvalues, rounded up.
        vectors: (count, aliases·channels of the group), unit.
        groups: (count,) the channel group of each.
        angles: (count, alias, axis), the frequency of each.
        pairs: (count,) 2 where −ω is another frequency, whose conjugate wave is not listed, else 1.
    """

    level: float
    values: Tensor
    vectors: Tensor
    groups: Tensor
    angles: Tensor
    pairs: Tensor

    @property
    def top(self) -> float:
        """Bound of the circulant's squared norm."""
        return max(self.level, float(self.values.max())) if len(self.values) else self.level


def is_right(weight: Tensor, base: ConvSpec) -> bool:
    """Whether the blocks' shorter side, where the waves live, is the layer's input."""
    return weight.shape[0] // base.groups >= weight.shape[1] * math.prod(base.stride)


@dataclass(frozen=True, slots=True)
class Grams:
    """Gram matrices of a piece of the symbol.

    Attributes:
        product: (frequency·group, order, order).
        error: bounds of their errors.
        waves: the frequencies.
        pairs: `pair_counts` of them.
        known: levels below which each is proved to lie already; written as they are proved.
    """

    product: Tensor
    error: Tensor
    waves: Tensor
    pairs: Tensor
    known: Tensor

    def above(self, level: float) -> Tensor:
        """Indices of the blocks that Cholesky does not prove to lie below a level."""
        index = (self.known > level).nonzero()[:, 0]
        product = self.product if len(index) == len(self.product) else self.product[index]
        proved = _in_halves(product, level - self.error[index])
        self.known[index[proved]] = level
        return index[~proved]


def _in_halves(product: Tensor, level: Tensor) -> Tensor:
    """`proved_below`, of half as many matrices at a time where memory runs out.

    Raises:
        RuntimeError: torch's own, where one matrix is too much already.
        MemoryError: likewise.
    """
    try:
        return proved_below(product, level)
    except (RuntimeError, MemoryError) as failure:
        if len(product) < 2 or not is_out_of_memory(failure):
            raise
    middle = len(product) // 2
    return torch.cat([_in_halves(product[part], level[part]) for part in (slice(middle), slice(middle, None))])


def whole_polynomial(weight: Tensor, base: ConvSpec, twist: Twist) -> GramPolynomial | None:
    """The polynomial of the Gram matrices, the same for every twist; None where the blocks themselves are cheaper.

    Compared are multiplications for each of their entries.
    """
    aliases, taps, right = math.prod(base.stride), math.prod(weight.shape[2:]), is_right(weight, base)
    if right and aliases > 1:
        return None
    order, inner = (weight.shape[0] // base.groups, weight.shape[1])
    if right:
        order, inner = inner, order
    waves = math.prod(twist.sizes) / aliases / 2
    terms = math.prod(2 * k - 1 for k in weight.shape[2:]) / aliases / 2
    sampled = by_values_pays(order, inner, weight.shape[2:], base.stride)
    made = 2 * value_products(weight.shape[2:]) if sampled else taps**2 / aliases
    cheaper = made * inner + 4 * waves * terms < waves * aliases * inner * (8 + 4 * taps / order)
    return gram_polynomial(weight, base, right=right) if cheaper else None


def gram_pieces(
    weight: Tensor, base: ConvSpec, twist: Twist, whole: GramPolynomial | None = None, *, once: bool = False
) -> Callable[[], Iterable[Grams]]:
    """Walks over the Gram matrices of all blocks over their shorter side.

    They are kept between walks where they are few and wanted more than ``once``. Where memory runs out, pieces are
    halved.
    """
    waves = frequencies(twist, base.stride, weight.device)
    order = min(weight.shape[0] // base.groups, weight.shape[1] * math.prod(base.stride))
    entries = base.groups * order**2
    per_wave = entries if whole is not None else weight.shape[0] * weight.shape[1] * math.prod(base.stride)

    def walk() -> Iterator[Grams]:
        chunk = CHUNK_ENTRIES if weight.device.type == "cpu" else CHUNK_AFAR
        size, left = max(1, chunk // per_wave), waves
        while len(left):
            try:
                piece = made(left[:size])
            except (RuntimeError, MemoryError) as failure:
                if size == 1 or not is_out_of_memory(failure):
                    raise
                size //= 2
                continue
            yield piece
            left = left[size:]

    def made(some: Tensor) -> Grams:
        if whole is not None:
            product = whole.at(some)
            error = product.real.new_full((len(product),), whole.error)
        else:
            part = symbol(weight, base, some)
            blocks = part.blocks.flatten(0, 1)
            product, error = gram(blocks)
            error = error + 2 * frobenius_norms(blocks) * part.error + part.error**2
        return Grams(product, error, some, pair_counts(base.stride, some), frobenius_norms(product) + error)

    if once or len(waves) * entries > KEPT_ENTRIES:
        return walk
    kept = list(walk())
    return lambda: kept


def waves_above(pieces: Callable[[], Iterable[Grams]], level: float) -> Waves | None:
    """All waves of the circulant with eigenvalue above ``level``, one of each pair ±ω; None if that is too much work.

    A block whose Gram matrix M has ‖M‖_F ≤ level, or for which Cholesky proves M ≼ level·I, has none. The others are
    diagonalized: M ≼ level·I + Σ_j (λ_j − level)₊ w_j w_jᴴ up to the backward error 16 n u ‖M‖, added to level and λ_j.

    Args:
        pieces: the Gram matrices.
        level: squared norm above which to look.
    """
    parts: list[tuple[Tensor, ...]] = []
    slack, work = 0.0, 0.0
    for piece in pieces():
        product, error = piece.product, piece.error
        if 4 * product.shape[-1] ** 3 > EIGEN_WORK:
            return None
        index = piece.above(level)
        work += len(index) * product.shape[-1] ** 3
        if work > EIGEN_WORK:
            return None
        lam, vec = torch.linalg.eigh(product[index])
        room = error[index] + eigenvalue_error(product.shape[-1]) * lam[:, -1]
        slack = max([slack, *room.tolist()])
        lam = lam + room[:, None]
        at, which = (lam > level).nonzero(as_tuple=True)
        groups = len(product) // len(piece.waves)
        where, group = index[at] // groups, index[at] % groups
        parts.append((lam[at, which], vec[at, :, which], group, piece.waves[where], piece.pairs[where]))
    return Waves(level + slack, *(torch.cat(column) for column in zip(*parts, strict=True)))


def circulant_top(pieces: Callable[[], Iterable[Grams]], least: float, slack: float = 0.0) -> float:
    """A bound of the circulant's squared norm, not below ``least``: power iterations guess it, Cholesky proves it.

    With ``slack`` the level tried is so much above the guess, and fewer pieces have to be proved again.
    """
    top = least
    for piece in pieces():
        steps = FIRST_GUESS
        left = piece.above(top) if top else torch.arange(len(piece.product), device=piece.product.device)
        while len(left):
            guess = _guess(piece.product, left, steps) + 2 * float(piece.error[left].max())
            top = max(top, guess * (1.0 + slack + 1e-4 * steps / FIRST_GUESS))
            left, steps = piece.above(top), 2 * steps
    return top


def _guess(product: Tensor, index: Tensor, steps: int) -> float:
    """A value a little below the largest eigenvalue of some Hermitian matrices of a batch; proves nothing.

    A few power iterations for all of them show which are the largest, and these get Lanczos steps.
    """
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(product.shape[-1], 1, generator=generator, dtype=torch.float64).to(product)
    product = product if len(index) == len(product) else product[index]
    vector = start.expand(len(product), -1, -1)
    for _ in range(SCREENING):
        vector = product @ vector
        size = torch.linalg.vector_norm(vector, dim=1, keepdim=True)
        vector = torch.where(size > 0, vector / size.clamp_min(TINY), start)  # a matrix of zeros keeps its start
    largest = size.flatten().topk(min(PROMISING, len(size))).indices
    product, vector = product[largest], vector[largest]
    steps = min(steps, product.shape[-1])
    basis, images, _ = batched_lanczos(lambda x: (product @ x.mT).mT, vector.mT, steps)
    small = basis.conj() @ images.mT
    return float(torch.linalg.eigvalsh((small + small.mH) / 2)[..., -1].max())
