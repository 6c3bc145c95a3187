from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

import normgauge as ng
from normgauge.core import reference
from normgauge.core.bound import Evidence, Scope
from normgauge.core.reading import Finding, Reading
from normgauge.core.spelled import LN10
from normgauge.render.console import reading_text
from normgauge.render.judgement import next_steps
from normgauge.render.panel import panel, reading_notebook
from normgauge.render.verdict import (
    balance_sentence,
    evidence_words,
    gap_line,
    judgement,
    median_words,
    standing_sentence,
    trouble_sentences,
    use_sentence,
    verdict_line,
)
from tests.made import reading


def text_of(found: Reading) -> str:
    return " ".join(reading_text(found).split())


def test_a_reading_leads_with_what_was_found_and_says_whether_the_bound_is_of_use():
    assert verdict_line(reading()) == (
        "The largest Jacobian norm found at the samples is 17.78, so the truth lies within 0.75 decades; head (Linear) "
        "has the most slack, 0.44 decades beyond what it did. "
        "A small change of the input changes the output by at most 100 times as much at the samples (proved)."
    )
    said = judgement(reading())
    assert said == "The bound is of use: at most 5.624 times what was found." and said in text_of(reading())
    assert "above small CNN (14.3) and below MLP with BatchNorm (20.33)" in standing_sentence(reading())


@pytest.mark.parametrize(
    ("decades", "said"),
    [
        (0.1, "tight: at most 1.26 times what was found"),
        (0.182, "of use: at most 1.521 times what was found"),
        (2.0, "loose, up to 100 times what was found: a ceiling"),
        (9.0, "of no practical use here, 10^9.00 times what was found. Go by the slope found"),
        (math.inf, "of no use here. Go by the slope found"),
    ],
)
def test_a_wide_gap_is_said_to_be_one(decades, said):
    bracket = reading(log_lower=0.0, log_upper=decades * LN10)
    assert use_sentence(bracket).startswith("The bound is " + said)


def test_what_was_not_found_elsewhere_is_not_ruled_out():
    anywhere = reading(log_lower=0.0, log_upper=9 * LN10, scope=Scope.parse("global"))
    assert "does not rule it out" in use_sentence(anywhere) and "Go by" not in use_sentence(anywhere)


def test_a_bound_is_shown_rounded_up_and_a_slope_rounded_down():
    held = reading(log_lower=math.log(38.308523), log_upper=math.log(38.308524))
    assert "found at the samples is 38.308," in verdict_line(held) and "at most 38.309 times" in verdict_line(held)
    rough = reading(log_lower=math.log(38.308523), log_upper=math.log(38.3092))
    assert "found at the samples is 38.3," in verdict_line(rough) and "at most 38.31 times" in verdict_line(rough)


def test_the_smallest_and_the_largest_slopes_stand_at_an_end():
    assert standing_sentence(reading(log_lower=-9.0)).startswith(
        f"Of {len(reference.names())} reference networks 9 have such inputs and outputs, each on data of its own size "
        "and scale: 0 of them have a smaller slope found, and it is below "
    )
    assert " and below" not in standing_sentence(reading(log_lower=90.0, log_upper=91.0))
    assert standing_sentence(reading(scope=Scope.parse("ball:7"))) == ""


def test_terminal_page_notebook_and_json_say_the_same():
    for found in (reading(), reading(log_upper=math.inf), reading(mode="train")):
        line = verdict_line(found)
        assert line in text_of(found)
        assert found.to_json()["verdict"] == line
        for shown in (panel(found, [], "k", 2, opened=True, heading=False), reading_notebook(found)):
            assert line in re.sub(r"<[^>]+>", "", shown)


def test_train_mode_speaks_of_the_whole_batch():
    assert "A small change of the whole batch" in verdict_line(reading(mode="train"))


def test_a_number_that_is_only_estimated_says_so():
    assert "The upper number is estimated, not proved." in trouble_sentences(reading(evidence=Evidence.ESTIMATED))


def test_nothing_found_and_nothing_bounded():
    assert verdict_line(reading(log_lower=-math.inf)).startswith("No slope above zero was found. ")
    assert verdict_line(reading(log_upper=math.inf)).startswith(
        "The largest Jacobian norm found at the samples is 17.78; above it nothing is ruled out. "
    )


def test_a_long_list_of_findings_is_cut():
    many = tuple(Finding(f"n{i}", "no rule") for i in range(7))
    told = " ".join(trouble_sentences(reading(unknown=many, log_upper=math.inf)))
    assert "n3: no rule; and 3 more." in told and "n4" not in told


