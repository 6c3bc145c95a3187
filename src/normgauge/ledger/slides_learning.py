"""Claims of Than's slides of 2023: learning theory, from the decomposition of the error to Theorem 1 and the rates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, exceeds, refutes, shown
from normgauge.ledger.draw import Draw

claims = Family("S", "Than 2023")
DELTA = 0.1


@claims.add(
    "decomposition",
    "slide on errors of a trained model",
    Verdict.HOLDS,
    "The estimation error is at most the optimization error plus twice the largest generalization gap.",
    "True for every class and sample; the 2 is needed: attained when the gaps of h_o and h* are opposite.",
)
def decomposition(draw: Draw) -> Iterator[Finding | Curve]:
    """A finite class with any losses; then two models whose gaps are opposite."""
    models = draw.integer(3, 12)
    true, seen = draw.uniform(models), draw.uniform(models)
    chosen = draw.integer(0, models)
    error = float(true[chosen] - true.min())
    optimization = float(seen[chosen] - seen.min())
    yield below("estimation error", error, predicted=optimization + 2 * float((true - seen).abs().max()))
    gap = float(draw.uniform(1, low=0.1, high=0.4))
    true, seen = torch.tensor([0.5 + gap, 0.5 - gap]).double(), torch.tensor([0.5, 0.5]).double()
    worst = float(true[0] - true.min())
    yield equal("estimation error, opposite gaps", worst, predicted=2 * float((true - seen).abs().max()), rel=1e-6)


def vc_bound(vc: float, m: float, delta: float) -> float:
    """√((2/m)·VC·ln(2em/VC) + ln(2/δ)/m), nan where what is under the root is negative."""
    inside = 2 / m * vc * math.log(2 * math.e * m / vc) + math.log(2 / delta) / m
    return math.sqrt(inside) if inside >= 0 else math.nan


@claims.add(
    "VC",
    "slide on the VC dimension",
    Verdict.HOLDS,
    "F(P) − F(D) ≤ √((2/m)VC·ln(2em/VC) + ln(2/δ)/m) with probability 1−δ.",
    "For 0-1 losses; it says something below 1 only, is largest at VC = 2m and undefined from about 2em on (ResNet-18: "
    "11 million weights against 2em = 272,000 on CIFAR-10).",
)
def vc(draw: Draw) -> Iterator[Finding | Curve]:
    """Thresholds and intervals on a line, the largest gap over the whole class, simulated; the formula's shape."""
    m, trials = draw.integer(50, 200), 200
    x = draw.uniform(trials, m).sort(1).values
    ranks = torch.arange(m, dtype=torch.float64)
    up, down = ((ranks + 1) / m - x).max(1).values, (x - ranks / m).max(1).values
    for name, gaps, dim in (("thresholds", torch.maximum(up, down), 1), ("intervals", up + down, 2)):
        misses = float((gaps > vc_bound(dim, m, DELTA)).double().mean())
        yield below(f"share of draws in which some of the {name} break it", misses, predicted=DELTA)
    values = [vc_bound(k, m, DELTA) for k in range(1, 5 * m)]
    yield equal("largest value over VC", max(values), predicted=math.sqrt(4 + math.log(2 / DELTA) / m))
    yield equal("where: VC/m", (values.index(max(values)) + 1) / m, predicted=2.0)
    yield shown("undefined for 11 million weights and 50,000 samples", math.isnan(vc_bound(11e6, 50_000, DELTA)))
    grid = tuple(10.0**k for k in range(1, 6))
    bounds = tuple(vc_bound(k, 50_000, DELTA) for k in grid)
    yield Curve(
        "VC bound, m = 50,000", "VC dimension", "bound", grid, (("bound", bounds), ("vacuous", (1.0,) * 5)), log_x=True
    )


@claims.add(
    "VC.linear",
    "slide on the VC dimension",
    Verdict.HOLDS,
    "Linear models in n dimensions have VC dimension n + 1.",
    "n+1 points in general position are shattered; n+2 never are: one affine dependence forbids its own sign pattern.",
)
def vc_linear(draw: Draw) -> Iterator[Finding | Curve]:
    """All labellings of n+1 points, solved for; the forbidden one of n+2 points."""
    n = draw.integer(2, 6)
    points = torch.cat([draw.normal(n + 1, n), torch.ones(n + 1, 1, dtype=torch.float64)], 1)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=n + 1)), dtype=torch.float64)
    solved = signs @ torch.linalg.inv(points).T
    reached = int(((solved @ points.T).sign() == signs).all(1).sum())
    yield equal("labellings of n+1 points reached", reached, predicted=2 ** (n + 1))
    more = torch.cat([points, torch.cat([draw.normal(1, n), torch.ones(1, 1, dtype=torch.float64)], 1)])
    dependence = torch.linalg.svd(more.T).Vh[-1]
    outputs = more @ draw.normal(n + 1, 500)
    forbidden = int((outputs.sign() == dependence.sign()[:, None]).all(0).sum())
    yield equal("random linear models with the forbidden labelling of n+2 points", forbidden, predicted=0, scale=1.0)
    yield equal(
        "dependence times any model's outputs",
        float((dependence @ outputs).abs().max()),
        predicted=0.0,
        scale=float(outputs.abs().max()),
    )


claims.read(
    "VC.relu",
    "slide on the VC dimension",
    Verdict.LOOSE,
    "ReLU nets with W weights have VC dimension of order W log W at least.",
    "Depth L belongs in it: c·WL·ln(W/L) ≤ VC ≤ C·WL·ln W (Bartlett et al. 2019); constants unnamed, nothing "
    "to compute.",
)


