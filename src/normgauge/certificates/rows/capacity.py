"""The classical rows: capacity by counting weights or multiplying norms. Nearly always vacuous, and they say why."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.certificates.bounds import bartlett2017, bartlett2019, neyshabur2018
from normgauge.certificates.bounds.margin import log_rademacher, log_rademacher_2015, rademacher_bound
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import samples_needed
from normgauge.certificates.case import Case
from normgauge.certificates.conditions import TRAIN
from normgauge.certificates.facts.chain import BrokenChainError, MatrixChain, read_chain
from normgauge.certificates.facts.sample import DataSample
from normgauge.core.certificate import Consumed, Row, RowKind, promised_row
from normgauge.render.numbers import format_above

TRIES = 50  # margins tried: quantiles of those on D, up to the median
LARGEST = 10**30  # samples; beyond that no size is worth naming
ADVICE = "the norm rows need linear layers, ReLU and BatchNorm in a row, as in nn.Sequential"
MAX_POOL = "max pooling mixes numbers, and the proof needs activations of single numbers; average pooling would do"
MARGIN = "R̂_γ + {}, γ and the norms on grids that share δ"


@dataclass(frozen=True, slots=True)
class Norms:
    """What the norm bounds need to know about D.

    Attributes:
        margins: (m,) in increasing order.
        log_data: ln ‖X‖_F, the constant coordinate included.
        log_norm: ln of the largest norm of an input.
    """

    margins: Tensor
    log_data: float
    log_norm: float

    @property
    def m(self) -> int:
        """The number of samples."""
        return len(self.margins)

    def error(self, gamma: float) -> float:
        """Share of the samples with a margin of at most γ."""
        return int(torch.searchsorted(self.margins, gamma, right=True)) / self.m

    def gammas(self) -> list[float]:
        """Positive margins to try, up to the median: beyond it R̂_γ alone is above one half."""
        places = torch.linspace(0, (self.m - 1) // 2, TRIES).long()
        found = [float(self.margins[i]) for i in dict.fromkeys(places.tolist())]
        return [math.nextafter(gamma, 0.0) for gamma in found if gamma > 0]


UNITS = {"capacity.golowich": log_rademacher, "capacity.neyshabur2015": log_rademacher_2015}


def margin_bound(key: str, chain: MatrixChain, norms: Norms, gamma: float, classes: int, m: int, delta: float) -> Parts:
    """The bound of one margin row at ``m`` samples, all else equal."""
    error, log_data = norms.error(gamma), norms.log_data + math.log(m / norms.m) / 2  # ‖X‖_F grows with √m
    if key in UNITS:
        unit = UNITS[key](log_data, len(chain.links), m)
        return rademacher_bound(error, unit, chain.log_frobenius - math.log(gamma), classes, m, delta)
    size = chain.log_product - math.log(gamma)
    if key == "capacity.bartlett2017":
        ratios = [_ratio(link.log_rows, link.log_spectral) for link in chain.links]
        return bartlett2017.spectral_margin_bound(error, size, ratios, log_data, chain.width, m, delta)
    ratios = [_ratio(link.log_frobenius, link.log_spectral) for link in chain.links]
    return neyshabur2018.spectral_pac_bayes_bound(error, size, norms.log_norm, ratios, chain.width, m, delta)


def _ratio(log_norm: float, log_spectral: float) -> float:
    return log_norm - log_spectral if log_spectral > -math.inf else 0.0  # a matrix of zeros


BLANK = Row(
    "capacity.",
    "",
    "capacity",
    RowKind.NOT_APPLICABLE,
    consumed=(Consumed.TRAIN_LABELS,),
    additive=True,
    reason="not computed",
)
VC = dataclasses.replace(
    BLANK,
    key="capacity.vc",
    name="VC dimension",
    source="Bartlett, Harvey, Liaw & Mehrabian 2019, Theorem 7; K classes by K − 1 comparisons",
    formula="R̂ + √((2·VC·ln(2em/VC) + ln(2/δ))/m),  VC ≤ L + L̄W log2(4es·log2(2es)), s = Σ i·k_i",
)
MARGIN_ROWS = (
    dataclasses.replace(
        BLANK,
        key="capacity.neyshabur2015",
        name="Frobenius norms, Neyshabur et al.",
        source="Neyshabur, Tomioka & Srebro 2015; Kuznetsov, Mohri & Syed 2014",
        formula=MARGIN.format("(4K/γ) 2^(d−1) ∏‖W_j‖_F ‖X‖_F/m + 3√(ln(2/δ)/2m)"),
    ),
    dataclasses.replace(
        BLANK,
        key="capacity.golowich",
        name="Frobenius norms, Golowich et al.",
        source="Golowich, Rakhlin & Shamir 2018, Theorem 1; Kuznetsov, Mohri & Syed 2014",
        formula=MARGIN.format("(4K/γ)(√(2 ln2·d) + 1) ∏‖W_j‖_F ‖X‖_F/m + 3√(ln(2/δ)/2m)"),
    ),
    dataclasses.replace(
        BLANK,
        key="capacity.bartlett2017",
        name="Spectral norms",
        source="Bartlett, Foster & Telgarsky 2017, with all constants",
        formula=MARGIN.format(
            "72√2 ‖X‖_F √(ln 2W²) ln(m)/(γm) ∏s_i (Σ(b_i/s_i)^(2/3))^(3/2) + 8/m^1.5 + 3√(ln(2/δ)/2m)"
        ),
    ),
    dataclasses.replace(
        BLANK,
        key="capacity.neyshabur2018",
        name="Spectral norms by PAC-Bayes",
        source="Neyshabur, Bhojanapalli & Srebro 2018, with all constants",
        formula=MARGIN.format(
            "4√((KL + ln(d·m^(1/2d)) + ln(12m/δ))/(m−1)) + ln(2/δ)/m, KL ≤ 42²e²d²B²h ln(4dh) ∏s_i² Σ(F_i/s_i)²/(2γ²)"
        ),
    ),
)
WEIGHT_NORM = dataclasses.replace(
    BLANK,
    key="capacity.cisneros2025",
    name="Weight normalization",
    reason="it is about networks with WeightNorm and smooth activations, and its constant is not published",
    source="Cisneros-Velarde et al. 2025",
    formula="O(ρ₁²√L/√m)",
)


def capacity_rows(case: Case) -> Iterator[Row]:
    """VC, two rows of Frobenius norms, two of spectral norms, and the one for weight normalization."""
    margins = case.margins.sort().values
    try:
        chain = read_chain(case.model, case.train)
    except BrokenChainError as error:
        for row in (VC, *MARGIN_ROWS):
            yield dataclasses.replace(row, reason=f"{error}; {ADVICE}")
    else:
        yield vc_row(case, chain, margins)
        norms = Norms(margins, *data_norms(case.train, constant=chain.constant))
        for row in MARGIN_ROWS:
            yield margin_row(case, chain, norms, row)
    yield WEIGHT_NORM


def vc_row(case: Case, chain: MatrixChain, margins: Tensor) -> Row:
    """The row that counts weights."""
    weights = [link.weights for link in chain.links]
    units = [link.units for link in chain.links[:-1]] + [max(1, case.classes - 1)]
    vc = bartlett2019.vc_dimension(weights, units)
    error = float((margins <= 0).double().mean())
    found = bartlett2019.vc_dimension_bound(error, vc, case.m, case.delta)
    why = f"the VC dimension is only known to be at most {format_above(vc)}, with {case.m} samples"
    return _finished(case, VC, found, why, lambda m: bartlett2019.vc_dimension_bound(error, vc, m, case.delta).value)


def margin_row(case: Case, chain: MatrixChain, norms: Norms, row: Row) -> Row:
    """A margin row at its best margin, or with the reason why it has none."""
    frobenius = row.key in UNITS
    if frobenius and not chain.elementwise:
        return dataclasses.replace(row, reason=MAX_POOL)
    gammas = norms.gammas()
    if not gammas or case.m < 2:
        return dataclasses.replace(row, reason="more than half of D is wrong or tied: there is no margin; train longer")

    def at(gamma: float, m: int = case.m) -> Parts:
        return margin_bound(row.key, chain, norms, gamma, case.classes, m, case.delta)

    best = min(gammas, key=lambda gamma: at(gamma).value)
    log_size = (chain.log_frobenius if frobenius else chain.log_product) / math.log(10)
    which = "Frobenius" if frobenius else "spectral"
    why = (
        f"the {which} norms of {len(chain.links)} layers multiply to 10^{log_size:.2f}, "
        f"inputs have norms up to {format_above(math.exp(norms.log_norm))}, the margin is {best:.3g}"
    )
    named = dataclasses.replace(row, formula=f"{row.formula}; here γ = {best:.3g}")
    return _finished(case, named, at(best), why, lambda m: at(best, m).value)


def _finished(case: Case, row: Row, found: Parts, why: str, at: Callable[[int], float]) -> Row:
    vacuous = not found.value < row.limit
    filled = dataclasses.replace(
        row,
        value=found.value,
        terms=found.terms,
        kind=RowKind.VACUOUS,
        confidence=1 - case.delta,
        reason=f"{found.value:.3g}: {why}" if vacuous else "",
        needed=samples_needed(at, case.m, row.limit, LARGEST) if vacuous else None,
    )
    return promised_row(filled, condition=TRAIN)


def data_norms(sample: DataSample, *, constant: bool) -> tuple[float, float]:
    """Ln ‖X‖_F and ln max‖x‖ in float64, batch by batch, with one more coordinate that is 1 where asked."""
    total, largest = 0.0, 0.0
    for inputs in sample.batches():
        squares = inputs.flatten(1).double().square().sum(1) + float(constant)
        total += float(squares.sum())
        largest = max(largest, float(squares.max()))
    room = 1e-12
    return (
        math.log(total) / 2 + room if total > 0 else -math.inf,
        math.log(largest) / 2 + room if largest > 0 else -math.inf,
    )
