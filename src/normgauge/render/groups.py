"""Which readings are of one network in several scopes, and which of several trainings under one label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.bound import Scope
from normgauge.core.reading import Reading
from normgauge.render.numbers import plural, shortened_names, told_apart

LISTED = 4  # kinds of layers that are named


@dataclass(frozen=True, slots=True)
class Group:
    """One network, measured in one or several scopes.

    Attributes:
        label: what sets it apart from the others.
        readings: one a scope.
        name: what it shares with other trainings of the same network.
    """

    label: str
    readings: tuple[Reading, ...]
    name: str = ""

    def row_name(self, reading: Reading, label: str = "") -> str:
        """What a row about one of the readings is called: with the scope where the network was measured in several."""
        return f"{label or self.label}, {reading.scope}" if len(self.readings) > 1 else label or self.label


def grouped_readings(
    readings: Sequence[Reading], labels: Sequence[str] | None = None, files: Sequence[str] | None = None
) -> list[Group]:
    """Neighbours that are the same network in another scope form one group.

    With labels, the same network is what has the same label up to the scope at its end ("a: point", "a: global");
    without, what has the same name, mode, input and layers. A label that comes again is that of another training of the
    same network, whose groups share its name and are told apart by their files where these are given.
    """
    names = (
        [r.model for r in readings] if labels is None else [_stem(n, r) for n, r in zip(labels, readings, strict=True)]
    )
    groups: list[Group] = []
    begins: list[int] = []
    for i, (name, reading) in enumerate(zip(names, readings, strict=True)):
        last = groups[-1] if groups else None
        if last is not None and last.label == name and _belongs(reading, last):
            groups[-1] = Group(name, (*last.readings, reading))
        else:
            groups.append(Group(name, (reading,)))
            begins.append(i)
    sources = [files[i] for i in begins] if files is not None and labels is not None else [""] * len(groups)
    told = told_apart(told_by_source([group.label for group in groups], sources, "{} ({})"), "{} ({})")
    return [
        Group(label, group.readings, label if labels is None else group.label)
        for label, group in zip(told, groups, strict=True)
    ]


def told_by_source(names: Sequence[str], sources: Sequence[str], with_source: str) -> list[str]:
    """The names, each with its source where it comes from several.

    >>> told_by_source(["BN", "LN", "BN"], ["b0", "l0", "b1"], "{} ({})")
    ['BN (b0)', 'LN', 'BN (b1)']
    """
    found: dict[str, set[str]] = {}
    for name, source in zip(names, sources, strict=True):
        found.setdefault(name, set()).add(source)
    each = zip(names, sources, strict=True)
    return [with_source.format(name, source) if len(found[name]) > 1 else name for name, source in each]


def network_trainings(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups by the name they share; empty where none has several."""
    named: dict[str, list[Group]] = {}
    for group in groups:
        named.setdefault(group.name or group.label, []).append(group)
    return named if len(named) < len(groups) else {}


def network_scopes(groups: Sequence[Group]) -> dict[Scope, dict[str, list[Reading]]]:
    """In every scope the readings of each name, a training once."""
    found: dict[Scope, dict[str, list[Reading]]] = {}
    for group in groups:
        for reading in group.readings:
            found.setdefault(reading.scope, {}).setdefault(group.name or group.label, []).append(reading)
    return {scope: {n: distinct_trainings(each) for n, each in named.items()} for scope, named in found.items()}


def distinct_trainings(readings: Sequence[Reading]) -> list[Reading]:
    """Without those whose weights an earlier one has: copies of one training. Unknown weights are taken to differ."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    kept = []
    for reading in readings:
        key = (reading.weights, layer_kinds(reading))
        if not reading.weights or key not in seen:
            kept.append(reading)
        seen.add(key)
    return kept


def layer_kinds(reading: Reading) -> tuple[str, ...]:
    """The kinds of its layers in order: trainings of one network agree in them."""
    return tuple(layer.kind for layer in reading.layers)


def label_notes(groups: Sequence[Group]) -> list[str]:
    """What a label does not say: that readings under it are copies, or different networks; that names share weights."""
    told = []
    for name, members in network_trainings(groups).items():
        if len(members) > 1:
            told += _notes(name, [member.readings[0] for member in members])
    owners: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    for group in groups:
        first = group.readings[0]
        if first.weights:
            owners.setdefault((first.weights, layer_kinds(first)), {})[group.name or group.label] = None
    told += [f"{_listed(list(names))} have the same weights." for names in owners.values() if len(names) > 1]
    return told


def _notes(name: str, firsts: Sequence[Reading]) -> list[str]:
    """Of the readings under one label, one for each group."""
    told = []
    for weights in dict.fromkeys(r.weights for r in distinct_trainings(firsts) if r.weights):
        count = sum(r.weights == weights for r in firsts)
        if count > len({layer_kinds(r) for r in firsts if r.weights == weights}):
            told.append(f"{name} is given {count} times with the same weights: that is one training, counted once.")
    if not all(r.weights for r in firsts):
        told.append(
            f"Not all readings of {name} say which weights they are of: copies of one training would count twice."
        )
    kinds = dict.fromkeys(map(layer_kinds, firsts))
    if len(kinds) > 1:
        shared = set.intersection(*map(set, kinds))
        own = shortened_names([k for k in dict.fromkeys(sum(kinds, ())) if k not in shared], LISTED)
        told.append(
            f"{name} stands for {plural(len(kinds), 'network')} whose layers differ{f' ({own})' * bool(own)}: they are "
            "no trainings of one."
        )
    return told


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def training_count(name: str, readings: Sequence[Reading]) -> str:
    """How many trainings there are under a label; of readings where it is not known that they are trainings of one."""
    sure = all(r.weights for r in readings) and len(set(map(layer_kinds, readings))) == 1
    return f"{plural(len(readings), 'training' if sure else 'reading')} of {name}"


def _stem(label: str, reading: Reading) -> str:
    """The label without the scope at its end."""
    scope = str(reading.scope)
    return label.removesuffix(scope).rstrip(" :,") or label if label.endswith(scope) else label


def _belongs(reading: Reading, group: Group) -> bool:
    first = group.readings[0]
    return (
        all(reading.scope != other.scope for other in group.readings)
        and (reading.model, reading.mode, reading.input_name) == (first.model, first.mode, first.input_name)
        and len({reading.weights, first.weights} - {""}) < 2
        and [r.name for r in reading.layers] == [r.name for r in first.layers]
    )
