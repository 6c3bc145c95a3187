"""The selfcheck and the unpacking of data, small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.than2025 import selfcheck, unpack
from experiments.than2025.plan import load
from normgauge.lab import zoo


def test_selfcheck_runs_without_a_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    noise = selfcheck.noise
    monkeypatch.setattr(selfcheck, "CASES", (("widths/width16", False),))
    monkeypatch.setattr(selfcheck, "noise", lambda device: noise(device, 300))
    assert selfcheck.main(["--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "widths/width16" in out and "yes 0e+00" in out and "no CUDA device" in out


def test_selfcheck_sees_a_step_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    made = selfcheck.stepper
    count = 0

    def wrong(*given: object) -> object:
        nonlocal count
        count += 1
        subject = made(*given)  # type: ignore[arg-type]
        if count == 2:
            subject.optimizer.param_groups[0]["lr"] *= 30
        return subject

    noise = selfcheck.noise
    monkeypatch.setattr(selfcheck, "stepper", wrong)
    monkeypatch.setattr(selfcheck, "CASES", (("widths/width16", False),))
    monkeypatch.setattr(selfcheck, "noise", lambda device: noise(device, 300))
    assert selfcheck.main(["--device", "cpu"]) == 1


def test_every_case_of_the_selfcheck_is_planned() -> None:
    assert {name for name, _ in selfcheck.CASES} <= {spec.name for spec in load()}


def test_mosaics_become_the_binary_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(unpack, "FILES", {"train": 5, "test": 1})
    parts = {f"data_batch_{k + 1}.bin": ("train", range(k, k + 1)) for k in range(5)}
    monkeypatch.setattr(unpack, "PARTS", {**parts, "test_batch.bin": ("test", range(1))})
    draw = np.random.default_rng(0)
    images = {half: draw.integers(0, 256, (count * 1000, 32, 32, 3), np.uint8) for half, count in unpack.FILES.items()}
    labels = {half: draw.integers(0, 10, len(some)).astype(np.uint8) for half, some in images.items()}
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    for half, some in images.items():
        for k in range(len(some) // 1000):
            tiles = some[1000 * k : 1000 * k + 1000].reshape(25, 40, 32, 32, 3).transpose(0, 2, 1, 3, 4)
            mosaic = image.fromarray(tiles.reshape(800, 1280, 3))
            mosaic.save(folders[k % 2] / f"{half}_{k:02d}.webp", lossless=True, method=0)
    np.savez(folders[1] / "labels.npz", **labels)
    (folders[1] / "mnist").mkdir()
    (folders[1] / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"as it is")
    assert unpack.main([str(folders[0]), str(tmp_path / "data")]) == 75
    assert unpack.main([str(folders[1]), str(tmp_path / "data")]) == 0
    for half, some in images.items():
        split = zoo.cifar10(half, folder=tmp_path / "data")  # type: ignore[arg-type]
        wanted = torch.from_numpy(some.transpose(0, 3, 1, 2).copy())
        assert torch.equal((split.inputs * 255).round().to(torch.uint8), wanted)
        assert split.labels.tolist() == labels[half].tolist()
    assert (tmp_path / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes() == b"as it is"
