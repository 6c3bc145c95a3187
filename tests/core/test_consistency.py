"""The checker accepts what was measured and rejects whatever was changed afterwards."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from normgauge.core import checker, consistency
from normgauge.core.reading import Reading
from normgauge.instrument.measure import gauge
from tests.conftest import balanced_alone
from tests.core.conftest import Data, changed, resealed, stored

SCOPES = ("point", "ball:0.1", "global")


class Wide(nn.Module):
    """Branches that meet by concatenation, beside a residual one."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.norm, self.head = (
            nn.Linear(5, 4),
            nn.Linear(5, 6),
            nn.LayerNorm(10),
            nn.Linear(10, 3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.cat([self.left(x), torch.tanh(self.right(x))], 1)
        return self.head(h + self.norm(h))


@pytest.fixture(scope="module")
def wide() -> Data:
    torch.manual_seed(0)
    with balanced_alone():
        return stored(gauge(Wide(), torch.randn(3, 5), scope="point"))


@pytest.fixture(scope="module")
def alone() -> Data:
    """One sample of a chain: nothing but the scope's own facts tells it from a reading of another scope."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))
    with balanced_alone():
        return stored(gauge(model, torch.randn(1, 5), scope="point"))


@pytest.fixture(scope="module")
def normed() -> Data:
    """BatchNorm alone: the products that are stated for it are there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    with balanced_alone():
        return stored(gauge(model, torch.randn(1, 5), scope="point"))


def test_products_stated_for_its_normalizers_are_checked(normed):
    assert judge(normed) == [] and normed["published"]["log10_corollary11"] is None
    for key in ("log10_corollary10_1", "log10_prod_l2"):
        forged = copy.deepcopy(normed)
        forged["published"][key] += 1
        assert any("log10_corollary10_1: stored" in said for said in judge(forged)), key


def test_readings_of_versions_that_stated_every_product_are_accepted(alone):
    old = copy.deepcopy(alone)
    del old["published"]["log10_corollary10_1"]
    old["published"].update(log10_prod_l2=1.5, log10_corollary10_2=2.5)
    assert judge(old) == []


def layer(data: Data, name: str) -> Data:
    return next(item for item in data["layers"] if item["name"] == name)


def step(data: Data, name: str) -> Data:
    return next(item for item in data["proof"]["steps"] if item["layer"] == name)


def test_what_was_measured_is_accepted(net, wide):
    assert [consistency.check_consistency(data) for data in (*net, wide)] == [[]] * 4
    assert any(item["disjoint"] and len(item["inputs"]) == 2 for item in wide["proof"]["steps"])


def judge(data: Data) -> list[str]:
    """What is wrong with a reading apart from its digest."""
    return consistency.check_consistency(resealed(data))


def swap(a: Data, b: Data, key: str) -> None:
    a[key], b[key] = b[key], a[key]


CORRUPTIONS: dict[str, tuple[Callable[[Data], Any], str]] = {
    "a smaller bound": (lambda d: d.update(log10_upper=d["log10_upper"] - 0.01), "log10_upper: stored"),
    "a larger bound": (lambda d: d.update(log10_upper=d["log10_upper"] + 0.01), "log10_upper: stored"),
    "a smaller folded bound": (lambda d: d.update(log10_folded=d["log10_folded"] - 1e-6), "log10_folded: stored"),
    "an infinite bound": (lambda d: d.update(log10_upper="inf"), "log10_upper: stored inf, recomputed"),
    "an infinite gain": (lambda d: step(d, "up").update(log10_balanced=["inf"]), "layer up: log10_balanced"),
    "one gain": (lambda d: step(d, "up")["log10_balanced"].__setitem__(0, -3.0), "layer up: log10_balanced: stored"),
    "one sample's gain": (lambda d: step(d, "ln")["log10_folded"][0].__setitem__(1, 9.0), "layer ln: log10_folded"),
    "two samples swapped": (lambda d: swap(d["samples"][0], d["samples"][1], "log10_upper"), "sample 0: log10_upper"),
    "two shares swapped": (lambda d: swap(layer(d, "up"), layer(d, "down"), "log10_folded"), "layer up: log10_folded"),
    "two layers swapped": (lambda d: d["layers"].reverse(), "their names or their order"),
    "a layer dropped": (lambda d: d["layers"].pop(), "their names or their order"),
    "a sample dropped": (lambda d: d["samples"].pop(0), "3 are listed, the proof has 4"),
    "a step dropped": (lambda d: d["proof"]["steps"].pop(3), "of which not all were made before it"),
    "the last step dropped": (lambda d: d["proof"]["steps"].pop(), "is not made from a source"),
    "a step twice": (lambda d: d["proof"]["steps"].insert(1, d["proof"]["steps"][0]), "is no new number"),
    "a step that reads nothing": (lambda d: step(d, "up").update(inputs=[]), "reads []"),
    "a branch cut off": (lambda d: step(d, "add")["inputs"].pop(), "expected one gain an input"),
    "a branch that goes elsewhere": (lambda d: step(d, "add")["inputs"].__setitem__(0, 0), "log10_upper: stored"),
    "a sum called disjoint": (lambda d: step(d, "add").update(disjoint=True), "log10_upper: stored"),
    "disjoint is no answer": (lambda d: step(d, "add").update(disjoint="no"), "disjoint is 'no'"),
    "another output": (lambda d: d["proof"].update(output=3), "layer head: leads nowhere"),
    "no samples": (lambda d: d["proof"].update(samples=0), "is no count of samples"),
    "a norm": (lambda d: layer(d, "up")["log10_spectral"].update(upper=0.5), "log10_gain against log10_spectral"),
    "an enclosure turned round": (lambda d: layer(d, "ln")["log10_gain"].update(lower=5.0), "the lower end of an"),
    "the way to a layer": (lambda d: layer(d, "up").update(log10_cumulative=0.0), "layer up: log10_cumulative"),
    "the way from a layer": (lambda d: layer(d, "ln").update(log10_to_output=-2.0), "layer ln: log10_to_output"),
    "a layer left out": (lambda d: step(d, "down").update(inputs=step(d, "up")["inputs"]), "leads nowhere"),
    "P_w": (lambda d: d["published"].update(log10_P_w=0.0), "log10_P_w: stored"),
    "theorem 9": (lambda d: d["published"].update(log10_theorem9=0.0), "log10_theorem9: stored"),
    "theorem 9 over all inputs": (
        lambda d: d["published"].update(log10_theorem9_published=0.0),
        "log10_theorem9_published: stored",
    ),
    "a sigma": (lambda d: layer(d, "bn")["sigma"].update(rms=1.0), "log10_prod_inv_sigma, rms"),
    "sigmas out of order": (lambda d: layer(d, "bn")["sigma"].update(min=9.0), "layer bn: sigma out of order"),
    "a slope above the bound": (lambda d: d.update(log10_lower=d["log10_upper"] + 0.1), "log10_lower: stored"),
    "a slope of one sample": (lambda d: d["samples"][0].update(log10_lower=4.0), "sample 0: log10_lower: stored 4"),
    "a shorter rise": (lambda d: d["witness"].update(output_change=d["witness"]["output_change"] * 0.8), "two lengths"),
    "a longer run": (lambda d: d["witness"].update(input_change=1.0), "witness: its two lengths are a slope of"),
    "a shorter run": (
        lambda d: d["witness"].update(input_change=d["witness"]["input_change"] / 1e6),
        "witness: its two lengths are a slope of",
    ),
    "no run at all": (lambda d: d["witness"].update(input_change=0.0), "witness: its two lengths are a slope of"),
    "no witness": (lambda d: d.update(witness=None), "log10_lower without a witness"),
    "another place": (lambda d: d["witness"].update(where="jacobian at sample 77"), "witnessed_slope"),
    "no place": (lambda d: d["witness"].update(where="somewhere"), "is not where the samples are steepest"),
    "a secant": (lambda d: d["witness"].update(where="secant from sample 0"), "witness"),
    "a layer reached too far": (lambda d: layer(d, "up").update(log10_reached=7.0), "layer up: log10_reached"),
    "a loss": (lambda d: d["log10_loss"].update(cross_entropy=0.0), "log10_loss, cross_entropy"),
    "a displacement": (lambda d: d.update(log10_displacement=1.0), "log10_displacement: stored 1, recomputed"),
    "a smaller displacement": (lambda d: d.update(log10_displacement=-1.0), "log10_displacement: stored -1"),
    "a displacement elsewhere": (lambda d: d.update(log10_displacement=None), "cannot stand in the scope 'ball:0.1'"),
    "a scope": (lambda d: d.update(scope="global"), "cannot stand here"),
    "an unheard-of scope": (lambda d: d.update(scope="nowhere"), "scope: expected point, global or ball:RADIUS"),
    "evidence": (lambda d: d.update(evidence="certain"), "evidence: 'certain'"),
    "evidence without a reason": (lambda d: d.update(evidence="unknown"), "evidence: 'unknown' with 0 unknown parts"),
    "an unknown part": (lambda d: d["unknown"].append({"name": "a", "why": "b"}), "evidence: 'proved' with 1 unknown"),
    "a part without a bound": (lambda d: d["no_bound"].append({"name": "a", "why": "b"}), "and 1 no_bound"),
    "refuted by nothing": (lambda d: d.update(evidence="refuted", log10_upper="inf"), "log10_refuted: None"),
    "a refuted number": (lambda d: d.update(log10_refuted=1.0), "cannot stand beside the evidence 'proved'"),
    "a radius of the input": (lambda d: d["proof"].update(log10_radii=[0.0]), "the radius of source 0: stored 0"),
    "a radius behind a map": (lambda d: step(d, "stem").update(log10_radius=-3.0), "layer stem: log10_radius: stored"),
    "a gain above that everywhere": (lambda d: step(d, "ln").update(log10_everywhere=-1.0), "against log10_everywhere"),
    "another radius of the ball": (lambda d: d.update(scope="ball:0.2"), "scope ball:0.2: the radius of source 0"),
    "a chance above one": (lambda d: d.update(failure_probability=2), "failure_probability: expected a number from 0"),
    "a digest of nothing": (lambda d: d.update(weights_digest="abc"), "weights_digest: expected sha256"),
    "edited": (lambda d: d.update(edited=True), "edited: the reading was loaded from a file that had been edited"),
    "a rule nobody described": (lambda d: d["rules"].popitem(), "are used by layers and not listed"),
    "NaN": (lambda d: d.update(log10_upper=math.nan), "log10_upper: expected a number, got nan"),
    "a bare infinity": (lambda d: layer(d, "up").update(log10_folded=math.inf), "expected a number, got inf"),
    "a number as text": (lambda d: d.update(log10_upper="1.3"), "log10_upper: expected a number, got '1.3'"),
    "true for a number": (lambda d: d["log10_loss"].update(l1_sum=True), "l1_sum: expected a number, got True"),
    "null for a number": (lambda d: d["published"].update(log10_P_w=None), "log10_P_w: expected a number"),
    "a text for a list": (lambda d: d.update(gauges="none"), "gauges: expected"),
    "a list for a text": (lambda d: layer(d, "up").update(kind=[]), "layers[4].kind: expected a text"),
    "a missing field": (lambda d: d.pop("notes"), "the field 'notes' is missing"),
    "a layer's missing field": (lambda d: layer(d, "ln").pop("log10_folded"), "the field 'log10_folded' is missing"),
    "a step's missing field": (lambda d: step(d, "ln").pop("disjoint"), "the field 'disjoint' is missing"),
    "steps that are none": (lambda d: d["proof"].update(steps=[3]), "a field of the wrong kind, graph"),
    "no proof": (lambda d: d.update(proof=None), "stored no proof"),
    "another schema": (lambda d: d.update(schema=3), "of schema 2, got schema 3 written by normgauge"),
    "an older schema": (lambda d: d.update(schema=1), "wrote it with schema 1, which ties no scope to its proof"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CORRUPTIONS))
def test_a_changed_reading_is_rejected(net, name):
    spoil, message = CORRUPTIONS[name]
    data = copy.deepcopy(net[1])
    spoil(data)
    findings = judge(data)
    assert any(message in finding for finding in findings), findings
    assert not any(finding.startswith("digest") for finding in findings)


def test_any_edit_is_seen_by_the_digest_alone(net):
    """Of each field: another value, and the field gone. The layout and the order of a file do not count."""
    seen = "digest: it is not that of the content: the reading was edited after it was written"
    for key in [key for key in net[1] if key != "digest"]:
        assert seen in checker.digest_matches({**net[1], key: "another"}), key
        if key != "edited":
            assert seen in checker.digest_matches({k: v for k, v in net[1].items() if k != key}), key
    turned = dict(reversed(json.loads(json.dumps(net[1], indent=3)).items()))
    assert consistency.check_consistency(turned) == []
    assert consistency.check_consistency({**turned, "failure_probability": int(turned["failure_probability"])}) == []
    assert any("digest: expected" in said for said in consistency.check_consistency({**net[1], "digest": None}))


def test_a_disjoint_join_called_a_sum_is_rejected(wide):
    data = copy.deepcopy(wide)
    for item in data["proof"]["steps"]:
        item["disjoint"] = False
    assert any("log10_upper: stored" in finding for finding in judge(data))


def relabelled(data: Data, scope: str, radius: float | str) -> Data:
    """A reading of samples called one of another scope, all that follows from the label changed with it."""
    data = copy.deepcopy(data)
    data.update(scope=scope, log10_displacement=None)
    for row in data["samples"]:
        row["log10_upper"] = None
    data["proof"].update(samples=1, log10_radii=[radius])
    for item in data["proof"]["steps"]:
        for column in ("log10_folded", "log10_balanced"):
            item[column] = [max(gain) if isinstance(gain, list) else gain for gain in item[column]]
    return data


def test_a_point_called_global_is_rejected(alone):
    """Its one sample makes all but the scope's own facts fit: how far values move, and what a gain is everywhere."""
    forged = relabelled(alone, "global", "inf")
    assert any("layer 0: log10_radius: stored -inf, recomputed inf" in said for said in judge(forged))
    for item in forged["proof"]["steps"]:
        item["log10_radius"] = "inf"
    (said,) = judge(forged)
    assert said.startswith("layer 1: log10_gain against log10_everywhere in the scope global: stored")
    assert judge(relabelled(alone, "point", "-inf")) != []  # null where a sample has a bound


def test_a_ball_with_another_radius_is_rejected(net):
    forged = copy.deepcopy(net[1])
    forged["scope"] = "ball:10"
    assert any("the radius of source 0" in said for said in judge(forged))
    forged["proof"]["log10_radii"] = [1.0]
    assert any("layer stem: log10_radius" in said for said in judge(forged))


def test_a_gain_edited_with_all_that_follows_is_seen_by_the_digest(alone):
    """The arithmetic holds; only the digest, and measuring again, can tell."""
    forged = copy.deepcopy(alone)
    last, name, less = forged["proof"]["steps"][-1], forged["layers"][-1]["name"], 0.5
    for column in ("log10_folded", "log10_balanced"):
        last[column] = [gain - less for gain in last[column]]
    record = layer(forged, name)
    for key in ("log10_folded", "log10_balanced", "log10_cumulative"):
        record[key] -= less
    for table, keys in (
        (record["log10_gain"], ("lower", "upper")),
        (record["log10_spectral"], ("lower", "upper")),
        (forged["log10_loss"], tuple(forged["log10_loss"])),
        (forged["samples"][0], ("log10_upper", "log10_lower")),
        (forged, ("log10_upper", "log10_balanced", "log10_folded", "log10_lower")),
        (
            forged["published"],
            ("log10_P_w", "log10_theorem9", "log10_theorem9_published", "log10_corollary11_published"),
        ),
    ):
        for key in keys:
            table[key] -= less
    last["log10_everywhere"] -= less
    forged["witness"]["output_change"] /= 10**less
    for other in forged["layers"][:-1]:
        other["log10_to_output"] -= less
    assert judge(forged) == []
    assert any(said.startswith("digest: ") for said in consistency.check_consistency(forged))


def test_a_reading_without_a_proof_names_who_wrote_it(net):
    bare = {key: value for key, value in net[0].items() if key != "proof"}
    assert consistency.check_consistency(bare) == [
        f"it cannot be verified: normgauge {bare['normgauge']} stored no proof with it; "
        "measure again with a newer version"
    ]
    old = {key: value for key, value in {**bare, "schema": 1}.items() if key != "normgauge"}
    assert consistency.check_consistency(old) == [
        "it cannot be verified: normgauge 0.1.0 wrote it with schema 1, which ties no scope to its proof; measure again"
    ]
    assert consistency.check_consistency([]) == [
        "expected a reading of schema 2, got schema None written by something that is not normgauge"
    ]


# What may be changed unnoticed, and why it cannot be otherwise.
FREE = {
    "depth": "a place in the order of execution, for the reader",
    "seconds": "what the measurement cost",
    "log10_slack": "seen along one direction; needs the network",
    "log10_weight_lipschitz": "holds the length of a hidden vector; needs the network",
    "gamma_max": "enters a gain only together with the σ of the same channel",
    "eps": "likewise",
    "log10_corollary10_2": "made of vectors of 1/σ that are not stored",
    "log10_corollary11": "likewise",
    "log10_lemma3_sum": "likewise",
    "log10_lemma3_published": "holds the number of groups, which is not stored",
    "failure_probability": "what the methods used allow; any from 0 to 1 may be",
    "width": "an option; asked for, not measured",
}
# Of an inequality only a change beyond its limit can be noticed; the sign says on which side the limit lies.
LIMITED = {
    "log10_lower": 1,  # of a sample that is not the steepest: below its bound anything may have been found
    "lower": 1,  # an enclosure may be wider
    "log10_reached": 1,  # seen along one direction
    "log10_radius": 1,  # a step's own facts may bound it better than its gain does
    "log10_everywhere": -1,  # a gain is at most this
    "output_change": -1,  # a steeper slope supports the smaller one as well
    "input_change": 1,
    "log10_cumulative": 1,  # its samples' own gains are not stored: equal where all share one, else at most the
    "log10_to_output": 1,  # product of the largest
    "upper": -1,  # so a larger gain of a layer that is neither linear nor a normalizer allows all that is said
}
FAR = 50.0


def numbers(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers stand in a reading."""
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from numbers(value, (*path, key))
    elif isinstance(node, float) or (isinstance(node, int) and not isinstance(node, bool)):
        yield path


def last_name(path: tuple[Any, ...]) -> str:
    return next(key for key in reversed(path) if isinstance(key, str))


def unnoticed(data: Data, by: float) -> list[tuple[Any, ...]]:
    """The places at which a changed number passes, each that is not free on its own."""
    missed, found = [], list(numbers(data))
    assert len(found) > 100
    for path in found:
        name = last_name(path)
        if name in FREE or path[0] in FREE or (name == "log10_reached" and data["scope"] == "point"):
            continue  # a direction is followed over a short way, and the point's bound holds at the point
        if name == "log10_everywhere" and not data["proof"]["steps"][path[2]]["layer"]:
            continue  # of a change of shape, which has no row that says it
        amount = LIMITED[name] * FAR if name in LIMITED else by
        if not judge(changed(data, path, amount)):
            missed.append(path)
    return missed


@pytest.mark.parametrize("scope", range(3), ids=SCOPES)
@pytest.mark.parametrize("by", [0.5, -0.5])
def test_any_number_that_is_changed_is_noticed(net, scope, by):
    assert unnoticed(net[scope], by) == []


@pytest.mark.parametrize("by", [3e-6, -3e-6])
def test_a_small_change_is_noticed_where_a_number_enters_a_total(net, by):
    """All but the folded gains of samples whose bound is the balanced one: they enter nothing that is said."""
    missed = unnoticed(net[1], by)
    assert all(path[:2] == ("proof", "steps") and path[3] == "log10_folded" and len(path) == 6 for path in missed)
    assert unnoticed(net[2], by) == []


def test_the_free_fields_exist(net):
    present = {last_name(path) for path in numbers(net[1])} | set(net[1]) | set(net[1]["published"])
    assert set(FREE) | set(LIMITED) <= present


@pytest.mark.parametrize("value", [10**400, 1e6], ids=["no float", "a loss beyond powers"])
def test_numbers_too_large_are_told_not_raised(net, value):
    data = {**net[0], "log10_loss": {**net[0]["log10_loss"], "l1_sum": value}}
    assert any("a field of the wrong kind, derived" in finding for finding in consistency.check_consistency(data))


def test_a_slope_above_the_bound_is_never_verified_whatever_a_note_says(net):
    data = copy.deepcopy(net[0])
    data["log10_lower"] = data["samples"][0]["log10_lower"] = 3.0
    data["witness"] = {"where": "jacobian at sample 0", "input_change": 1.0, "output_change": 1000.0}
    assert any("log10_lower: stored 3, at most" in finding for finding in judge(data))
    data["notes"].append("a slope was found above the upper bound: one of them is wrong; please report this network")
    assert any("log10_lower: stored 3, at most" in finding for finding in judge(data))
    read = Reading.from_json(resealed(data))  # what loads it sees the same
    assert str(read.evidence) == "refuted" and read.log_upper == math.inf
    (said,) = consistency.check_consistency(read.to_json())
    assert said.startswith("refuted: a slope was found above a bound (log10 of the bound")


def test_a_median_that_is_not_that_of_the_samples():
    torch.manual_seed(0)
    data = stored(gauge(nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn(6, 5)))
    assert consistency.check_consistency(data) == []
    for end in ("lower", "upper"):
        forged = resealed(changed(data, ("log10_median", end), -0.1 if end == "lower" else 0.1))
        assert any(f"log10_median.{end}: stored" in sentence for sentence in consistency.check_consistency(forged))
    none = resealed({**data, "log10_median": None})
    assert "log10_median: none stored, one recomputed" in consistency.check_consistency(none)
    old = resealed({key: value for key, value in data.items() if key != "log10_median"})
    assert consistency.check_consistency(old) == []
