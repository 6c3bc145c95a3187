"""What else a reading says, checked against itself: the layers, the products, the losses, the evidence.

Like checker.py, which does the arithmetic of the totals, this sees the stored numbers only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from normgauge.core.bound import Evidence
from normgauge.core.checker import (
    CUT,
    INF,
    NEUTRAL,
    ROUNDING,
    VOID,
    Row,
    compose_proof,
    decade_product,
    difference_sentence,
    digest_matches,
    graph,
    join_decades,
    refuted,
    sample_totals,
    scope_matches,
    scope_reach,
    step_gains,
    stored_number,
    witnessed_slope,
)
from normgauge.core.checker import check as checked
from normgauge.core.errors import ReadingError
from normgauge.core.fields import Misfit, record_form
from normgauge.core.multipliers import MOST_KEPT, Multipliers
from normgauge.core.reading import Published, Reading, Sigma
from normgauge.core.spelled import LN10

LOSSES = {"cross_entropy": (2, 0), "softmax_l1": (0.5, 0), "l1_sum": (1, 1), "huber_sum_delta_1": (1, 1)}
LOSSES |= {"bce_with_logits_sum": (1, 1), "bce_with_logits_mean": (1, -1)}  # constant² = factor · outputs^power


def check_consistency(reading: Any) -> list[str]:
    """What is wrong with one reading, its totals included, a sentence each."""
    parts = (
        form,
        digest_matches,
        graph,
        sample_totals,
        scope_matches,
        shares,
        ways,
        published_products,
        witnessed_slope,
        beyond,
        derived,
        middle,
        evidence_fits,
        kept_numbers,
        refuted,
    )
    return checked(reading, parts)


def form(reading: Row) -> Iterator[str]:
    """Every field that is declared is there and of its kind; of those that are not, the first is named."""
    try:
        record_form(Reading).into(reading)
        record_form(Published).into(reading["published"])
    except Misfit as wrong:
        yield str(wrong)


def shares(reading: Row) -> Iterator[str]:
    """Every layer is in the proof, and its two shares are its largest gains there."""
    folded, balanced = (max(compose_proof(reading["proof"], column)) for column in ("folded", "balanced"))
    gained = balanced - folded if folded < INF else 0.0
    steps, samples = [step for step in reading["proof"]["steps"] if step["layer"]], reading["proof"]["samples"]
    groups = {name: list(group) for name, group in groupby(steps, key=lambda step: step["layer"])}
    if [layer["name"] for layer in reading["layers"]] != list(groups):
        yield "layers: their names or their order are not those of the proof"
        return
    for layer in reading["layers"]:
        name, parts = f"layer {layer['name']}", groups[layer["name"]]
        largest = {
            c: max(x for s in parts for g in step_gains(s, c, samples) for x in g) for c in ("folded", "balanced")
        }
        # where balancing gained nothing the column shows the folded gains; at a tie it may show either
        stored, shown = stored_number(layer, "log10_balanced"), "balanced" if gained < 0 else "folded"
        if abs(gained) <= ROUNDING and list(difference_sentence("", stored, largest[shown])):
            shown = "balanced" if shown == "folded" else "folded"
        yield from difference_sentence(f"{name}: log10_folded", stored_number(layer, "log10_folded"), largest["folded"])
        yield from difference_sentence(f"{name}: log10_balanced", stored, largest[shown])


def ways(reading: Row) -> Iterator[str]:
    """The layers' own gains against the ways to and from them: equal where one gain serves all samples."""
    proof, layers = reading["proof"], {layer["name"]: layer for layer in reading["layers"]}
    to, onward = dict.fromkeys(proof["sources"], (0.0, True)), {proof["output"]: [(0.0, True)]}  # a log; is it exact?
    first: dict[str, int] = {}
    for step in proof["steps"]:
        name, arms = step["layer"], [to[value] for value in step["inputs"]]
        arrived = join_decades([log for log, _ in arms], step["disjoint"])
        to[step["output"]] = INF if name else arrived, False  # a further output of a layer may have a gain of its own
        if name and name not in first:
            first[name] = step["output"]
            yield from layer_enclosures(layers[name])
            stored, limit = (
                stored_number(layers[name], "log10_cumulative"),
                decade_product(layer_gain(layers[name]), arrived),
            )
            loose = not arms[0][1] or not fixed(proof, step, layers)
            yield from difference_sentence(f"layer {name}: log10_cumulative", stored, limit, NEUTRAL, above=loose)
            to[step["output"]] = stored, True
    yield from difference_sentence(
        "log10_folded", max(compose_proof(proof, "folded")), to[proof["output"]][0], above=True
    )
    for step in reversed(proof["steps"]):
        arms, name, gain, exact = onward.get(step["output"], []), step["layer"], INF if step["layer"] else 0.0, False
        if not arms:
            continue
        reach = join_decades([log for log, _ in arms], False)
        if first.get(name) == step["output"]:
            loose = len(arms) > 1 or not arms[0][1]
            gain, stored = layer_gain(layers[name]), stored_number(layers[name], "log10_to_output")
            yield from difference_sentence(f"layer {name}: log10_to_output", stored, reach, NEUTRAL, above=loose)
            reach, exact = stored, fixed(proof, step, layers)
        for value in step["inputs"]:
            onward.setdefault(value, []).append((decade_product(gain, reach), exact))