def test_what_weights_and_normalizers_do():
    told = balance_sentence(reading())
    assert told is not None
    assert "multiply to 56.24 without the 1 normalizer, theirs to 0.3163; the balanced bound is 100." in told
    assert balance_sentence(reading(layers=())) is None


def test_the_product_of_all_gains_is_not_called_what_the_cumulative_column_is():
    """Branches side by side add in the one and multiply in the other: one phrase, one meaning."""
    assert str(balance_sentence(reading())).startswith("The gains of all layers, branches side by side included, ")


def test_a_chance_is_rounded_up():
    told = reading(failure_probability=1.04e-8)
    assert "p ≤ 2e-08" in evidence_words(told)
    assert any("probability 2e-08 at most" in sentence for sentence in trouble_sentences(told))


def test_ends_that_meet_are_called_the_same():
    held = reading(log_lower=math.log(21.84), log_upper=math.log(21.84) + 1e-7)
    assert "is 21.840, so the truth is known to 0.001 %" in verdict_line(held)
    assert use_sentence(held) == "The bound is tight: the slope found comes within 0.001 % of it."
    near = reading(log_lower=math.log(21.84), log_upper=math.log(21.84) + 1e-4)
    assert "is 21.84, so the truth is known to 0.1 %" in verdict_line(near)


def test_no_layer_is_given_more_slack_than_what_it_is_told_against():
    """Slack is measured along one direction against the balanced bound: elsewhere it is no part of the gap."""
    here = reading()
    slack, whole = here.layer("head").log_slack, sum(layer.log_slack for layer in here.layers)
    assert "head (Linear) has the most slack, 0.44 decades beyond what it did." in verdict_line(here)
    small = [replace(here, log_upper=here.log_lower + 0.9 * slack), replace(here, scope=Scope.parse("global"))]
    places = ["the steepest direction found", "the steepest direction at the sample where the search began"]
    for found, place in zip(small, places, strict=True):
        assert slack < whole and (
            f"Along {place} the slack of all layers adds up to 0.66 decades, of which head (Linear) has the most, 0.44."
        ) in verdict_line(found)
        assert "decades beyond what it did" not in verdict_line(found)
        assert f"most slack along {place}:" in " ".join(next_steps(found)) or found.gap > 0.05


def test_of_a_ball_without_use_a_smaller_one_is_named():
    far = reading(log_upper=30 * LN10, log_lower=1.0, scope=Scope.parse("ball:0.1"))
    assert use_sentence(far).endswith("say more, and a smaller radius may have a bound of use.")
    assert use_sentence(replace(far, scope=Scope.parse("global"))).endswith("the readings at the samples say more.")


def test_a_median_is_a_value_that_was_seen_and_is_rounded_to_the_nearest():
    def median(value, width):
        low = math.log10(value)
        return median_words(reading(samples=[{"index": 0, "log10_lower": low, "log10_upper": low + width}] * 6))

    assert (median(9.37649, 1e-9), median(9.15716, 1e-9), median(9.378, 1e-4)) == ("9.3765", "9.1572", "9.38")
    assert median(9.378, 0.1) == "between 9.37 and 11.81 (rough)"  # ends are rounded outwards
    assert median(9.378, 0.004) == "between 9.37 and 9.47"  # known to a hundredth, which is not rough
    pair = [{"index": 0, "log10_lower": math.log10(v), "log10_upper": math.log10(v)} for v in (1, 1, 2, 8, 9, 9)]
    assert median_words(reading(samples=pair)) == "4"  # of an even number the geometric mean of the middle two


def test_the_line_of_the_gap_has_no_digit_that_the_others_deny():
    tight = reading(log_lower=1.222340001 * LN10, log_upper=1.222340003 * LN10)
    assert "upper 1.22235" in gap_line(tight) and "lower 1.22234, gap 0.00001 decades" in gap_line(tight)


def test_the_largest_gain_of_a_layer_is_told_as_a_bound():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([1.0, 2.0, 0.5, 3.0]))
    batch = torch.randn(4, 6, dtype=torch.double)
    slopes = [torch.linalg.matrix_norm(jacobian(model[1], row), 2).item() for row in model[0](batch)]
    shown = reading_text(found := ng.gauge(model, batch), every=True)
    told = r"1 \(LayerNorm\) has the largest bound of a layer by itself, at most ([\d.]+) times"
    said = re.search(told, verdict_line(found))
    assert said and float(said[1]) > 1.01 * max(slopes)  # max|γ|/σ, which no Jacobian of it has here
    assert "Π bounds of normalizers' gains over all inputs" in " ".join(shown.split())
