"""Records as lines of strict JSON, and lines as records.

Step lines are written at every step of a training, so their columns take a short way: one ``%`` for all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypedDict

from normgauge.core.fields import Seconds, Told
from normgauge.core.store.numbers import SIX

FORMAT = "normgauge-run"
SCHEMA = 1
ROUNDED = frozenset({"step", "alarm"})  # a reading keeps every digit: its proof is checked from them
Record = dict[str, Any]
# made once: json.dumps with options makes an encoder for every call
_dump = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=str).encode
_quoted = lru_cache(maxsize=64)(_dump)
# literals that are no JSON, as they may stand in a line of another writer, read as ours are spelled
_decoder = json.JSONDecoder(parse_constant={"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get)


class Header(TypedDict):
    """The first line: what the run is."""

    format: Annotated[str, Told(f"`{FORMAT}`", absent=None)]
    schema: Annotated[int, Told(f"{SCHEMA}; another is read as far as it is known", absent=None)]
    run: Annotated[str, Told("32 hexadecimal digits of its own")]
    created: Annotated[str, Told("date and time, as ISO 8601 has them")]
    versions: Annotated[Mapping[str, str], Told("of `normgauge`, `torch` and `python`")]
    device: Annotated[str, Told("where the parameters are", absent=None)]
    world: Annotated[int, Told("how many processes train together", absent=None)]
    model: Annotated[Mapping[str, str | int], Told("its `name` and the number of its `parameters`")]
    layers: Annotated[
        tuple[Mapping[str, str | tuple[int, ...] | int | None], ...],
        Told(
            "each with its `name`, `type`, `role`, `shape`, number of `parameters`, and what it is `tied` to; in the "
            "order of every column",
            absent=(),
        ),
    ]
    columns: Annotated[
        Mapping[str, Mapping[str, str]], Told("for each its `evidence`, `what` it is, and what leaves it `unchanged`")
    ]
    totals: Annotated[Mapping[str, Mapping[str, str]], Told("likewise")]
    config: Annotated[
        Mapping[str, str | bool | float | None], Told("how the monitor was set; `user`: what you gave", absent=None)
    ]


class StepLine(TypedDict):
    """A step that was read."""

    step: Annotated[int, Told("its number")]
    time: Annotated[Seconds, Told("since the run began; resumptions go on counting")]
    lr: Annotated[float | None, Told("learning rate")]
    totals: Annotated[Mapping[str, float | None], Told("over all layers, as the header describes them")]
    loss: Annotated[float | None, Told("at this step")]
    loss_mean: Annotated[float | None, Told("over the steps since the line before")]
    loss_max: Annotated[float | None, Told("likewise")]
    calm: Annotated[
        int | None,
        Told("the step before the first of these losses that is above 1.5 times the mean of those before", absent=None),
    ]
    loss_calm: Annotated[float | None, Told("mean up to that step", absent=None)]
    columns: Annotated[
        Mapping[str, tuple[float | None, ...]], Told("as the header describes them, a number for each of its layers")
    ]
    heads: Annotated[
        Mapping[str, Mapping[str, tuple[float, ...]]],
        Told("gains of the heads of each attention, by the layer that makes their queries", absent=None),
    ]


def encode_record(record: Mapping[str, Any]) -> bytes:
    """One record as one line, newline included."""
    if record.get("kind") in ROUNDED:
        body = ",".join(f"{_quoted(key)}:{_value(key, value)}" for key, value in record.items())
        text = "{" + body + "}\n"
    else:
        text = _dump(_spelled(record)) + "\n"
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair in somebody's name
        return (json.dumps(json.loads(text), allow_nan=False, separators=(",", ":")) + "\n").encode()


def dump_json(value: Any) -> str:
    """What was parsed from JSON as JSON again."""
    return json.dumps(value, separators=(",", ":"))


def parse_json(text: bytes) -> Any:
    """What a text says; None where it is no JSON, or nested or long beyond reason."""
    try:
        return _decoder.decode(text.decode())
    except (ValueError, RecursionError):
        return None


def parse_record(line: bytes) -> Record | None:
    """The record of a line; None where the line is torn or was never one."""
    record = parse_json(line)
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None


def _value(key: str, value: Any) -> str:
    if key == "columns" and isinstance(value, Mapping):
        return _columns(value)
    if type(value) is float and math.isfinite(value):
        return SIX % value
    return _dump(_spelled(value, rounded=True))


def _columns(columns: Mapping[str, Sequence[float | None]]) -> str:
    """All columns by one ``%``: it writes what JSON reads for all that is finite."""
    cells = [cell for column in columns.values() for cell in column]
    absent = bytes([cell is None for cell in cells])
    shape = _shape(tuple(columns), tuple(map(len, columns.values())), absent)
    try:
        text = shape % (tuple([cell for cell in cells if cell is not None]) if 1 in absent else tuple(cells))
    except TypeError:  # something else than numbers
        return _dump(_spelled(columns, rounded=True))
    if "inf" not in text and "nan" not in text:
        return text
    return _dump(_spelled(columns, rounded=True))  # also where the name of a column has one of these in it


@lru_cache(maxsize=32)
def _shape(names: tuple[str, ...], sizes: tuple[int, ...], absent: bytes) -> str:
    """What columns of these names and sizes look like, with ``null`` where nothing is."""
    quoted = (_dump(name).replace("%", "%%") for name in names)
    cells = iter(absent)
    filled = (",".join("null" if next(cells) else SIX for _ in range(size)) for size in sizes)
    return "{" + ",".join(f"{name}:[{cells}]" for name, cells in zip(quoted, filled, strict=True)) + "}"


def _spelled(value: Any, rounded: bool = False) -> Any:
    """The value with what JSON lacks spelled out."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(float(value))
        return float(SIX % value) if rounded else value
    if isinstance(value, Mapping):
        return {key: _spelled(item, rounded) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(item, rounded) for item in value]
    return value
