"""Files as they are stored: readings, one or several under ``readings``; and how a file is replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from normgauge.core.checker import file_problem, parse_text
from normgauge.core.errors import ReadingError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write that takes the place of ``path`` at the end: a kill leaves the file before or the file after."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: str | Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        ReadingError: when it cannot be read or is no JSON.
    """
    try:
        return parse_text(Path(path).read_text(encoding="utf-8"))
    except IsADirectoryError as error:
        why = f"{error.strerror}; folders of runs are for `normgauge watch` and `normgauge report`"
    except OSError as error:
        why = str(error.strerror)
    except UnicodeDecodeError:
        why = "bytes that are no text"
    except ValueError as error:
        why = str(error)
    raise ReadingError(f"expected a JSON file with readings at {path}: {why}")


def items_of(data: Any, name: str | Path) -> list[Any]:
    """The readings of a file, all under its key ``readings`` or the one it is.

    Raises:
        ReadingError: when it has none, or its own fields do not repeat the first of several.
    """
    wrong = file_problem(data)
    if wrong:
        raise ReadingError(f"{name}: {wrong}")
    return list(data["readings"]) if isinstance(data, dict) and "readings" in data else [data]


def read_items(path: str | Path) -> list[Any]:
    """The readings of a file, as they are stored."""
    return items_of(read_json(path), path)
