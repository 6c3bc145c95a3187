"""Putting the lines of a file together to a run: what it says, and sentences about what is not there."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from normgauge.core.errors import StoreError
from normgauge.core.fields import REQUIRED, declared_fields
from normgauge.core.store.follower import Follower, Line
from normgauge.core.store.lines import FORMAT, SCHEMA, Header, Record
from normgauge.core.store.losses import Losses, Verdict
from normgauge.core.store.places import newest
from normgauge.core.store.run import Run
from normgauge.core.store.steps import StepRecord, packed_step
from normgauge.core.store.writer import is_written

LISTED = frozenset({"alarm", "consequence", "note", "reading", "resume"})
TAKEN_AGAIN = ("alarm", "consequence", "reading")  # which steps taken again replace
LARGEST = 2**53  # steps beyond are no numbers of steps: a drawing could not tell them apart


class Collector:
    """Takes the lines of a file one after the other and keeps what a reader wants.

    A file that is begun anew brings a second header: everything before it is forgotten.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._losses = Losses()
        self._lines = 0
        self._begin()

    def _begin(self) -> None:
        self._header: Record | None = None
        self._steps: list[StepRecord] = []
        self._lists: dict[str, list[Record]] = {kind: [] for kind in LISTED}
        self._end: Record | None = None
        self._problems: list[str] = []
        self._before_resume = dict.fromkeys(TAKEN_AGAIN, 0)
        self._resumed: int | None = None
        self._strange: dict[str, int] = {}
        self._sealed = False

    @property
    def begun(self) -> bool:
        """Whether the header was seen, or other lines of a run where it is lost."""
        return self._header is not None or self._sealed or bool(self._steps)

    def add(self, line: Line) -> None:
        """Take one line."""
        self._lines += 1
        verdict = self._losses.judge(line)
        if verdict is Verdict.ANEW:
            self._begin()
        if verdict is not Verdict.LEAVE and line.record is not None:
            self._sealed = self._sealed or line.seal is not None
            self._take(line.record, line)

    def check(self) -> None:
        """Refuse a file of which some lines were read and none is a run's.

        Raises:
            StoreError: then.
        """
        if self._lines and not self.begun and self._losses.changed:
            raise StoreError(f"all lines of {self.path} are damaged: none is what it was when it was written")
        if self._lines and not self.begun:
            raise StoreError(f"{self.path} is no run file: expected a header of {FORMAT} in line 1")

    def _take(self, record: Record, line: Line) -> None:
        kind = record["kind"]
        if kind == "step":
            self._step(record, line)
        elif kind == "header" and record.get("format") == FORMAT:
            if self._header is None:  # one that comes again says nothing new
                self._header = {**record, "layers": layer_list(record)}  # each an object, whatever a schema has there
                self._check_schema()
        elif kind == "layers":
            self._header = self._header and with_layers(self._header, record)
        elif kind == "end":
            self._end = record
        elif kind in LISTED:
            if kind == "resume":
                self._before_resume = {k: len(self._lists[k]) for k in self._before_resume}
                self._resumed = _integer(record.get("step"))
                self._end = None
            self._lists[kind].append(record)
        else:
            self._strange[kind] = self._strange.get(kind, 0) + 1

    def _step(self, record: Record, line: Line) -> None:
        step, at = _integer(record.get("step")), line.number
        if step is None or abs(step) > LARGEST:
            self._problems.append(f"line {at} is a step without its number and was left out")
            return
        if line.columns is None:
            if self._header is None and not self._sealed and not isinstance(record.get("columns"), dict):
                return  # of a file that is perhaps no run
            packed = packed_step(self._whole_step(record, step, at))
        else:
            packed = StepRecord(record, line.columns)
        self._supersede(step, at)
        self._steps.append(packed)

    def _whole_step(self, record: Record, step: int, at: int) -> Record:
        """The record with what it lacks, and without what is of another form."""
        for key in ("totals", "columns"):
            if not isinstance(record.get(key), dict):
                self._problems.append(f"line {at}, step {step}, lacks its {key}")
                record = {**record, key: {}}
        columns = record["columns"]
        if not all(isinstance(cells, list) for cells in columns.values()):
            record = {**record, "columns": {name: c for name, c in columns.items() if isinstance(c, list)}}
            self._problems.append(f"line {at}, step {step}, has columns that are no lists; they were left out")
        return record

    def _supersede(self, step: int, at: int) -> None:
        """Leave out what a run wrote before it was taken up again from an earlier step."""
        first = step if self._resumed is None else min(step, self._resumed + 1)
        self._resumed = None
        if not self._steps or self._steps[-1].step < first:
            return
        kept = len(self._steps)
        while kept and self._steps[kept - 1].step >= first:
            kept -= 1
        old = [record.step for record in self._steps[kept:]]
        del self._steps[kept:]
        for kind, count in self._before_resume.items():
            items = self._lists[kind]
            items[:count] = [item for item in items[:count] if (_integer(item.get("step")) or 0) < first]
            self._before_resume[kind] = 0
        span = f"step {old[0]} was" if len(old) == 1 else f"steps {old[0]} to {old[-1]} were"
        self._problems.append(f"{span} taken again from line {at} on; what was written before was left out")

    def _check_schema(self) -> None:
        header = self._header or {}
        if header.get("schema") != SCHEMA:
            said = f"the file has schema {header.get('schema')!r} and this normgauge knows {SCHEMA}"
            self._problems.append(f"{said}: what it knows is shown")
        required = [field.key for field in declared_fields(Header) if field.told.absent is REQUIRED]
        lacking = [key for key in required if key not in header]
        if lacking:
            self._problems.append(f"the header lacks {', '.join(lacking)}")
        if not header.get("layers"):
            self._problems.append("the header names no layers")

    def run(self, waiting: int = 0) -> Run:
        """The run so far; it does not change when more lines come.

        Args:
            waiting: bytes at the end of the file that are no whole line.

        Raises:
            StoreError: when there is no line of a run yet.
        """
        self.check()
        if not self.begun:
            raise StoreError(f"{self.path} holds no complete header: no run, or one that was killed as it began")
        strange = [f"{n} lines of the unknown kind {kind!r} were left out" for kind, n in self._strange.items()]
        torn = [f"the last line is torn ({waiting} bytes) and was left out"] if waiting else []
        lost = (
            [] if self._header else ["the header is lost: layers go by their numbers, and what they are is not known"]
        )
        lists = {kind: tuple(self._lists[kind]) for kind in LISTED}
        return Run(
            self.path,
            self._header or _unnamed(self._steps),
            tuple(self._steps),
            lists["alarm"],
            lists["note"],
            lists["reading"],
            lists["resume"],
            self._end,
            (*lost, *self._losses.sentences(), *self._problems, *strange, *torn),
            lists["consequence"],
            _changed_at(self.path),
            None if self._end is not None else is_written(self.path),
        )


