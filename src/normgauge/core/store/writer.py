"""Writing a run file: whole lines only, one system call each, and never an error into the training."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import uuid
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from normgauge.core.errors import StoreError
from normgauge.core.store.lines import FORMAT, SCHEMA, Record, encode_record, parse_record
from normgauge.core.store.numbers import read_number
from normgauge.core.store.places import candidate_paths, newest
from normgauge.core.store.run import with_layers

LATER = b'"layers"'  # in every line that brings layers, and in few others
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
        _open_writers.add(self)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record as one line."""
        if self._descriptor < 0:
            return
        try:
            line = encode_record(record)
        except (TypeError, ValueError, RecursionError) as error:
            self._trouble(f"a line is no JSON ({error})")
            return
        self._step = record.get("step", self._step)
        try:
            self._mend()
            self._write(line)
        except OSError as error:
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

    def _write(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        if written < len(data):  # a disk that fills up takes a part; asked for the rest, it says why
            self._torn = True
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            self._torn = False

    def _mend(self) -> None:
        """Put right what is wrong with the file, as far as that is possible now."""
        if os.fstat(self._descriptor).st_nlink == 0:
            self._reopen()
        if self._torn:
            self._write(b"\n")
            self._torn = False
        if self.lost:
            lines = "1 line" if self.lost == 1 else f"{self.lost} lines"
            sentence = f"{lines} before this note could not be written; nothing else is missing"
            self._write(encode_record({"kind": "note", "step": self._step, "sentence": sentence}))
            self.lost = 0

    def _reopen(self) -> None:
        """The file was deleted: begin it anew where its folder still stands; what it held is gone."""
        fresh = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        os.close(self._descriptor)
        self._descriptor, self._torn = fresh, False
        _lock(fresh)
        self._write(encode_record(self.header))
        self.lost = max(self.lost, 1)

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
    filled = _filled(header)
    line = _header_line(filled)
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
        if not _lock(descriptor):  # somebody took the file up in the instant before
            os.close(descriptor)
            continue
        return _begun(Writer(file, filled, descriptor), line)
    raise StoreError(f"no free name for a run at {path}; give another folder")


def resume(path: str | os.PathLike[str], header: Mapping[str, Any], *, step: int | None = None) -> Writer:
    """Go on with the newest run file of a folder, or with the file named; begin one where there is none.

    Args:
        path: as for `create`.
        header: what the run is now; its layers must be those of the file.
        step: the step the training goes on from, where it is known; the last of the file otherwise.

    Returns:
        A writer that holds the file's lock.

    Raises:
        StoreError: when the file is being written by another process, is another network's, or cannot be written.
    """
    file = newest(path)
    if file is None:
        return create(path, header)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}; give another folder for the run") from None
    if not _lock(descriptor):
        os.close(descriptor)
        raise StoreError(
            f"{file} is still being written by another process or monitor; close that one or give another folder"
        )
    try:
        return _continued(file, descriptor, _filled(header), step)
    except StoreError:
        os.close(descriptor)
        raise


def _continued(file: Path, descriptor: int, header: Record, step: int | None) -> Writer:
    *whole, tail = file.read_bytes().split(b"\n")
    if not whole:  # killed while its header was written: there is nothing to go on with
        os.ftruncate(descriptor, 0)
        return _begun(Writer(file, header, descriptor), _header_line(header))
    stored = parse_record(whole[0])
    if stored is None or stored.get("format") != FORMAT:
        raise StoreError(f"{file} is no run file; give another folder or name for the run")
    for line in whole[1:]:
        later = parse_record(line) if LATER in line else None
        if later is not None and later["kind"] == "layers":
            stored = with_layers(stored, later)
    _check_fits(file, stored, header)
    writer = Writer(file, stored, descriptor)
    torn = len(tail) if tail and parse_record(tail) is None else 0
    writer._torn = bool(tail)
    writer.resumed_from, writer.elapsed = _last([*whole, tail])
    record = {"kind": "resume", "step": writer.resumed_from if step is None else step, "time": writer.elapsed}
    record |= {"created": header["created"], "versions": header.get("versions"), "torn_bytes": torn}
    writer.append(record)
    if writer.lost:
        _open_writers.discard(writer)
        raise StoreError(f"cannot write {file}: the disk may be full; make room or give another folder")
    return writer


def _last(lines: list[bytes]) -> tuple[int | None, float]:
    """Step and time of the last step line."""
    for line in reversed(lines):
        record = parse_record(line)
        if record is not None and record["kind"] == "step" and isinstance(record.get("step"), int):
            return record["step"], read_number(record.get("time")) or 0.0
    return None, 0.0


def _check_fits(file: Path, stored: Record, header: Record) -> None:
    there, here = (
        [(layer.get("name"), tuple(layer.get("shape") or ())) for layer in h.get("layers", [])]
        for h in (stored, header)
    )
    if there == here:
        return
    pairs = ((a, b) for a, b in zip(there, here, strict=False) if a != b)
    old, new = next(pairs, (None, None))
    said = f"{len(there)} layers there, {len(here)} here" if old is None else f"{old} there, {new} here"
    raise StoreError(f"{file} is the run of another network: {said}; give another folder for the run")


def _filled(header: Mapping[str, Any]) -> Record:
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    given = {"kind": "header", "format": FORMAT, "schema": SCHEMA, "run": uuid.uuid4().hex, "created": now}
    return {**given, **header, "kind": "header", "format": FORMAT}


def _header_line(header: Record) -> bytes:
    try:
        return encode_record(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"the header of the run is no JSON: {error}; give plain numbers, texts and lists") from None


def _begun(writer: Writer, line: bytes) -> Writer:
    try:
        writer._write(line)
    except OSError as error:
        writer._let_go()
        writer.path.unlink(missing_ok=True)
        raise StoreError(f"cannot write {writer.path}: {error.strerror}; make room or give another folder") from None
    return writer


def _lock(descriptor: int) -> bool:
    """Take the lock of an open file; False where another process holds it, True also where there are no locks."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN)
    return True


def _forget() -> None:
    """A forked child, such as a loader's worker, must neither write nor keep the lock alive when its parent dies."""
    for writer in list(_open_writers):
        writer._let_go()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget)
