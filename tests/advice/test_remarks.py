"""What advice says and how: words, numbers, JSON, facts, modes, and what it leaves alone."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.advice import Advice, Fix, Remark, Severity
from normgauge.advice.consult import causes_first, never_updated
from normgauge.advice.view import spread_and_size
from normgauge.core.errors import InputError
from normgauge.lab.zoo import mlp, vit


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


def net(norm: str | None, depth: int = 3, width: int = 16) -> nn.Module:
    torch.manual_seed(1)
    model = mlp((8, *[width] * depth, 4), norm=norm, groups=4)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model.eval()


def test_facts_and_problems_are_kept_apart(batch):
    advice = ng.advise(net("layer"), batch)
    assert advice.problems == () and [r.kind for r in advice.facts] == ["control", "gap"]
    assert list(advice) == list(advice.facts) and len(advice) == 2
    text = str(advice)
    assert text.startswith("MLP, eval mode: no problem found\nfacts\n")
    control = advice.facts[0]
    assert control.layer in control.sentence and "as they are written" in control.sentence
    gains = {r.name: r.gain.hi / math.log(10) for r in ng.gauge(net("layer"), batch, scope="point").layers}
    assert control.numbers[control.layer] == pytest.approx(gains[control.layer], abs=1e-3)


def test_the_numbers_of_a_sentence_are_those_of_the_network(batch):
    model = net(None)
    with torch.no_grad():
        model.layers[1].linear.weight.mul_(1000)
    (remark,) = ng.advise(model, batch, facts=False).problems
    assert (remark.kind, remark.layer) == ("outlier weight", "layers.1.linear")
    truth = math.log10(torch.linalg.matrix_norm(model.layers[1].linear.weight.detach().double(), 2))
    assert remark.numbers["log10_norm"] == pytest.approx(truth, abs=1e-3)
    assert remark.fix == Fix(("layers.1.linear",), "batch")


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


def test_values_that_are_no_numbers_are_found(batch):
    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x)

    model = nn.Sequential(nn.Linear(8, 8), Log(), nn.Linear(8, 2))
    remark = ng.advise(model, batch, facts=False).problems[0]
    assert (remark.kind, remark.layer) == ("diverged", "1.log") and "no numbers" in remark.sentence


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


def test_a_gain_of_zero_in_a_branch_is_a_usual_start():
    torch.manual_seed(0)
    model = vit(8, 2, 1, 16, 2, 4).eval()
    images = torch.randn(8, 1, 8, 8)
    with torch.no_grad():
        model.blocks[0].norm2.weight.zero_()
    assert ng.advise(model, images, facts=False).problems == ()
    with torch.no_grad():
        model.norm.weight.zero_()  # on the trunk nothing passes
    assert ("dead normalizer", "norm") in [(r.kind, r.layer) for r in ng.advise(model, images, facts=False).problems]


def test_written_out_and_functional_normalizers_are_looked_at_too():
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 12), nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
            h = torch.nn.functional.group_norm(h, 12)
            return self.last(torch.nn.functional.layer_norm(h, (12,)) + torch.nn.functional.rms_norm(h, (12,)))

    torch.manual_seed(0)
    model = Written()
    problems = ng.advise(model, torch.randn(16, 8), facts=False).problems
    assert ("one element", "group_norm") in [(r.kind, r.layer) for r in problems]
    with torch.no_grad():
        model.first.weight.mul_(1e-6)
        model.first.bias.zero_()
    said = [(r.kind, r.layer) for r in ng.advise(model, torch.randn(16, 8), facts=False).problems]
    assert ("epsilon decides", "root_mean_square") in said


def test_what_follows_from_a_cause_is_left_out():
    def remark(kind: str, depth: int) -> Remark:
        return Remark(kind, f"layer{depth}", "x.", depth=depth)

    found = [remark("stale statistics", 5), remark("stale statistics", 2), remark("outlier gain", 7)]
    assert [(r.kind, r.depth) for r in causes_first(found)] == [("stale statistics", 2), ("outlier gain", 7)]
    found = [remark("vanishes", 4), remark("dead activations", 1)]
    assert [r.kind for r in causes_first(found)] == ["dead activations"]


def test_spread_is_over_the_samples_and_size_over_everything():
    values = torch.tensor([[100.0, 0.0], [100.0, 2.0]])
    spread, size = spread_and_size(values, 0)
    assert spread == pytest.approx(math.log10(math.sqrt(0.5)))
    assert size == pytest.approx(math.log10(math.sqrt(20004 / 4)))
    assert spread_and_size(torch.zeros(3, 2), 0) == (-30.0, -30.0)
    assert spread_and_size(torch.full((2,), math.inf), None) == (30.0, 30.0)
    assert spread_and_size(torch.zeros(0), None) == (-30.0, -30.0)
    assert spread_and_size(1e200 * values.double(), 0)[1] == pytest.approx(size + 200)


def test_severity_decides_what_is_a_problem():
    remarks = tuple(Remark("k", "a", "s.", severity=severity) for severity in Severity)
    advice = Advice("Net", "eval", remarks, ("a note",))
    assert [r.severity for r in advice.problems] == [Severity.ACT, Severity.LOOK]
    assert str(advice).splitlines() == [
        "Net, eval mode: 2 problems",
        "  1. [k] s.",
        "  2. [k] s.",
        "facts",
        "  - s.",
        "note: a note",
    ]
