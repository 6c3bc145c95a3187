"""What a difference says in words and tables; the readings are made by hand."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core.bound import Evidence, Scope
from normgauge.core.compare import compare_readings
from normgauge.core.spelled import LN10
from normgauge.render.console import draw_blocks
from normgauge.render.difference import (
    difference_blocks,
    difference_totals,
    difference_verdict,
    layer_changes,
    product_changes,
    reference_totals,
)
from normgauge.render.verdict import judgement
from tests.core.test_compare import chain
from tests.made import layer, reading


def test_growth_and_its_cause():
    grown = compare_readings(chain({"f.0": 1.0, "f.1": 0.5}), chain({"f.0": 1.9, "f.1": 0.6}))
    told = difference_verdict(grown)
    assert told[0] == "B's bound at the samples is 10 times A's (+1.00 decades)."
    assert told[-1] == "Most of it comes from f.0 (+0.90), f.1 (+0.10)."
    shrunk = compare_readings(chain({"f.0": 1.9}), chain({"f.0": 1.0}))
    assert difference_verdict(shrunk)[0].startswith("B's bound at the samples is 0.126 times A's")


def test_parts_that_go_against_the_change_are_named_too():
    mixed = compare_readings(chain({"f.0": 1.0, "f.1": 1.0}), chain({"f.0": 1.9, "f.1": 0.6}))
    assert difference_verdict(mixed)[-1] == "Its largest parts come from f.0 (+0.90), f.1 (-0.40)."


def test_many_small_parts_are_not_called_most_of_it():
    names = [f"f.{i}" for i in range(10)]
    many = compare_readings(chain(dict.fromkeys(names, 0.0)), chain(dict.fromkeys(names, 0.1)))
    assert difference_verdict(many)[-1].startswith("Its largest parts come from f.")


def test_nothing_changed_and_another_gauge():
    a = chain({"f.0": 1.0})
    told = difference_verdict(compare_readings(a, a))
    assert told[0] == "The bound at the samples is the same in A and B, 10."
    assert told[-1] == "Nothing that counts has changed."
    moved = replace(a, published={**a.published, "log10_P_w": 9.8})
    told = difference_verdict(compare_readings(a, moved))[-1]
    assert told.startswith("The same capacity in another gauge") and "P_w by +9.00 decades" in told


def test_only_a_slope_above_the_other_bound_says_which_is_steeper():
    low, high = reading(log_upper=1.0, log_lower=0.5), reading(log_upper=9.0, log_lower=2.0)
    assert difference_verdict(compare_readings(low, high))[1].startswith(
        "B's steepest sample is steeper for certain: a slope of 7.389 was found, and A has at most 2.72."
    )
    assert difference_verdict(compare_readings(high, low))[1].startswith("A's steepest sample is steeper for certain")
    guessed = reading(log_upper=1.0, log_lower=0.5, evidence=Evidence.ESTIMATED)
    assert not any("for certain" in sentence for sentence in difference_verdict(compare_readings(guessed, high)))
    assert "not proved" in difference_verdict(compare_readings(guessed, high))[1]
    computed = reading(log_upper=1.0, log_lower=0.5, evidence=Evidence.COMPUTED)
    assert difference_verdict(compare_readings(computed, high))[1] == (
        "B's steepest sample is steeper: a slope of 7.389 was found, and A has at most 2.72 (computed)."
    )
    likely = reading(log_upper=1.0, log_lower=0.5, failure_probability=1e-9)
    assert difference_verdict(compare_readings(likely, high))[1] == (
        "B's steepest sample is steeper: a slope of 7.389 was found, and A has at most 2.72 (proved, fails with p ≤ "
        "1e-09)."
    )
    open_still = reading(log_upper=9.0, log_lower=0.9)
    assert difference_verdict(compare_readings(low, open_still))[1] == (
        "Undecided which is steeper: the brackets overlap, from 1.648 to 2.72 in A and from 2.459 to 8,104 in B."
    )


@pytest.mark.parametrize(
    ("a", "b", "message"), [(1.0, math.inf, "B has no finite"), (math.inf, 1.0, "A has no finite")]
)
def test_infinite_bounds(a, b, message):
    told = difference_verdict(compare_readings(reading(log_upper=a), reading(log_upper=b)))
    assert message in told[0] and "cannot be divided" in told[-1]


def test_weaker_evidence_and_another_mode_are_said():
    told = difference_verdict(compare_readings(reading(), reading(evidence=Evidence.ESTIMATED, mode="train")))
    assert "B's bound is estimated, A's was proved." in told
    assert any("A was read in mode eval" in sentence for sentence in told)


def test_the_tables():
    a = chain({"f.0": 1.0, "gone": 0.5})
    b = chain({"f.0": 1.9, "new": 0.25})
    difference = compare_readings(a, b)
    rows = {row[0]: row for row in layer_changes(difference).rows}
    assert rows["f.0"][2:4] == ("+0.90", "+0.90")
    assert rows["gone"][1:4] == ("Linear, removed", "-0.50", "0.50")
    assert rows["new"][1:4] == ("Linear, added", "+0.25", "0.25")
    assert layer_changes(difference).footer.startswith("share: at the sample with the largest bound, the others at ")
    assert "the shares add up to the balanced bound's change (+0.65)" in layer_changes(difference).footer
    assert difference_totals([difference]).rows[0] == (
        "point",
        "upper",
        "1.50",
        "2.15",
        "+0.65",
        "proved",
    )
    assert difference_totals([compare_readings(a, replace(b, log_lower=-math.inf))]).rows[4][1:5] == (
        "gap",
        "0.25",
        "inf",
        "+inf",
    )


def test_where_names_do_not_match_the_kinds_say_so():
    a, b = chain({"0": 1.0, "1": 0.0, "2": 1.0}), chain({"0": 1.0, "1": 0.4})
    a = replace(
        a, layers=tuple(replace(x, kind=k) for x, k in zip(a.layers, ("Linear", "ReLU", "Linear"), strict=True))
    )
    told = difference_verdict(compare_readings(a, b))[-1]
    assert told.endswith("names do not tell which of them are the same, 1 is ReLU in A and Linear in B.")


def test_another_version_is_told_once():
    a, b = reading(version="0.5.0", batch="sha256:a"), reading(batch="sha256:a")
    scopes = [compare_readings(a, b), *(compare_readings(*(replace(r, scope=Scope.parse("global")) for r in (a, b))),)]
    blocks = [block for block in difference_blocks(scopes, ("a", "b")) if isinstance(block, str)]
    (told,) = [block for block in blocks if "different versions" in block]
    assert told.endswith(f": A by 0.5.0; B by {b.version}.")
    assert not any("version" in str(block) for block in difference_blocks([compare_readings(b, b)], ("b", "b")))
    assert scopes[0].to_json()["normgauge"] == {"a": "0.5.0", "b": b.version}


def test_bounds_at_samples_that_may_be_others_are_told_so():
    a, b = reading(log_upper=1.0, log_lower=0.5), reading(log_upper=9.0, log_lower=2.0)
    for scope, doubted in (("point", True), ("ball:0.1", True), ("global", False)):
        told = difference_verdict(compare_readings(*(replace(r, scope=Scope.parse(scope)) for r in (a, b))))
        assert ("Whether these are the same samples is not known." in told) == doubted


@pytest.mark.parametrize("scope", ["point", "ball:0.1", "global"])
def test_sigma_is_said_to_be_that_of_the_samples_in_every_scope(scope):
    sigma = {"min": 0.5, "rms": 1.0, "max": 2.0, "gamma_max": 1.0, "eps": 1e-5}
    norms = layer("n", "LayerNorm", 1.0, 0, sigma=sigma), layer("n", "LayerNorm", 1.7, 0, sigma={**sigma, "min": 0.1})
    shown = compare_readings(*(reading(scope=Scope.parse(scope), layers=(norm,)) for norm in norms))
    assert "smallest σ: at the samples, in every scope" in layer_changes(shown).footer
    assert "of the samples (scope" in product_changes(shown).title


def test_long_networks_show_their_largest_changes():
    names = [f"f.{i}" for i in range(30)]
    a, b = ({name: scale * i for i, name in enumerate(names)} for scale in (0.0, 0.1))
    difference = compare_readings(chain(a), chain(b))
    grid = layer_changes(difference)
    assert (
        len(grid.rows) == 20 and grid.rows[0][0] == "f.29" and grid.footer.startswith("10 of 30 layers are not shown")
    )
    assert len(layer_changes(difference, every=True).rows) == 29  # the first one did not move


def test_everything_can_be_drawn():
    stream = io.StringIO()
    draw_blocks(difference_blocks([compare_readings(reading(), reading(log_upper=9.0))], ("a.json", "b.json")), stream)
    assert "A: a.json (MLP)" in stream.getvalue() and "Π 1/σ (largest σ)" in stream.getvalue()


def test_beside_leaves_out_scopes_the_other_does_not_have():
    ball = reading(scope=Scope.parse("ball:0.1"), log_upper=3 * LN10)
    grid = reference_totals([reading(), ball], [("ResNet-20", [reading(log_upper=LN10)])])
    assert grid.headers == ("", "this network", "ResNet-20")
    assert grid.rows[0] == ("at most, at the samples", "100", "10")
    assert grid.rows[2] == ("at most, within 0.1 of the samples", "1,000", "·")


def test_medians_are_told_beside_the_steepest_sample():
    def rows(*slopes):
        return tuple({"index": i, "log10_lower": s, "log10_upper": s + 1e-8} for i, s in enumerate(slopes))

    slopes = ((0.1, 0.1, 0.1, 0.1, 1.2), (0.2, 0.2, 0.2, 0.2, 1.0))
    a, b = (reading(samples=rows(*some), batch="sha256:x") for some in slopes)
    told = " ".join(difference_verdict(compare_readings(a, b)))
    assert "The median slope of 5 samples is 1.2589 in A and 1.5849 in B" in told
    assert "B is steeper on 4, A on 1." in told and "One training of each" not in told
    strange = " ".join(difference_verdict(compare_readings(a, replace(b, batch=""))))
    assert "in B; whether these are the same samples is not known." in strange and "is steeper on" not in strange
    seeds = compare_readings(replace(a, weights="sha256:a"), replace(b, weights="sha256:b"))
    assert "One training of each: another may turn this round." in difference_verdict(seeds)
    assert "median" not in " ".join(difference_verdict(compare_readings(a, reading())))


def test_shares_are_those_of_the_balanced_bound():
    a, b = chain({"f.0": 1.0}), chain({"f.0": 1.9})
    moved = compare_readings(a, replace(b, log_upper=a.log_upper + 0.1, log_balanced=b.log_upper, method="jacobian"))
    assert "balanced bound's change (+0.90)" in layer_changes(moved).footer
    told = " ".join(difference_verdict(moved))
    assert "Of the balanced bound's change (+0.90 decades) the largest parts are" in told
    assert "ayer by layer" not in told  # that is the product of gains


def test_one_network_at_other_samples_is_not_called_steeper():
    low, high = (reading(log_upper=u, log_lower=u - 0.5, weights="sha256:" + "0" * 64) for u in (1.0, 9.0))
    assert "The parameters and buffers are the same in A and B" in " ".join(
        difference_verdict(compare_readings(low, high))
    )


def test_bounds_are_shown_rounded_up_and_slopes_rounded_down():
    low = reading(log_upper=1.50198 * LN10, log_folded=1.50198 * LN10, log_lower=1.33854 * LN10)
    totals = difference_totals([compare_readings(low, low)])
    shown = {row[1]: row[2:4] for row in totals.rows}
    assert shown["upper"] == shown["folded"] == ("1.502", "1.502")
    assert shown["lower (found)"] == ("1.3385", "1.3385")


def test_a_change_is_taken_before_its_ends_are_rounded():
    """Upper and lower end moved by the same 0.17642, and the two are shown rounded in opposite ways."""
    ends = ((1.222339, 1.222338), (1.398759, 1.398758))
    a, b = (reading(log_upper=up * LN10, log_folded=2.0, log_lower=low * LN10) for up, low in ends)
    rows = {row[1]: row[2:5] for row in difference_totals([compare_readings(a, b)]).rows}
    assert rows["upper"] == ("1.2224", "1.3988", "+0.1764")
    assert rows["lower (found)"] == ("1.2223", "1.3987", "+0.1764")


@given(st.floats(-9, 9), st.floats(-9, 9))
@settings(max_examples=60, deadline=None)
def test_no_decimal_of_a_change_is_false(first, second):
    a, b = (reading(log_upper=log * LN10, log_folded=9 * LN10, log_lower=-9 * LN10) for log in (first, second))
    for row in difference_totals([compare_readings(a, b)]).rows[:1]:
        decimals = len(row[4].partition(".")[2])
        assert decimals >= 2 and abs(float(row[4]) - (second - first)) <= 0.5000001 * 10.0**-decimals


def test_readings_in_other_modes_are_told_so_before_they_are_compared():
    whole = reading(mode="train", together=True, log_upper=1.0, log_lower=0.5)
    told = difference_verdict(compare_readings(whole, reading(log_upper=9.0, log_lower=2.0)))
    assert told[0] == "A was read in mode train (input), one map of the whole batch, B in mode eval (input)."
    assert any(sentence.startswith("B's steepest sample is steeper") for sentence in told)
    told = difference_verdict(compare_readings(reading(log_upper=1.0, log_lower=0.5), replace(whole, log_lower=2.0)))
    assert any(sentence.startswith("B is steeper for certain") for sentence in told)  # it has no samples


def test_where_slopes_are_rough_a_median_is_told_by_what_it_lies_between():
    """The slopes found at most samples are too small by far; what each has at most is known."""

    def rows(gap, *slopes):
        return tuple({"index": i, "log10_lower": s - gap, "log10_upper": s} for i, s in enumerate(slopes))

    made = partial(reading, batch="sha256:x")
    a, b = (made(samples=rows(0.2, *slopes)) for slopes in ((1.0, 1.1, 1.1, 1.1, 1.2), (0.8, 1.0, 1.0, 1.0, 1.9)))
    told = " ".join(difference_verdict(compare_readings(a, b)))
    assert "is between 7.94 and 12.6 (rough) in A and between 6.309 and 10 (rough) in B" in told
    assert "B is steeper on 1, A on 0, undecided on 4." in told
    assert "the median is between 7.94 and 12.6 (rough)" in judgement(a)
    unknown = reading(samples=rows(0.0, 1.0, 1.0, 1.0, 1.0, 1.0), evidence=Evidence.ESTIMATED)
    assert "at least 10 (rough)" in judgement(unknown)


def test_readings_of_different_samples_are_not_compared_at_them():
    low = reading(log_upper=1.0, log_lower=0.5, batch="sha256:a")
    high = reading(log_upper=9.0, log_lower=2.0, batch="sha256:b")
    apart = compare_readings(low, high)
    told = difference_verdict(apart)
    assert told == [
        "Measured on different samples: at the samples they cannot be compared. With the same --batch they can."
    ]
    assert len(difference_blocks([apart], ("a", "b"))) == 4  # two names, a line between, the refusal
    data = apart.to_json()
    assert data["comparable"] is False and data["log10_upper"]["change"] is None and data["log10_rest"] is None
    assert {change["change"] for change in data["published"].values()} == {None}
    for item in data["layers"]:
        assert item["log10_share"] is None and item["log10_gain"]["change"] is None
    same = " ".join(difference_verdict(compare_readings(low, replace(high, batch="sha256:a"))))
    assert "steeper for certain" in same and "different samples" not in same
    anywhere = [replace(r, scope=Scope.parse("global")) for r in (low, high)]
    assert "B is steeper for certain" in " ".join(difference_verdict(compare_readings(*anywhere)))


def test_what_padding_counts_in_is_told_where_it_is_compared():
    note = "rows that do not reach the output at the samples, such as padding, count in the bounds composed of layers"
    told = " ".join(difference_verdict(compare_readings(reading(), reading(notes=(note,)))))
    assert "In B rows that do not reach the output, such as padding, count in balanced and folded" in told
    assert "padding" not in " ".join(difference_verdict(compare_readings(reading(), reading())))


def test_other_outputs_are_said_first_and_stand_on_other_scales():
    pooled, hidden = (reading(notes=(f"measured output: {name}; not measured: x",)) for name in ("pooled", "hidden"))
    assert difference_verdict(compare_readings(pooled, hidden))[0] == (
        "A was read in mode eval (input to pooled), B in mode eval (input to hidden)."
    )
    footer = reference_totals([pooled], [("BERT", [hidden]), ("own", [pooled])]).footer
    assert footer.startswith("Not known to be measured between the same ends: BERT in input to hidden; this network in")
    assert "input to pooled. Slopes between other inputs and outputs are on other scales" in footer
    assert reference_totals([pooled], [("own", [pooled])]).footer == ""
    scores = reading(input_name="input_ids")
    assert "GPT-2 in input_ids; this network in input_ids" in reference_totals([scores], [("GPT-2", [scores])]).footer


def test_nothing_is_divided_between_networks_that_share_no_name():
    """The same layer under two names is not lost and gained."""
    a, b = chain({"layers.0": 0.8, "layers.1": 0.5, "head": 0.1}), chain({"0": 0.8, "1": 0.5, "2": 0.4})
    told = difference_verdict(compare_readings(a, b))[-1]
    assert told.endswith("cannot be divided among the layers: names do not tell which of them are the same, of A's 3 "
                         "B has none.")  # fmt: skip
    assert "share" not in layer_changes(compare_readings(a, b)).headers
    assert compare_readings(a, chain({"layers.0": 0.8, "norm": 0.2, "layers.1": 0.5, "last": 0.1})).parts


def test_a_change_is_told_with_one_sign_and_one_precision():
    a, b = (chain({"f.0": gain}, log_upper=log * LN10) for gain, log in ((1.9555, 1.30), (1.9525, 1.33)))
    moved = compare_readings(*(replace(r, log_balanced=r.log_folded) for r in (a, b)))
    row = next(row for row in difference_totals([moved]).rows if row[1] == "balanced")
    assert row[4] == "-0.0030"
    assert "change (-0.0030)" in layer_changes(moved).footer
    assert "change (-0.0030 decades)" in " ".join(difference_verdict(moved))
