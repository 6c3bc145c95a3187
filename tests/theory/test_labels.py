"""What a row of a check is called is true of its number, and its columns hold what the page says they hold."""

from __future__ import annotations

import math
import re
from functools import reduce
from pkgutil import resolve_name

import pytest
import torch

from normgauge.core.claim import Comparison, ComparisonKind, Verdict
from normgauge.core.errors import InputError
from normgauge.theory import CLAIMS
from normgauge.theory.checks import results
from normgauge.theory.claim import Absent, equals
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian
from normgauge.theory.nets import frozen_stack

SEEDS = (0, 5)


def rows(name: str, seed: int = 0) -> dict[str, Comparison]:
    return {finding.what: finding for finding in CLAIMS[name].run(seed).findings}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["T.L3", "T.C10.1", "T.C10.2"])
def test_a_bound_over_a_slope_is_that_ratio(name, seed):
    """A bound is never below a slope, so that a ratio below 1 would be no ratio of theirs."""
    (found,) = (row for what, row in rows(name, seed).items() if " over slope" in what)
    assert found.measured == pytest.approx(found.predicted) and found.measured > 1
    counted = {letter: int(count) for letter, count in re.findall(r"([CK]) = (\d+)", found.what)}
    if counted:
        assert found.measured == pytest.approx(math.sqrt(counted["C"]) ** counted["K"])
    else:
        assert found.measured == pytest.approx(int(re.findall(r"(\d+) equal groups", found.what)[0]))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_met_is_the_printed_number(seed):
    met = rows("T.T9", seed)["equal channels: Theorem 9 is met"]
    assert met.published == met.predicted == pytest.approx(met.measured)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_corollary_is_compared_with_its_own_number(seed):
    """A loose bound as printed lies above the slope it bounds, in every row that has both."""
    for name in ("T.T9", "T.C10.1", "T.C10.2", "T.L3"):
        printed = [row for row in rows(name, seed).values() if row.published is not None]
        assert printed and all(row.published >= row.measured * (1 - 1e-9) for row in printed), name


def test_a_claim_that_holds_prints_its_number():
    for name in ("T.L2", "T.L2.global", "T.T6"):
        printed = [row for row in rows(name).values() if row.published is not None]
        assert printed and all(row.published == row.predicted for row in printed), name


def test_no_count_is_put_into_an_author_s_mouth():
    """Of six mini-batches the sentence needs one that leans on the weights; it says nothing of all."""
    (found,) = (row for row in rows("A.R5.1.iii").values() if row.kind is ComparisonKind.REFUTES)
    assert (found.published, found.measured) == (1, 0) and "1 or more" in found.what


def test_the_network_and_its_loss_are_told_apart():
    network, loss = rows("T.T13.8"), rows("T.C14.11")
    assert len(CLAIMS["T.T13.8"].run().findings) == len(network)  # no row twice
    assert not any("loss" in what for what in network) and any("ℓ1 loss" in what for what in loss)
    assert next(iter(network.values())).kind is next(iter(loss.values())).kind is ComparisonKind.REFUTES


def test_results_that_are_not_installed_say_how_to_get_them(monkeypatch):
    def installed() -> None:
        raise InputError("not part of the installed package; in a checkout: pip install -e . (or PYTHONPATH=src)")

    monkeypatch.setattr(results, "checkout", installed)
    with pytest.raises(Absent, match=r"in a checkout: pip install -e \. "):
        results.results.__wrapped__("than2025", "nets__*")
    monkeypatch.undo()
    with pytest.raises(Absent, match="no results of experiments/than2025, nothing: normgauge reproduce"):
        results.results.__wrapped__("than2025", "nothing")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_network_without_normalizers_has_rescalings_too(seed):
    """One factor a layer cancels in P_w; one a unit does not, and the function stays."""
    found = rows("T.R7.fig1", seed)
    units, layers = found["P_w of a ReLU network, its units rescaled"], found["P_w, its layers rescaled"]
    assert units.kind is ComparisonKind.MOVES and units.measured > 100 * units.published
    assert layers.measured == pytest.approx(units.published) and found["its output, along a random direction"].passed
    assert "no such freedom" not in CLAIMS["T.R7.fig1"].entry.instead


