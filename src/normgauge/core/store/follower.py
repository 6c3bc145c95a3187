"""Following a run file: whole lines only, each once, at the cost of what is new."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from normgauge.core.errors import StoreError
from normgauge.core.store.lines import Record, parse_record
from normgauge.core.store.seal import Seal, unsealed
from normgauge.core.store.steps import quick_step

ANCHOR = 64  # bytes before the place read last; if they changed, the file is another one
PIECE = 1 << 20  # bytes read at once
MARK = b"\xef\xbb\xbf"  # which some editors put in front of a text


class Line(NamedTuple):
    """One line of the file.

    Attributes:
        number: the first is 1.
        size: bytes, without the newline.
        record: what it says; None where it is torn, or was changed since it was written.
        columns: those of a step, as text, where they were left out of the record.
        seal: its run and its number there; None where it bears no check.
        changed: its check does not hold.
    """

    number: int
    size: int
    record: Record | None
    columns: bytes | None = None
    seal: Seal | None = None
    changed: bool = False


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

    def poll(self) -> list[Mapping[str, Any]]:
        """The records written since the last call; a header among them says that the file was begun anew."""
        found = (parse_record(body) for body, _, holds in map(unsealed, self._texts()) if holds)
        return [record for record in found if record is not None]

    def lines(self) -> Iterator[Line]:
        """The lines written since the last call, torn and changed ones included.

        Raises:
            StoreError: when the file is there and cannot be read.
        """
        for text in self._texts():
            if text:
                yield _read_line(text, self._number)

    def _texts(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset - len(self._anchor))
                if file.read(len(self._anchor)) != self._anchor:  # cut, or another file under the same name
                    self._begin()
                    file.seek(0)
                self.there = True
                yield from self._whole_lines(file)
        except FileNotFoundError:
            self._begin()
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}; give a run file or its folder") from None

    def _whole_lines(self, file: Any) -> Iterator[bytes]:
        begun: list[bytes] = []  # pieces of a line that has not ended
        while piece := file.read(PIECE):
            if b"\n" not in piece:
                begun.append(piece)
                continue
            *whole, rest = b"".join((*begun, piece)).split(b"\n")
            begun = [rest]
            for text in whole:
                self._number += 1
                self._offset += len(text) + 1
                yield text.removeprefix(MARK) if self._number == 1 else text
            self._anchor = (self._anchor + b"".join(text + b"\n" for text in whole[-ANCHOR:]))[-ANCHOR:]
        self.waiting = sum(map(len, begun))


def _read_line(text: bytes, number: int) -> Line:
    body, seal, holds = unsealed(text)
    if not holds:
        return Line(number, len(text), None, seal=seal, changed=True)
    quick = quick_step(body) if seal is not None else None
    if quick is not None:
        return Line(number, len(text), *quick, seal=seal)
    record = parse_record(body)
    if seal is None and record is not None and "check" in record:  # it had a check, and was written anew
        return Line(number, len(text), None, changed=True)
    return Line(number, len(text), record, seal=seal)


follow = Follower  # an object whose ``poll()`` returns what a run file gained since the last call
