"""Readings of networks trained by others and by us, for comparison: what is normal for a ResNet-20.

One file a network, as JSON packed with gzip: ``title``, ``about``, and the ``readings`` at the samples, within 0.1 of
each and everywhere. `benchmarks/references.py` makes them; `normgauge verify reference:NAME` checks them.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from normgauge.core.errors import ReadingError
from normgauge.core.first_notes import measured_output
from normgauge.core.reading import Reading

ENDING = ".json.gz"
PREFIX = "reference:"


def names() -> list[str]:
    """Return the names of all references."""
    return sorted(_stored())


def load_reference(name: str) -> list[Reading]:
    """The readings of one reference, one for each scope."""
    return [Reading.from_json(item) for item in reference_content(name)["readings"]]


def reference_title(name: str) -> str:
    """What the network is called, as in "normal for a ResNet-20"."""
    return str(reference_content(name)["title"])


def about(name: str) -> str:
    """Which network it is, the data it was measured on, how often it is right, and how the reading was made."""
    return str(reference_content(name)["about"])


def reference_content(name: str) -> dict[str, Any]:
    """Return the stored JSON of a reference.

    Raises:
        ReadingError: when there is no such reference; the message names those that exist.
    """
    found = _stored().get(name.removeprefix(PREFIX))
    if found is None:
        raise ReadingError(f"no reference called {name!r}; expected one of {', '.join(names())}")
    data: dict[str, Any] = json.loads(gzip.decompress(found.read_bytes()))
    return data


@dataclass(frozen=True, slots=True)
class Standing:
    """A reference in one scope: its title, and the decimal logs of the slope found and of the bound.

    Slopes of other inputs or outputs are on another scale; a network is none beside itself.
    """

    title: str
    lower: float
    upper: float
    ends: tuple[str, str] = ("", "")  # names of the measured input and output
    weights: str = ""


@cache
def standings(scope: str) -> tuple[Standing, ...]:
    """All references that were read in a scope, from the smallest slope found to the largest."""
    found = [
        Standing(
            str(content["title"]),
            float(item["log10_lower"]),
            float(item["log10_upper"]),
            (str(item["input"]), measured_output(item["notes"])),
            str(item["weights_digest"]),
        )
        for content in map(reference_content, names())
        for item in content["readings"]
        if item["scope"] == scope
    ]
    return tuple(sorted(found, key=lambda one: one.lower))


def _stored() -> dict[str, Traversable]:
    folder = files(__name__)
    return {item.name.removesuffix(ENDING): item for item in folder.iterdir() if item.name.endswith(ENDING)}
