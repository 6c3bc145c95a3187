"""Our own claims on convolutions: operator norms by the symbol, against the dense matrix of the layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import norm
from normgauge.spectral.conv import conv_norm
from normgauge.spectral.conv_operator import ConvSpec

claims = Family("X", "normgauge")


def dense(linear: Callable[[Tensor], Tensor], *shape: int) -> Tensor:
    """The matrix of a linear map of tensors of a shape: its images of the basis, as columns."""
    basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    return linear(basis).flatten(1).T


def circular(kernel: Tensor, x: Tensor, stride: int = 1, dilation: int = 1) -> Tensor:
    """Convolution with circular padding that keeps the size."""
    reach = (kernel.shape[-1] - 1) * dilation
    return F.conv2d(F.pad(x, (0, reach, 0, reach), mode="circular"), kernel, stride=stride, dilation=dilation)


def symbols(kernel: Tensor, n: int) -> Tensor:
    """K̂(ω) at the n×n frequencies, (n, n, out, in)."""
    return torch.fft.fft2(kernel, s=(n, n)).permute(2, 3, 0, 1)


def circ(kernel: Tensor, n: int) -> float:
    """max over the n×n frequencies of ‖K̂(ω)‖."""
    return float(torch.linalg.matrix_norm(symbols(kernel, n), 2).max())


def drawn(draw: Draw, size: int = 3) -> Tensor:
    """A random kernel of one to three channels."""
    return draw.normal(draw.integer(1, 4), draw.integer(1, 4), size, size)


@claims.add(
    "conv.circular",
    "convolutions",
    Verdict.HOLDS,
    "With circular padding the norm of a convolution is the largest ‖K̂(ω)‖ over the n×n frequencies.",
    "Exactly (Sedghi, Gupta & Long): the discrete Fourier transform makes the operator block diagonal.",
    backs=("normgauge.spectral.symbol.symbol",),
)
def conv_circular(draw: Draw) -> Iterator[Finding | Curve]:
    """The dense matrix."""
    kernel, n = drawn(draw), draw.integer(3, 9)
    truth = norm(dense(lambda x: circular(kernel, x), kernel.shape[1], n, n))
    yield equal("norm", truth, predicted=circ(kernel, n))


@claims.add(
    "conv.zeropad",
    "convolutions",
    Verdict.HOLDS,
    "With zero padding p the norm is at most the circular one on n + 2p.",
    "The layer is a crop of that one. 3×3 on n = 4 to 12: 31 to 4 % too large at most; the enclosure used "
    "here is tighter.",
    backs=("conv.convolution", "normgauge.spectral.conv.conv_norm"),
)
def conv_zeropad(draw: Draw) -> Iterator[Finding | Curve]:
    """The dense matrix under the bound and inside the enclosure; a kernel of one tap attains it."""
    kernel, n = drawn(draw), draw.integer(3, 9)
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1), kernel.shape[1], n, n))
    yield below("norm", truth, predicted=circ(kernel, n + 2))
    found = conv_norm(kernel, ConvSpec((n, n), padding=((1, 1), (1, 1)))).log
    yield below("norm, against the enclosure's upper end", truth, predicted=math.exp(found.hi))
    yield below("the enclosure's lower end, against the norm", math.exp(found.lo), predicted=truth)
    tap = torch.zeros_like(kernel)
    tap[:, :, 1, 1] = kernel[:, :, 1, 1]
    exact = norm(dense(lambda x: F.conv2d(x, tap, padding=1), kernel.shape[1], n, n))
    yield equal("norm of a kernel with one tap", exact, predicted=circ(tap, n + 2))
    side = 10 * n
    wide = circ(torch.tensor([[[[1.0, 2.0, 1.0]]]], dtype=torch.float64), side)
    line = norm(dense(lambda x: F.conv2d(x, torch.tensor([[[[1.0, 2.0, 1.0]]]]).double(), padding=(0, 1)), 1, 1, side))
    yield equal("(1, 2, 1) on a long line, against the circular norm", line, predicted=wide, rel=0.02)


@claims.add(
    "conv.size",
    "convolutions",
    Verdict.WRONG,
    "The circular norm on n×n is an upper bound for a zero-padded convolution (a common shortcut).",
    "No: (−1, 2, −1) in both directions, n odd, has norm (2+2cos(π/(n+1)))², above (2+2cos(π/n))². Take n + 2p.",
)
def conv_size(draw: Draw) -> Iterator[Finding | Curve]:
    """The second difference, times a random number, on odd sizes."""
    n, scale = 2 * draw.integer(1, 5) + 1, float(draw.uniform(1, low=0.2, high=5.0))
    taps = torch.tensor([-1.0, 2.0, -1.0], dtype=torch.float64)
    kernel = scale * torch.outer(taps, taps)[None, None]
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1), 1, n, n))
    yield exceeds("norm with zero padding", truth, published=circ(kernel, n))
    yield equal("the same", truth, predicted=scale * (2 + 2 * math.cos(math.pi / (n + 1))) ** 2)
    yield below("the same, against the circular norm on n + 2", truth, predicted=circ(kernel, n + 2))
    sizes = tuple(range(3, 20))
    one = kernel / scale
    lines = (
        ("circular on n", tuple(circ(one, k) for k in sizes)),
        ("zero padding", tuple((2 + 2 * math.cos(math.pi / (k + 1))) ** 2 for k in sizes)),
        ("circular on n + 2", tuple(circ(one, k + 2) for k in sizes)),
    )
    yield Curve("Norm of a second difference on n×n", "n", "norm", sizes, lines)


def rotated(angle: float) -> Tensor:
    """A real 2×2 matrix that acts as e^{iθ}."""
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


@claims.add(
    "conv.symbol",
    "convolutions",
    Verdict.HOLDS,
    "For every input size at once the norm is at most circ_N / cos²(π(k−1)/(2N)).",
    "A trigonometric polynomial between grid points; attained by cos(ω − π/N) in both directions, N even.",
)
def conv_symbol(draw: Draw) -> Iterator[Finding | Curve]:
    """Random kernels on a fine grid; the extremal one exactly between two grid points."""
    kernel, n = drawn(draw), draw.integer(4, 12)
    yield below("largest symbol on a fine grid", circ(kernel, 60), predicted=circ(kernel, n) * between(3, n))
    even = 2 * (n // 2)
    shift = math.pi / even
    line = torch.stack([rotated(-shift) / 2, torch.zeros(2, 2, dtype=torch.float64), rotated(shift) / 2], -1)
    extremal = torch.einsum("abi,cdj->acbdij", line, line).reshape(4, 4, 3, 3)
    top = circ(extremal, 4 * even)  # contains ω = π/N
    yield equal("fine over coarse, extremal kernel", top / circ(extremal, even), predicted=between(3, even))


def between(k: int, n: int) -> float:
    """1/cos²(π(k−1)/(2N)): how much larger a symbol of k×k taps can be between the points of an N×N grid."""
    return math.cos(math.pi * (k - 1) / (2 * n)) ** -2


@claims.add(
    "conv.stride",
    "convolutions",
    Verdict.HOLDS,
    "With stride s the circular norm is max over coarse frequencies of ‖[K̂(ω_1) | … | K̂(ω_{s²})]‖/s.",
    "Exactly, s dividing N: the s² frequencies that fall on one another stand side by side.",
)
def conv_stride(draw: Draw) -> Iterator[Finding | Curve]:
    """The dense matrix of strided circular convolutions; zero padding stays below."""
    kernel, s = drawn(draw), draw.integer(2, 4)
    n = s * draw.integer(2, 4)
    truth = norm(dense(lambda x: circular(kernel, x, stride=s), kernel.shape[1], n, n))
    yield equal("norm", truth, predicted=aliased(kernel, n, s))
    inner = n - 2
    cropped = norm(dense(lambda x: F.conv2d(x, kernel, padding=1, stride=s), kernel.shape[1], inner, inner))
    yield below("with zero padding", cropped, predicted=aliased(kernel, n, s))


def aliased(kernel: Tensor, n: int, s: int) -> float:
    """The formula with the aliased frequencies side by side."""
    fine = symbols(kernel, n)
    coarse = n // s
    parts = [fine[a * coarse : (a + 1) * coarse, b * coarse : (b + 1) * coarse] for a in range(s) for b in range(s)]
    return float(torch.linalg.matrix_norm(torch.cat(parts, -1), 2).max()) / s


@claims.add(
    "conv.dilation",
    "convolutions",
    Verdict.HOLDS,
    "Dilation inserts zeros into the kernel; then the other formulas apply.",
    "Exactly for circular padding, and as a bound on n + 2p for zero padding.",
)
def conv_dilation(draw: Draw) -> Iterator[Finding | Curve]:
    """Dense matrices of dilated layers."""
    kernel, d = drawn(draw), draw.integer(2, 4)
    n = draw.integer(2 * d + 1, 2 * d + 4)
    spread = torch.zeros(*kernel.shape[:2], 2 * d + 1, 2 * d + 1, dtype=torch.float64)
    spread[..., ::d, ::d] = kernel
    truth = norm(dense(lambda x: circular(kernel, x, dilation=d), kernel.shape[1], n, n))
    yield equal("norm, circular", truth, predicted=circ(spread, n))
    zero = norm(dense(lambda x: F.conv2d(x, kernel, padding=d, dilation=d), kernel.shape[1], n, n))
    yield below("norm, zero padding", zero, predicted=circ(spread, n + 2 * d))


@claims.add(
    "conv.groups",
    "convolutions",
    Verdict.HOLDS,
    "The norm of a grouped convolution is the largest over its groups.",
    "Exactly: groups do not touch one another.",
)
def conv_groups(draw: Draw) -> Iterator[Finding | Curve]:
    """The dense matrix of the whole against those of the groups."""
    groups, inside, out, n = draw.integer(2, 5), draw.integer(1, 3), draw.integer(1, 3), draw.integer(3, 6)
    kernel = (
        draw.normal(groups * out, inside, 3, 3)
        * draw.uniform(groups, low=0.3, high=2.0).repeat_interleave(out)[:, None, None, None]
    )
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1, groups=groups), groups * inside, n, n))
    alone = [norm(dense(partial(F.conv2d, weight=k, padding=1), inside, n, n)) for k in kernel.split(out)]
    yield equal("norm", truth, predicted=max(alone))


@claims.add(
    "conv.transposed",
    "convolutions",
    Verdict.HOLDS,
    "A transposed convolution has the norm of the convolution it is the adjoint of, on the output's size.",
    "Exactly, with the same weights, stride, padding and dilation.",
)
def conv_transposed(draw: Draw) -> Iterator[Finding | Curve]:
    """Dense matrices of both."""
    kernel, s, n = drawn(draw), draw.integer(1, 3), draw.integer(3, 6)
    up = dense(lambda x: F.conv_transpose2d(x, kernel, stride=s, padding=1), kernel.shape[0], n, n)
    side = math.isqrt(up.shape[0] // kernel.shape[1])
    down = dense(lambda x: F.conv2d(x, kernel, stride=s, padding=1), kernel.shape[1], side, side)
    yield equal("norm", norm(up), predicted=norm(down))
    yield equal("adjoint, entry by entry", float((up - down.T).abs().max()), predicted=0.0, scale=norm(down))


@claims.add(
    "conv.reflect",
    "convolutions",
    Verdict.HOLDS,
    "With reflecting padding the norm is at most 2 times the largest symbol.",
    "A pixel appears up to four times, √4 = 2; the factor cannot be left out: a kernel of ones exceeds its symbol's 9.",
)
def conv_reflect(draw: Draw) -> Iterator[Finding | Curve]:
    """Dense matrices with reflected borders; the padding alone attains its 2."""
    kernel, n = drawn(draw), draw.integer(4, 9)

    def reflected(k: Tensor) -> float:
        return norm(dense(lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), k), k.shape[1], n, n))

    yield below("norm", reflected(kernel), predicted=2 * circ(kernel, 60))
    ones = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    yield exceeds("norm of a kernel of ones, against its symbol", reflected(ones), published=circ(ones, 60))
    padding = norm(dense(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), 1, n, n))
    yield equal("norm of the padding alone", padding, predicted=2.0)


@claims.add(
    "conv.reshaped",
    "convolutions",
    Verdict.WRONG,
    "The norm of the kernel as a matrix (out × in·k²) is the norm of the convolution (a common shortcut).",
    "It is a lower bound, n ≥ k; k times it is an upper one. A kernel of ones: 3 against 9.",
)
def conv_reshaped(draw: Draw) -> Iterator[Finding | Curve]:
    """The dense matrix between both; a kernel of ones at the upper end, one tap at the lower."""
    kernel, n = drawn(draw), draw.integer(5, 9)
    flat = norm(kernel.flatten(1))
    truth = norm(dense(lambda x: F.conv2d(x, kernel, padding=1), kernel.shape[1], n, n))
    yield below("the reshaped kernel's norm", flat, predicted=truth)
    yield below("norm", truth, predicted=3 * flat)
    ones = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    around = norm(dense(lambda x: circular(ones, x), 1, n, n))
    yield exceeds("norm of a kernel of ones, circular", around, published=norm(ones.flatten(1)))
    yield equal("the same", around, predicted=3 * norm(ones.flatten(1)))


@claims.add(
    "conv.gram",
    "certified norms without singular values",
    Verdict.HOLDS,
    "t squarings M ← MᵀM give ‖M_t‖_F^(2^−t), above the norm by at most rank^(2^−(t+1)); power iteration is below it.",
    "The rank factor is attained by orthogonal matrices. After 8 steps 1e-3 for Gaussian ones.",
    backs=("normgauge.spectral.dense.dense_norm",),
)
def conv_gram(draw: Draw) -> Iterator[Finding | Curve]:
    """A Gaussian matrix, step by step; an orthogonal one."""
    rows, columns = draw.integer(20, 60), draw.integer(10, 40)
    matrix, steps = draw.normal(rows, columns), 8
    truth, rank = norm(matrix), min(rows, columns)
    uppers = squared(matrix, steps)
    for t in (1, 4, steps):
        yield below(f"norm, against step {t}", truth, predicted=uppers[t])
        yield below(f"step {t}, against the rank factor", uppers[t], predicted=truth * rank ** (2.0 ** -(t + 1)))
    n = draw.integer(10, 64)
    exact = squared(draw.orthogonal(n), steps)[-1]
    yield equal("step 8 of an orthogonal matrix", exact, predicted=n ** (2.0 ** -(steps + 1)))
    v, powers = draw.normal(columns), []
    for _ in range(steps + 1):
        v = v / v.norm()
        powers.append(float((matrix @ v).norm()))
        v = matrix.T @ (matrix @ v)
    yield below("power iteration, against the norm", max(powers), predicted=truth)
    lines = (("Gram", tuple(u / truth for u in uppers)), ("power iteration", tuple(p / truth for p in powers)))
    yield Curve("Norm found over true norm", "steps", "ratio", tuple(range(steps + 1)), lines)


def squared(matrix: Tensor, steps: int) -> list[float]:
    """‖M_t‖_F^(2^−t) for t = 0 … steps, kept in range by a running logarithm."""
    log, found = 0.0, []
    for t in range(steps + 1):
        size = float(matrix.norm())
        found.append(math.exp((log + math.log(size)) * 2.0**-t))
        matrix = matrix / size
        log, matrix = 2 * (log + math.log(size)), matrix.T @ matrix
    return found
