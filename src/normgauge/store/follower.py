"""A run file read as it grows: whole lines only, each once, at the cost of what is new."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from normgauge.errors import StoreError
from normgauge.store.lines import Record, parsed

ANCHOR = 64  # bytes before the place read last; if they changed, the file is another one


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
        return Line(self._number, len(text), parsed(text))


def follow(path: str | os.PathLike[str]) -> Follower:
    """An object whose ``poll()`` returns what a run file gained since the last call."""
    return Follower(path)
