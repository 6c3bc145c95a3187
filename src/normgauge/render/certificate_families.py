"""Families of rows in plain words, and which row speaks: an order fixed before any data are seen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from normgauge.core.certificate import NETWORK, Row, RowKind

RANK = {
    kind: rank
    for rank, kind in enumerate(
        (RowKind.BOUND, RowKind.VACUOUS, RowKind.ESTIMATE, RowKind.SCORE, RowKind.NOT_APPLICABLE)
    )
}
HOLDOUT = "hold-out"
EXPLAINED = {
    HOLDOUT: "Mistakes counted on labelled samples that took no part in training or in any choice. Nothing that only "
    "counts mistakes can be tighter. It says nothing where there is no such sample.",
    "disagreement": "A second network, trained on half of the data, is certified on the other half; how often the two "
    "disagree on fresh inputs is added. It needs inputs without labels and time to train, and says nothing where the "
    "two differ too often.",
    "robust": "A hold-out sample counts as good only if it is right and a proved slope shows that no change of its "
    "input up to the radius can make it wrong. It needs a radius and a hold-out, and says nothing where the proved "
    "slope is too large for the margins.",
    "feature cells": "Cells behind an encoder that never saw the training sample: only the head's slope counts. It "
    "needs a split before training; in effect it is a hold-out for the encoder, which is printed beside it.",
    "compression": "A network trained on a few of the samples has the others as its hold-out. It needs to be told "
    "which samples were used, and does not apply to a network trained on all of them.",
    "cells": "The loss may change only so much inside cells fixed beforehand (Theorem 20 and its relatives). It needs "
    "a proved slope; in the space of inputs that slope times the size of a cell is nearly always too large.",
    "PAC-Bayes": "How much noise on its weights the network can bear. It bounds the error of the noisy network, never "
    "that of the one at hand, and may need time to train.",
    "capacity": "Counts of parameters and products of norms, over all networks with such weights. It needs no data "
    "beyond the training sample and is too large for any network in use.",
    "score": "Numbers for ranking networks: larger predicts worse. Their size promises nothing.",
}
CELLS = (
    "theorem20.kl", "theorem20.variation", "theorem20.published", "theorem20.rademacher", "theorem20.holdout",
    "corollary21", "corollary22.batch", "corollary22.global", "corollary22.none", "corollary22.published",
    "corollary22.local", "xu_mannor", "kawaguchi", "equation66", "hkk", "than_phan",
)  # fmt: skip
SPEAKING = (
    "holdout.clopper_pearson", "holdout.kl", "holdout.hoeffding", "holdout.per_class",
    "disagreement.surrogate", "features.disagreement",
    "robust.holdout",
    *(f"features.{key}" for key in CELLS), "features.encoder_holdout",
    "compression.sample", "compression.pick_to_learn",
    *CELLS,
    "gibbs.data_dependent_prior", "gibbs.dziugaite", "gibbs.maurer",
    "capacity.bartlett2017", "capacity.neyshabur2018", "capacity.golowich", "capacity.neyshabur2015", "capacity.vc",
    "capacity.cisneros2025",
)  # fmt: skip
PLACE = {key: place for place, key in enumerate(SPEAKING)}


def speaking_row(rows: Sequence[Row]) -> Row | None:
    """The first in the fixed order that applies, whatever it says; rows without a place there come last, as given.

    To pass over a row because it says little would be a choice made after looking.
    """
    asked = [row for row in rows if row.kind in (RowKind.BOUND, RowKind.VACUOUS)]
    return min(asked, key=lambda row: PLACE.get(row.key, len(PLACE)), default=None)


def ordered_rows(rows: Sequence[Row]) -> list[Row]:
    """Bounds first, those about this network before others, then vacuous rows, estimates, scores, what does not apply.

    Rows of one kind go by value, scores as they come.
    """
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[int, bool, float]:
    valued = row.value is not None and row.kind is not RowKind.SCORE  # scores are on scales of their own
    aside = row.kind is RowKind.BOUND and row.about != NETWORK  # a small bound on something else is no better
    return RANK[row.kind], aside, (row.value or 0.0) / row.limit if valued else math.inf


def rows_by_family(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by family, in the order in which families are explained; others after them."""
    found: dict[str, list[Row]] = {}
    for row in ordered_rows(rows):
        found.setdefault(row.family, []).append(row)
    places = {name: place for place, name in enumerate(EXPLAINED)}
    return dict(sorted(found.items(), key=lambda item: places.get(item[0], len(places))))


def leading_rows(rows: Sequence[Row]) -> list[Row]:
    """The row that speaks for each family that has one."""
    return [first for family in rows_by_family(rows).values() if (first := speaking_row(family)) is not None]


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Return all rows, family after family."""
    return [row for family in rows_by_family(rows).values() for row in family]
