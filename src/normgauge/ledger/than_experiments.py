"""Claims of Than 2025 about its experiments: Appendix E and Figures 1 to 3, measured again in experiments/than2025."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal
from normgauge.ledger.draw import Draw

claims = Family("T", "Than 2025")

claims.trained(
    "AE.fig1",
    "Figure 1, section 4.1",
    Verdict.GAUGE,
    "Norms of weights grow in training; their product reaches 10^50 in ResNet-18.",
    "ResNet-18 is normalized, so the product is a choice of scale: 10^−62 to 10^27 under five optimizers at 71 to 76 % "
    "test accuracy (10^37 with Frobenius norms), 10^50 not met; the MLP without normalizers ends at 10^6.5.",
    "than2025/fig1",
)
claims.trained(
    "AE.fig2",
    "Figure 2, section 4.2",
    Verdict.GAUGE,
    "Variances before BatchNorm grow above 1, and Π1/σ over ResNet-18's 20 layers is about 10^−25.",
    "The reduction of channels to one σ is not named. Ours: 10^−18 (largest σ) at best, 10^+14 (rms) in the stated "
    "setting; σ > 1 in 19 of 20 layers without decay, in 5 of 20 with it, at the same gap.",
    "than2025/fig2",
)
claims.trained(
    "AE.fig3",
    "Figure 3, Appendix E.2",
    Verdict.GAUGE,
    "In EfficientNet-B3 norms and variances grow through training, to huge products.",
    "Without decay P_w ends at 10^95, in the stated setting at 10^−90 (30 epochs): the products say which optimizer "
    "was used. 43 of 78 σ exceed 1 without decay, 9 of 78 with it.",
    "than2025/fig3",
)


@claims.add(
    "AE.inputs",
    "Appendix E.1",
    Verdict.HOLDS,
    "Inputs are scaled so that ‖x‖ lies in [0, 1].",
    "Pixels in [0, 1] divided by √(number of entries) do it for every image, with ‖x‖ = 1 for a white one.",
)
def inputs(draw: Draw) -> Iterator[Finding | Curve]:
    """Random images of random size, and a white one."""
    entries = 3 * draw.integer(4, 33) ** 2
    images = draw.uniform(50, entries) / math.sqrt(entries)
    yield below("largest norm of 50 images", float(images.norm(dim=1).max()), predicted=1.0)
    white = torch.ones(entries, dtype=torch.float64) / math.sqrt(entries)
    yield equal("norm of a white image", float(white.norm()), predicted=1.0)
    mean_square = float((images**2).sum(1).mean())
    yield equal("mean ‖x‖² of uniform pixels", mean_square, predicted=1 / 3, rel=0.12)


def he(draw: Draw, out: int, fan_in: int) -> Tensor:
    """He-normal weights."""
    return draw.normal(out, fan_in) * math.sqrt(2 / fan_in)


def found_norm(matrix: Tensor, steps: int = 60) -> float:
    """The spectral norm from below, by power iteration."""
    v = torch.ones(matrix.shape[1], dtype=torch.float64)
    for _ in range(steps):
        v = matrix.T @ (matrix @ (v / v.norm()))
    return float(v.norm().sqrt())


def gaussian_edge(out: int, fan_in: int) -> float:
    """√2(1 + √(out/in)): the largest singular value of He-normal weights, large sizes."""
    return math.sqrt(2) * (1 + math.sqrt(out / fan_in))


@claims.add(
    "AE.init",
    "Appendix E.1, He-normal initialization",
    Verdict.HOLDS,
    "The 10-layer MLP 3072-512×9-10 starts from He-normal weights.",
    "That start has log10 P_w 4.1 (spectral) and 14.20 (Frobenius): ‖W‖ ≈ √2(1+√(out/in)), ‖W‖_F ≈ √(2·out). So have "
    "3×3 convolutions, in and out their channels: 2.8 for 64→64, 8.0 for 3→64.",
)
def init(draw: Draw) -> Iterator[Finding | Curve]:
    """Weights of the sizes used; two of the eight equal layers stand for all.

    Every tolerance is six standard deviations and the bias of 200 draws: finite matrices scatter around their limit.
    """
    first, last = he(draw, 512, 3072), he(draw, 10, 512)
    hidden = [he(draw, 512, 512) for _ in range(2)]
    start, middle, other, end = (found_norm(w) for w in (first, *hidden, last))
    yield equal("norm of the first layer", start, predicted=gaussian_edge(*first.shape), rel=0.04)
    yield equal("norm of a hidden layer", middle, predicted=gaussian_edge(*hidden[0].shape), rel=0.06)
    yield equal("norm of the last layer", end, predicted=gaussian_edge(*last.shape), rel=0.15)
    spectral = math.log10(start) + 4 * math.log10(middle) + 4 * math.log10(other) + math.log10(end)
    yield equal("log10 P_w", spectral, predicted=4.09, rel=0.04)
    lengths = [math.log10(float(w.norm())) for w in (first, hidden[0], last)]
    yield equal("log10 P_w, Frobenius", lengths[0] + 8 * lengths[1] + lengths[2], predicted=14.20, rel=0.01)
    for out, channels, n, spread in ((64, 64, 8, 0.1), (64, 3, 16, 0.25)):
        found = conv_norm(draw, channels, out, n)
        what = f"norm of a convolution {channels}→{out}, circular on {n}×{n}"
        yield equal(what, found, predicted=gaussian_edge(out, channels), rel=spread)


def conv_norm(draw: Draw, channels: int, out: int, n: int) -> float:
    """The norm of a He-normal 3×3 convolution with circular padding on n×n, exactly."""
    kernel = draw.normal(out, channels, 3, 3) * math.sqrt(2 / (9 * channels))
    symbol = torch.fft.fft2(kernel, s=(n, n))[..., : n // 2 + 1].permute(2, 3, 0, 1)  # conjugate frequencies are alike
    gram = symbol.mH @ symbol
    return float(torch.linalg.eigvalsh(gram).max().sqrt())
