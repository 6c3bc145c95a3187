"""The data sets of the demo and the papers, read from files the user has; nothing is downloaded or executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from normgauge.core.errors import InputError, LoadError
from normgauge.lab.zoo.formats import read_cifar_binary, read_idx, read_npz
from normgauge.lab.zoo.places import Folder, absent_message, idx_path, npz_paths, places
from normgauge.lab.zoo.split import Split
from normgauge.lab.zoo.unpickle import read_cifar_pickle

Half = Literal["train", "test"]
Batch = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # images, labels

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what the CIFAR ResNets were trained with

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def digits(split: Half = "train", *, limit: int | None = None) -> Split:
    """Read scikit-learn's digits: 1,797 images of 8x8 as vectors of 64, no file needed.

    Every fifth image of each class is a test image: the same split in every version of every library.

    Args:
        split: "train" (1,442 images) or "test" (355).
        limit: read only this many, from the start.

    Returns:
        The examples.

    Raises:
        LoadError: if scikit-learn is not installed.
    """
    _check_half(split)
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise LoadError("The digits come with scikit-learn, which is missing: pip install scikit-learn.") from error
    inputs, labels = load_digits(return_X_y=True)
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[4::5]] = True
    chosen = np.flatnonzero(test if split == "test" else ~test)[:limit]
    return Split(
        torch.from_numpy(inputs[chosen].astype(np.float32) / 16.0), torch.from_numpy(labels[chosen]).long(), DIGITS
    )


def mnist(split: Half = "train", *, folder: Folder = None, limit: int | None = None) -> Split:
    """Read MNIST, images (n, 1, 28, 28), from IDX files (gzipped or not) or mnist.npz.

    Args:
        split: "train" or "test".
        folder: where to look; None for the folder in NORMGAUGE_DATA.
        limit: read only this many, from the start.

    Returns:
        The examples.
    """
    how = "the four files train-/t10k- images-idx3-/labels-idx1-ubyte.gz from https://ossci-datasets.s3.amazonaws.com/mnist/"
    return _from_idx("mnist", ("mnist", "MNIST/raw", "MNIST"), split, folder, limit, DIGITS, how)


def fashion_mnist(split: Half = "train", *, folder: Folder = None, limit: int | None = None) -> Split:
    """Read Fashion-MNIST, images (n, 1, 28, 28), from IDX files (gzipped or not) or fashion_mnist.npz.

    Args:
        split: "train" or "test".
        folder: where to look; None for the folder in NORMGAUGE_DATA.
        limit: read only this many, from the start.

    Returns:
        The examples.
    """
    names = ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw")
    how = "the four .gz files in data/fashion of https://github.com/zalandoresearch/fashion-mnist"
    return _from_idx("fashion_mnist", names, split, folder, limit, CLOTHES, how)


def cifar10(split: Half = "train", *, folder: Folder = None, limit: int | None = None) -> Split:
    """Read CIFAR-10, images (n, 3, 32, 32), from the binary version, the python version or cifar10.npz.

    Args:
        split: "train" or "test".
        folder: where to look; None for the folder in NORMGAUGE_DATA.
        limit: read only this many, from the start.

    Returns:
        The examples.

    Raises:
        LoadError: if the files are absent or damaged.
    """
    _check_half(split)
    how = "the binary or python version from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked"
    folders = places("cifar10", ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10"), folder, how)
    stems = ["test_batch"] if split == "test" else [f"data_batch_{k}" for k in range(1, 6)]
    readers: tuple[tuple[str, Callable[[Path], Batch]], ...] = ((".bin", read_cifar_binary), ("", read_cifar_pickle))
    for place in folders:
        for suffix, reader in readers:
            paths = [place / f"{stem}{suffix}" for stem in stems]
            if all(path.is_file() for path in paths):
                return _image_split(*_joined(map(reader, paths), limit), limit, CIFAR, str(place))
    for path in npz_paths("cifar10", folders):
        images, labels = read_npz(path, split)
        if images.ndim == 4 and images.shape[-1] == 3:
            images = np.moveaxis(images, -1, 1)
        return _image_split(images, labels, limit, CIFAR, str(path))
    raise LoadError(absent_message("cifar10", f"{stems[0]}.bin ..., {stems[0]} ..., cifar10.npz", folders, how))


def tinyshakespeare(
    split: Half = "train", *, folder: Folder = None, context: int = 64, limit: int | None = None
) -> Split:
    """Read tinyshakespeare as windows of characters that do not overlap; the last tenth of the text is the test.

    Args:
        split: "train" or "test".
        folder: where to look for input.txt; None for the folder in NORMGAUGE_DATA.
        context: characters a window.
        limit: read only this many windows, from the start.

    Returns:
        Windows of character numbers, int64 (n, context); the labels are the same windows one character later.

    Raises:
        LoadError: if the file is absent or not text.
        InputError: if the text is shorter than one window.
    """
    _check_half(split)
    how = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
    folders = places("tinyshakespeare", ("tinyshakespeare",), folder, how)
    path = next((place / "input.txt" for place in folders if (place / "input.txt").is_file()), None)
    if path is None:
        raise LoadError(absent_message("tinyshakespeare", "input.txt", folders, how))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LoadError(f"{path}: not UTF-8 text ({error}); get it anew: {how}.") from error
    characters = sorted(set(text))
    number = {character: k for k, character in enumerate(characters)}
    cut = len(text) * 9 // 10
    codes = torch.tensor([number[c] for c in (text[:cut] if split == "train" else text[cut:])])
    count = (len(codes) - 1) // context if context > 0 else 0
    if count < 1:
        raise InputError(f"{len(codes)} characters of {path} hold no window of context={context}.")
    now, later = (codes[k : k + count * context].view(count, context)[:limit] for k in (0, 1))
    return Split(now, later, tuple(characters))


def _check_half(split: str) -> None:
    if split not in ("train", "test"):
        raise InputError(f"split={split!r} is not known; use 'train' or 'test'.")


def _from_idx(
    name: str,
    subfolders: Sequence[str],
    split: Half,
    folder: Folder,
    limit: int | None,
    classes: tuple[str, ...],
    how: str,
) -> Split:
    _check_half(split)
    folders = places(name, subfolders, folder, how)
    stem = "train" if split == "train" else "t10k"
    for place in folders:
        images, labels = (idx_path(place, f"{stem}-{part}") for part in ("images-idx3", "labels-idx1"))
        if images is not None and labels is not None:
            return _image_split(read_idx(images)[:, None], read_idx(labels), limit, classes, str(place))
    for path in npz_paths(name, folders):
        pixels, targets = read_npz(path, split)
        return _image_split(pixels[:, None] if pixels.ndim == 3 else pixels, targets, limit, classes, str(path))
    raise LoadError(absent_message(name, f"{stem}-images-idx3-ubyte[.gz] with its labels or {name}.npz", folders, how))


def _joined(batches: Iterator[Batch], limit: int | None) -> Batch:
    """Join batches, reading no more of them than the limit needs."""
    images, labels, count = [], [], 0
    for batch in batches:
        images.append(batch[0])
        labels.append(batch[1])
        count += len(batch[1])
        if limit is not None and count >= limit:
            break
    return np.concatenate(images), np.concatenate(labels)


def _image_split(
    images: NDArray[np.uint8], labels: NDArray[np.uint8], limit: int | None, classes: tuple[str, ...], source: str
) -> Split:
    if labels.ndim != 1 or len(images) != len(labels) or images.ndim != 4:
        raise LoadError(f"{source}: images of shape {images.shape} and labels of shape {labels.shape} do not match.")
    if labels.size and int(labels.max()) >= len(classes):
        raise LoadError(f"{source}: a label is {labels.max()}; expected 0 to {len(classes) - 1}.")
    scaled = images[:limit].astype(np.float32) / np.float32(255)
    return Split(torch.from_numpy(scaled), torch.from_numpy(labels[:limit].astype(np.int64)), classes)
