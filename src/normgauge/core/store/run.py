"""A run as it is read: whole lines only, each once, at the cost of what is new; what they say, and what they lack."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from normgauge.core.errors import StoreError
from normgauge.core.fields import REQUIRED, declared_fields
from normgauge.core.store.lines import FORMAT, SCHEMA, Header, Record, parse_record
from normgauge.core.store.numbers import read_number
from normgauge.core.store.places import newest

Series = list[tuple[int, float]]
ANCHOR = 64  # bytes before the place read last; if they changed, the file is another one
LISTED = frozenset({"alarm", "consequence", "note", "reading", "resume"})


@dataclass(frozen=True, slots=True)
class Run:
    """What a run file says. Records are as stored: `series` and `total` read the spelled numbers.

    Attributes:
        path: the file.
        header: its first line.
        steps: the step lines; of steps taken twice, after a resume, only the later.
        alarms, notes, readings, resumes: the other lines; each alarm is the cause of an incident.
        end: the last line of a run that was closed.
        problems: sentences about what was left out.
        consequences: lines of what followed from an alarm; ``cause`` and ``cause_step`` say from which.
    """

    path: Path
    header: Record
    steps: Sequence[Record] = ()
    alarms: Sequence[Record] = ()
    notes: Sequence[Record] = ()
    readings: Sequence[Record] = ()
    resumes: Sequence[Record] = ()
    end: Record | None = None
    problems: Sequence[str] = ()
    consequences: Sequence[Record] = ()

    @property
    def layers(self) -> list[str]:
        """The layers' names, in the order of every column."""
        return [str(layer.get("name", i)) for i, layer in enumerate(self.header["layers"])]

    def series(self, column: str, layer: str | int) -> Series:
        """Step and value of one layer's quantity wherever it was measured.

        Raises:
            StoreError: when the run has no such layer.
        """
        place = layer if isinstance(layer, int) else self._place(layer)
        pairs = []
        for step in self.steps:
            cells = step["columns"].get(column, ())
            value = read_number(cells[place]) if place < len(cells) else None
            if value is not None:
                pairs.append((step["step"], value))
        return pairs

    def total(self, name: str) -> Series:
        """Step and value of a total, or of ``loss``, ``lr`` or ``time``, wherever it was measured."""
        found = ((s["step"], read_number(s["totals"].get(name, s.get(name)))) for s in self.steps)
        return [(step, value) for step, value in found if value is not None]

    def _place(self, layer: str) -> int:
        try:
            return self.layers.index(layer)
        except ValueError:
            raise StoreError(
                f"{self.path} has no layer {layer!r}; its layers are {', '.join(self.layers[:8])}, ..."
            ) from None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file.

    Attributes:
        number: the first is 1.
        size: bytes, without the newline.
        record: what it says; None where it is torn.
    """

    number: int
    size: int
    record: Record | None


class Follower:
    """Remembers how far a run file was read; the file may not be there yet, and may be cut or begun anew.

    Attributes:
        path: the file.
        waiting: bytes at the end that do not end in a newline yet.
        there: the file existed at the last look.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._begin()

    def _begin(self) -> None:
        self.waiting = 0
        self.there = False
        self._offset = self._number = 0
        self._anchor = b""

    def poll(self) -> list[Record]:
        """The records written since the last call; a header among them says that the file was begun anew."""
        return [line.record for line in self.lines() if line.record is not None]

    def lines(self) -> list[Line]:
        """The lines written since the last call, torn ones included.

        Raises:
            StoreError: when the file is there and cannot be read.
        """
        try:
            fresh = self._read()
        except FileNotFoundError:
            self._begin()
            return []
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}; give a run file or its folder") from None
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self.waiting = len(fresh) - len(whole)
        self._offset += len(whole)
        self._anchor = (self._anchor + whole[-ANCHOR:])[-ANCHOR:]
        return [self._line(text) for text in whole.split(b"\n")[:-1]]

    def _read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self._offset - len(self._anchor))
            if file.read(len(self._anchor)) != self._anchor:  # cut, or another file under the same name
                self._begin()
                file.seek(0)
            self.there = True
            return file.read()

    def _line(self, text: bytes) -> Line:
        self._number += 1
        return Line(self._number, len(text), parse_record(text))


