"""Writing a run file: whole lines only, one system call each, and never an error into the training."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from normgauge.core.errors import StoreError
from normgauge.core.store.lines import FORMAT, SCHEMA, Record, encode_record
from normgauge.core.store.places import candidate_paths
from normgauge.core.store.seal import Seal, run_mark, sealed

LOCK_TRIES, LOCK_PAUSE = 3, 0.01  # seconds

_open_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


class Writer:
    """Appends records to a run file. What cannot be written is counted and said, and never raises.

    Without an open file it writes nothing, as it does after ``close``.

    Attributes:
        path: the file.
        header: its first line.
        resumed_from: the last step found in the file when it was opened; None for a fresh one.
        elapsed: the last time found in the file, in seconds; 0 for a fresh one.
        lost: lines that could not be written and are not yet noted in the file.
        on_trouble: called with a sentence, once for each spell of trouble.
    """

    def __init__(self, path: Path, header: Record, descriptor: int = -1) -> None:
        self.path = path.absolute()  # a training may change its folder
        self.header = header
        self.resumed_from: int | None = None
        self.elapsed = 0.0
        self.lost = 0
        self.on_trouble: Callable[[str], None] | None = None
        self._descriptor = descriptor
        self._torn = False
        self._step: int | None = None
        self._mark = run_mark(header.get("run"))
        self._number = 0  # of the last line, written or lost
        self._size = 0  # of the file, as far as it is ours
        _open_writers.add(self)

    def go_on(self, number: int, size: int, *, torn: bool) -> None:
        """Say how the file was found: the number of its last line, its bytes, and whether its last line has no end."""
        self._number, self._size, self._torn = number, size, torn

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record as one line."""
        if self._descriptor < 0:
            return
        try:
            line = encode_record(record)
        except (TypeError, ValueError, RecursionError) as error:
            self._number += 1
            self._trouble(f"a line is no JSON ({error})")
            return
        self._step = record.get("step", self._step)
        before = self._number
        try:
            self._mend()
            self._write_line(line)
        except OSError as error:
            self._number = max(self._number, before + 1)  # a lost line has its number, too
            self._trouble(error.strerror or str(error))

    def close(self) -> None:
        """Note what was lost and let the file go; more lines are ignored."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):  # it was said when it began
            self._mend()
        self._let_go()

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _write_line(self, line: bytes) -> None:
        """Write a line of JSON with its check; its number is taken, whether that succeeds or not."""
        self._number += 1
        self._write(sealed(line, Seal(self._mark, self._number)))

    def _write(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        self._size += written
        if written < len(data):  # a disk that fills up takes a part; asked for the rest, it says why
            self._torn = True
            while written < len(data):
                more = os.write(self._descriptor, data[written:])
                written, self._size = written + more, self._size + more
            self._torn = False

    def _mend(self) -> None:
        """Put right what is wrong with the file, as far as that is possible now."""
        state = os.fstat(self._descriptor)
        gone = 0
        if state.st_nlink == 0:
            gone = self._number - self.lost
            self._reopen()
        elif state.st_size < self._size:  # somebody emptied it, or cut its end off
            gone = self._number - self.lost
            self._size, self._torn = state.st_size, False
            self._write(b"\n" if state.st_size else b"")
            self._write_line(encode_record(self.header))
        if self._torn:
            self._write(b"\n")
            self._torn = False
        if gone:
            self._note(f"the file was deleted or cut while it was written: it had {gone} lines before this note")
        if self.lost:
            lines = "1 line" if self.lost == 1 else f"{self.lost} lines"
            self._note(f"{lines} before this note could not be written; nothing else is missing")
            self.lost = 0

    def _note(self, sentence: str) -> None:
        self._write_line(encode_record({"kind": "note", "step": self._step, "sentence": sentence}))

    def _reopen(self) -> None:
        """The file was deleted: begin it anew where its folder still stands; what it held is gone."""
        fresh = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        os.close(self._descriptor)
        self._descriptor, self._torn, self._size = fresh, False, 0
        lock_file(fresh)
        self._write_line(encode_record(self.header))

    def _trouble(self, why: str) -> None:
        self.lost += 1
        if self.lost == 1 and self.on_trouble is not None:
            self.on_trouble(f"cannot write {self.path}: {why}; the training goes on, and writing is tried again")


def create(path: str | os.PathLike[str], header: Mapping[str, Any]) -> Writer:
    """Begin a run file under the first free name.

    Args:
        path: a folder, or a name that ends in ``.jsonl``; ``run-2.jsonl`` follows where ``run.jsonl`` is taken.
        header: what the run is; kind, format, schema, run and created are filled in.

    Returns:
        A writer that holds the file's lock.

    Raises:
        StoreError: when no file can be written there.
    """
    filled = filled_header(header)
    line = header_line(filled)
    for file in candidate_paths(Path(path)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            if file.parent.is_dir():
                continue
            raise StoreError(f"cannot write {file}: {file.parent} is a file; give a folder for the run") from None
        except OSError as error:
            raise StoreError(f"cannot write {file}: {error.strerror}; give a folder that can be written") from None
        if not lock_file(descriptor):  # somebody took the file up in the instant before
            os.close(descriptor)
            continue
        return begun_writer(Writer(file, filled, descriptor), line)
    raise StoreError(f"no free name for a run at {path}; give another folder")


def filled_header(header: Mapping[str, Any]) -> Record:
    """The header with what the store knows."""
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    given = {"kind": "header", "format": FORMAT, "schema": SCHEMA, "run": uuid.uuid4().hex, "created": now}
    return {**given, **header, "kind": "header", "format": FORMAT}


def header_line(header: Record) -> bytes:
    """The header as a line, without its check.

    Raises:
        StoreError: when it is no JSON.
    """
    try:
        return encode_record(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"the header of the run is no JSON: {error}; give plain numbers, texts and lists") from None


def begun_writer(writer: Writer, line: bytes) -> Writer:
    """A writer whose header is written.

    Raises:
        StoreError: when it cannot be.
    """
    try:
        writer._write_line(line)
    except OSError as error:
        writer._let_go()
        writer.path.unlink(missing_ok=True)
        raise StoreError(f"cannot write {writer.path}: {error.strerror}; make room or give another folder") from None
    return writer


def lock_file(descriptor: int) -> bool:
    """Take the lock of an open file; False where another process holds it, True also where there are no locks."""
    if sys.platform == "win32":
        return True
    import fcntl

    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                return True
        else:
            return True
        time.sleep(LOCK_PAUSE)  # it may be a reader that looks, which takes no time
    return False


def is_written(path: str | os.PathLike[str]) -> bool | None:
    """Whether a process holds the lock of a run file, as its writer does; None where that cannot be told."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN) else None
    finally:
        os.close(descriptor)  # and with it the lock
    return False


def _forget() -> None:
    """A forked child, such as a loader's worker, must neither write nor keep the lock alive when its parent dies."""
    for writer in list(_open_writers):
        writer._let_go()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget)
