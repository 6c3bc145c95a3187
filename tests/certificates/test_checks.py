import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normgauge as ng
from normgauge.certificates.checks import error_runs, label_agreement, refuse_unsteady, warnings_of
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.core.certificate import RowKind
from normgauge.core.errors import InputError
from normgauge.lab.zoo import Split
from normgauge.lab.zoo.data import digits


def said(train: DataSample, holdout: DataSample | None = None) -> str:
    return " ".join(warnings_of(train, holdout))


@pytest.fixture
def train() -> DataSample:
    return DataSample.of(digits("train"), "train")


@pytest.fixture
def test() -> DataSample:
    return DataSample.of(digits("test"), "holdout")


def test_a_plain_sample_raises_no_word(train: DataSample, test: DataSample) -> None:
    assert said(train, test) == ""
    assert label_agreement(train) > 0.9


def test_shuffled_labels(train: DataSample, test: DataSample) -> None:
    assert train.labels is not None
    generator = torch.Generator().manual_seed(0)
    shuffled = DataSample(train.inputs, train.labels[torch.randperm(len(train), generator=generator)])
    assert "may be shuffled" in said(shuffled, test)
    some = train.labels.clone()
    some[:500] = some[:500][torch.randperm(500, generator=generator)]
    assert "may be shuffled" in said(DataSample(train.inputs, some), test)


def test_neighbours_that_tell_nothing_are_no_reason_for_a_warning() -> None:
    """Labels of a linear map in 20 dimensions with noise: clean draws, at most 1 % may be warned about."""
    warned = 0
    for seed in range(200):
        draw = torch.Generator().manual_seed(seed)
        inputs = torch.randn(600, 20, generator=draw)
        labels = ((inputs.sum(1) > 0) ^ (torch.rand(600, generator=draw) < 0.2)).long()
        warned += bool(said(DataSample(inputs[:300], labels[:300]), DataSample(inputs[300:], labels[300:])))
    assert warned <= 2


def test_frames_of_few_scenes_are_suspected() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(330, 20, generator=draw), torch.randint(2, (330,), generator=draw)
    frames = inputs[300:].repeat_interleave(20, 0) + 0.3 * torch.randn(600, 20, generator=draw)
    holdout = DataSample(frames, labels[300:].repeat_interleave(20))
    assert "groups=" in said(DataSample(inputs[:300], labels[:300]), holdout)


def test_copies_and_mirror_images(train: DataSample) -> None:
    assert train.inputs is not None and train.labels is not None
    copied = DataSample(train.inputs.repeat(2, 1), train.labels.repeat(2))
    assert "1442 of 2884 samples are exact copies" in said(copied)
    images = train.inputs[:300].reshape(-1, 1, 8, 8)
    assert "mirror" not in said(DataSample(images, train.labels[:300]))
    both = DataSample(torch.cat([images, images.flip(3)]), train.labels[:300].repeat(2))
    assert "mirror images" in said(both)


def test_one_class(train: DataSample, test: DataSample) -> None:
    assert test.labels is not None
    assert "holdout: every label is class 2" in said(train, DataSample(test.inputs, torch.full_like(test.labels, 2)))


def errors(seed: int, *, lasting: float) -> tuple[Tensor, Tensor]:
    """A fifth of 600 answers is wrong, in runs that last; the first 300 labels are 0."""
    draw = torch.Generator().manual_seed(seed)
    changes = (torch.rand(600, generator=draw) > lasting).cumsum(0)
    return (torch.rand(601, generator=draw) < 0.2)[changes], (torch.arange(600) >= 300).long()


def test_wrong_answers_in_runs_are_told() -> None:
    for seed in range(300):  # independent and sorted by class: no word
        assert not error_runs(*errors(seed, lasting=0.0))
    late = (torch.arange(600) >= 300) & (torch.rand(600, generator=torch.Generator().manual_seed(0)) < 0.5)
    assert not error_runs(late, (torch.arange(600) >= 300).long())  # one class is harder than the other
    (words,) = error_runs(*errors(0, lasting=0.9))
    assert re.search(r"independent samples make \d+\. Frames .* groups=", words)


def test_a_series_needs_its_groups() -> None:
    wrong, _ = errors(2, lasting=0.95)
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(900, 4, generator=draw)
    labels = (inputs[:, 0] > 0).long()
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]]))
        model.bias.zero_()
    holdout = inputs[300:], labels[300:] ^ wrong.long()
    found = ng.certify(model, (inputs[:300], labels[:300]), holdout, epochs=0)
    assert any("wrong answers stand together" in words for words in found.warnings)
    changes = torch.cat([torch.tensor([0]), (wrong[1:] != wrong[:-1]).long()]).cumsum(0)
    found = ng.certify(model, (inputs[:300], labels[:300]), holdout, epochs=0, groups=changes)
    assert found.row("holdout.kl").kind is RowKind.BOUND
    assert not any("wrong answers stand together" in words for words in found.warnings)


class Around(nn.Module):
    """A linear map with something around it."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.linear, self.change = nn.Linear(64, 10), change

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.change(self.linear, x)
        return found


UNSTEADY = {
    "dropout left on": (lambda linear, x: linear(F.dropout(x, 0.5)), "is random in eval mode"),
    "noise": (lambda linear, x: linear(x) + 0.1 * torch.randn(len(x), 10), "is random in eval mode"),
    "noise under a shift": (lambda linear, x: 1e3 + 0.1 * linear(x) + 0.1 * torch.randn(len(x), 10), "is random"),
    "noise of two of three": (
        lambda linear, x: torch.cat([1e-6 * torch.randn(len(x), 2), 0 * x[:, :1] - 1e6], 1),
        "is random",
    ),
    "mean of the batch": (lambda linear, x: linear(x - x.mean(0)), "with the other samples of the batch"),
    "statistics of the batch": (lambda linear, x: F.batch_norm(linear(x), None, None, training=True), "BatchNorm"),
    "first of the batch": (lambda linear, x: linear(x) + linear(x[:1]), "with the other samples of the batch"),
    "size of the batch": (lambda linear, x: linear(x) * (1 if len(x) > 100 else -1), "with the other samples"),
}


@pytest.mark.parametrize("kind", UNSTEADY)
def test_a_network_that_is_no_function_of_one_input_is_refused(kind: str) -> None:
    change, words = UNSTEADY[kind]
    torch.manual_seed(0)
    train, test = digits("train").first(400), digits("test")
    if kind == "noise of two of three":
        train, test = (Split(s.inputs, s.labels % 2) for s in (train, test))
    with pytest.raises(InputError, match=words):
        ng.certify(Around(change), train, test, epochs=0)


def test_a_surrogate_is_asked_twice_too() -> None:
    torch.manual_seed(0)
    test = digits("test")
    noisy = Around(UNSTEADY["noise"][0])
    with pytest.raises(InputError, match=r"surrogate: .* is random"):
        ng.certify(nn.Linear(64, 10), digits("train"), epochs=0, surrogate=(noisy, test))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_rounding_is_no_unsteadiness(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU())]
    model = nn.Sequential(nn.Linear(64, 256), *layers, nn.Linear(256, 10)).to(kind).eval()
    sample = DataSample(torch.randn(1300, 64).to(kind), None)
    found = model_outputs(model, sample)
    refuse_unsteady(model, sample, found, "train", len(sample))
    assert math.isfinite(float(found.sum()))