def layer_gain(layer: Row) -> float:
    """A layer's own gain, the largest over the samples."""
    return stored_number(layer["log10_gain"], "upper")


def fixed(proof: Row, step: Row, layers: dict[str, Row]) -> bool:
    """Whether a layer has one input and one gain for all samples."""
    return len(step["inputs"]) == 1 and (proof["samples"] == 1 or layers[step["layer"]]["log10_spectral"] is not None)


def layer_enclosures(layer: Row) -> Iterator[str]:
    """Enclosures are the right way round, a linear map's gain is its norm, σ is in order."""
    name, norm, sigma = f"layer {layer['name']}", layer["log10_spectral"], layer["sigma"]
    ends = [
        (stored_number(row, "lower"), stored_number(row, "upper"))
        for row in (layer["log10_gain"], norm)
        if row is not None
    ]
    for lower, upper in ends:
        yield from difference_sentence(f"{name}: the lower end of an enclosure", lower, upper, 0, above=True)
    if norm is not None and not layer["rule"].startswith("user."):  # a rule of the user's may count more than the norm
        yield from difference_sentence(f"{name}: log10_gain against log10_spectral", ends[0][1], ends[1][1])
    if sigma is not None:
        low, mean, high, *_ = [stored_number(sigma, key) for key in Sigma.__annotations__]
        if not 0 <= low * (1 - ROUNDING) <= mean <= high * (1 + ROUNDING):
            yield f"{name}: sigma out of order: min {low:.9g}, rms {mean:.9g}, max {high:.9g}"


def published_products(reading: Row) -> Iterator[str]:
    """The products that follow from the layers; the others need vectors that are not stored."""
    table, layers = reading["published"], reading["layers"]
    weights = [layer for layer in layers if layer["log10_spectral"] and layer["log10_frobenius"] is not None]
    norms = [layer for layer in layers if layer["sigma"]]
    p_w = decade_product(*(stored_number(layer["log10_spectral"], "upper") for layer in weights))
    frobenius = decade_product(*(stored_number(layer, "log10_frobenius") for layer in weights))
    bound = decade_product(p_w, *(layer_gain(layer) for layer in norms))
    products = {"P_w": p_w, "P_w_frobenius": frobenius, "theorem9": bound}
    if (factor := table["log10_prod_l2"]) is not None and "log10_corollary10_1" in table:  # older readings lack it
        products["corollary10_1"] = decade_product(p_w, float(factor))
    if table.get("log10_corollary11_published") is not None:
        floors = [stored_number(layer["sigma"], "eps") for layer in norms]
        products["corollary11_published"] = decade_product(
            p_w, *(-math.log10(eps) / 2 if eps > 0 else INF for eps in floors)
        )
    if table.get("log10_theorem9_published") is not None:
        gains = {step["layer"]: stored_number(step, "log10_everywhere") for step in reading["proof"]["steps"]}
        products["theorem9_published"] = decade_product(p_w, *(gains[layer["name"]] for layer in norms))
    for key, product in products.items():
        if key != "theorem9" or table["log10_theorem9"] is not None:
            yield from difference_sentence(f"log10_{key}", stored_number(table, f"log10_{key}"), product)
    for key in ("min", "rms", "max"):
        sizes = [stored_number(layer["sigma"], key) for layer in norms]
        again = -decade_product(*(math.log10(size) for size in sizes if size > 0))
        yield from difference_sentence(
            f"log10_prod_inv_sigma, {key}", stored_number(table["log10_prod_inv_sigma"], key), again
        )


def beyond(reading: Row) -> Iterator[str]:
    """No sample's slope and nothing a direction reached on its way lies above its bound, unless the reading says so."""
    if reading["evidence"] == "refuted":
        return
    for place, row in enumerate(reading["samples"]):
        lower, upper = stored_number(row, "log10_lower"), stored_number(row, "log10_upper", INF)
        yield from difference_sentence(f"sample {place}: log10_lower", lower, upper, CUT, above=True)
    for layer in reading["layers"]:
        reached, limit = stored_number(layer, "log10_reached", -INF), stored_number(layer, "log10_cumulative")
        if direction_comparable(reading):
            yield from difference_sentence(f"layer {layer['name']}: log10_reached", reached, limit, CUT, above=True)


