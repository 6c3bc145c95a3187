"""Where run files lie, what they are called, and which is the newest."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from normgauge.core.store.lines import FORMAT

SUFFIX = ".jsonl"
NAME = "run"
HEAD = 4096  # bytes in which a header says what it is
DEEP = 4  # folders below the one named
START = b'{"kind":"'  # of every line that is written
_OWN = re.compile(rf"{NAME}(-\d+)?")
_FORMAT = re.compile(rb'"format":\s*"' + FORMAT.encode() + rb'"')
_CREATED = re.compile(rb'"created":\s*"([^"]*)"')


def candidate_paths(path: Path) -> Iterator[Path]:
    """The names a new run may take, in order: the one named, or ``run.jsonl``, ``run-2.jsonl``, ... in the folder."""
    first = path if path.suffix == SUFFIX else path / (NAME + SUFFIX)
    yield first
    for number in range(2, 100_000):
        yield first.with_name(f"{first.stem}-{number}{first.suffix}")


def newest(path: str | os.PathLike[str]) -> Path | None:
    """The run file of highest number that a folder holds, or the file named; None where there is none."""
    place = Path(path)
    if place.suffix == SUFFIX:
        return place if place.is_file() else None
    own = [file for file in place.glob(f"{NAME}*{SUFFIX}") if _OWN.fullmatch(file.stem) and file.is_file()]
    return max(own, key=_number, default=None)


def find(path: str | os.PathLike[str]) -> list[Path]:
    """The run files at a path, newest last: the file itself, or all in a folder and the folders in it."""
    place = Path(path)
    if place.is_file():
        return [place]
    known = [(created, _number(file), str(file)) for file in _walk(place) if (created := _created(file)) is not None]
    return [Path(file) for _, _, file in sorted(known)]


def _walk(place: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(place):
        deep = len(Path(folder).relative_to(place).parts)
        inner[:] = sorted(name for name in inner if name[0] != "." and deep < DEEP)
        yield from (Path(folder) / name for name in files if name.endswith(SUFFIX))


def _created(path: Path) -> str | None:
    """When a run file was begun; None where the file is none."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return None
    # the header of a run may be lost: then the name of the file and the form of its first line must do
    if not _FORMAT.search(head) and not (_OWN.fullmatch(path.stem) and head.startswith(START)):
        return None
    said = _CREATED.search(head)
    return said[1].decode(errors="replace") if said else ""


def _number(path: Path) -> int:
    """2 for ``run-2.jsonl``, 1 for a name without a number."""
    last = path.stem.rpartition("-")[2]
    return int(last) if last.isdecimal() else 1
