from __future__ import annotations

import json
import math
import pickle

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.core.proof import Proof, ProofStep
from normgauge.core.spelled import LN10
from tests.conftest import balanced_alone
from tests.made import reading


class Forked(nn.Module):
    """Two branches that meet in a sum, then a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(6, 6), nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x):
        h = self.norm(self.a(x) + torch.tanh(self.b(x)))
        return torch.cat([h, x], 1)


@pytest.fixture(scope="module")
def forked() -> ng.Reading:
    torch.manual_seed(0)
    with balanced_alone():
        return ng.gauge(Forked(), torch.randn(4, 6), scope="point")


def composed(proof: Proof, which: str) -> list[float]:
    """The totals by the plainest arithmetic: numbers, not logarithms."""
    totals = []
    for sample in range(proof.samples):
        slopes = dict.fromkeys(proof.sources, 1.0)
        for step in proof.steps:
            logs = [g if isinstance(g, float) else g[sample] for g in getattr(step, which)]
            arms = [math.exp(log) * slopes[v] for log, v in zip(logs, step.inputs, strict=True)]
            slopes[step.output] = math.hypot(*arms) if step.disjoint else sum(arms)
        totals.append(slopes[proof.output])
    return totals


def test_the_proof_gives_the_totals_and_every_samples_bound(forked):
    folded, balanced = composed(forked.proof, "folded"), composed(forked.proof, "balanced")
    assert max(folded) == pytest.approx(math.exp(forked.log_folded), rel=1e-9)
    uppers = [min(pair) for pair in zip(folded, balanced, strict=True)]
    assert max(uppers) == pytest.approx(math.exp(forked.log_upper), rel=1e-9)
    assert [math.log10(u) for u in uppers] == pytest.approx([row["log10_upper"] for row in forked.samples], abs=1e-9)


def test_the_proof_names_every_layer_of_the_table_once_and_uses_both_ways_to_join(forked):
    named = [step.layer for step in forked.proof.steps if step.layer]
    assert sorted(named) == sorted(record.name for record in forked.layers)
    assert {(step.disjoint, len(step.inputs)) for step in forked.proof.steps} >= {(True, 2), (False, 2), (False, 1)}
    assert any(isinstance(gain, tuple) for step in forked.proof.steps for gain in step.folded)


def test_the_witness_shows_the_slope_it_stands_for(forked):
    assert forked.witness is not None and forked.witness.where.startswith("jacobian at sample")
    shown = forked.witness.output_change / forked.witness.input_change
    assert math.log(shown) == pytest.approx(forked.log_lower, abs=1e-3)


def test_the_steepest_direction_stays_below_the_bound_at_every_layer_and_ends_at_the_slope_found(forked):
    assert len(forked.layers) > 3 and all(r.log_reached <= r.log_cumulative + 1e-6 for r in forked.layers)
    beside_the_input = math.hypot(math.exp(forked.layers[-1].log_reached), 1.0)  # the concatenation has no row
    assert math.log(beside_the_input) == pytest.approx(forked.log_lower, abs=1e-3)


def test_rules_used_are_told_with_formula_and_validity(forked):
    assert set(forked.rules) >= {record.rule for record in forked.layers}
    assert "√ε" in forked.rules["norm_layer.layer_norm"]["formula"]
    assert all(set(texts) == {"formula", "holds", "source"} for texts in forked.rules.values())


def test_proof_and_witness_survive_json_and_pickle(forked):
    for copy in (ng.Reading.from_json(json.loads(json.dumps(forked.to_json()))), pickle.loads(pickle.dumps(forked))):
        assert copy.proof is not None and copy.witness == forked.witness and copy.rules == forked.rules
        assert composed(copy.proof, "balanced") == pytest.approx(composed(forked.proof, "balanced"), rel=1e-12)
        assert copy.version == ng.__version__


def test_infinite_gains_are_spelled_in_json():
    step = ProofStep("f", 1, (0,), False, (math.inf,), ((1.0 * LN10, -math.inf),))
    data = Proof(2, (0,), 1, (step,)).to_json()
    assert data["steps"][0]["log10_folded"] == ["inf"]
    assert data["steps"][0]["log10_balanced"] == [[1.0, "-inf"]]
    assert Proof.from_json(json.loads(json.dumps(data))).steps == (step,)


def test_a_reading_of_the_first_version_still_loads_without_a_proof():
    since = ("failure_probability", "path_dependent", "log10_refuted", "no_bound", "together", "precision", "options")
    old = {**reading().to_json(), "schema": 1}
    for added in ("normgauge", "witness", "rules", "proof", *since, "weights_digest", "edited", "digest"):
        del old[added]
    for record in old["layers"]:
        del record["worked"], record["log10_reached"]
    loaded = ng.Reading.from_json(old)
    assert (loaded.version, loaded.proof, loaded.witness, loaded.rules) == ("0.1.0", None, None, {})
    assert (str(loaded.evidence), loaded.precision, loaded.weights, loaded.edited) == ("proved", "", "", False)


def test_a_larger_scope_knows_the_slopes_of_the_smaller_ones_sample_by_sample():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    point, ball, everywhere = ng.readings(model, torch.randn(3, 4), search=True)
    for small, large in ((point, ball), (ball, everywhere)):
        assert large.log_lower >= small.log_lower
        pairs = zip(small.samples, large.samples, strict=True)
        assert all(b["log10_lower"] >= a["log10_lower"] for a, b in pairs)
    for made in (point, ball, everywhere):
        assert max(row["log10_lower"] for row in made.samples) == pytest.approx(made.log10_lower, abs=1e-12)
