"""Signals that fade or blow up because no normalizer stands in the way, and single layers that are far too large."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise

import torch

from normgauge.advice.chains import SUMS, StepChain, absorbed, chains, share_product, usual_size
from normgauge.advice.remark import Fix, Remark
from normgauge.advice.thresholds import DOMINATES, DRIFT, EVEN, LOUD, OUTLIER_WEIGHT, OVERFLOW, PLACE_EVERY
from normgauge.advice.view import TraceView
from normgauge.core.spelled import LN10
from normgauge.instrument.trace.step import Step, Value
from normgauge.render.numbers import format_factor


def factor_words(decades: float) -> str:
    """A factor given in decades, as text."""
    return format_factor(decades * LN10)


def trunk_drift(view: TraceView) -> Iterator[Remark]:
    """A stretch of the trunk without a normalizer over which the samples draw together or fly apart."""
    for stretch in stretches(view):
        change = stretch_change(view, stretch)
        places = advised_places(view, stretch, change)
        if abs(change) < DRIFT or len(weight_layers(view, stretch)) < EVEN or not even(view, stretch, change):
            continue
        if places:
            yield _drift_remark(view, stretch, change, places)


def stretches(view: TraceView) -> list[list[Value]]:
    """The trunk, cut into pieces behind every normalizer on it."""
    cut: list[list[Value]] = [[]]
    for value in view.trunk:
        if value.step is not None and value.step.index in view.norms:
            cut.append([])
        cut[-1].append(value)
    return [stretch for stretch in cut if len(stretch) > 1]


def stretch_change(view: TraceView, stretch: list[Value]) -> float:
    """Decades by which the spread changes and which no later part undoes.

    A normalizer at the end makes the scale irrelevant, and only the spread relative to the size counts; a BatchNorm,
    which subtracts the samples' mean, makes that irrelevant too.
    """
    first, last = stretch[0].index, stretch[-1].index
    change = view.spread[last] - view.spread[first]
    if view.trunk[-1] is stretch[-1]:
        return change
    users = [view.norms.get(user.index) for user in view.consumers(stretch[-1])]
    if any(norm is not None and norm.form.by_channel for norm in users):
        return 0.0
    return min(change - (view.size[last] - view.size[first]), 0.0)


def segments(view: TraceView, stretch: list[Value]) -> Iterator[tuple[float, list[Step]]]:
    """Between one value of the trunk and the next: the change of the spread and the weight layers on the way."""
    steps = [s for s in view.session.trace.steps if view.weight(s) is not None and len(s.inputs) == 1]
    for before, after in pairwise(stretch):
        assert after.step is not None
        start = -1 if before.step is None else before.step.index
        inside = [s for s in steps if start < s.index <= after.step.index]
        yield view.spread[after.index] - view.spread[before.index], inside


def weight_layers(view: TraceView, stretch: list[Value]) -> list[Step]:
    """The weight layers of a stretch, those inside its branches too."""
    return [step for _, steps in segments(view, stretch) for step in steps]


def even(view: TraceView, stretch: list[Value], change: float) -> bool:
    """Whether the drift is spread over the stretch: without its largest layer it would still be half as long."""
    moves: list[float] = []
    for move, steps in segments(view, stretch):
        if steps or not moves:
            moves.append(move)
        else:
            moves[-1] += move  # an activation belongs to the layer before it
    largest = max(moves, key=lambda move: move if change > 0 else -move)
    return abs(change) - abs(largest) >= 0.5 * abs(change)


def advised_places(view: TraceView, stretch: list[Value], change: float) -> list[Step]:
    """Weight layers behind which a normalizer would stop the drift.

    Growth is a matter of scale alone, and one normalizer at the end takes any scale away, as long as it can be written
    down. What fades must be caught before it falls below ε: one for every decade.
    """
    every = PLACE_EVERY if change < 0 else OVERFLOW
    places: list[Step] = []
    drifted, layer = 0.0, None
    for move, steps in segments(view, stretch):
        free = [s for s in steps if s.module is not None and s.outputs[0] is not view.trunk[-1]]
        layer = free[-1] if free else layer
        drifted += move
        if abs(drifted) >= every and layer is not None and layer not in places:
            places.append(layer)
            drifted = 0.0
    if change > 0 and layer is not None and layer not in places:
        places.append(layer)
    return places


def norm_kind(view: TraceView) -> str:
    """The kind of normalizer to advise: the one the network has, else batch, or layer for tokens."""
    had = {norm.form.kind for norm in view.norms.values()}
    tokens = any(
        step.kind in ("Linear", "linear") and step.outputs[0].tensor.ndim > 2 for step in view.session.trace.steps
    )
    return next((kind for kind in ("rms", "layer", "group", "batch") if kind in had), "layer" if tokens else "batch")


def _drift_remark(view: TraceView, stretch: list[Value], change: float, places: list[Step]) -> Remark:
    kind = norm_kind(view)
    layers = weight_layers(view, stretch)
    named = [view.names[step.index] for step in places]
    begin, end = view.names[layers[0].index], view.names[layers[-1].index]
    what = "grow" if change > 0 else "shrink"
    sentence = (
        f"between {begin} and {end} ({len(layers)} layers) no normalizer stands, and the differences between samples "
        f"{what} by a factor of {factor_words(abs(change))}. Put a {kind} normalizer behind {', '.join(named)}."
    )
    return Remark(
        kind="explodes" if change > 0 else "vanishes",
        layer=named[0],
        sentence=sentence,
        numbers={"log10_change": change, "layers": len(layers)},
        fix=Fix(tuple(named), kind),
        depth=places[0].index,
    )


BEFORE = {"join": "before it meets another branch", "fork": "before the network branches", "output": "up to the output"}
"""Where the chain of an outlying layer ends; normalizers further on may take some of its scale away."""


def outlier_weights(view: TraceView) -> Iterator[Remark]:
    """Layers whose operator norm lies decades above their siblings', with nothing behind that undoes it."""
    found = list(chains(view))
    steps = [s for chain in found for s in chain.steps if view.weight(s) is not None]
    sized = {s.index: usual_size(view, s) for s in steps}
    shapes = {s.index: view.weight(s).shape for s in steps}  # type: ignore[union-attr]
    for chain in found:
        beside = [s for other in found if other is not chain and share_product(view, chain, other) for s in other.steps]
        worst, above = _excess(view, chain, beside, sized, shapes)
        if above >= OUTLIER_WEIGHT and len(sized) >= EVEN and chain.end != "norm" and _heard(view, chain):
            yield _outlier_remark(view, worst, above, chain.end)


