from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from normgauge.core.bound import Scope
from normgauge.core.errors import ReadingError
from normgauge.core.interval import LogInterval
from normgauge.core.proof import Proof, ProofStep
from normgauge.core.reading import Finding, Reading
from normgauge.core.spelled import LN10
from normgauge.render.explain import WIDTH, explain
from tests.made import layer, reading

RULE = {"formula": "J = diag(γ/σ),  ‖J‖ = max|γ|/σ", "holds": "everywhere, exactly.", "source": "a lemma, " * 20}
WORKED = "channel 3: |γ|/√(var+ε) = 0.5/√(2.5 + 1e-05) = 0.31623"


def made(**changes) -> Reading:
    return reading(rules={"made.batchnorm1d": RULE}, **changes)


def with_layer(**changes) -> Reading:
    one = made()
    return replace(one, layers=(one.layers[0], replace(one.layers[1], **changes), one.layers[2]))


def items(told: str) -> dict[str, str]:
    """The texts by their label, lines joined again."""
    found: dict[str, str] = {}
    label = ""
    for line in told.splitlines()[1:]:
        if line[2:11].strip():
            label = line[2:11].strip()
        found[label] = f"{found[label]} {line.strip()}" if line[:11].strip() == "" else line[11:]
    return found


def walked(*steps: tuple[str, int, tuple[int, ...]]) -> Proof:
    rows = tuple(ProofStep(name, out, ins, False, (0.0,) * len(ins), (0.0,) * len(ins)) for name, out, ins in steps)
    return Proof(1, (0,), rows[-1].output, rows)


def test_a_layer_is_told_from_its_rule_to_its_place():
    told = explain(with_layer(worked=WORKED, log_to_output=0.0, log_weight_lipschitz=math.log(5)), "f.1")
    assert told.startswith("f.1 (BatchNorm1d): rule made.batchnorm1d, claim T.L1\n")
    said = items(told)
    assert list(said) == [
        "formula", "here", "holds", "source", "measured", "alone", "folded", "balanced", "place", "seen", "weights",
        "sigma", "note",
    ]  # fmt: skip
    assert said["here"] == WORKED and said["holds"] == RULE["holds"]
    assert said["measured"] == "at the samples, in eval mode."
    assert said["alone"].endswith("by at most 0.3163, and somewhere by 0.1918 or more.")
    assert said["folded"] == "a factor of 0.5624 in the folded bound, 316.3."
    assert said["balanced"] == "a factor of 0.6813 in the balanced bound, 100."
    assert said["place"].startswith("from the input to its output by at most 0.1, from there to the end by")
    assert said["seen"] == "in the weights of the balanced bound, its share allows 1.65 times what was seen."
    assert said["weights"] == "the output moves with its weights, from where they are, by at most 5."
    assert "min 0.25, rms 1.5, max 4" in said["sigma"] and said["note"] == "2 channels at the ε floor."


def test_lines_are_no_wider_than_a_terminal():
    long = with_layer(worked=WORKED * 4, note="very " * 60)
    assert max(len(line) for line in explain(long, "f.1").splitlines()) <= WIDTH


def test_train_mode_and_a_ball_are_named():
    said = items(explain(made(mode="train", scope=Scope.parse("ball:0.5")), "f.1"))
    assert said["measured"] == "within 0.5 of the samples, the map of the whole batch in train mode."


def test_the_direction_is_followed_from_the_layer_before():
    graph = walked(("f.0", 1, (0,)), ("", 2, (1,)), ("f.1", 3, (2,)), ("head", 4, (3, 1)))
    one = made(proof=graph)
    grown = tuple(
        replace(r, log_reached=math.log(g), log_slack=0.0) for r, g in zip(one.layers, (2, 6, 3), strict=True)
    )
    one = replace(one, layers=grown)
    seen = [items(explain(one, name))["seen"] for name in ("f.0", "f.1", "head")]
    just = "in the weights of the balanced bound, its share allows just what was seen."
    start = "the steepest direction found is here"
    assert seen[0] == f"{start} 2 times as long as at the input; {just}"
    assert seen[1] == f"{start} 6 times as long as at the input, and 3 times as long as behind f.0; {just}"
    assert seen[2] == f"{start} 3 times as long as at the input; {just}"  # two branches meet: no single layer before
    lost = replace(one, layers=(replace(grown[0], log_reached=-math.inf), *grown[1:]))
    assert "behind" not in explain(lost, "f.1")
    assert "is here 0 times as long" in explain(lost, "f.0")
    assert "behind" not in explain(replace(one, proof=None), "f.1")