def direction_comparable(reading: Row) -> bool:
    """Whether what a direction reached can be held against a bound.

    It was followed over a way of at most 0.01, and a bound at a point holds at the point. A part that is not known may
    hide a way into a layer, another path another slope, and seven digits are too few for so short a way.
    """
    sure = reading["evidence"] != "unknown" and not reading["path_dependent"]
    return sure and reading["precision"] == "float64" and scope_reach(reading["scope"]) >= -2


def derived(reading: Row) -> Iterator[str]:
    """Losses are the bound times their own constants; in a ball the output moves by at most bound times radius."""
    upper, losses, moved = stored_number(reading, "log10_upper"), reading["log10_loss"], reading["log10_displacement"]
    finite = math.isfinite(upper)
    outputs = max(round(10 ** (2 * (stored_number(losses, "l1_sum") - upper))), 1) if finite else 1
    for key, (factor, power) in LOSSES.items():
        if key in ("cross_entropy", "softmax_l1") and key not in losses:
            continue  # several softmaxes a sample, whose losses add up
        again = upper + math.log10(factor * outputs**power) / 2 if finite else upper
        yield from difference_sentence(f"log10_loss, {key}", stored_number(losses, key), again)
    ball = reading["scope"].startswith("ball:")
    if ball != (moved is not None):
        yield f"log10_displacement: {moved!r} cannot stand in the scope {reading['scope']!r}"
    elif ball:
        ends = {step["output"]: stored_number(step, "log10_radius") for step in reading["proof"]["steps"]}
        limit = min(decade_product(upper, scope_reach(reading["scope"])), ends.get(reading["proof"]["output"], INF))
        again = INF if reading["evidence"] in VOID else limit
        yield from difference_sentence(
            "log10_displacement", stored_number(reading, "log10_displacement"), again, NEUTRAL
        )


def middle(reading: Row) -> Iterator[str]:
    """The median slope is that of the samples; files of older versions do not store it."""
    if "log10_median" not in reading:
        return
    try:
        stored, again = reading["log10_median"], Reading.from_json(reading).log_median
    except ReadingError:
        return  # `form` says what is wrong
    if (stored is None) != (again is None):
        words = ["none" if ends is None else "one" for ends in (stored, again)]
        yield f"log10_median: {words[0]} stored, {words[1]} recomputed"
    elif stored is not None and again is not None:
        for end, log in (("lower", again.lo), ("upper", again.hi)):
            yield from difference_sentence(f"log10_median.{end}", stored_number(stored, end), log / LN10)


def evidence_fits(reading: Row) -> Iterator[str]:
    """How the bound is known fits what is named: parts without a bound, a slope above it, a path, a chance to fail."""
    upper, word, named = (
        stored_number(reading, "log10_upper"),
        reading["evidence"],
        reading["unknown"] + reading["no_bound"],
    )
    seen = reading.get("method") == "jacobian" and not reading["unknown"]  # a computed one needs no bound of each step
    if (bool(named) != (word == "unknown") and not (seen and word == "computed")) or word not in list(Evidence):
        yield f"evidence: {word!r} with {len(reading['unknown'])} unknown parts and {len(reading['no_bound'])} no_bound"
    if (word in VOID and upper != INF) or (upper == INF and word not in VOID and not reading["unbounded"]):
        yield f"log10_upper: {reading['log10_upper']} cannot be {word} with {len(reading['unbounded'])} unbounded parts"
    if (word == "refuted") != (reading["log10_refuted"] is not None):
        yield f"log10_refuted: {reading['log10_refuted']!r} cannot stand beside the evidence {word!r}"
    if reading["path_dependent"] and reading["scope"] == "global" and word not in VOID:
        yield f"path_dependent: over all inputs not every one takes the path traced, so the bound is not {word}"
    for key in ("weights_digest", "batch_digest"):
        if not re.fullmatch(r"(sha256:[0-9a-f]{64})?", reading.get(key, "")):
            yield f"{key}: expected sha256: and 64 digits, or nothing, got {reading[key]!r:.40}"
    strange = {layer["rule"] for layer in reading["layers"]} - {"none", *reading["rules"]}
    if strange:
        yield f"rules: {sorted(strange)} are used by layers and not listed"


def kept_numbers(reading: Row) -> Iterator[str]:
    """Multipliers, one object a sample, and channel weights: each with the numbers it counts, where they are few."""
    choices = 1 + reading["scope"].startswith("ball")
    for key, samples in (("multipliers", len(reading["samples"])), ("channel_weights", choices)):
        items = reading.get(key, [])  # readings of older versions have none
        few = sum(item["count"] for item in items) <= MOST_KEPT
        if len({item["sample"] for item in items} & set(range(samples))) != len(items):
            yield f"{key}: expected one object a sample, got those of {[item['sample'] for item in items]}"
        for item in items:
            if item["packed"] or few:
                try:
                    Multipliers.from_json(item).logs()
                except ReadingError as wrong:
                    yield f"{key}: {wrong}"
