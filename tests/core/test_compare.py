"""The difference of two readings: totals, layers, and shares that add up."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from normgauge.core.bound import Evidence, Scope
from normgauge.core.compare import ADDED, KEPT, REMOVED, REPLACED, Change, compare_readings, match_scopes
from normgauge.core.proof import Proof, ProofStep
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from tests.made import layer, reading


def chain(gains: dict[str, float], **changes: object) -> Reading:
    """A reading of layers in series, log10 gains by name; two samples, the second half a decade tamer."""
    steps = []
    for place, (name, gain) in enumerate(gains.items()):
        each = (gain * LN10, (gain - 0.5) * LN10) if place == 0 else gain * LN10
        steps.append(ProofStep(name, place + 1, (place,), False, (each,), (each,)))
    total = math.fsum(gains.values()) * LN10
    made = reading(
        layers=tuple(layer(name, "Linear", gain, place) for place, (name, gain) in enumerate(gains.items())),
        log_upper=total,
        log_folded=total,
        proof=Proof(2, (0,), len(gains), tuple(steps)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def residual(branch: float, stem: float = 0.0, disjoint: bool = False) -> Reading:
    """stem, then x + branch(x): log10 gains."""
    steps = (
        ProofStep("stem", 1, (0,), False, (stem * LN10,), (stem * LN10,)),
        ProofStep("branch", 2, (1,), False, (branch * LN10,), (9 * LN10,)),  # the folded column is the better one
        ProofStep("add", 3, (1, 2), disjoint, (0.0, 0.0), (0.0, 0.0)),
    )
    size = math.hypot(1, 10**branch) if disjoint else 1 + 10**branch
    total = math.log(size) + stem * LN10
    names = (("stem", stem), ("branch", branch), ("add", 0.0))
    return reading(
        layers=tuple(layer(name, "Linear", gain, i) for i, (name, gain) in enumerate(names)),
        log_upper=total,
        log_folded=total,
        proof=Proof(1, (0,), 3, steps),
    )


def test_in_a_chain_the_shares_are_the_changes_of_the_gains_and_add_up():
    a, b = chain({"f.0": 1.0, "f.1": 0.5, "f.2": 0.25}), chain({"f.0": 1.9, "f.1": 0.4, "f.2": 0.25})
    difference = compare_readings(a, b)
    assert difference.growth == pytest.approx(0.8 * LN10)
    assert [item.name for item in difference.layers] == ["f.0", "f.1", "f.2"]
    assert [item.share for item in difference.layers] == pytest.approx([0.9 * LN10, -0.1 * LN10, 0.0])
    assert difference.rest == pytest.approx(0.0, abs=1e-12)
    assert {item.status for item in difference.layers} == {KEPT}


def test_a_chain_with_another_layer_counts_it_whole():
    a, b = chain({"f.0": 1.0, "old": 0.5}), chain({"f.0": 1.0, "norm": -0.3, "head": 0.1})
    shares = {item.name: (item.status, item.share) for item in compare_readings(a, b).layers}
    assert {name: status for name, (status, _) in shares.items()} == {
        "old": REMOVED, "norm": ADDED, "head": ADDED, "f.0": KEPT,
    }  # fmt: skip
    told = [shares[name][1] for name in ("old", "norm", "head", "f.0")]
    assert told == pytest.approx([-0.5 * LN10, -0.3 * LN10, 0.1 * LN10, 0.0])
    assert compare_readings(a, b).rest == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (reading(), reading()),
        (chain({"f.0": 1.0}), residual(0.0)),
        (chain({"f.0": 1.0}), chain({"f.0": math.inf})),
    ],
    ids=["no proof", "other wiring", "an infinite gain"],
)
def test_what_cannot_be_divided_is_not(a, b):
    difference = compare_readings(a, b)
    assert difference.rest is None and difference.parts == []
    assert {item.share for item in difference.layers} == {None}


def test_a_linear_map_and_its_normalizer_are_one_part():
    sigma = {"min": 0.5, "rms": 1.0, "max": 2.0, "gamma_max": 1.0, "eps": 1e-5}

    def pair(linear: float, norm: float) -> Reading:
        made = chain({"linear": linear, "norm": norm, "head": 0.0})
        first, second, head = made.layers
        return replace(
            made, layers=(replace(first, log_spectral=first.gain), replace(second, kind="Norm", sigma=sigma), head)
        )

    parts = compare_readings(pair(0.0, 0.0), pair(-2.0, 2.5)).parts
    assert parts[0] == ("linear with norm", pytest.approx(0.5 * LN10))


def kinds(made: Reading, *names: str) -> Reading:
    layers = tuple(replace(record, kind=kind) for record, kind in zip(made.layers, names, strict=True))
    return replace(made, layers=layers)


def test_where_places_in_a_row_have_moved_on_nothing_is_said_of_a_name():
    a = kinds(chain({"0": 1.0, "1": -0.5, "2": 0.0, "3": 1.0}), "Linear", "LayerNorm", "ReLU", "Linear")
    b = kinds(chain({"0": 1.0, "1": 0.0, "2": 0.4}), "Linear", "ReLU", "Linear")
    moved = compare_readings(a, b)
    assert moved.parts == [] and moved.rest is None
    named = compare_readings(a, kinds(chain({"0": 1.0, "1": 0.0, "2": 0.4}), "Linear", "LayerNorm", "ReLU"))
    assert named.parts[0] == ("3", pytest.approx(-1.0 * LN10))


def test_what_took_a_place_is_named_with_what_was_there():
    a = kinds(chain({"0": 1.0, "1": -0.5, "2": 0.0}), "Linear", "BatchNorm1d", "ReLU")
    b = kinds(chain({"0": 1.0, "1": 1.5, "2": 0.0}), "Linear", "LayerNorm", "ReLU")
    assert compare_readings(a, b).parts[0] == ("1: BatchNorm1d → LayerNorm", pytest.approx(2.0 * LN10))


def test_readings_of_more_or_fewer_samples_are_of_others_though_no_digest_says_so():
    few, many = (reading(samples=tuple({"index": i, "log10_lower": 0.0} for i in range(n))) for n in (32, 100))
    assert compare_readings(few, many).apart and not compare_readings(many, many).apart
    assert not compare_readings(few, replace(few, batch="sha256:a")).apart  # which samples is not known
    assert not compare_readings(many, reading(together=True)).apart  # a batch as one point
    everywhere = (replace(r, scope=Scope.parse("global")) for r in (few, many))
    assert not compare_readings(*everywhere).apart


def test_another_gauge_is_recognised():
    a, b = chain({"f.0": 1.0}), chain({"f.0": 1.0})
    moved = replace(b, published={**a.published, "log10_P_w": 9.8})
    assert compare_readings(a, moved).other_gauge and not compare_readings(a, b).other_gauge
    assert not compare_readings(a, replace(moved, log_upper=a.log_upper + 1)).other_gauge


def test_changes_of_infinities_and_of_missing_numbers():
    inf = math.inf
    assert [Change(*pair).by for pair in ((inf, inf), (1.0, inf), (inf, 1.0), (None, 1.0), (1.0, 3.0))] == [
        0.0, inf, -inf, None, 2.0,
    ]  # fmt: skip


def test_layers_whose_kind_changed_and_sigma():
    a = chain({"f.0": 1.0})
    sigma = {"min": 0.1, "rms": 1.0, "max": 2.0, "gamma_max": 1.0, "eps": 1e-5}
    first = replace(a, layers=(replace(a.layers[0], sigma=sigma),))
    second = replace(a, layers=(replace(a.layers[0], kind="Conv2d", sigma={**sigma, "min": 0.0}),))
    (item,) = compare_readings(first, second).layers
    assert item.status == REPLACED and item.kinds == ("Linear", "Conv2d")
    assert item.sigma.by == -math.inf
    assert compare_readings(a, second).layers[0].sigma.by is None


def test_scopes_are_matched_by_name():
    point, ball, everywhere = (reading(scope=Scope.parse(s)) for s in ("point", "ball:0.1", "global"))
    differences, alone = match_scopes([point, ball], [everywhere, point])
    assert [str(d.a.scope) for d in differences] == ["point"] and alone == ["ball:0.1", "global"]


def test_weaker_evidence_is_noticed():
    a = reading()
    assert compare_readings(a, replace(a, evidence=Evidence.ESTIMATED)).weaker
    assert not compare_readings(replace(a, evidence=Evidence.UNKNOWN), a).weaker


def test_json_is_strict_and_in_decades():
    a, b = chain({"f.0": 1.0}), chain({"f.0": math.inf})
    data = json.loads(json.dumps(compare_readings(a, b).to_json(), allow_nan=False))
    assert data["log10_upper"] == {"a": pytest.approx(1.0), "b": "inf", "change": "inf"}
    assert data["published"]["log10_P_w"]["change"] == pytest.approx(0.0)
    assert data["published"]["log10_prod_inv_sigma, max"] == {"a": "inf", "b": "inf", "change": 0.0}
    assert data["layers"][0]["status"] == KEPT
