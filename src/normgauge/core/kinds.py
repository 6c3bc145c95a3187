"""What kind of value stands in each field of a stored reading; checked once, before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from normgauge.checker import graph
from normgauge.core.bound import Evidence, Scope
from normgauge.errors import InputError, ReadingError

LARGEST = 1e308  # JSON has longer numbers than float64
Kind = Callable[[str, Any], None]  # called with the place of a value and the value; raises where it does not fit


def check_kinds(data: Any) -> None:
    """Refuse a reading with a field that is missing or of the wrong kind; the first one is named.

    Raises:
        ReadingError: then, and where the steps of its proof cannot be followed.
    """
    READING("", data)
    if data.get("schema") != 1:
        LATER("", data)
    for sentence in graph(data) if data.get("proof") is not None else ():
        raise ReadingError(f"the reading's proof cannot be followed: {sentence}; was the file edited?")


def refuse(place: str, expected: str, value: Any) -> NoReturn:
    """Say what was expected, and show the value as the file has it.

    Raises:
        ReadingError: always.
    """
    try:
        shown = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        shown = type(value).__name__
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    raise ReadingError(
        f"the reading holds a field of the wrong kind: {place or 'the reading'}: expected {expected}, got {shown}; "
        "was the file edited?"
    )


def text(place: str, value: Any) -> None:
    """A text."""
    if not isinstance(value, str):
        refuse(place, "a text", value)


def number(place: str, value: Any) -> None:
    """A number; infinities are texts."""
    plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    if not plain and value not in ("inf", "-inf"):
        refuse(place, 'a number, "inf" or "-inf"', value)


def finite(place: str, value: Any) -> None:
    """A number that is not infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        refuse(place, "a number", value)


def whole(place: str, value: Any) -> None:
    """A whole number, not below zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        refuse(place, "a whole number", value)


def share(place: str, value: Any) -> None:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        refuse(place, "a number from 0 to 1", value)


def truth(place: str, value: Any) -> None:
    """True or false."""
    if not isinstance(value, bool):
        refuse(place, "true or false", value)


def scope(place: str, value: Any) -> None:
    """A scope."""
    text(place, value)
    try:
        Scope.parse(value)
    except InputError:
        refuse(place, "point, global or ball:RADIUS", value)


def evidence(place: str, value: Any) -> None:
    """A word for how a bound is known."""
    if value not in list(Evidence):
        refuse(place, f"one of {', '.join(Evidence)}", value)


def maybe(kind: Kind) -> Kind:
    """That kind, or null."""

    def check(place: str, value: Any) -> None:
        if value is not None:
            kind(place, value)

    return check


def each(kind: Kind) -> Kind:
    """A list of that kind."""

    def check(place: str, value: Any) -> None:
        if not isinstance(value, list | tuple):
            refuse(place, "a list", value)
        for index, item in enumerate(value):
            kind(f"{place}[{index}]", item)

    return check


def table(kind: Kind) -> Kind:
    """An object of any keys whose values are of that kind."""

    def check(place: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            refuse(place, "an object", value)
        for key, item in value.items():
            kind(f"{place}.{key}", item)

    return check


def record(fields: Mapping[str, Kind], optional: Mapping[str, Kind] | None = None) -> Kind:
    """An object with those fields; the optional ones and others may be missing or there."""

    def check(place: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            refuse(place, "an object", value)
        dot = f"{place}." if place else ""
        for key, kind in fields.items():
            if key not in value:
                raise ReadingError(f"the reading lacks the field '{dot}{key}'; was the file cut or edited?")
            kind(f"{dot}{key}", value[key])
        for key, kind in (optional or {}).items():
            if key in value:
                kind(f"{dot}{key}", value[key])

    return check


def either(of: type, first: Kind, second: Kind) -> Kind:
    """The first kind for a value of that type, the second for others."""

    def check(place: str, value: Any) -> None:
        (first if isinstance(value, of) else second)(place, value)

    return check


ENCLOSURE = record({"lower": number, "upper": number})
FINDING = record({"name": text, "why": text})
LAYER = record(
    {
        **dict.fromkeys(("name", "kind", "rule", "note"), text),
        "claim": maybe(text),
        "depth": whole,
        "log10_gain": ENCLOSURE,
        **dict.fromkeys(("log10_folded", "log10_balanced", "log10_cumulative", "log10_to_output"), maybe(number)),
        **dict.fromkeys(("log10_weight_lipschitz", "log10_frobenius", "log10_slack"), maybe(number)),
        "log10_spectral": maybe(ENCLOSURE),
        "sigma": maybe(record(dict.fromkeys(("min", "rms", "max", "gamma_max", "eps"), number))),
    },
    {"log10_reached": maybe(number), "worked": text},
)
SAMPLE = record(
    {"index": whole, "log10_lower": number, "log10_upper": maybe(number)},
    {"log10_refuted": maybe(number), "picture": text},
)
GAINS = each(either(list, each(number), number))
STEP = record(
    {
        "layer": text,
        "output": whole,
        "inputs": each(whole),
        "disjoint": truth,
        "log10_folded": GAINS,
        "log10_balanced": GAINS,
    },
    dict.fromkeys(("log10_radius", "log10_everywhere"), number),
)
PROOF = record(
    {"samples": whole, "sources": each(whole), "output": whole, "steps": each(STEP)}, {"log10_radii": each(number)}
)
SINCE_SCHEMA_2: dict[str, Kind] = {
    "failure_probability": share,
    **dict.fromkeys(("path_dependent", "together", "edited"), truth),
    "no_bound": each(FINDING),
    "log10_refuted": maybe(number),
    **dict.fromkeys(("precision", "weights_digest", "digest"), text),
    "options": table(maybe(either(str, text, either(bool, truth, finite)))),
}
READING = record(
    {
        **dict.fromkeys(("model", "mode", "input"), text),
        "scope": scope,
        "evidence": evidence,
        **dict.fromkeys(("log10_upper", "log10_folded", "log10_lower"), number),
        **dict.fromkeys(("unknown", "unbounded"), each(FINDING)),
        "published": table(either(dict, table(number), number)),
        "layers": each(LAYER),
        "samples": each(SAMPLE),
        "log10_loss": table(number),
        "log10_displacement": maybe(number),
        **dict.fromkeys(("gauges", "notes"), each(text)),
        "seconds": table(finite),
    },
    {  # readings of version 0.1 do not have them
        "normgauge": text,
        "witness": maybe(record({"where": text, "input_change": finite, "output_change": finite})),
        "rules": table(table(text)),
        "proof": maybe(PROOF),
    },
)
LATER = record(SINCE_SCHEMA_2)
