"""Trained weights: real ones give the published accuracy, and files that do not fit or need code are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from normgauge.core.errors import LoadError
from normgauge.lab.training import model_accuracy
from normgauge.lab.zoo import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    build_network,
    cifar10,
    load_state,
    mlp,
    mnist,
    tinyshakespeare,
)

needs_data = pytest.mark.skipif("NORMGAUGE_DATA" not in os.environ, reason="NORMGAUGE_DATA names no folder of data")


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", ["resnet20", "resnet56"])
def test_published_accuracy(name: str) -> None:
    weights = Path(os.environ["NORMGAUGE_DATA"]) / "weights" / f"{name}_cifar10.safetensors"
    if not weights.is_file():
        pytest.skip(f"no {weights}")
    images = cifar10("test", limit=500).normalized(IMAGENET_MEAN, IMAGENET_STD)
    assert model_accuracy(load_state(build_network(name), weights), images) >= 0.88


@pytest.mark.data
@needs_data
def test_real_files_are_read() -> None:
    assert tuple(mnist("test").inputs.shape) == (10_000, 1, 28, 28)
    assert len(tinyshakespeare("test").classes) == 65


@pytest.mark.parametrize("kind", ["safetensors", "plain", "wrapped", "parallel", "uncounted"])
def test_round_trip(tmp_path: Path, kind: str) -> None:
    source, target = mlp(norm="batch"), mlp(norm="batch")
    state = dict(source.state_dict())
    if kind == "parallel":
        state = {f"module.{name}": value for name, value in state.items()}
    if kind == "uncounted":
        state = {name: value for name, value in state.items() if "num_batches" not in name}
    path = tmp_path / ("weights.safetensors" if kind == "safetensors" else "weights.pt")
    if kind == "safetensors":
        save_file(state, path)
    else:
        torch.save({"state_dict": state, "epoch": 3} if kind == "wrapped" else state, path)
    assert load_state(target, path) is target
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value)


def test_a_misfit_is_told_in_full_and_changes_nothing(tmp_path: Path) -> None:
    model = mlp()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = dict(mlp((64, 128, 128, 7)).state_dict())
    state["extra"] = state.pop("layers.0.linear.bias")
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(LoadError) as caught:
        load_state(model, tmp_path / "w.safetensors")
    for words in (
        "1 missing in the file (layers.0.linear.bias)",
        "1 not in the model (extra)",
        "head.weight is (7, 128) in the file and (10, 128) in the model",
    ):
        assert words in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Trap:
    """Leaves a folder behind when something unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("legacy", [True, False])
def test_a_file_with_code_is_refused(tmp_path: Path, legacy: bool) -> None:
    torch.save({"weight": Trap(tmp_path / "ran")}, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(LoadError, match=r"nothing in it was run.*torch.save\(model.state_dict\(\).*safetensors"):
        load_state(nn.Linear(1, 1), tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()


def test_a_whole_module_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(1, 1), tmp_path / "w.pt")
    with pytest.raises(LoadError, match="convert it"):
        load_state(nn.Linear(1, 1), tmp_path / "w.pt")


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_broken_and_absent_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoadError, match="does not exist"):
        load_state(nn.Linear(1, 1), tmp_path / name)
    for content in (b"", b"PK\x03\x04", b"\xff" * 64):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LoadError, match=name):
            load_state(nn.Linear(1, 1), tmp_path / name)


def test_other_content_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "w.pt")
    with pytest.raises(LoadError, match="holds no state dict"):
        load_state(nn.Linear(1, 1), tmp_path / "w.pt")
