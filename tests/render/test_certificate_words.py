"""What a certificate promises in words, rounded to the safe side, and that nothing else sounds like a promise."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest

from normgauge.core.certificate import GUESSING, Consumed
from normgauge.render.certificate_words import (
    ONE_AT_A_TIME,
    bare_number,
    certificate_sentences,
    format_amount,
    promises,
    row_confidence,
    row_name,
    row_reason,
    row_value,
)
from tests.made_certificates import (
    CLIPPED,
    CLOPPER,
    DIRECT,
    DISAGREE,
    FEATURE,
    FREE,
    FULL,
    GIBBS,
    KL,
    NEARLY,
    NO_HOLDOUT,
    NOT_HERE,
    NOTHING,
    PUBLISHED,
    RESTS,
    SCORES,
    SPECTRAL,
    TIGHT_GIBBS,
    bound,
    certificate,
    plain_row,
    small,
)


def test_the_promise_is_the_hold_out_and_is_said_first():
    first, *rest = certificate_sentences(replace(FULL, warnings=()))
    assert first == (
        "Promise: on unseen data from the same source this network errs at most 2.24 % of the time, with 95 % "
        "confidence: hold-out, Clopper–Pearson, provided (1) the samples are independent; this cannot be checked here."
    )
    assert rest[0].startswith("Without hold-out labels: at most 11.0 %, with 95 % confidence: disagreement with")
    assert rest[0].endswith("paid with train labels and unlabeled data and extra training, provided (1).")
    assert rest[1].startswith("From the training data alone: at most 35.6 %")
    assert rest[2:] == ["2 bounds speak about another predictor made from this network, not about it.", ONE_AT_A_TIME]


def test_a_smaller_row_of_another_kind_does_not_take_the_place_of_the_hold_out():
    smaller = replace(DISAGREE, value=0.01)
    first, second, *_ = promises(certificate(smaller, CLOPPER))
    assert first.startswith("Promise: on unseen data") and "2.24 %" in first and "Clopper–Pearson" in first
    assert second.startswith("Without hold-out labels: at most 1.00 %")


def test_without_a_hold_out_the_next_in_the_order_is_the_promise():
    first, second, *_ = promises(NO_HOLDOUT)
    assert first.startswith("Promise:") and "11.0 %" in first and "disagreement" in first
    assert second.startswith("No labelled hold-out was given")


def test_nothing_that_is_no_bound_on_this_network_is_promised():
    told = certificate_sentences(NOTHING)
    assert told[0].startswith("Nothing can be promised")
    assert "From the training data alone: no promise about this network." in told
    assert "1 bound speaks about another predictor made from this network, not about it." in told
    for row in (TIGHT_GIBBS, DIRECT, SCORES[0]):
        assert row.name not in " ".join(told) and row_value(row) not in " ".join(told)
    assert row_value(PUBLISHED) not in " ".join(told)


@pytest.mark.parametrize("row", [GIBBS, DIRECT, CLIPPED, PUBLISHED, SCORES[1]], ids=lambda row: row.key)
def test_one_row_that_is_no_promise_gives_no_promise(row):
    assert promises(certificate(row))[0].startswith("Nothing can be promised")


def test_from_the_training_data_alone_and_its_price():
    told = promises(certificate(FEATURE, CLOPPER))
    assert told[1] == (
        "From the training data alone: at most 35.6 %, with 95 % confidence: feature cells, Theorem 20 in feature "
        "space, our slack, paid with train labels, provided (1)."
    )
    free = bound("a", "free", "b", 0.5, ())
    assert promises(certificate(free))[-1].endswith("paid with nothing, provided (1).")
    assert ONE_AT_A_TIME not in certificate_sentences(certificate(CLOPPER))


def test_a_bound_from_unlabeled_data_is_not_called_one_from_training_data():
    row = bound("u", "unlabeled", "cells", 0.3, (Consumed.TRAIN_LABELS, FREE))
    told = promises(certificate(row))
    assert told[1].startswith("Without hold-out labels") and told[2].endswith("alone: no promise about this network.")


def test_warnings_are_announced_right_after_the_promise():
    assert promises(FULL)[1] == "The warnings below may take that promise away: read them first."
    assert "warnings" not in " ".join(promises(replace(FULL, warnings=())))


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.02239, "2.24 %"), (0.0224, "2.24 %"), (0.02240001, "2.25 %"), (0.05, "5.00 %"),
        (0.999, "99.9 %"), (0.99966, "99.966 %"), (1 - 1e-9, "below 100 %"), (1.0, "100 %"),
        (1.38, "138 %"), (9.999, "1000 %"), (10.0, "10^1.00"), (10.1, "10^1.01"), (6e5, "10^5.78"), (0.0, "0 %"),
        (math.inf, "infinite"), (3e-7, "3e-05 %"), (1e300, "10^300.00"),
    ],
    ids=str,
)  # fmt: skip
def test_a_bound_is_rounded_upwards(value, printed):
    assert format_amount(value, up=True) == printed


@pytest.mark.parametrize("seed", range(5))
def test_what_is_printed_is_never_below_the_bound(seed):
    for k in range(400):
        value = ((seed * 400 + k) * 0.6180339887) % 9.9
        printed = Decimal(format_amount(value, up=True).removesuffix(" %"))
        assert Decimal(repr(value)) * 100 <= printed <= Decimal(repr(value)) * 101 + Decimal("1e-3")


def test_other_numbers():
    assert format_amount(None) == bare_number(None) == bare_number(math.nan) == format_amount(math.nan) == "·"
    assert (
        format_amount(-0.02) == "-2.00 %"
        and format_amount(0.4, "loss") == "0.4"
        and format_amount(-math.inf) == "-infinite"
    )
    assert bare_number(-math.inf) == "-infinite" and bare_number(4.1e12) == "4.1e+12"
    assert row_value(SCORES[0]) == "3.351e+05" and row_value(DIRECT) == "3.85 %" and row_value(NOT_HERE[0]) == "·"
    assert row_confidence(SCORES[0]) == row_confidence(replace(NOT_HERE[0], confidence=0.95)) == "·"
    assert row_name(DISAGREE) == DISAGREE.name and row_name(KL) == "hold-out, kl inverse"


def test_why_names_the_largest_term_the_reason_and_the_samples_needed():
    assert row_reason(PUBLISHED) == "largest term: Lipschitz term, 10^2.51; says something from 12,000,000 samples on"
    assert "the error is at most 1 anyway" in row_reason(PUBLISHED, every=True)
    assert row_reason(CLIPPED).startswith("of the cross-entropy, which is at most 4; largest term: training loss, 0.4")
    assert row_reason(DIRECT) == DIRECT.reason
    assert row_reason(replace(NEARLY, needed=5 * 10**12)).endswith("140 %; says something from 10^12.70 samples on")
    assert row_reason(SPECTRAL) == SPECTRAL.reason  # its terms are no parts of it
    assert row_reason(KL) == f"holds only if {RESTS}" and row_reason(KL, numbers={RESTS: 3}) == "holds only if (3)"


def test_the_row_that_speaks_is_named_in_advance_not_the_smallest():
    rows = (plain_row("features.theorem20.variation", 0.1), plain_row("features.theorem20.kl", 0.2))
    first = certificate_sentences(small(*rows))[0]
    assert first.startswith("Promise: ") and "20.0 %" in first
    with_surrogate = (*rows, plain_row("disagreement.surrogate", 0.3))
    assert "30.0 %" in certificate_sentences(small(*with_surrogate))[0]


def test_a_promise_worse_than_guessing_says_so():
    row = plain_row("holdout.clopper_pearson", 0.94)
    assert "no better than guessing: always naming the most frequent class errs 90.0 %" in " ".join(
        certificate_sentences(small(row, facts={GUESSING: 0.9}))
    )
    assert "guessing" not in " ".join(certificate_sentences(small(row, facts={GUESSING: 0.95})))