class Collector:
    """Takes the lines of a file one after the other and keeps what a reader wants.

    A file that is begun anew brings a second header: everything before it is forgotten.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._begin(None)

    def _begin(self, header: Record | None) -> None:
        self._header = header
        self._steps: list[Record] = []
        self._lists: dict[str, list[Record]] = {kind: [] for kind in LISTED}
        self._end: Record | None = None
        self._problems: list[str] = []
        self._before_resume = dict.fromkeys(("alarm", "consequence", "reading"), 0)
        self._resumed: int | None = None
        self._strange: dict[str, int] = {}

    @property
    def begun(self) -> bool:
        """Whether the header was seen."""
        return self._header is not None

    def add(self, line: Line) -> None:
        """Take one line.

        Raises:
            StoreError: when the first line is no header of a run.
        """
        record = line.record
        if record is not None and record["kind"] == "header" and record.get("format") == FORMAT:
            self._begin({**record, "layers": _layers(record)})  # each an object, whatever another schema has there
            self._check_schema()
        elif self._header is None:
            raise StoreError(f"{self.path} is no run file: expected a header of {FORMAT} in line {line.number}")
        elif record is None:
            self._problems.append(f"line {line.number} is torn ({line.size} bytes) and was left out")
        else:
            self._take(record, line.number)

    def _take(self, record: Record, at: int) -> None:
        kind = record["kind"]
        if kind == "step":
            self._step(record, at)
        elif kind == "layers":
            self._header = with_layers(self._header or {}, record)
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

    def _step(self, record: Record, at: int) -> None:
        step = _integer(record.get("step"))
        if step is None:
            self._problems.append(f"line {at} is a step without its number and was left out")
            return
        for key in ("totals", "columns"):
            if not isinstance(record.get(key), dict):
                self._problems.append(f"line {at}, step {step}, lacks its {key}")
                record = {**record, key: {}}
        columns = record["columns"]
        if not all(isinstance(cells, list) for cells in columns.values()):
            record = {**record, "columns": {name: c for name, c in columns.items() if isinstance(c, list)}}
            self._problems.append(f"line {at}, step {step}, has columns that are no lists; they were left out")
        self._supersede(step, at)
        self._steps.append(record)

    def _supersede(self, step: int, at: int) -> None:
        """Leave out what a run wrote before it was taken up again from an earlier step."""
        first = step if self._resumed is None else min(step, self._resumed + 1)
        self._resumed = None
        if not self._steps or self._steps[-1]["step"] < first:
            return
        kept = len(self._steps)
        while kept and self._steps[kept - 1]["step"] >= first:
            kept -= 1
        old = [record["step"] for record in self._steps[kept:]]
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
            StoreError: when there is no header yet.
        """
        if self._header is None:
            raise StoreError(f"{self.path} holds no complete header: no run, or one that was killed as it began")
        strange = [f"{n} lines of the unknown kind {kind!r} were left out" for kind, n in self._strange.items()]
        torn = [f"the last line is torn ({waiting} bytes) and was left out"] if waiting else []
        lists = {kind: tuple(self._lists[kind]) for kind in LISTED}
        return Run(
            self.path,
            self._header,
            tuple(self._steps),
            lists["alarm"],
            lists["note"],
            lists["reading"],
            lists["resume"],
            self._end,
            (*self._problems, *strange, *torn),
            lists["consequence"],
        )


follow = Follower  # an object whose ``poll()`` returns what a run file gained since the last call


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
    for line in follower.lines():
        collector.add(line)
    return collector.run(follower.waiting)


def with_layers(header: Record, record: Record) -> Record:
    """The header with the layers that came later; one that is known, since a run was resumed, comes once."""
    known = _layers(header)
    names = {layer.get("name") for layer in known}
    return {**header, "layers": [*known, *(layer for layer in _layers(record) if layer.get("name") not in names)]}


def _layers(record: Record) -> list[Record]:
    layers = record.get("layers")
    good = layers if isinstance(layers, list) else []
    return [layer if isinstance(layer, dict) else {"name": layer} for layer in good]


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
