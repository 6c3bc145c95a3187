"""A step line as it is kept: its numbers beside names that all lines share, its columns as text until they are wanted.

A long run has a hundred thousand of them, and a view wants all totals and the columns of a few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from normgauge.core.store.lines import Record, dump_json, parse_json
from normgauge.core.store.numbers import read_number

START, COLUMNS = b'{"kind":"step",', b',"columns":{'
Names = tuple[str, ...]


class StepRecord(Mapping[str, Any]):
    """What a step line says, by its keys; as stored, except that parts of another form were left out.

    Args:
        record: its record, with ``totals`` and without ``columns``.
        columns: the columns as JSON.
    """

    __slots__ = ("_columns", "_names", "_total_names", "_totals", "_values", "step")

    def __init__(self, record: Record, columns: bytes) -> None:
        totals = record.pop("totals")
        self.step: int = record["step"]
        self._names: Names = _shared(tuple(record))
        self._values = (*record.values(),)
        self._total_names: Names = _shared(tuple(totals))
        self._totals = (*totals.values(),)
        self._columns = columns

    def __getitem__(self, key: str) -> Any:
        if key == "totals":
            return dict(zip(self._total_names, self._totals, strict=True))
        if key == "columns":
            found = parse_json(self._columns)
            return {name: cells for name, cells in found.items() if isinstance(cells, list)}
        if key not in self._names:
            raise KeyError(key)
        return self._values[self._names.index(key)]

    def __iter__(self) -> Iterator[str]:
        yield from (*self._names, "totals", "columns")

    def __len__(self) -> int:
        return len(self._names) + 2

    def number(self, name: str) -> float | None:
        """A total, or a number of the line itself such as ``loss``; None where it was not measured."""
        return next((value for _, value in numbers_of((self,), name)), None)


def numbers_of(records: Iterable[StepRecord], name: str) -> Iterator[tuple[int, float]]:
    """Step and value of a total, or of a number of the line itself, wherever it was measured.

    Lines share their names, so where the number stands is asked once for all that have the same.
    """
    own: Names | None = None
    totals: Names | None = None
    place, of_totals = -1, False
    for record in records:
        if record._total_names is not totals or record._names is not own:
            own, totals = record._names, record._total_names
            of_totals = name in totals
            names = totals if of_totals else own
            place = names.index(name) if name in names else -1
        if place >= 0:
            value = (record._totals if of_totals else record._values)[place]
            if type(value) is float:  # nearly all of them
                yield record.step, value
            elif (number := read_number(value)) is not None:
                yield record.step, number


@lru_cache(maxsize=64)
def _shared(names: Names) -> Names:
    """The first of all equal names."""
    return names


def quick_step(body: bytes) -> tuple[Record, bytes] | None:
    """The record of a step line without its columns, and these as text; None where the line has another form.

    Only for lines whose checksum holds: the columns are taken on trust that they are what a writer wrote.
    """
    if not body.startswith(START):
        return None
    at = body.find(COLUMNS)
    columns = body[at + len(COLUMNS) - 1 : -1]
    if at < 0 or not columns.endswith(b"]}") or columns.count(b"{") != 1:
        return None
    record = parse_json(body[:at] + b"}")
    whole = isinstance(record, dict) and isinstance(record.get("totals"), dict)
    return (record, columns) if whole else None


def packed_step(record: Record) -> StepRecord:
    """A step record that was parsed whole, in the form that is kept."""
    columns = record["columns"]
    return StepRecord({key: value for key, value in record.items() if key != "columns"}, dump_json(columns).encode())
