"""No two sentences of a difference contradict each other, or the numbers that they and the readings show."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normgauge.core.bound import Evidence, Scope
from normgauge.core.compare import SAME, Difference, compare_readings
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.render.difference import difference_verdict
from tests.made import layer, reading

INF = math.inf
NUMBER = r"(infinite|10\^-?[\d.]+|[\d,.]*\d)"
APART = [0.0, 1e-12, 1e-8, 1e-6, 3e-5, 2e-4, 1e-3, 0.004, 0.0099, 0.0101, 0.05, 0.7, 12.0, INF]  # decades
EVIDENCE = [Evidence.PROVED, Evidence.COMPUTED, Evidence.ESTIMATED]
ROUNDED = 3e-6  # what writing a slope down may add to it


def written(shown: str) -> float:
    if shown.startswith("10^"):
        return float(shown[3:]) * LN10
    value = INF if shown == "infinite" else float(shown.replace(",", ""))
    return math.log(value) if value else -INF


@st.composite
def sides(draw, base: float, samples: int, **same: object) -> Reading:
    upper = base + draw(st.sampled_from(APART)) * draw(st.sampled_from([-1, 1]))
    rows = []
    for index in range(samples):
        high = upper if index == 0 else upper - draw(st.sampled_from([0.0, 1e-3, 0.2]))
        low = high - draw(st.sampled_from(APART)) if math.isfinite(high) else min(high, base)
        rows.append({"index": index, "log10_lower": low, "log10_upper": high})
    return reading(
        log_upper=upper * LN10,
        log_folded=upper * LN10,
        log_lower=max(row["log10_lower"] for row in rows) * LN10,
        samples=tuple(rows),
        evidence=draw(st.sampled_from(EVIDENCE)),
        failure_probability=draw(st.sampled_from([0.0, 3.01e-8, 3.02e-8, 1e-3])),
        published={"log10_P_w": draw(st.sampled_from([0.0, 0.4, 9.0]))},
        **same,
    )


@st.composite
def differences(draw) -> Difference:
    base = draw(st.sampled_from([0.0, 0.3010299, 2.16675, 3.0178, 30.0, -5.0]) | st.floats(-4, 7))
    samples, batch = draw(st.sampled_from([1, 6])), draw(st.sampled_from(["", "sha256:a"]))
    scope = Scope.parse(draw(st.sampled_from(["point", "ball:0.1", "global"])))
    a, b = (draw(sides(base, samples, batch=batch, scope=scope)) for _ in range(2))
    weights = draw(st.sampled_from([("", ""), ("sha256:x", "sha256:y"), ("sha256:x", "sha256:x")]))
    return compare_readings(replace(a, weights=weights[0]), replace(b, weights=weights[1]))


def said(difference: Difference, pattern: str) -> re.Match | None:
    """The one sentence of this form, if there is one."""
    found = [match for sentence in difference_verdict(difference) if (match := re.fullmatch(pattern, sentence))]
    assert len(found) < 2
    return found[0] if found else None


@given(differences())
@settings(max_examples=400, deadline=None)
def test_no_sentence_contradicts_another_or_the_numbers(difference):
    a, b = difference.a, difference.b
    sides = {"A": a, "B": b}
    alike = said(difference, rf"The bound [\w .]+ is the same in A and B, {NUMBER}\.")
    each = said(difference, rf"The bound [\w .]+ is {NUMBER} in A and {NUMBER} in B(, nearly the same)?\.")
    factor = said(difference, rf"B's bound [\w .]+ is {NUMBER} times A's \((\S+) decades\)\.")
    endless = {
        "A": said(difference, r"B's bound .*; A has no finite one\."),
        "B": said(difference, r"B has no finite bound .*"),
        "both": said(difference, r"Neither A nor B has a finite bound .*"),
    }
    assert sum(map(bool, (alike, each, factor, *endless.values()))) == 1
    higher = said(
        difference,
        r"(?:(A|B)(?:(?:'s| around its) steepest sample)? is steeper|Undecided which is steeper: in (A|B))\b.* "
        rf"a slope of {NUMBER} "
        rf"was found, and (A|B) has at most {NUMBER}\b.*",
    )
    bracket = said(difference, rf"Undecided .*: the brackets (overlap|are apart by rounding alone), from {NUMBER} to "
                               rf"{NUMBER} in A and from {NUMBER} to {NUMBER} in B\.")  # fmt: skip
    weights = said(difference, r"The parameters and buffers are the same in A and B\b.*")
    nothing = said(difference, r"Nothing that counts has changed\.")
    gauge = said(difference, r"The same capacity in another gauge.*, the bound (.*)\.")
    counts = said(difference, r"The median .*: sample by sample B is steeper on (\d), A on (\d)\b.*")
    worth = said(difference, r"B's bound is (.*), A's was (.*)\.")
    assert sum(map(bool, (higher, bracket, weights))) == 1

    if alike:
        assert not higher and all(r.log_upper <= written(alike[1]) + 3e-9 for r in sides.values())
        assert (
            a.log_upper == b.log_upper or abs(a.log_upper - b.log_upper) <= 0.024
        )  # as far as powers of ten are written
    if each:
        assert each[1] != each[2] and (written(each[1]) > written(each[2])) == (a.log_upper > b.log_upper)
        assert all(r.log_upper <= written(shown) + 3e-9 for r, shown in zip((a, b), each.groups()[:2], strict=True))
        assert bool(each[3]) == (abs(difference.growth) < SAME)
    if factor:
        assert (written(factor[1]) > 0) == (float(factor[2]) > 0) == (b.log_upper > a.log_upper)
    for side, r in sides.items():
        assert bool(endless[side] or endless["both"]) == (r.log_upper == INF)
    if higher:
        name, low, most = higher[1] or higher[2], written(higher[3]), written(higher[5])
        assert name != higher[4] and low > most and sides[name].log_lower > sides[higher[4]].log_upper
        assert low <= sides[name].log_lower + ROUNDED and most >= sides[higher[4]].log_upper - 3e-9
        assert counts is None or not higher[1] or int(counts[1 if name == "B" else 2]) > 0
    if bracket:
        ends = [written(end) for end in bracket.groups()[1:]]
        assert ends[0] <= ends[3] + ROUNDED and ends[2] <= ends[1] + ROUNDED
    if nothing:
        assert (alike or endless["both"]) and not higher and not worth
        assert a.log_lower == b.log_lower or abs(a.log_lower - b.log_lower) <= 0.024
        assert counts is None or counts.groups() == ("0", "0")
    if gauge:
        assert (gauge[1] == "did not") == bool(alike or endless["both"]) and not nothing
    assert worth is None or worth[1] != worth[2]


def at(upper: float, lower: float, **changes: object) -> Reading:
    return reading(log_upper=math.log(upper), log_folded=math.log(upper), log_lower=math.log(lower), **changes)


def test_one_network_in_two_precisions():
    told = difference_verdict(compare_readings(at(147.097, 147.0968), at(146.819, 146.8187)))
    assert told[:2] == [
        "The bound at the samples is 147.10 in A and 146.82 in B, nearly the same.",
        "A's steepest sample is steeper for certain: a slope of 147.09 was found, and B has at most 146.82.",
    ]
    assert not any("Nothing that counts" in sentence for sentence in told)


def test_digits_are_added_until_they_tell():
    told = difference_verdict(compare_readings(at(2.00003, 2.00002), at(2.00001, 2.0)))
    assert told[0].startswith("The bound at the samples is 2.0000") and "in A" in told[0]
    assert "a slope of 2.00001" in told[1] or "a slope of 2.00002" in told[1]


def test_a_network_of_no_slope_has_a_finite_bound():
    none = reading(log_upper=-INF, log_folded=-INF, log_lower=-INF)
    told = difference_verdict(compare_readings(none, at(2.0, 1.0)))
    assert told[0] == "The bound at the samples is 0 in A and 2 in B."


def test_the_same_weights_are_not_compared_with_themselves():
    one = at(2.0, 1.0, weights="sha256:x")
    told = difference_verdict(compare_readings(one, one))
    assert told[1:] == ["The parameters and buffers are the same in A and B.", "Nothing that counts has changed."]


@pytest.mark.parametrize("batches", [("sha256:a", "sha256:b")])
def test_of_other_samples_the_refusal_is_all_that_is_said(batches):
    a, b = (at(2.0, 1.0, batch=batch, failure_probability=p) for batch, p in zip(batches, (0.0, 0.1), strict=True))
    assert difference_verdict(compare_readings(a, b)) == [
        "Measured on different samples: at the samples they cannot be compared. With the same --batch they can."
    ]


def changed(**changes: object) -> list[str]:
    """What is told of two readings with the same weights and samples; B has other numbers and these changes."""
    same = {"weights": "sha256:x", "batch": "sha256:a"}
    return difference_verdict(compare_readings(at(2.0, 1.9, **same), at(4.0, 3.9, **{**same, **changes})))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"layers": (layer("f.0", "Linear", 1.0, 0), layer("mul", "mul", 0.4, 1))},
            "the code, or numbers it holds elsewhere",
        ),
        (
            {"layers": (layer("f.0", "Linear", 1.4, 0), *reading().layers[1:])},
            "the code, or numbers it holds elsewhere",
        ),
        ({"version": "0.1.9"}, "how they were measured"),
        ({"scope": Scope.parse("point"), "options": {"effort": "quick"}}, "how they were measured"),
    ],
)
def test_what_differs_beside_the_weights_is_what_was_seen_to_differ(changes, said):
    """Where it is the code, the networks are two, and which is steeper is told."""
    told = changed(**changes)
    assert f"The parameters and buffers are the same in A and B: what differs is {said}." in told
    assert any("steeper" in sentence for sentence in told) == (said == "the code, or numbers it holds elsewhere")


def test_what_differs_unseen_is_not_named():
    assert "The parameters and buffers are the same in A and B: what else differs was not stored." in changed()


def test_in_a_ball_the_steepest_sample_is_named_and_the_others_counted():
    def around(upper, *slopes):
        rows = tuple({"index": i, "log10_lower": s, "log10_upper": upper} for i, s in enumerate(slopes))
        logs = {"log_upper": upper * LN10, "log_folded": upper * LN10, "log_lower": max(slopes) * LN10}
        return reading(scope=Scope.parse("ball:0.1"), batch="sha256:a", samples=rows, **logs)

    told = difference_verdict(compare_readings(around(1.0, *[0.9] * 5), around(2.0, 1.8, 0.9, *[0.1] * 3)))
    assert (
        "B around its steepest sample is steeper for certain: a slope of 63.09 was found, and A has at most 10." in told
    )
    assert "Of the slopes found around 5 samples 1 are larger in B, 3 in A." in told
