"""Where a data set lies on the user's disk, and what to say when it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from normgauge.core.errors import LoadError

Folder = str | os.PathLike[str] | None

VARIABLE = "NORMGAUGE_DATA"


def places(name: str, subfolders: Sequence[str], folder: Folder, how: str) -> list[Path]:
    """Folders to look in. A folder named by the user may hold the files itself; one shared by all sets may not.

    Args:
        name: the data set.
        subfolders: the names people give its folder.
        folder: what the user named, or None for the folder in NORMGAUGE_DATA.
        how: how to get the data.

    Returns:
        The folders, whether they exist or not.

    Raises:
        LoadError: if there is no folder to look in.
    """
    root = folder if folder is not None else os.environ.get(VARIABLE)
    if not root:
        raise LoadError(f"{name}: no folder to look in. Give folder=..., or set {VARIABLE}. To get the data: {how}.")
    below = [Path(root) / subfolder for subfolder in subfolders]
    return below if folder is None else [*below, Path(root)]


def absent_message(name: str, files: str, looked_in: Sequence[Path], how: str) -> str:
    """The error for a data set that was not found: what was looked for, where, and how to get it."""
    where = ", ".join(str(place) for place in looked_in)
    return f"{name}: found no {files} in {where}. To get the data: {how}; then put it in one of these."


def npz_paths(name: str, looked_in: Sequence[Path]) -> Iterator[Path]:
    """The files ``name.npz`` that exist in these folders or beside the first of them."""
    folders = dict.fromkeys((looked_in[0].parent, *looked_in))
    return (place / f"{name}.npz" for place in folders if (place / f"{name}.npz").is_file())


def idx_path(place: Path, stem: str) -> Path | None:
    """The IDX file called, say, train-images-idx3-ubyte in a folder, under any of its usual spellings."""
    dotted = stem.replace("-idx", ".idx")
    names = (f"{start}-ubyte{end}" for start in (stem, dotted) for end in ("", ".gz"))
    return next((place / name for name in names if (place / name).is_file()), None)
