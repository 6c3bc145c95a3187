"""Readings of one network in several scopes belong together; others stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.core.reading import Reading


@dataclass(frozen=True, slots=True)
class Group:
    """One network, measured in one or several scopes."""

    label: str
    readings: tuple[Reading, ...]


def grouped(readings: Sequence[Reading], labels: Sequence[str] | None = None) -> list[Group]:
    """Neighbours that are the same network in another scope form one group.

    With labels, the same network is what has the same label up to the scope at its end ("a: point", "a: global");
    without, what has the same name, mode, input and layers.
    """
    names = (
        [r.model for r in readings] if labels is None else [_stem(n, r) for n, r in zip(labels, readings, strict=True)]
    )
    groups: list[Group] = []
    for name, reading in zip(names, readings, strict=True):
        last = groups[-1] if groups else None
        if last is not None and last.label == name and _belongs(reading, last):
            groups[-1] = Group(name, (*last.readings, reading))
        else:
            groups.append(Group(name, (reading,)))
    return _told_apart(groups)


def _stem(label: str, reading: Reading) -> str:
    """The label without the scope at its end."""
    scope = str(reading.scope)
    return label.removesuffix(scope).rstrip(" :,") or label if label.endswith(scope) else label


def _belongs(reading: Reading, group: Group) -> bool:
    first = group.readings[0]
    return (
        all(reading.scope != other.scope for other in group.readings)
        and (reading.model, reading.mode, reading.input_name) == (first.model, first.mode, first.input_name)
        and [r.name for r in reading.layers] == [r.name for r in first.layers]
    )


def _told_apart(groups: Sequence[Group]) -> list[Group]:
    """The groups with a number behind a label that stands there again."""
    seen: dict[str, int] = {}
    result = []
    for group in groups:
        seen[group.label] = seen.get(group.label, 0) + 1
        number = seen[group.label]
        result.append(group if number == 1 else Group(f"{group.label} ({number})", group.readings))
    return result
