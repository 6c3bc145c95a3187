"""The training loop: it learns, it repeats itself bit for bit, and it resumes where it stopped."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.lab.training import Scores, evaluate_model, model_accuracy, train
from normgauge.lab.zoo import Split, digits, gpt, mlp


def network(seed: int = 0) -> nn.Module:
    """Uses everything a checkpoint must carry: BatchNorm's buffers, dropout's random numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Dropout(0.2), mlp((64, 32, 10), norm="batch"))


@pytest.fixture(scope="module")
def data() -> Split:
    return digits(limit=300)


def test_it_learns() -> None:
    model = mlp(norm="batch")
    history = train(model, digits(), epochs=5, lr=1e-2)
    assert [epoch.number for epoch in history.epochs] == [1, 2, 3, 4, 5]
    assert history.losses[-1] < 0.2 * history.losses[0]
    assert model_accuracy(model, digits("test")) > 0.93


def test_the_seed_decides(data: Split) -> None:
    runs = [train(network(), data, epochs=1, seed=seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_random_state_and_modes_are_as_before(data: Split) -> None:
    model = network().eval()
    model[0].train()
    before = torch.get_rng_state()
    train(model, data, epochs=1)
    model_accuracy(model, data)
    assert torch.equal(torch.get_rng_state(), before)
    assert (model.training, model[0].training, model[1].training) == (False, True, False)


def test_callbacks(data: Split) -> None:
    model, steps, shown = network(), [], []

    def on_step(step: int, loss: torch.Tensor) -> None:
        assert not loss.requires_grad
        assert all(parameter.grad is not None for parameter in model.parameters())
        steps.append(step)

    history = train(
        model,
        data,
        epochs=2,
        batch_size=100,
        on_step=on_step,
        progress=lambda *n: shown.append(n),
    )
    assert steps == [1, 2, 3, 4, 5, 6]
    assert [epoch.number for epoch in history.epochs] == [1, 2]
    assert shown == [(k, 6) for k in range(1, 7)]


def test_a_single_left_over_example_is_left_out(data: Split) -> None:
    steps: list[int] = []
    train(network(), data.first(65), epochs=1, on_step=lambda step, _: steps.append(step))
    assert steps == [1]


def test_sequences_train_too() -> None:
    text = torch.arange(200).remainder(5).view(10, 20)
    data = Split(text[:, :-1].contiguous(), text[:, 1:].contiguous())
    model = gpt(vocab=5, width=16, depth=1)
    history = train(model, data, epochs=20, batch_size=2, lr=1e-2)
    assert history.epochs[-1].accuracy == model_accuracy(model, data) == 1.0


def test_accuracy_counts() -> None:
    labels = torch.tensor([0, 1, 1, 1])
    split = Split(torch.eye(2)[[0, 1, 0, 1]], labels)
    assert model_accuracy(nn.Identity(), split, batch_size=3) == 0.75
    with pytest.raises(InputError, match="no examples"):
        model_accuracy(nn.Identity(), split.first(0))


def test_loss_and_accuracy_are_means_over_all_labels() -> None:
    split = Split(torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 0]))
    wrong, right = math.log1p(math.exp(2.0)), math.log1p(math.exp(-2.0))
    scores = evaluate_model(nn.Identity(), split, batch_size=2)  # batches of two and one: not the mean of two means
    assert scores == Scores(pytest.approx((right + math.log(2) + wrong) / 3), pytest.approx(2 / 3))
    assert model_accuracy(nn.Identity(), split) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "lion"}, "'adam', 'adamw' or 'sgd'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"epochs": -1}, "epochs=-1"),
    ],
)
def test_options_are_checked(data: Split, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        train(network(), data, **({"epochs": 1} | options))
    with pytest.raises(InputError, match="no parameters"):
        train(nn.Identity(), data, epochs=1)


def test_a_network_of_several_outputs_is_told_what_is_trained_here(data: Split) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.inner(x), x.sum(1)

    for call in (lambda model: train(model, data, epochs=1), lambda model: evaluate_model(model, data)):
        with pytest.raises(InputError, match=r"returns one tensor.*got tuple"):
            call(Two())
        with pytest.raises(InputError, match=r"got a tensor of shape \(\d+,\)"):
            call(nn.Sequential(network(), nn.Softmax(1), nn.Flatten(0)))
