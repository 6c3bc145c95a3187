"""Which files a network is built from: what Python opens for reading, or loads as a module, while it is built."""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

NOT_FOR_READING = os.O_WRONLY | os.O_TRUNC | os.O_EXCL
PACKAGES, CACHE = {"site-packages", "dist-packages"}, "__pycache__"
NORMGAUGE = Path(__file__).resolve().parents[2]  # its folder, wherever it is installed
SYSTEM = ("/dev", "/etc", "/proc", "/sys")
_listening: list[dict[str, None]] = []  # the innermost last; a hook cannot be taken away again, and does nothing then
_hooked: list[bool] = []


@contextlib.contextmanager
def files_opened() -> Iterator[dict[str, None]]:
    """The paths that Python opens for reading inside, in the order in which they first come.

    Yields:
        They are its keys, absolute, links not followed: another file may stand behind a link later.
    """
    if not _hooked:
        sys.addaudithook(_hear)
        _hooked.append(True)
    found: dict[str, None] = {}
    _listening.append(found)
    try:
        yield found
    finally:
        _listening.pop()


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a path that is opened; whatever is wrong with it is for the opening itself to tell."""
    if event != "open" or not _listening:
        return
    path, flags = arguments[0], arguments[2]
    if isinstance(path, str | bytes) and isinstance(flags, int) and not flags & NOT_FOR_READING:
        with contextlib.suppress(OSError):  # where the working folder is gone
            name = os.path.abspath(os.fsdecode(path))
            if "\0" not in name:
                _listening[-1][name] = None


def own_files(opened: Iterable[str], root: Path, besides: Path) -> list[Path]:
    """Those of the files that are the user's: not the interpreter's, a package's, the system's or the trial's own.

    Compiled code stands for its source, other caches in its folder for nothing. A file that was looked for and is not
    there counts: it may be there later.

    Args:
        opened: absolute paths.
        root: a folder of the user's, which no installation around it takes away.
        besides: the trial's folder.

    Returns:
        Their paths, sorted.
    """
    apart = [*_installations(root.resolve()), besides.resolve()]
    paths = {_source(Path(name)) for name in opened}
    return sorted(path for path in paths if _is_comparable(path) and not _is_apart(path, apart))


def _is_comparable(path: Path) -> bool:
    """Whether it is a regular file or nothing as yet; a pipe or a device has nothing to compare."""
    return os.path.isfile(path) or not os.path.exists(path)  # these raise nothing, whatever may not be read


def _is_apart(path: Path, apart: list[Path]) -> bool:
    if (
        path.parent.name == CACHE
        or PACKAGES.intersection(path.parts)
        or path.as_posix().startswith(tuple(f"{top}/" for top in SYSTEM))
    ):
        return True
    there = Path(os.path.realpath(path.parent))  # not of the file: another may stand behind a link later
    return any(place.is_relative_to(folder) for folder in apart for place in (path, there))


def _installations(root: Path) -> list[Path]:
    """Folders of the interpreter and of packages; one that holds ``root`` too is named by its parts."""
    whole = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    parts = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    found = {*whole, *(Path(part).resolve() for part in parts), NORMGAUGE}
    return [folder for folder in found if not root.is_relative_to(folder)]


def _source(path: Path) -> Path:
    if path.suffix != ".pyc":
        return path
    try:
        return Path(source_from_cache(path))
    except (NotImplementedError, ValueError):  # compiled by another tool
        return path
