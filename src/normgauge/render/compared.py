"""Several networks beside each other in words: scope by scope what was read of each, and what has no order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from normgauge.core.bound import Scope
from normgauge.core.compare import apart_readings
from normgauge.core.reading import Reading
from normgauge.render.groups import (
    Group,
    distinct_trainings,
    label_notes,
    network_scopes,
    network_trainings,
    training_count,
)
from normgauge.render.numbers import DOWN, UP, format_factor, plural, scope_words
from normgauge.render.trainings import (
    Slopes,
    enclosed_slopes,
    median_slopes,
    middle_slope,
    overlap_sentence,
    reading_slopes,
    slope_words,
    steepest_slopes,
)
from normgauge.render.verdict import (
    apart_sentence,
    edit_contradicts,
    evidence_words,
    found_words,
    other_weights,
    refutation_sentence,
    unsure_sentence,
    version_sentence,
)

MANY = 6  # networks: of more the extremes are named
Named = Mapping[str, Sequence[Reading]]


def network_warnings(groups: Sequence[Group]) -> list[str]:
    """What must be known before networks are compared: other samples, edited files, what labels do not say."""
    if len(groups) < 2:
        return []
    groups = _sound(groups)
    scopes = [scope for scope, named in network_scopes(groups).items() if apart_readings(_every(named))]
    apart = [apart_sentence(" and ".join(map(scope_words, scopes)))] if scopes else []
    edited = [
        f"{group.label} was edited after it was written." for group in groups if any(r.edited for r in group.readings)
    ]
    versions = version_sentence({group.label: group.readings for group in groups})
    return [*apart, *filter(None, [versions]), *edited, *label_notes(groups)]


def compared_networks(groups: Sequence[Group]) -> list[str]:
    """How many networks and trainings there are, then in each scope that several were read in, what was read of each.

    Nothing is said of a scope in which they were measured on different samples: they have no order there. Nor is it of
    an edited file whose numbers contradict each other.
    """
    groups = _sound(groups)
    if len(groups) < 2:
        return []
    if unlike := _unlike([reading for group in groups for reading in group.readings]):
        return [f"{_count(groups)}, {unlike}."]
    shared = {scope: named for scope, named in network_scopes(groups).items() if len(_every(named)) > 1}
    if not shared:
        return [_no_scope(groups)]
    told = [_scope_sentences(scope, named) for scope, named in shared.items() if not apart_readings(_every(named))]
    return [_counts(groups), *told] if told else []


def refuted_networks(groups: Sequence[Group]) -> list[str]:
    """Where a slope stands above a bound, and whether that tells of a bound or of an edit."""
    return [
        f"{group.row_name(r)}: {refutation_sentence(r)}"
        for group in groups
        for r in group.readings
        if r.log_refuted is not None
    ]


def _sound(groups: Sequence[Group]) -> list[Group]:
    """Without readings of files whose numbers an edit has put against each other: nothing follows from these."""
    kept = [Group(g.label, tuple(r for r in g.readings if not edit_contradicts(r)), g.name) for g in groups]
    return [group for group in kept if group.readings]


def _every(named: Named) -> list[Reading]:
    return [reading for readings in named.values() for reading in readings]


def _unlike(readings: Sequence[Reading]) -> str:
    """Why readings have no order: they are not about the same kind of map; empty where they are."""
    if len({r.together for r in readings}) > 1:
        return "read in different modes: a whole batch and its samples have no order"
    modes = sorted({r.mode for r in readings})
    return f"read in different modes ({', '.join(modes)}) and not ranked" if len(modes) > 1 else ""


def _no_scope(groups: Sequence[Group]) -> str:
    """Networks without a scope in common: the steepest slope found in any, where they had the same samples."""
    every = [(group, reading) for group in groups for reading in group.readings]
    if len({reading.scope for _, reading in every}) == 1:  # copies of one training
        return f"{_count(groups)}."
    told = f"{_count(groups)}, measured in different scopes."
    if apart_readings([reading for _, reading in every]):
        return told
    group, found = max(every, key=lambda pair: pair[1].log_lower)
    where = f"in {group.label} {scope_words(found.scope)}"
    return f"{told} The steepest slope found is {found_words(found)}, {where}."


def _count(groups: Sequence[Group]) -> str:
    """How many networks there are, by their weights where these are known."""
    count = len(distinct_trainings([group.readings[0] for group in groups]))
    if count == 1:
        return "One network"
    return plural(count, "network") if count == len(groups) else f"{len(groups)} rows of {count} networks"


def _counts(groups: Sequence[Group]) -> str:
    """How many networks there are, and of those with several trainings how their numbers are told."""
    trainings = network_trainings(groups)
    if not trainings:
        once = ", one training of each" if other_weights([group.readings[0] for group in groups]) else ""
        return f"{_count(groups)}{once}."
    found = {name: distinct_trainings([g.readings[0] for g in each]) for name, each in trainings.items()}
    counts = ", ".join(training_count(name, readings) for name, readings in found.items())
    several = max(map(len, found.values())) > 1
    way = ": of each number the median over them, in brackets the smallest and the largest" if several else ""
    return f"{counts}{way}."


def _scope_sentences(scope: Scope, named: Named) -> str:
    """What was read of each network in one scope, the median sample first; then what else the numbers need."""
    steepest = {name: steepest_slopes(readings) for name, readings in named.items()}
    enclosed = {name: enclosed_slopes(readings) for name, readings in named.items()}
    medians = {name: median_slopes(readings) for name, readings in named.items()}
    told, place = [], f"Slope {scope_words(scope)}"
    if all(medians.values()):
        words = {name: slope_words(ends, "no known bound") for name, ends in medians.items()}
        told += [_listed("Slope of the median sample", words, medians), overlap_sentence(medians)]
        counts = {len(reading.samples) for reading in _every(named)}
        place = (
            f"Slope of the steepest of {counts.pop()} samples" if len(counts) == 1 else "Slope of the steepest sample"
        )
    words = {name: ", ".join(reading_slopes(readings)) for name, readings in named.items()}
    told += [
        _listed(place, words, steepest),
        overlap_sentence(enclosed),
        _evidence(named),
        unsure_sentence(_every(named)),
    ]
    return " ".join(filter(None, told))


def _listed(what: str, words: Mapping[str, str], slopes: Slopes) -> str:
    """Every network with its numbers; of many those with the smallest and the largest."""
    if len(words) <= MANY:
        between = "; " if any(", " in told for told in words.values()) else ", "
        return f"{what}: {between.join(f'{told} for {name}' for name, told in words.items())}."
    middles = {name: middle_slope(ends) for name, ends in slopes.items()}
    told = []
    for verb, way, values in (
        ("found", DOWN, {name: ends.lo for name, ends in middles.items()}),
        ("at most", UP, {name: ends.hi for name, ends in middles.items()}),
    ):
        low, high = min(values, key=lambda n: values[n]), max(values, key=lambda n: values[n])
        ends = [f"{format_factor(values[name], way)} for {name}" for name in (low, high)]
        told.append(f"{verb} from {ends[0]} to {ends[1]}")
    return f"{what}, of {plural(len(words), 'network')}: {', '.join(told)}."


def _evidence(named: Named) -> str:
    """Which of the bounds are known in another way than by a proof without a condition; the largest chance of each."""
    kinds: dict[str, list[str]] = {}
    for name, readings in named.items():
        alike: dict[tuple[object, ...], list[Reading]] = {}
        for r in readings:
            if (not r.certain or r.edited) and math.isfinite(r.log_upper):
                alike.setdefault((r.evidence, r.path_dependent, r.edited), []).append(r)
        for each in alike.values():
            told = evidence_words(max(each, key=lambda r: r.failure_probability))
            told += " each" * (len(each) > 1 and any(r.failure_probability for r in each))
            part = f"{len(each)} of {plural(len(readings), 'training')}, " * (len(each) < len(readings))
            kinds.setdefault(part + told, []).append(name)
    said = [f"{' and '.join(names)} ({told})" for told, names in kinds.items()]
    chance = any(r.failure_probability for readings in named.values() for r in readings)
    more = " p is of the proof and moves with the gauge: it says nothing about a normalizer." * chance
    return f"Not proved without a condition: {', '.join(said)}.{more}" if said else ""
