"""What became of a bound and of the slopes found, in sentences; each follows from the numbers that are shown.

Two ends are the same where they are written alike, in as many digits as the nearer known of the two is told in. A side
is steeper where its slope found is above the other's bound as both are written: digits are added until it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

from normgauge.core.bound import Evidence
from normgauge.core.compare import KEPT, SAME, Difference, same_weights
from normgauge.core.reading import FEW, Reading
from normgauge.core.spelled import LN10
from normgauge.render.numbers import DOWN, UP, format_factor, known_digits, scope_words, signed_decades
from normgauge.render.verdict import evidence_words, median_words, other_weights

MOST_DIGITS = 9  # written of a factor; what differs beyond them is rounding
GAUGED = ("P_w", "prod_inv_sigma, rms")  # products of norms that another gauge moves


def growth_sentence(difference: Difference) -> str:
    """How the bounds compare: the same, nearly, by a factor, or none on one side."""
    place, growth = scope_words(difference.a.scope), difference.growth
    most = _most(difference)
    endless = [math.isinf(r.log_upper) and r.log_upper > 0 for r in (difference.a, difference.b)]
    if all(endless):
        return f"Neither A nor B has a finite bound {place}."
    if endless[1]:
        return f"B has no finite bound {place}; A's is {most[0]}."
    if endless[0]:
        return f"B's bound {place} is {most[1]}; A has no finite one."
    if most[0] == most[1]:
        return f"The bound {place} is the same in A and B, {most[0]}."
    if abs(growth) < SAME or math.isinf(growth):
        return f"The bound {place} is {most[0]} in A and {most[1]} in B{', nearly the same' * (abs(growth) < SAME)}."
    return f"B's bound {place} is {format_factor(growth)} times A's ({signed_decades(growth)} decades)."


def weights_sentence(difference: Difference) -> str:
    """That all in the digest is the same, and what else is known to differ; empty where they are not."""
    if not _same_weights(difference):
        return ""
    differ = {
        "the code, or numbers it holds elsewhere": difference.other_code,
        "the samples": difference.a.batch != difference.b.batch,
        "how they were measured": difference.other_settings,
    }
    named = " and ".join(what for what, does in differ.items() if does)
    unnamed = "" if is_unchanged(difference) else ": what else differs was not stored"
    return f"The parameters and buffers are the same in A and B{f': what differs is {named}' if named else unnamed}."


def steeper_sentence(difference: Difference) -> str:
    """Bounds do not tell which of two networks is steeper; a slope found in one above the other's bound does.

    Empty where nothing shows that they are two.
    """
    a, b = difference.a, difference.b
    if _same_weights(difference) and not difference.other_code:
        return ""
    found, most, digits = _found(difference), _most(difference), _digits(difference)
    for (name, steep), (other, low) in permutations((("B", b), ("A", a))):
        if _apart(steep.log_lower, low.log_upper, digits) is None:
            continue
        written = found[name == "B"], most[other == "B"]
        places = {"point": "'s steepest sample", "ball": " around its steepest sample"}
        who = name + ("" if steep.together else places.get(a.scope.kind, ""))
        lies = f"a slope of {written[0]} was found, and {other} has at most {written[1]}"
        if low.certain:
            return f"{who} is steeper for certain: {lies}."
        if low.evidence in (Evidence.PROVED, Evidence.COMPUTED):
            return f"{who} is steeper: {lies} ({evidence_words(low)})."
        return f"Undecided which is steeper: in {name} {lies}, but that bound is {low.evidence}, not proved."
    ends = [f"from {low} to {high}" for low, high in zip(found, most, strict=True)]
    overlap = a.log_lower <= b.log_upper and b.log_lower <= a.log_upper
    why = "the brackets overlap" if overlap else "the brackets are apart by rounding alone"
    return f"Undecided which is steeper: {why}, {ends[0]} in A and {ends[1]} in B."


def sample_sentences(difference: Difference) -> list[str]:
    """The median slopes, where both have as many samples; at how many each is steeper, where they are the same."""
    a, b = difference.a, difference.b
    if a.scope.kind == "ball":
        return _around_samples(a, b)
    if not _has_medians(difference):
        return []
    medians = f"The median slope of {len(a.sample_ends)} samples is {median_words(a)} in A and {median_words(b)} in B"
    if not a.batch or a.batch != b.batch:
        return [f"{medians}; whether these are the same samples is not known."]
    steeper = _steeper_samples(difference)
    left = len(a.sample_ends) - sum(steeper)
    told = [
        f"{medians}: sample by sample B is steeper on {steeper[0]}, A on {steeper[1]}"
        f"{f', undecided on {left}' * bool(left)}."
    ]
    return told + ["One training of each: another may turn this round."] * other_weights([a, b])


def _around_samples(a: Reading, b: Reading) -> list[str]:
    """In a ball, around how many samples the slope found is larger in which, where both have as many; no proof."""
    known = a.batch and a.batch == b.batch and len(a.samples) == len(b.samples) >= FEW
    if not known or a.together or b.together:
        return []
    found = [(x["log10_lower"], y["log10_lower"]) for x, y in zip(a.samples, b.samples, strict=True)]
    larger = sum(y > x for x, y in found), sum(x > y for x, y in found)
    return [f"Of the slopes found around {len(found)} samples {larger[0]} are larger in B, {larger[1]} in A."]


def _same_weights(difference: Difference) -> bool:
    return same_weights(difference.a.weights, difference.b.weights) is True


def gauge_sentence(difference: Difference) -> str:
    """That products of norms moved and the bound, which is the same in every gauge, did not; empty elsewhere."""
    if not difference.other_gauge:
        return ""
    moved = ((name, difference.published[name].by) for name in GAUGED if name in difference.published)
    told = " and ".join(f"{name} by {signed_decades(by)}" for name, by in moved if by is not None and abs(by) >= SAME)
    most = _most(difference)
    bound = "did not" if most[0] == most[1] else "by less than 0.01"
    return f"The same capacity in another gauge: the products of norms moved ({told} decades), the bound {bound}."


def is_unchanged(difference: Difference) -> bool:
    """Whether all that is told of both sides is written alike, sample by sample too."""
    a, b = difference.a, difference.b
    pairs = (_most(difference), _found(difference), (median_words(a), median_words(b)))
    written = all(one == other for one, other in pairs) and evidence_words(a) == evidence_words(b)
    steeper = _has_medians(difference) and any(_steeper_samples(difference))
    return written and not steeper and all(layer.status == KEPT for layer in difference.layers)


def weaker_sentence(difference: Difference) -> str:
    """That B's bound is worth less than A's, where it is."""
    own, other = evidence_words(difference.b), evidence_words(difference.a)
    return f"B's bound is {own}, A's was {other}." if difference.weaker and own != other else ""


def _has_medians(difference: Difference) -> bool:
    return len(difference.a.sample_ends) == len(difference.b.sample_ends) and bool(median_words(difference.a))


def _steeper_samples(difference: Difference) -> tuple[int, int]:
    """On how many samples B is steeper, and A."""
    ends = list(zip(difference.a.sample_ends, difference.b.sample_ends, strict=True))
    return sum(y.lo > x.hi for x, y in ends), sum(x.lo > y.hi for x, y in ends)


def _digits(difference: Difference) -> int:
    """In how many digits all ends are written: in more where only those tell that one side is steeper."""
    a, b = difference.a, difference.b
    usual = max(known_digits(r.gap * LN10) for r in (a, b))
    found = [_apart(steep.log_lower, low.log_upper, usual) for steep, low in ((a, b), (b, a))]
    return next((digits for digits in found if digits is not None), usual)


def _both(difference: Difference, end: Callable[[Reading], float], way: Callable[[float], int]) -> tuple[str, str]:
    a, b = (format_factor(end(r), way, _digits(difference)) for r in (difference.a, difference.b))
    return a, b


def _most(difference: Difference) -> tuple[str, str]:
    return _both(difference, lambda r: r.log_upper, UP)


def _found(difference: Difference) -> tuple[str, str]:
    return _both(difference, lambda r: r.log_lower, DOWN)


def _apart(low: float, high: float, usual: int) -> int | None:
    """In how many digits a slope found is written above a bound that it exceeds; None where it is not."""
    for digits in range(usual, MOST_DIGITS + 1) if low > high else ():
        if _written(format_factor(low, DOWN, digits)) > _written(format_factor(high, UP, digits)):
            return digits
    return None


def _written(shown: str) -> float:
    """The decimal logarithm of a factor as it is written."""
    if shown.startswith("10^"):
        return float(shown.removeprefix("10^"))
    value = math.inf if shown == "infinite" else float(shown.replace(",", ""))
    return math.log10(value) if value else -math.inf
