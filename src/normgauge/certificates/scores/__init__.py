"""Scores: numbers that rank networks by how badly they may generalize, and promise nothing.

Larger predicts worse generalization.

fold: BatchNorm into the maps before it; ground: every fact measured once.
norms, flatness, function: the facts; catalogue: what the scores make of them; score: one score and its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from normgauge.certificates.case import Case
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.scores.catalogue import SCORES
from normgauge.certificates.scores.ground import Ground, cells_of
from normgauge.certificates.scores.score import Score
from normgauge.core.certificate import Row

__all__ = ["SCORES", "DataSample", "Ground", "Score", "cells_of", "score_rows", "score_values"]


def score_rows(case: Case, **facts: Any) -> Iterator[Row]:
    """Every score of the catalogue, in its order; those the network does not fit say why.

    Args:
        case: the network and its data; the network is left as it is.
        **facts: what `Ground` takes: reading, local, initial, lipschitz_term, partition.

    Yields:
        Rows of the family ``score``.
    """
    ground = Ground(case, **facts)
    for done, score in enumerate(SCORES):
        case.progress("scores", done / len(SCORES))
        yield score.row(ground)
    case.progress("scores", 1.0)


def score_values(
    model: nn.Module, train: Any, *, unlabeled: Any = None, seed: int = 0, **facts: Any
) -> dict[str, float]:
    """Every score that fits the network, by key without ``score.``.

    Args:
        model: in eval mode; left as it is.
        train: inputs and labels the network was trained on, as `Sample.of` takes them.
        unlabeled: inputs it never saw.
        seed: of the cells and the noise.
        **facts: as for `score_rows`.

    Returns:
        The scores; those that do not fit are absent.
    """
    sample = DataSample.of(train, "train")
    fresh = None if unlabeled is None else DataSample.of(unlabeled, "unlabeled", labelled=False)
    found = score_rows(Case(model, sample, model_outputs(model, sample), unlabeled=fresh, seed=seed), **facts)
    return {row.key.removeprefix("score."): row.value for row in found if row.value is not None}
