"""CIFAR-10 from mosaics of lossless WebP into the binary layout: `python -m experiments.than2025.unpack FOLDER... OUT`.

A mosaic train_00.webp holds images 0 to 999 of a split in 25 rows of 40 tiles; labels.npz holds `train` and `test`. The
mosaics may lie in several folders, given one call after another: what is there is kept in OUT, and the six files
data_batch_1.bin to test_batch.bin are written once all are there. IDX files of other sets are copied as they are.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

TILE, COLUMNS, ROWS, COUNT = 32, 40, 25, 1_000
FILES = {"train": 50, "test": 10}
PARTS = {f"data_batch_{k + 1}.bin": ("train", range(10 * k, 10 * k + 10)) for k in range(5)}
PARTS["test_batch.bin"] = ("test", range(10))


def main(argv: list[str] | None = None) -> int:
    """Unpack.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0 when CIFAR-10 is complete, 75 when mosaics are still missing.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.unpack", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder to be named in NORMGAUGE_DATA or --data-dir")
    args = parser.parse_args(argv)
    missing = unpack(args.folders, args.out)
    print("complete" if not missing else f"{missing} mosaics or labels still missing")
    return 75 if missing else 0


def unpack(folders: Sequence[Path], out: Path) -> int:
    """Take what is in the folders and below; returns how many files of CIFAR-10 are still missing."""
    kept = out / "mosaics"
    kept.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix == ".webp" or path.name == "labels.npz":
                shutil.copyfile(path, kept / path.name)
            elif path.name.endswith("-ubyte.gz"):
                (out / path.parent.name).mkdir(exist_ok=True)
                shutil.copyfile(path, out / path.parent.name / path.name)
    wanted = [f"{half}_{k:02d}.webp" for half, count in FILES.items() for k in range(count)]
    missing = sum(not (kept / name).exists() for name in [*wanted, "labels.npz"])
    if not missing:
        _write(kept, out / "cifar-10-batches-bin")
    return missing


def _write(kept: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    with np.load(kept / "labels.npz") as arrays:
        labels = {half: arrays[half] for half in FILES}
    for name, (half, numbers) in PARTS.items():
        with ThreadPoolExecutor() as pool:
            tiles = list(pool.map(images, [kept / f"{half}_{k:02d}.webp" for k in numbers]))
        first = numbers[0] * COUNT
        some = labels[half][first : first + len(tiles) * COUNT]
        rows = np.concatenate([some[:, None], np.concatenate(tiles).reshape(len(some), -1)], 1)
        rows.astype(np.uint8).tofile(target / name)


def images(path: Path) -> np.ndarray:
    """The thousand images of a mosaic, (1000, 3, 32, 32)."""
    from PIL import Image

    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    tiles = pixels.reshape(ROWS, TILE, COLUMNS, TILE, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(COUNT, 3, TILE, TILE)


if __name__ == "__main__":
    raise SystemExit(main())
