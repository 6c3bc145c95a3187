"""Training: resumption, rates, augmentation, errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from experiments.generalization import data, nets, train
from experiments.generalization.train import Checkpoint, Recipe
from normgauge import NormgaugeError

RECIPE = Recipe(epochs=3, batch=50, lr=0.05, shift=1, smoothing=0.1, mixed=True)


def small(images: data.Data) -> data.Data:
    return data.subset(images, torch.arange(400))


def model() -> nn.Module:
    return nets.build("cnn", "batch", (3, 8, 8), width=4, depth=1)


def weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([t.flatten().float() for t in net.state_dict().values()])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_stopped_training_goes_on_as_if_it_had_not(images: data.Data, tmp_path: Path, optimizer: str) -> None:
    recipe = Recipe(epochs=3, batch=50, lr=0.01, shift=1, optimizer=optimizer)
    straight, halting = model(), model()
    assert train.fit(straight, small(images), recipe, 7)
    path = tmp_path / "a.pt"
    assert not train.fit(halting, small(images), recipe, 7, checkpoint=Checkpoint(path, lambda: True))
    resumed = model()
    assert train.fit(resumed, small(images), recipe, 7, checkpoint=Checkpoint(path))
    assert torch.equal(weights(resumed), weights(straight))
    assert not torch.equal(weights(halting), weights(straight))
    read = model()  # a finished one is only read
    assert train.fit(read, small(images), recipe, 7, checkpoint=Checkpoint(path, lambda: True))
    assert torch.equal(weights(read), weights(straight))


def test_training_learns_and_leaves_the_random_state(images: data.Data) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    net = model()
    before = train.errors(net, images)
    assert train.fit(net, images, Recipe(epochs=8, batch=50, lr=0.1), 0)
    assert torch.equal(torch.rand(1), expected)
    after = train.errors(net, images)
    assert after["test_error"] < 0.25 < before["test_error"]
    assert after["gap"] == pytest.approx(after["test_error"] - after["train_error"])
    assert not net.training


def test_one_step_is_that_of_torch(images: data.Data) -> None:
    own = small(images)
    ours, theirs = model(), model()
    recipe = Recipe(epochs=1, batch=400, lr=0.1, smoothing=0.1, decay=0.01)
    train.fit(ours, own, recipe, 3)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(3))
    optimizer = torch.optim.SGD(
        theirs.parameters(), lr=train.rate(0, 1, 0.1), momentum=0.9, nesterov=True, weight_decay=0.01
    )
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    loss(theirs.train()(own.real(own.train[order])), own.labels[order]).backward()
    optimizer.step()
    torch.testing.assert_close(weights(ours), weights(theirs))


def test_inputs_are_perturbed_where_asked(images: data.Data) -> None:
    seen: list[torch.Size] = []

    def black(_: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(labels.shape)
        return torch.zeros_like(inputs)

    plain, blind = model(), model()
    train.fit(plain, small(images), RECIPE, 0)
    train.fit(blind, small(images), RECIPE, 0, perturb=black)
    assert seen == [torch.Size([50])] * 24
    assert not torch.equal(weights(plain), weights(blind))


def test_rates_rise_to_the_peak_and_fall_to_zero() -> None:
    rates = [train.rate(k, 100, 2.0) for k in range(101)]
    assert max(rates) == rates[25] == 2.0
    assert rates[0] == pytest.approx(0.08)
    assert rates[100] == 0.0


def test_a_rate_in_memory_is_filled_in_place(images: data.Data) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(1.0))
    kept = optimizer.param_groups[0]["lr"]
    train.Trainee(net, optimizer, small(images), RECIPE).set_rate(0.25)
    assert optimizer.param_groups[0]["lr"] is kept
    assert float(kept) == 0.25


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(NormgaugeError, match="use sgd or adamw"):
        train.optimizer_of(model(), Recipe(epochs=1, optimizer="lion"), torch.device("cpu"))