@claims.add(
    "Frobenius",
    "slide on weight norms",
    Verdict.WRONG,
    "The gap is O(Π‖W‖_F)/√m (Neyshabur et al., Golowich et al.).",
    "The size of the data belongs in it, Π‖W‖_F·‖X‖_F/m, and √depth or a margin: without it the number has no units.",
)
def frobenius(draw: Draw) -> Iterator[Finding | Curve]:
    """Linear models ‖w‖ ≤ B: the Rademacher average over all signs, exactly, and with data times c."""
    m, radius, c = (
        draw.integer(4, 9),
        float(draw.uniform(1, low=0.5, high=3.0)),
        float(draw.uniform(1, low=2.0, high=9.0)),
    )
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=m)), dtype=torch.float64)
    x = draw.normal(m, draw.integer(3, 8))
    found = radius / m * float((signs @ x).norm(dim=1).mean())
    yield below("Rademacher average", found, predicted=radius * float(x.norm()) / m)
    apart = draw.orthogonal(m)
    exact = radius / m * float((signs @ apart).norm(dim=1).mean())
    yield equal("the same, orthogonal samples", exact, predicted=radius * float(apart.norm()) / m)
    larger = radius / m * float((signs @ (c * x)).norm(dim=1).mean())
    yield refutes("data times c: the average, over before", larger / found, published=1.0)
    yield equal("the same", larger / found, predicted=c)


def _spectral_average(draw: Draw, n: int) -> float:
    """(1/m)·E sup over ‖W‖ ≤ 1 of Σ ε_ij (W x_i)_j, n orthonormal samples: the mean nuclear norm of signs over n."""
    signs = draw.normal(20, n, n).sign()
    return float(torch.linalg.svdvals(signs).sum(1).mean()) / n


@claims.add(
    "spectral",
    "slide on weight norms",
    Verdict.WRONG,
    "The gap is O(Π‖W‖₂)/√m (Bartlett et al. 2017).",
    "Their bound has Π‖W_i‖·(Σ(‖W_iᵀ−M_iᵀ‖_{2,1}/‖W_i‖)^{2/3})^{3/2}, ‖X‖_F and the margin; the sum is no constant.",
)
def spectral(draw: Draw) -> Iterator[Finding | Curve]:
    """One layer of norm 1 on n orthonormal samples: complexity grows where the printed form falls."""
    n = draw.integer(8, 16)
    small, large = _spectral_average(draw, n), _spectral_average(draw, 4 * n)
    yield refutes("Rademacher average, four times the samples, over before", large / small, published=1 / math.sqrt(4))
    yield equal("the same: it grows as √n", large / small, predicted=math.sqrt(4), rel=0.1)
    rows = torch.full((n,), 1.0, dtype=torch.float64)  # an orthogonal W has rows of length 1
    yield below("average, against ‖X‖_F·‖Wᵀ‖_{2,1}/m", small, predicted=math.sqrt(n) * float(rows.sum()) / n)
    yield exceeds("average over Π‖W‖/√m", small * math.sqrt(n), published=1.0)


def slide_pac_bayes(kl: float, m: float, delta: float) -> float:
    """√((KL + ln(m/δ))/(2m−1)), as on the slide."""
    return math.sqrt((kl + math.log(m / delta)) / (2 * m - 1))


def maurer(kl: float, m: float, delta: float) -> float:
    """√((KL + ln(2√m/δ))/(2m))."""
    return math.sqrt((kl + math.log(2 * math.sqrt(m) / delta)) / (2 * m))


@claims.add(
    "McAllester",
    "slide on PAC-Bayes",
    Verdict.LOOSE,
    "E_ρ[F(P) − F(D)] ≤ √((KL(ρ‖μ) + ln(m/δ))/(2m−1)) with probability 1−δ.",
    "Implied for m ≥ 8 by √((KL + ln(2√m/δ))/(2m)) (Maurer); a mixture of two published forms. For the randomized net.",
)
def mcallester(draw: Draw) -> Iterator[Finding | Curve]:
    """Coverage with a posterior fitted to D; and the two forms beside each other."""
    m, models, trials = draw.integer(20, 100), draw.integer(5, 30), 300
    true = draw.uniform(models)
    seen = (draw.uniform(trials, m, models) < true).double().mean(1)
    posterior = torch.softmax(-m * seen, 1)
    kl = (posterior * (posterior * models).clamp_min(1e-300).log()).sum(1)
    gaps = (posterior * (true - seen)).sum(1)
    for name, form in (("the slide's form", slide_pac_bayes), ("Maurer's", maurer)):
        limits = torch.tensor([form(float(k), m, DELTA) for k in kl.clamp_min(0.0)])
        yield below(f"share of draws that break {name}", float((gaps > limits).double().mean()), predicted=DELTA)
    size, weight = draw.integer(8, 5000), float(draw.uniform(1, low=0.0, high=200.0))
    loose, tight = slide_pac_bayes(weight, size, DELTA), maurer(weight, size, DELTA)
    yield below("Maurer's, against the slide's", tight, predicted=loose, published=loose)
    split = loose**2 * (2 * size - 1) - tight**2 * 2 * size
    yield equal("what the logarithms differ by", split, predicted=math.log(math.sqrt(size) / 2), rel=1e-6)
    yield equal("slide's at m = 1000, KL = 100, δ = .05", slide_pac_bayes(100, 1000, 0.05), predicted=0.2345, rel=5e-4)
    yield equal("Maurer's there", maurer(100, 1000, 0.05), predicted=0.2315, rel=5e-4)
