"""Checkpoints: a resumed run equals one that never stopped, and a foreign file is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from normgauge.core.errors import LoadError
from normgauge.lab.training import Epoch, History, train
from normgauge.lab.zoo import Split, digits, mlp


def network(seed: int = 0) -> nn.Module:
    """Uses everything a checkpoint must carry: BatchNorm's buffers, dropout's random numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Dropout(0.2), mlp((64, 32, 10), norm="batch"))


@pytest.fixture(scope="module")
def data() -> Split:
    return digits(limit=300)


def identical(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(value, b.state_dict()[name]) for name, value in a.state_dict().items())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("stop", [1, 2])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, data: Split, optimizer: str, stop: int) -> None:
    options = {"lr": 1e-2, "optimizer": optimizer, "weight_decay": 1e-3, "seed": 3}
    whole = network()
    wanted = train(whole, data, epochs=4, **options)
    first = network()
    train(first, data, epochs=stop, checkpoint=tmp_path / "run.pt", **options)
    assert not identical(first, whole)
    torch.rand(17)  # the caller's own random numbers do not matter
    second = network(seed=99)
    assert train(second, data, epochs=4, checkpoint=tmp_path / "run.pt", **options) == wanted
    assert identical(second, whole)


def test_a_killed_run_resumes_from_its_last_epoch(tmp_path: Path, data: Split) -> None:
    whole, killed = network(), network()
    wanted = train(whole, data, epochs=3)

    def kill(step: int, loss: torch.Tensor) -> None:
        if step == 8:  # in the middle of the second epoch
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(killed, data, epochs=3, checkpoint=tmp_path / "run.pt", on_step=kill)
    seen: list[int] = []
    again = train(killed, data, epochs=3, checkpoint=tmp_path / "run.pt", on_step=lambda step, _: seen.append(step))
    assert seen == list(range(6, 16))
    assert again == wanted
    assert identical(killed, whole)
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_a_finished_run_is_only_loaded(tmp_path: Path, data: Split) -> None:
    model, other = network(), network(1)
    history = train(model, data, epochs=2, checkpoint=tmp_path / "deep" / "run.pt")
    assert train(other, data, epochs=2, checkpoint=tmp_path / "deep" / "run.pt") == history
    assert identical(model, other)


def test_the_checkpoint_is_plain_data(tmp_path: Path, data: Split) -> None:
    train(network(), data, epochs=1, checkpoint=tmp_path / "run.pt")
    content = torch.load(tmp_path / "run.pt", weights_only=True)
    assert set(content) == {"model", "optimizer", "epoch", "history", "settings", "rng"}
    assert content["epoch"] == 1


def test_the_start_says_how_many_steps_were_done_before(tmp_path: Path, data: Split) -> None:
    told: list[int] = []
    for epochs in (1, 1, 3):
        train(network(), data, epochs=epochs, batch_size=100, checkpoint=tmp_path / "run.pt", on_start=told.append)
    assert told == [0, 3, 3]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, data: Split) -> None:
    path = tmp_path / "run.pt"
    train(network(), data, epochs=2, checkpoint=path)
    with pytest.raises(LoadError, match=r"another run \(lr=0.001 there, 0.1 here\)"):
        train(network(), data, epochs=2, checkpoint=path, lr=0.1)
    with pytest.raises(LoadError, match="holds 2 epochs, and 1 were asked"):
        train(network(), data, epochs=1, checkpoint=path)
    with pytest.raises(LoadError, match="does not fit this model"):
        train(mlp(), data, epochs=2, checkpoint=path)


class Trap:
    """Leaves a folder behind when something unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_foreign_checkpoint_is_refused(tmp_path: Path, data: Split) -> None:
    path = tmp_path / "run.pt"
    for content, words in ((Trap(tmp_path / "ran"), "nothing in it was run"), ({"model": {}}, "no checkpoint of this")):
        torch.save(content, path)
        with pytest.raises(LoadError, match=words):
            train(network(), data, epochs=1, checkpoint=path)
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(LoadError, match="could not be read"):
        train(network(), data, epochs=1, checkpoint=path)
    assert not (tmp_path / "ran").exists()


def test_history_is_a_value() -> None:
    history = History((Epoch(1, 0.5, 0.25),))
    assert history.losses == (0.5,) and History().losses == ()
    assert history == History((Epoch(1, 0.5, 0.25),))
