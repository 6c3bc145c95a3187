"""The published products under names people know; the keys of the JSON form stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from normgauge.render.numbers import ABSENT

NAMES = {
    "log10_P_w": "P_w = Π ‖W‖ (spectral norms)",
    "log10_P_w_frobenius": "Π ‖W‖_F (Frobenius norms)",
    "log10_prod_l2": "Π ‖γ/σ‖₂",
    "log10_theorem9": "P_w · Π normalizers' gains (Theorem 9)",
    "log10_corollary10_2": "P_w · (largest ‖1/σ‖₂)^K, K normalizers (Corollary 10.2)",
    "log10_corollary11": "P_w · Π largest 1/σ, without γ (Corollary 11)",
    "log10_lemma3_sum": "P_w · Π sums over groups (Lemma 3)",
}
SIGMA = "log10_prod_inv_sigma"
SIGMA_NAMES = {
    "min": "Π 1/σ (smallest σ)",
    "rms": "Π 1/σ (root mean square σ)",
    "max": "Π 1/σ (largest σ)",
}


def rows(published: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and decimal logarithm of every product; keys without a name here are shown as they are."""
    for key, value in published.items():
        if isinstance(value, Mapping):
            for end, number in value.items():
                name = SIGMA_NAMES.get(end) if key == SIGMA else None
                yield name or f"{key.removeprefix('log10_')}, {end}", _shown(number)
        else:
            yield NAMES.get(key, key.removeprefix("log10_")), _shown(value)


def called(name: str) -> str:
    """The name people know for a product as a comparison names it: without its prefix, σ's end behind a comma.

    >>> called("prod_inv_sigma, min"), called("P_w"), called("another")
    ('Π 1/σ (smallest σ)', 'P_w = Π ‖W‖ (spectral norms)', 'another')
    """
    key, _, end = name.partition(", ")
    known = SIGMA_NAMES.get(end) if f"log10_{key}" == SIGMA else NAMES.get(f"log10_{name}")
    return known or name


def _shown(value: Any) -> str:
    if isinstance(value, float | int):
        return f"{value:.2f}"
    return ABSENT if value is None else str(value)
