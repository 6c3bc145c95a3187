"""The sections of the sources, and which claims stand in each: the look-up and the page of the sources ask here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from normgauge.core.claim import Entry
from normgauge.core.places import Place, named_places


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a source; as data under ``[source.sections]`` of its claims.

    Attributes:
        source: what the source is called.
        title: of the section, with its number if it has one.
        holds: statements, equations and figures that are printed in it.
        words: of a claim's place that say that it stands there, in lower case.
        empty: why no claim of it is run, where that may be.
    """

    source: str
    title: str
    holds: frozenset[Place] = frozenset()
    words: tuple[str, ...] = ()
    empty: str = ""

    @property
    def numbers(self) -> list[Place]:
        """Its own, and those of sections that it is told with."""
        found = re.findall(r"(?:^|, )([A-E](?:\.\d+)*|\d+(?:\.\d+)*) ", self.title)
        return [Place("section", number) for number in found]

    def has(self, entry: Entry) -> bool:
        """Whether a claim stands in it, by one of the places that it names."""
        if entry.source != self.source:
            return False
        there = self.holds.union(self.numbers)
        return not there.isdisjoint(named_places(entry.at)) or any(word in entry.at.lower() for word in self.words)


def read_section(source: str, title: str, told: Mapping[str, Any]) -> Section:
    """A section as the data tell it."""
    holds = frozenset(named_places(told.get("holds", "")))
    return Section(source, title, holds, tuple(told.get("words", ())), told.get("empty", ""))