def read(path: str | os.PathLike[str]) -> Run:
    """Read a run file, or the newest in a folder.

    Raises:
        StoreError: when there is none, or the file is no run.
    """
    file = newest(path)
    if file is None and Path(path).is_file():
        file = Path(path)
    if file is None:
        raise StoreError(f"no run at {path}: expected a run file or a folder with run.jsonl")
    follower, collector = Follower(file), Collector(file)
    with uncollected():
        for line in follower.lines():
            collector.add(line)
    return collector.run(follower.waiting)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles meanwhile: among a hundred thousand records that all stay, that takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def with_layers(header: Record, record: Mapping[str, Any]) -> Record:
    """The header with the layers that came later; one that is known, since a run was resumed, comes once."""
    known = layer_list(header)
    names = [layer.get("name") for layer in known]
    return {**header, "layers": [*known, *(layer for layer in layer_list(record) if layer.get("name") not in names)]}


def layer_list(record: Mapping[str, Any]) -> list[Record]:
    """The layers of a header or a later line, each an object."""
    layers = record.get("layers")
    good = layers if isinstance(layers, list) else []
    return [layer if isinstance(layer, dict) else {"name": layer} for layer in good]


def _unnamed(steps: list[StepRecord]) -> Record:
    """A header for a run whose own is lost."""
    columns = steps[-1]["columns"].values() if steps else ()
    return {"kind": "header", "layers": [{"name": str(i)} for i in range(max(map(len, columns), default=0))]}


def _changed_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
