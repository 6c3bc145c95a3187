"""Certificates made by hand: every kind of row, numbers that are hard to draw, hostile names."""

from __future__ import annotations

import math
from dataclasses import replace

from normgauge.core.certificate import Certificate, Consumed, Row, RowKind, promised_row
from normgauge.core.claim import Curve

ATTACK = "</script><img src=x onerror=alert(1)>"
TRAIN, HELD, FREE = (Consumed.TRAIN_LABELS,), (Consumed.HOLDOUT_LABELS,), Consumed.UNLABELED
RESTS = "the samples are independent"
NOISY = "this network with Gaussian noise on its weights"


def bound(
    key: str, name: str, family: str, value: float, consumed: tuple[Consumed, ...] = TRAIN, **more: object
) -> Row:
    """A row that went through the door."""
    given: dict[str, object] = {
        "confidence": 0.95,
        "source": "a paper",
        "formula": "F(P) ≤ F(D) + g",
        "condition": RESTS,
        **more,
    }
    return promised_row(Row(key, name, family, RowKind.VACUOUS, value, consumed=consumed, **given))  # type: ignore[arg-type]


def summed(key: str, name: str, family: str, terms: dict[str, float], **more: object) -> Row:
    """A row whose terms add up to it."""
    return bound(key, name, family, sum(terms.values()), terms=tuple(terms.items()), additive=True, **more)  # type: ignore[arg-type]


def absent(key: str, name: str, family: str, reason: str) -> Row:
    return Row(key, name, family, RowKind.NOT_APPLICABLE, reason=reason, source="a paper")


def score(key: str, name: str, value: float) -> Row:
    return Row(key, name, "score", RowKind.SCORE, value, consumed=(Consumed.WEIGHTS,), quantity="score")


CLOPPER = bound(
    "holdout.clopper_pearson", "Clopper–Pearson", "hold-out", 0.02239, HELD,
    terms=(("errors", 199.0), ("samples", 10000.0)), source="Clopper & Pearson 1934",
    formula="Bin⁻¹(k, n, δ): the largest p with P(Bin(n, p) ≤ k) ≥ δ",
)  # fmt: skip
KL = bound("holdout.kl", "kl inverse", "hold-out", 0.02291, HELD)
DISAGREE = summed(
    "disagreement.surrogate", "disagreement with a certified surrogate", "disagreement",
    {"error of the surrogate": 0.0621, "disagreement": 0.0474}, consumed=(*TRAIN, FREE, Consumed.TRAINING),
)  # fmt: skip
FEATURE = summed(
    "features.theorem20.variation", "Theorem 20 in feature space, our slack", "feature cells",
    {"training loss": 0.052, "Lipschitz term": 0.226, "slack": 0.0773},
)  # fmt: skip
PUBLISHED = summed(
    "theorem20.published", "Theorem 20 as published", "cells",
    {"training loss": 0.003, "Lipschitz term": 327.0, "slack": 0.086}, needed=12_000_000,
)  # fmt: skip
NEARLY = summed(
    "theorem20.variation", "Theorem 20, τ_V", "cells", {"training loss": 0.05, "Lipschitz term": 1.4, "slack": 0.1}
)
ENDLESS = summed(
    "corollary22.global", "Corollary 22, LayerNorm", "cells", {"training loss": 0.01, "Lipschitz term": math.inf}
)
SPECTRAL = bound(
    "capacity.bartlett2017", "spectral, Bartlett and others 2017", "capacity", 6.1e5,
    terms=(("training margin loss", 0.02), ("log10 of the product of norms", 5.2)),
)  # fmt: skip
HUGE = bound("capacity.neyshabur2018", "PAC-Bayes spectral", "capacity", 3.8e21, terms=(("KL", 1e40),))
GIBBS = bound("gibbs.maurer", "Maurer, scale-free noise", "PAC-Bayes", 0.31, about=NOISY)
TIGHT_GIBBS = bound("gibbs.data_dependent_prior", "prior from half of D", "PAC-Bayes", 0.012, about=NOISY)
CLIPPED = summed("theorem20.rademacher", "Theorem 20, clipped cross-entropy", "cells",
                 {"training loss": 0.4, "slack": 0.35}, limit=4.0, quantity="cross-entropy")  # fmt: skip
