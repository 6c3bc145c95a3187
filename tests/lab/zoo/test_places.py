"""Where data are looked for: the folder given, or the one the environment names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from normgauge.core.errors import LoadError
from normgauge.lab.zoo import cifar10, fashion_mnist, mnist, tinyshakespeare
from tests.lab.zoo.written import idx, pixels, same


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pixels(2, 28, 28)
    for folder in (tmp_path, tmp_path / "fashion_mnist"):
        folder.mkdir(exist_ok=True)
        (folder / "train-images.idx3-ubyte").write_bytes(idx(images))
        (folder / "train-labels.idx1-ubyte").write_bytes(idx(np.array([1, 2], np.uint8)))
    monkeypatch.setenv("NORMGAUGE_DATA", str(tmp_path))
    same(fashion_mnist(), images[:, None], [1, 2])
    with pytest.raises(LoadError, match=r"found no train-images.*mnist.*https://"):
        mnist()  # loose files in a folder shared by all sets could be any of them


def test_nowhere_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NORMGAUGE_DATA", raising=False)
    for reader in (mnist, fashion_mnist, cifar10, tinyshakespeare):
        with pytest.raises(LoadError, match=r"NORMGAUGE_DATA.*https://"):
            reader()
