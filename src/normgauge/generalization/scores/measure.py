"""All scores of one network as plain numbers, for sweeps."""

from __future__ import annotations

from typing import Any

from torch import nn

from normgauge.generalization.case import Case
from normgauge.generalization.facts.sample import Sample, outputs
from normgauge.generalization.scores.catalogue_function import SCORES as FUNCTION_SCORES
from normgauge.generalization.scores.catalogue_norms import SCORES as NORM_SCORES
from normgauge.generalization.scores.ground import Ground
from normgauge.generalization.scores.score import Score

SCORES: tuple[Score, ...] = (*NORM_SCORES, *FUNCTION_SCORES)


def score_values(
    model: nn.Module, train: Any, *, unlabeled: Any = None, seed: int = 0, **facts: Any
) -> dict[str, float]:
    """Every score that fits the network, by key without ``score.``; larger predicts worse generalization.

    Args:
        model: in eval mode; left as it is.
        train: inputs and labels the network was trained on, as `Sample.of` takes them.
        unlabeled: inputs it never saw.
        seed: of the cells and the noise.
        **facts: what `Ground` takes: reading, local, initial, lipschitz_term, partition, effort.

    Returns:
        The scores; those that do not fit are absent.
    """
    sample = Sample.of(train, "train")
    fresh = None if unlabeled is None else Sample.of(unlabeled, "unlabeled", labelled=False)
    ground = Ground(Case(model, sample, outputs(model, sample), unlabeled=fresh, seed=seed), **facts)
    found = {score.key: score.row(ground).value for score in SCORES}
    return {key: value for key, value in found.items() if value is not None}
