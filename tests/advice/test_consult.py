"""What advice says and how: words, numbers, JSON, facts, modes, and what it leaves alone."""

from __future__ import annotations

import json
import math

import pytest
import torch

import normgauge as ng
from normgauge.advice import Remark
from normgauge.advice.consult import causes_first, never_updated
from normgauge.core.errors import InputError
from tests.advice.nets import net


def test_the_json_form_is_strict(batch):
    data = ng.advise(net(None, depth=20).double(), 1e-3 * batch.double(), facts=False).to_json()
    assert set(data) == {"schema", "model", "mode", "problems", "facts", "notes"}
    weak = net(None, depth=20)
    with torch.no_grad():
        for parameter in weak.parameters():
            parameter.mul_(0.4)
    (problem,) = ng.advise(weak, batch, facts=False).to_json()["problems"]
    assert set(problem) == {"kind", "layer", "severity", "sentence", "numbers", "fix"}
    assert problem["kind"] == "vanishes" and problem["severity"] == "act" and problem["fix"]["kind"] == "batch"
    infinite = Remark("diverged", "a", "a.", {"log10_peak": math.inf})
    assert json.loads(json.dumps(infinite.to_json(), allow_nan=False))["numbers"] == {"log10_peak": "inf"}


def test_statistics_never_set_are_looked_at_in_train_mode(batch):
    fresh = net("batch", depth=6)
    assert never_updated(fresh)
    advice = ng.advise(fresh, batch, facts=False)
    assert advice.mode == "train" and advice.problems == () and "ever set" in advice.notes[0]
    assert ng.advise(fresh, batch[:1], facts=False).mode == "eval"  # one sample has no statistics
    stale = ng.advise(fresh, 30 * batch, facts=False, mode="eval")
    assert stale.problems[0].kind == "stale statistics" and "never updated" in stale.problems[0].sentence
    assert not never_updated(net("layer"))


def test_weights_that_are_no_numbers_come_alone(batch):
    model = net("batch")
    with torch.no_grad():
        model.head.weight[0, :2] = math.nan
    (remark,) = ng.advise(model, batch)
    assert (remark.kind, remark.layer, remark.numbers["values"]) == ("diverged", "head", 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    (remark,) = ng.advise(model, batch)  # a training that broke: every tensor is gone, and that is one thing to say
    count = len(list(model.parameters()))
    assert remark.layer == "" and f"{count} parameters (" in remark.sentence and "more) hold" in remark.sentence


def test_few_samples_are_said():
    assert "3 samples" in ng.advise(net("layer"), torch.randn(3, 8), facts=False).notes[0]


def test_the_model_is_untouched_and_mistakes_are_said(batch):
    model = net("batch").train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    ng.advise(model, batch)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items()) and model.training
    with pytest.raises(InputError, match="the model's forward raised"):
        ng.advise(model, torch.randn(4, 5))
    with pytest.raises(InputError, match=r"expected a torch\.nn\.Module"):
        ng.advise("net", batch)  # type: ignore[arg-type]


def test_what_follows_from_a_cause_is_left_out():
    def remark(kind: str, depth: int) -> Remark:
        return Remark(kind, f"layer{depth}", "x.", depth=depth)

    found = [remark("stale statistics", 5), remark("stale statistics", 2), remark("outlier gain", 7)]
    assert [(r.kind, r.depth) for r in causes_first(found)] == [("stale statistics", 2), ("outlier gain", 7)]
    found = [remark("vanishes", 4), remark("dead activations", 1)]
    assert [r.kind for r in causes_first(found)] == ["dead activations"]