def _excess(
    view: TraceView, chain: StepChain, beside: list[Step], sized: dict[int, float], shapes: dict[int, torch.Size]
) -> tuple[Step, float]:
    """The layer of a chain furthest above its siblings, and the decades of that which other layers do not take back."""
    weights = [s for s in chain.steps if s.index in sized]
    excess = {s.index: sized[s.index] - _usual(s.index, sized, shapes) for s in weights}
    worst = max(weights, key=lambda s: excess[s.index])
    # what the rest of the chain and its partners in a product take back, judged without the outlier
    rest = {i: size for i, size in sized.items() if i != worst.index}
    others = [s.index for s in (*weights, *beside) if s is not worst and s.index in sized]
    above = excess[worst.index] + sum(min(0.0, sized[i] - _usual(i, rest, shapes)) for i in others)
    if chain.end in ("output", "fork"):  # nor can it count for more than the signal shows
        above = min(above, view.spread[chain.last.index] - view.spread[chain.steps[0].inputs[0].index])
    return worst, above


def _outlier_remark(view: TraceView, step: Step, above: float, end: str) -> Remark:
    name, norm, kind = view.names[step.index], view.log10_spectral(step), norm_kind(view)
    return Remark(
        kind="outlier weight",
        layer=name,
        sentence=(
            f"{name} has the operator norm {factor_words(norm)}, {factor_words(above)} times what its siblings have, "
            f"and no normalizer stands behind it {BEFORE[end]}. Look at how it was set or trained; divide it, or put a "
            f"{kind} normalizer behind it."
        ),
        numbers={"log10_norm": norm, "log10_above_siblings": above},
        fix=None if step.outputs[0] is view.trunk[-1] or step.module is None else Fix((name,), kind),
        depth=step.index,
    )


def _usual(index: int, sized: dict[int, float], shapes: dict[int, torch.Size]) -> float:
    """The median size of the other layers of the same shape, of all others where there are fewer than two."""
    others = [i for i in sized if i != index]
    alike = [i for i in others if shapes[i] == shapes[index]]
    chosen = alike if len(alike) >= 2 else others
    return statistics.median_high(sized[i] for i in chosen) if chosen else sized[index]


def _heard(view: TraceView, chain: StepChain) -> bool:
    """Whether a chain's scale counts behind it: no normalizer, no later layer and no larger branch drowns it."""
    last = chain.last
    if absorbed(view, last):
        return False
    if chain.end == "join":
        for user in view.consumers(last):
            others = [view.spread[v.index] for v in user.inputs if v.index != last.index]
            if user.kind in SUMS and others:
                return view.spread[last.index] - max(others) >= DOMINATES
        return True
    first = view.spread[chain.steps[0].inputs[0].index]
    behind = [v for v in view.trunk if v.step is not None and v.step.index > chain.steps[-1].index]
    for value in (last, *(behind if chain.end == "fork" else ())):
        if value.step is not None and value.step.index in view.norms:
            break
        if view.spread[value.index] - first < LOUD:
            return False
    return True