DIRECT = Row(
    "equation66", "eq. (66)", "cells", RowKind.ESTIMATE, 0.0385, consumed=(*TRAIN, *HELD),
    terms=(("training loss", 0.0034), ("spread of the loss", 0.0235), ("slack", 0.0116)), additive=True,
    reason="the spread of the loss is estimated from the hold-out labels", source="Than, Phan & Vu 2025",
)  # fmt: skip
SCORES = (
    score("score.params", "parameters", 335_114.0), score("score.margin", "1/margin²", 0.0123),
    score("score.spectral", "log of the product of spectral norms", -3.4), score("score.flat", "1/σ²", 4.1e12),
)  # fmt: skip
NOT_HERE = (
    absent("capacity.cisneros2025", "weight norm", "capacity", "no layer has unit Frobenius norm; use weight_norm"),
    absent("compression.sample", "sample compression", "compression",
           "the network depends on all 50,000 samples; say which of them it was trained on with coreset=, and all the "
           "others are its hold-out: then the bound is that of Littlestone and Warmuth"),
    absent("compression.pick_to_learn", "Pick-To-Learn", "compression", "it was not trained by Pick-To-Learn"),
)  # fmt: skip
CURVE = Curve(
    "Local constant against its radius", "radius", "Lipschitz constant", (0.01, 0.1, 1.0),
    (("certified", (12.0, 85.0, 1.5e10)), ("found", (9.0, 30.0, 92.0))), log_x=True, log_y=True,
)  # fmt: skip
FULL = Certificate(
    "MLP", 0.05, 50_000, 10_000, 5_000, 10,
    rows=(*SCORES, *NOT_HERE, HUGE, SPECTRAL, GIBBS, TIGHT_GIBBS, ENDLESS, PUBLISHED, NEARLY, DIRECT, CLIPPED, FEATURE,
          DISAGREE, KL, CLOPPER),
    facts={"error on D": 0.0034, "median margin": 4.2, "global constant": math.inf, "partition": "k-means"},
    warnings=("reading a sample twice gives two inputs: the training set is augmented, and no bound holds for it",),
    notes=("measured in eval mode",),
    curves=(CURVE,),
)  # fmt: skip
NO_HOLDOUT = replace(FULL, holdout=0, rows=tuple(r for r in FULL.rows if r.family != "hold-out"), warnings=())
NOTHING = replace(NO_HOLDOUT, rows=(PUBLISHED, SPECTRAL, TIGHT_GIBBS, DIRECT, *SCORES), curves=(), facts={}, notes=())
EMPTY = Certificate("Sequential", 0.05, 8, 0, 0, 2, rows=())


def certificate(*rows: Row, **more: object) -> Certificate:
    """These rows instead of all, and no warning."""
    return replace(FULL, rows=rows, warnings=(), **more)  # type: ignore[arg-type]


def plain_row(key: str, value: float, **more: object) -> Row:
    family = "feature cells" if "features" in key else "cells"
    return Row(key, key, family, RowKind.BOUND, value, 0.95, **{"condition": RESTS, **more})  # type: ignore[arg-type]


def small(*rows: Row, **more: object) -> Certificate:
    """A certificate of these rows alone."""
    return Certificate("Net", 0.05, 100, 0, 0, 10, rows, **more)  # type: ignore[arg-type]


def hostile() -> Certificate:
    """Every text is an attack."""
    words = {"name": ATTACK, "family": ATTACK, "source": ATTACK, "formula": ATTACK, "about": ATTACK, "quantity": ATTACK}
    rows = [
        replace(row, key=f"{ATTACK}{i}", reason=ATTACK, **words, terms=tuple((ATTACK, v) for _, v in row.terms))
        for i, row in enumerate(FULL.rows)
    ]
    curve = Curve(ATTACK, ATTACK, ATTACK, (1.0, 2.0), ((ATTACK, (1.0, 2.0)),))
    told = {"warnings": (ATTACK,), "notes": (ATTACK,), "facts": {ATTACK: ATTACK}, "curves": (curve,)}
    return replace(FULL, model=ATTACK, rows=tuple(rows), **told)
