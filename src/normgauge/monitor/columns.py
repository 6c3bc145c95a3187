"""What a line of a run file holds: the columns of every layer, the totals, and what each is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COLUMNS: Mapping[str, tuple[str, str]] = {
    "norm_lower": ("proved", "operator norm of the layer, from below"),
    "norm_upper": ("proved", "operator norm of the layer, from above"),
    "frobenius": ("observed", "Frobenius norm of the weight"),
    "gradient": ("observed", "Euclidean norm of the weight's gradient"),
    "scale_free_gradient": ("observed", "‖w‖·‖∇‖: the same whatever the scale of scale-free weights"),
    "radial": (
        "estimated",
        "cosine between gradient and the weight before the step, 0 for scale-free ones; sampled as the update",
    ),
    "update": ("estimated", "length of the last optimizer step; from every eighth row of a large weight"),
    "effective_lr": ("observed", "learning rate over the mean ‖w‖² of a scale-free group"),
    "sigma_min": ("observed", "smallest √(σ² + ε) of a normalizer at this step"),
    "sigma_rms": ("observed", "root mean square of √(σ² + ε)"),
    "sigma_max": ("observed", "largest √(σ² + ε)"),
    "gamma_max": ("observed", "largest |γ|"),
    "folded": (
        "estimated",
        "norm of the layer with the normalizer behind it, from below; free of the scale in front of it",
    ),
}

TOTALS: Mapping[str, tuple[str, str]] = {
    "log10_P_w": ("proved", "product of the layers' norms, from above; depends on the gauge"),
    "log10_P_w_lower": ("proved", "product of the layers' norms, from below; depends on the gauge"),
    "log10_prod_inv_sigma_min": ("observed", "Π 1/σ with the smallest σ of each normalizer; depends on the gauge"),
    "log10_prod_inv_sigma_rms": ("observed", "Π 1/σ with the root mean square σ; depends on the gauge"),
    "log10_prod_inv_sigma_max": ("observed", "Π 1/σ with the largest σ; depends on the gauge"),
    "log10_folded": (
        "estimated",
        "product of the folded gains, lone normalizers by max γ/σ; free of the scale in front of them",
    ),
    "gradient": ("observed", "Euclidean norm of all gradients together, biases too; not those of computed weights"),
}

Row = Mapping[str, float]
Totals = dict[str, float | None]


def described(table: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """A table as the header of a run file has it."""
    return {name: {"evidence": evidence, "what": what} for name, (evidence, what) in table.items()}


def totals(rows: Sequence[Row], maps: Sequence[int], norms: Sequence[int], lone: Sequence[int]) -> Totals:
    """Products over the layers, as decimal logs; None where there is nothing to multiply or a factor is missing.

    Args:
        rows: the finished numbers of each layer.
        maps: which of them are matrices and convolutions.
        norms: which are normalizers.
        lone: which of those were not folded into the weight in front of them.
    """
    linear, normal = [rows[i] for i in maps], [rows[i] for i in norms]
    found: Totals = {
        "log10_P_w": log10_product(row.get("norm_upper") for row in linear),
        "log10_P_w_lower": log10_product(row.get("norm_lower") for row in linear),
    }
    for which in ("min", "rms", "max"):
        product = log10_product(row.get(f"sigma_{which}") for row in normal)
        found[f"log10_prod_inv_sigma_{which}"] = None if product is None else -product
    gains = [row.get("folded") for row in linear] + [rows[i].get("gain") for i in lone]
    found["log10_folded"] = log10_product(gains)
    squares = [row[name] ** 2 for row in rows for name in ("gradient", "bias_gradient") if name in row]
    found["gradient"] = math.sqrt(sum(squares)) if squares else None
    return found


def log10_product(factors: Iterable[float | None]) -> float | None:
    """Decimal log of a product; None of nothing or where a factor is missing, nan of what is not a number."""
    logs = [_log10(factor) for factor in factors]
    known = [log for log in logs if log is not None]
    if len(known) < len(logs) or not known:
        return None
    return math.fsum(known) if all(map(math.isfinite, known)) else _odd(known)


def _log10(factor: float | None) -> float | None:
    if factor is None:
        return None
    if math.isnan(factor) or factor < 0.0:
        return math.nan
    return -math.inf if factor == 0.0 else math.log10(factor)


def _odd(logs: list[float]) -> float:
    """The sum where some terms are not finite: infinity absorbs, as in every product of gains."""
    if any(map(math.isnan, logs)):
        return math.nan
    return math.inf if math.inf in logs else -math.inf
