"""Scores made of what the network does: noise it bears, slopes, bounds, answers nearby."""

from __future__ import annotations

import math

from torch.nn import functional as F

from normgauge.certificates.scores import function
from normgauge.certificates.scores.flatness import score_pac_bayes, score_pac_bayes_aware
from normgauge.certificates.scores.ground import Ground
from normgauge.certificates.scores.score import Score
from normgauge.core.certificate import Consumed
from normgauge.core.errors import InputError
from normgauge.core.reading import Reading

LABELS = (Consumed.TRAIN_LABELS,)
GAUGED = "reading=ng.gauge(model, batch)"
GAUGED_LOCALLY = 'local=ng.gauge(model, batch, scope="point") of training samples'
LN10 = math.log(10)


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