@pytest.mark.parametrize("seed", SEEDS)
def test_what_does_not_move_stays_under_factors_of_single_units(seed):
    for name in ("T.C19.exponent", "T.R17.normalized", "Q.mechanism.2", "S.flat"):
        assert any("scaled by units" in what and "‖w‖" in what for what in rows(name, seed)), name


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mark_is_on_the_printed_statement(seed):
    """Its own counterexample, its own inequality where met, or the proof it rests on: no random row beside it."""
    marked = {name: CLAIMS[name].run(seed).decisive.what for name in ("T.L1", "T.T9", "T.T20.13", "T.C10.reduce")}
    assert marked == {
        "T.L1": "slope, three signals with σ² + ε = 1/4, 1, 4",
        "T.T9": "equal channels: Theorem 9 is met",
        "T.T20.13": "slack of X.cells.chernoff, over g, largest of 400 draws",
        "T.C10.reduce": "slope with BatchNorm, W = ±10·I, against that without",
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bound_against_another_has_that_one_as_predicted_and_published(seed):
    for name in ("T.L3", "T.T9", "T.C10.1", "T.C10.2"):
        rated = [
            row for what, row in rows(name, seed).items() if ", against" in what and row.kind is ComparisonKind.BELOW
        ]
        assert rated and all(row.published == row.predicted > row.measured for row in rated), name


@pytest.mark.parametrize("seed", range(20))
def test_the_remark_s_own_numbers_stand_in_its_table(seed):
    """W = ±10·I, every σ above 5 and not far above, the slope 1.7, and the bound that falls to a 25th."""
    found = rows("T.C10.reduce", seed)
    assert 0.16 < found["largest 1/σ, against 1/5"].measured < 0.2
    assert found["slope with BatchNorm"].measured == pytest.approx(1.7, abs=0.1)
    bound = next(row for what, row in found.items() if what.startswith("bound P_w·Π max 1/σ_k"))
    assert bound.predicted == 100 / 25 and bound.measured == pytest.approx(1.7, abs=0.15)


def test_theorem_20_names_the_share_and_the_sizes_it_is_compared_at():
    found = rows("T.T20.13")
    assert all("δ = " in what for what in found if "draws that break" in what or "m = 50,000" in what)
    best = [row.measured for what, row in found.items() if what.startswith("total variation's")]
    ours = [row.measured for what, row in found.items() if what.startswith("g, ")]
    assert [round(g / v, 1) for g, v in zip(ours, best, strict=True)] == [3.7, 13.1, 43.0]
    assert "3.7 (N = 1) to 43 times (N = 10,000)" in CLAIMS["T.T20.13"].entry.instead


def test_an_instance_can_be_made_again_without_us():
    """The function that draws is named and the numbers drawn are told, so that a row can be worked out elsewhere."""
    outcome = CLAIMS["T.T13.8"].run(5)
    assert resolve_name(outcome.recipe) is CLAIMS["T.T13.8"].check
    h = next(drawn for drawn in outcome.drawn if drawn.kind == "uniform" and drawn.shape[0] >= 5)
    assert math.prod(h.shape) == len(h.values)
    gains = [10 ** drawn.values[0] for drawn in outcome.drawn if drawn.shape == (1,)]
    whole = math.prod(gains) * math.hypot(*h.values)
    assert rows("T.T13.8", 5)["slope of the network in W_i"].measured == pytest.approx(whole)
    assert outcome.to_json()["drawn"][0]["kind"] == "integer"


MARKED = [name for name, claim in CLAIMS.items() if claim.entry.decides]
NEEDED = {Verdict.WRONG: ComparisonKind.REFUTES, Verdict.GAUGE: ComparisonKind.MOVES}
DRAWN = [name for name, claim in CLAIMS.items() if claim.check and "results" not in claim.check.__module__]


@pytest.mark.parametrize("name", MARKED)
def test_a_mark_is_on_the_row_it_names(name):
    outcome = CLAIMS[name].run(1)
    row, entry = outcome.decisive, CLAIMS[name].entry
    assert row is outcome.headline and row.what.startswith(entry.decides)
    assert row.kind is NEEDED.get(entry.verdict, row.kind)


@pytest.mark.parametrize("name", ["T.T13.9", "T.E49", "T.T6", "T.R7", "T.T15", "T.T9", "T.C10.1", "T.C10.2", "T.T12.6",
                                  "T.T12.7", "T.C10.product", "T.C22.reduction", "T.R7.fig1", "T.C19", "S.flat",
                                  "Q.break", "S.gradient"])  # fmt: skip
def test_no_row_compares_a_network_whose_relus_are_all_off(name):
    """There every formula gives 0; what is 0 whatever is drawn says so, or that it looks elsewhere."""
    always = ("behind the narrowest width", "anywhere", "elsewhere")
    for seed in range(10):
        for what, row in rows(name, seed).items():
            assert row.measured != 0 or what.endswith(always), (seed, what)


@pytest.mark.parametrize("seed", [4, 7, 8])
def test_the_mark_is_on_no_row_that_is_0_whatever_it_says(seed):
    """But for units that stay alike, and sums that cancel, which need not."""
    cancel = {"A.saddle", "A.E1.sum", "A.LNgrad.sum"}
    for name in set(DRAWN) - cancel:
        row = CLAIMS[name].run(seed).decisive
        assert row.kind is not ComparisonKind.EQUAL or (row.measured, row.predicted) != (0, 0), name


def test_every_relu_of_a_stack_that_is_on_is_on():
    draw = Draw(0, "stack")
    for depth in (1, 3, 5):
        stack = frozen_stack(draw, depth, on=True)
        whole = reduce(lambda left, folded: folded @ left, stack.folded)
        for x in (10 / math.sqrt(len(whole[0])) * v.sign() for v in draw.normal(4, len(whole[0]))):
            assert torch.allclose(jacobian(stack, x), whole, rtol=1e-9)


def test_one_layer_is_the_folded_norm_only_before_its_activation():
    row = rows("T.T9")["slope with the activation, W = (1, −1)ᵀ"]
    assert row.measured == pytest.approx(1.0) and row.published == math.sqrt(2)
    assert "exact for one layer before its activation" in CLAIMS["T.T9"].entry.instead


def test_no_row_of_another_normalizer_stands_with_a_claim_about_one():
    assert not any("batch norm" in what for what in rows("A.LNgrad"))
    assert not any("layer norm" in what for what in rows("A.E1"))


def test_what_our_runs_contradict_does_not_hold():
    """Of 20 layers seven start above σ = 1; of 21 norms four end below 1."""
    start, norms = CLAIMS["T.F2.start"], CLAIMS["T.AE.norms"]
    assert (start.entry.verdict, norms.entry.verdict) == (Verdict.NOT_REPRODUCED, Verdict.LOOSE)
    assert start.run().decisive.measured == 7 and "in seven" in start.entry.instead
    assert norms.run().decisive.measured > 2.1 and "four end below 1" in norms.entry.instead


def test_what_is_true_of_a_sentence_that_is_wrong_is_said():
    """The words are true of Figure 2's numbers, and not of those that Corollary 11 is about."""
    entry = CLAIMS["T.C11.reduce"].entry
    assert entry.verdict is Verdict.WRONG and entry.words.endswith("after training")
    assert "the sentence is true" in entry.note
    slope = CLAIMS["T.C11.reduce"].run(2).decisive
    assert slope.measured > 300 > 1 > slope.published


def test_the_losses_that_theorem_20_needs_are_said_and_others_break_it():
    assert "from 0 to C" in CLAIMS["T.T20.13"].entry.instead
    broken = rows("T.T20.13")["gap of a loss from −1 to 0, against g with C = sup f = 0"]
    assert broken.measured > 0 == broken.published and broken.passed


def test_an_error_made_of_two_names_both():
    entry = CLAIMS["T.C14.11"].entry
    assert entry.error == "truncated-h" and CLAIMS["T.C14.loss"].entry.error in entry.note and "√min" in entry.note


def test_the_reduction_of_resnet18_is_compared_in_plain_numbers():
    found = rows("T.L1.resnet18", 3)
    row = found["log10 of Π‖1/σ_k‖₂, channels alike, where Π1/σ_k = 10^−25 by the mean variance"]
    assert row.published == -25 and row.measured == pytest.approx(-2.42, abs=0.01)  # the remark's own number
    assert "10^−2.42" in CLAIMS["T.L1.resnet18"].entry.instead
    assert CLAIMS["T.L1.resnet18"].run(3).decisive.what == row.what


def test_zero_has_no_sign():
    assert math.copysign(1, equals("", -0.0, predicted=0.0).measured) == 1