def test_a_name_that_runs_again_is_told_so():
    runs = tuple(layer(name, "relu", 0.0, i, claim=None) for i, name in enumerate(("relu", "relu#2", "relu#3")))
    told = explain(made(layers=runs), "relu#2")
    assert told.startswith("relu#2: rule made.relu\n")
    assert items(told)["also"] == "the same name runs 3 times: see relu, relu#3."


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("haed", "did you mean head? It has 3 layers: f.0, f.1, head"),
        ("f.1#2", "did you mean f.1 or f.0? It has 3 layers"),
        ("f", "it is a block of 2 layers: f.0, f.1"),
        ("0", "it is a part of 1 names: f.0"),
        ("transformer", "it has 3 layers: f.0, f.1, head"),
    ],
)
def test_a_wrong_name_gets_the_nearest_ones(name, hint):
    with pytest.raises(ReadingError) as caught:
        explain(made(), name)
    assert f"no layer {name!r} in this reading; {hint}" in str(caught.value)


def test_a_long_list_of_names_is_cut():
    many = made(layers=tuple(layer(f"l{i}", "Linear", 0.0, i) for i in range(20)))
    with pytest.raises(ReadingError, match=r"20 layers: l0, l1, l2, l3, l4, l5, l6, l7, \.\.\.$"):
        explain(many, "x")


def endless(note: str, rule: str, scope: str = "global", **findings: tuple[Finding, ...]) -> dict[str, str]:
    gain = LogInterval(-math.inf, math.inf)
    changes = {"gain": gain, "log_folded": math.inf, "log_balanced": math.inf, "log_cumulative": math.inf}
    one = with_layer(note=note, rule=rule, log_slack=260 * LN10, log_weight_lipschitz=math.inf, **changes)
    return items(explain(replace(one, scope=Scope.parse(scope), log_upper=math.inf, **findings), "f.1"))


def test_a_layer_without_a_rule_says_what_to_do():
    said = endless("no rule for torch.lgamma", "none", unknown=(Finding("f.1", "no rule for torch.lgamma"),))
    assert said["alone"] == "no bound is known for what it does to a small change."
    assert "Give it a rule" in said["to do"] and "REGISTRY.extended" in said["to do"]
    assert said["weights"] == "the output moves with its weights, from where they are, without a finite bound."
    assert not {"formula", "here", "folded", "balanced", "seen"} & set(said)


def test_a_use_that_a_rule_does_not_cover_says_so():
    said = endless("an odd padding", "conv.convolution", unknown=(Finding("f.1", "an odd padding"),))
    assert said["to do"].startswith("its rule does not cover this use.")


@pytest.mark.parametrize(
    ("scope", "advice"),
    [
        ("global", "measure in a smaller scope (a ball or a point), or bound its input"),
        ("ball:0.1", "measure in a smaller scope (a smaller ball or a point), or bound its input"),
        ("point", "bound its input"),
    ],
)
def test_an_unbounded_layer_says_what_to_do(scope, advice):
    why = "exp of an input that is not bounded above"
    said = endless(why, "activation.exponential", scope, unbounded=(Finding("f.1", why),))
    assert said["alone"] == "it stretches a small change without a finite bound."
    assert said["to do"].startswith(advice)


def test_a_jump_has_no_scope_that_helps():
    why = "round is discontinuous"
    said = endless(why, "activation.jump", "ball:0.1", unbounded=(Finding("f.1", why),))
    assert "A step that jumps has no slope in any scope: replace it" in said["to do"]


def test_a_reading_of_an_older_version_says_less():
    data = with_layer(worked=WORKED, log_reached=1.0).to_json()
    for field in ("rules", "proof", "witness", "normgauge"):
        del data[field]
    for row in data["layers"]:
        del row["worked"], row["log10_reached"]
    old = Reading.from_json(json.loads(json.dumps(data)))
    said = items(explain(old, "f.1"))
    assert "alone" in said and not {"formula", "here", "holds", "source"} & set(said)


def test_a_reading_explains_the_same_after_a_file(tmp_path):
    one = with_layer(worked=WORKED)
    one.save(tmp_path / "a.json")
    assert Reading.load(tmp_path / "a.json").explain("f.1") == one.explain("f.1")
