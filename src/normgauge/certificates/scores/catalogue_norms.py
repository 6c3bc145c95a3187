"""Scores made of the norms of the weights."""

from __future__ import annotations

import math

from normgauge.certificates.scores import norms
from normgauge.certificates.scores.ground import Ground
from normgauge.certificates.scores.score import Score
from normgauge.core.certificate import Consumed

LABELS = (Consumed.TRAIN_LABELS,)
NEYSHABUR = "Neyshabur, Bhojanapalli & Srebro 2018"


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


def _count(ground: Ground) -> dict[str, float]:
    return {"parameters": float(sum(p.numel() for p in ground.case.model.parameters()))}


SCORES = (
    Score(
        "params",
        "parameters",
        "number of parameters",
        "root",
        _count,
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
    Score("log-prod-spec", "product of spectral norms", "Π‖W‖²", "half log", lambda g: _product(g.spectral)),
    Score(
        "log-prod-spec-margin",
        "product of spectral norms over margin",
        "Π‖W‖²/γ²",
        "half log",
        lambda g: _product(g.spectral) | _over_margin(g),
        LABELS,
    ),
    Score("log-sum-spec", "sum of spectral norms", "d (Π‖W‖²)^{1/d}", "half log", lambda g: _sum(g.spectral)),
    Score(
        "log-sum-spec-margin",
        "sum of spectral norms over margin",
        "d (Π‖W‖²/γ²)^{1/d}",
        "half log",
        lambda g: _sum(g.spectral, -2 * math.log(g.margin)),
        LABELS,
    ),
    Score("log-prod-fro", "product of Frobenius norms", "Π‖W‖_F²", "half log", lambda g: _product(g.frobenius)),
    Score(
        "log-prod-fro-margin",
        "product of Frobenius norms over margin",
        "Π‖W‖_F²/γ²",
        "half log",
        lambda g: _product(g.frobenius) | _over_margin(g),
        LABELS,
    ),
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
    Score("log-prod-spec-fft", "product of norms by FFT", "Π‖F(W)‖²", "half log", lambda g: _product(g.circular)),
    Score(
        "log-prod-spec-fft-margin",
        "product of norms by FFT over margin",
        "Π‖F(W)‖²/γ²",
        "half log",
        lambda g: _product(g.circular) | _over_margin(g),
        LABELS,
    ),
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
)
