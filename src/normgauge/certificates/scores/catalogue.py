"""The catalogue of scores: those made of the norms of the weights, then those of what the network does."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch.nn import functional as F

from normgauge.certificates.scores import function, norms
from normgauge.certificates.scores.flatness import score_pac_bayes, score_pac_bayes_aware
from normgauge.certificates.scores.ground import Ground
from normgauge.certificates.scores.score import Score
from normgauge.core.certificate import Consumed
from normgauge.core.errors import InputError
from normgauge.core.reading import Reading

LABELS = (Consumed.TRAIN_LABELS,)
NEYSHABUR = "Neyshabur, Bhojanapalli & Srebro 2018"
GAUGED = 'reading=ng.gauge(model, batch, scope="global")'
GAUGED_LOCALLY = 'local=ng.gauge(model, batch, scope="point") of training samples'
LN10 = math.log(10)


def _over_margin(ground: Ground) -> dict[str, float]:
    return {"log 1/γ²": -2 * math.log(ground.margin)}


def _product(squares: list[float]) -> dict[str, float]:
    return {"log Π": norms.log_product(squares)}


def _sum(squares: list[float], log_over: float = 0.0) -> dict[str, float]:
    return {"log Σ": norms.log_sum(squares, log_over)}


def _main(ground: Ground, over: list[float]) -> dict[str, float]:
    ratio = norms.ratio_sum(over, ground.spectral)
    # a network that never moved has log 0 here; the row says so
    found = _product(ground.spectral) | _over_margin(ground)
    return found | {"log Σ‖·‖_F²/‖W‖²": math.log(ratio) if ratio > 0 else -math.inf}


def _total(name: str, values: list[float]) -> dict[str, float]:
    return {name: math.fsum(values)}


def _and_over_margin(
    key: str, name: str, formula: str, squares: Callable[[Ground], list[float]]
) -> tuple[Score, Score]:
    """The product of these squared norms, and the same product divided by γ²."""
    plain = Score(key, name, formula, "half log", lambda g: _product(squares(g)))
    over = Score(
        f"{key}-margin",
        f"{name} over margin",
        f"{formula}/γ²",
        "half log",
        lambda g: _product(squares(g)) | _over_margin(g),
        LABELS,
    )
    return plain, over


def capacity_over_margin(reading: Reading | None, margin: float, *, balanced: bool, how: str) -> dict[str, float]:
    """log10 of a Lipschitz bound over γ.

    Raises:
        InputError: without a reading, or where it has no finite bound.
    """
    if reading is None:
        raise InputError(f"needs a reading of the network; give {how}")
    log = reading.log_upper if balanced else reading.log_folded
    if not math.isfinite(log):
        raise InputError("the reading has no finite bound: a part of the network has no rule or no finite constant")
    return {"log10 bound": log / LN10, "log10 1/γ": -math.log10(margin)}


def _term(ground: Ground) -> dict[str, float]:
    if ground.lipschitz_term is None:
        raise InputError("needs the Lipschitz term of Theorem 20; give lipschitz_term=")
    return {"Σ (m_i/m) λ_i L_i": ground.lipschitz_term}


SCORES = (
    Score(
        "params",
        "parameters",
        "number of parameters",
        "root",
        lambda g: {"parameters": float(sum(p.numel() for p in g.case.model.parameters()))},
    ),
    Score("l2", "norm of the weights", "‖w‖", "root", lambda g: {"‖w‖": math.sqrt(math.fsum(g.frobenius))}),
    Score(
        "l2-dist-init",
        "distance from the start",
        "‖w − w₀‖",
        "root",
        lambda g: {"‖w−w₀‖": math.sqrt(math.fsum(norms.frobenius_squares(g.moved)))},
    ),
    Score("inverse-margin", "inverse margin", "1/γ²", "root", lambda g: {"1/γ²": g.margin**-2}, LABELS),
    *_and_over_margin("log-prod-spec", "product of spectral norms", "Π‖W‖²", lambda g: g.spectral),
    Score("log-sum-spec", "sum of spectral norms", "d (Π‖W‖²)^{1/d}", "half log", lambda g: _sum(g.spectral)),
    Score(
        "log-sum-spec-margin",
        "sum of spectral norms over margin",
        "d (Π‖W‖²/γ²)^{1/d}",
        "half log",
        lambda g: _sum(g.spectral, -2 * math.log(g.margin)),
        LABELS,
    ),
    *_and_over_margin("log-prod-fro", "product of Frobenius norms", "Π‖W‖_F²", lambda g: g.frobenius),
    Score("log-sum-fro", "sum of Frobenius norms", "d (Π‖W‖_F²)^{1/d}", "half log", lambda g: _sum(g.frobenius)),
    Score(
        "log-sum-fro-margin",
        "sum of Frobenius norms over margin",
        "d (Π‖W‖_F²/γ²)^{1/d}",
        "half log",
        lambda g: _sum(g.frobenius, -2 * math.log(g.margin)),
        LABELS,
    ),
    Score(
        "log-spec-init-main",
        "spectral complexity from the start",
        "Π‖W‖²/γ² Σ‖W−W₀‖_F²/‖W‖²",
        "half log",
        lambda g: _main(g, norms.frobenius_squares(g.moved)),
        LABELS,
        NEYSHABUR,
    ),
    Score(
        "log-spec-orig-main",
        "spectral complexity",
        "Π‖W‖²/γ² Σ‖W‖_F²/‖W‖²",
        "half log",
        lambda g: _main(g, g.frobenius),
        LABELS,
        NEYSHABUR,
    ),
    Score(
        "fro-over-spec",
        "stable ranks",
        "Σ‖W‖_F²/‖W‖²",
        "root",
        lambda g: {"Σ ranks": norms.ratio_sum(g.frobenius, g.spectral)},
    ),
    Score("param-norm", "squared norm of the weights", "Σ‖W‖_F²", "root", lambda g: _total("Σ‖W‖_F²", g.frobenius)),
    Score(
        "fro-dist",
        "Frobenius distance from the start",
        "Σ‖W−W₀‖_F²",
        "root",
        lambda g: _total("Σ‖W−W₀‖_F²", norms.frobenius_squares(g.moved)),
    ),
    Score(
        "dist-spec-init",
        "spectral distance from the start",
        "Σ‖W−W₀‖²",
        "root",
        lambda g: _total("Σ‖W−W₀‖²", norms.spectral_squares(g.moved)),
    ),
    Score(
        "path-norm", "path norm", "Σ_paths Π w²", "root", lambda g: {"paths": g.path}, source="Neyshabur et al. 2015"
    ),
    Score(
        "path-norm-margin",
        "path norm over margin",
        "Σ_paths Π w²/γ²",
        "root",
        lambda g: {"paths/γ²": g.path / g.margin**2},
        LABELS,
        "Neyshabur et al. 2015",
    ),
    *_and_over_margin("log-prod-spec-fft", "product of norms by FFT", "Π‖F(W)‖²", lambda g: g.circular),
    Score(
        "log-prod-spec-true",
        "product of norms of the maps as they run",
        "Π‖A‖²",
        "half log",
        lambda g: _product(g.true),
        source="normgauge",
    ),
    Score(
        "log-prod-spec-true-margin",
        "product of norms of the maps as they run, over margin",
        "Π‖A‖²/γ²",
        "half log",
        lambda g: _product(g.true) | _over_margin(g),
        LABELS,
        "normgauge",
    ),
    Score(
        "pacbayes-init",
        "PAC-Bayes from the start",
        "‖w−w₀‖²/4σ² + ln(m/σ) + 10",
        "root",
        lambda g: score_pac_bayes(g.moved, g.sigma, g.case.m),
        LABELS,
    ),
    Score(
        "pacbayes-orig",
        "PAC-Bayes from the origin",
        "‖w‖²/4σ² + ln(m/σ) + 10",
        "root",
        lambda g: score_pac_bayes(g.weights, g.sigma, g.case.m),
        LABELS,
    ),
    Score("flatness", "inverse noise borne", "1/σ²", "root", lambda g: {"1/σ²": g.sigma**-2}, LABELS),
    Score(
        "pacbayes-mag-init",
        "PAC-Bayes from the start, noise by magnitude",
        "¼ Σ ln((ε²+(σ²+1)‖w−w₀‖²/ω)/(ε²+σ²|w−w₀|²)) + ln(m/σ) + 10",
        "root",
        lambda g: score_pac_bayes_aware(g.moved, g.moved, g.aware, g.case.m),
        LABELS,
    ),
    Score(
        "pacbayes-mag-orig",
        "PAC-Bayes from the origin, noise by magnitude",
        "¼ Σ ln((ε²+(σ²+1)‖w‖²/ω)/(ε²+σ²|w−w₀|²)) + ln(m/σ) + 10",
        "root",
        lambda g: score_pac_bayes_aware(g.weights, g.moved, g.aware, g.case.m),
        LABELS,
    ),
    Score("mag-flatness", "inverse noise borne, by magnitude", "1/σ²", "root", lambda g: {"1/σ²": g.aware**-2}, LABELS),
    Score(
        "spherical-sharpness",
        "scale-free sharpness",
        "λ_max(DHD), D = diag ‖W‖",
        "plain",
        lambda g: {"λ_max": g.sharpness},
        LABELS,
        "Lyu, Li & Arora 2022",
    ),
    Score(
        "balanced-capacity-margin",
        "balanced Lipschitz bound over margin",
        "log10(Lip/γ)",
        "plain",
        lambda g: capacity_over_margin(g.reading, g.margin, balanced=True, how=GAUGED),
        LABELS,
        "normgauge",
    ),
    Score(
        "folded-capacity-margin",
        "folded Lipschitz bound over margin",
        "log10(Lip/γ)",
        "plain",
        lambda g: capacity_over_margin(g.reading, g.margin, balanced=False, how=GAUGED),
        LABELS,
        "normgauge",
    ),
    Score(
        "local-capacity-margin",
        "Lipschitz bound at the samples over margin",
        "log10(Lip/γ)",
        "plain",
        lambda g: capacity_over_margin(g.local, g.margin, balanced=True, how=GAUGED_LOCALLY),
        LABELS,
        "normgauge",
    ),
    Score(
        "input-gradient", "slope of the margin", "mean ‖∂margin/∂x‖", "plain", lambda g: {"slope": g.gradient}, LABELS
    ),
    Score(
        "input-gradient-margin",
        "slope of the margin over margin",
        "mean ‖∂margin/∂x‖/γ",
        "plain",
        lambda g: {"slope/γ": g.gradient / g.margin},
        LABELS,
    ),
    Score(
        "noise-sensitivity",
        "change of the answer under input noise",
        "mean ½|p(x+η)−p(x)|₁, η a tenth of the inputs' spread",
        "plain",
        lambda g: {"change": function.score_noise_sensitivity(g.folded, g.inputs, seed=g.case.seed)},
        (Consumed.TRAIN_INPUTS,),
        "after Arora et al. 2018",
    ),
    Score(
        "cell-sensitivity",
        "change of the answer within cells",
        "Σ (m_i/m) mean ½|p(x)−p(s)|₁ over fresh x, training s of cell i",
        "plain",
        lambda g: {"change": g.cells[0]},
        (Consumed.UNLABELED,),
        "label-free twin of Than 2025, eq. (66)",
    ),
    Score(
        "theorem20-lipschitz",
        "Lipschitz term of Theorem 20",
        "Σ (m_i/m) λ_i L_i",
        "plain",
        _term,
        LABELS,
        "Than 2025, Theorem 20",
    ),
    Score(
        "train-loss",
        "minus the training loss (baseline)",
        "−mean cross-entropy on D",
        "plain",
        lambda g: {"minus loss": -float(F.cross_entropy(g.case.logits.double(), g.case.train.truth))},
        LABELS,
        "baseline",
    ),
    Score(
        "train-error",
        "minus the training error (baseline)",
        "−error on D",
        "plain",
        lambda g: {"minus error": -float((g.case.margins <= 0).double().mean())},
        LABELS,
        "baseline",
    ),
)
