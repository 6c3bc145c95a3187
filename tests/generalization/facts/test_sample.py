from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from normgauge.errors import InputError
from normgauge.generalization.facts.sample import Sample, outputs
from normgauge.zoo.split import Split

X, Y = torch.arange(30.0).reshape(10, 3), torch.arange(10) % 3


class Items(Dataset[Any]):
    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> Any:
        return X[i] + self.noise * torch.rand(3), int(Y[i])


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True, drop_last=True),
        Items(),
        DataLoader(Items(), batch_size=4, shuffle=True),
        Split(X, Y),
        Sample(X, Y),
    ],
    ids=["pair", "list", "tensors", "loader", "items", "items loader", "split", "sample"],
)
def test_every_form_gives_the_same_samples_in_order(data: Any) -> None:
    found = Sample.of(data, "train")
    assert len(found) == 10
    assert torch.equal(torch.cat(list(found.batches(4))), X)
    assert torch.equal(torch.cat([y for _, y in found.pairs(3)]), Y)
    assert torch.equal(found.take([7, 2]), X[[7, 2]])
    assert torch.equal(found.part(torch.tensor([1, 4])).inputs, X[[1, 4]])
    assert not found.changing


def test_unlabeled() -> None:
    found = Sample.of(X, "unlabeled", labelled=False)
    assert found.labels is None and len(found) == 10
    assert Sample.of(Items(), "unlabeled", labelled=False).labels is None
    with pytest.raises(InputError, match="no labels"):
        list(found.pairs())


def test_augmentation_is_noticed() -> None:
    assert Sample.of(Items(noise=1.0), "train").changing


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(X[0], 0)])


class Nothing(Dataset[Any]):
    def __len__(self) -> int:
        return 0


class Words(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        return "word", 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (X, "class numbers"),
        ((X, Y.float()), "class numbers"),
        ((X, Y[:4]), "10 class numbers"),
        ((X, Y - 1), "from 0"),
        ((torch.zeros(0, 3), Y[:0]), "one input a row"),
        (Stream(), "length and an order"),
        (Nothing(), "at least one sample"),
        (Words(), "data set of tensors"),
        ("text", "as tensors"),
    ],
    ids=["no labels", "floats", "too few", "negative", "empty", "stream", "nothing", "words", "text"],
)
def test_what_cannot_be_read_is_refused(data: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Sample.of(data, "train")


def test_outputs_are_finite_numbers_one_a_class() -> None:
    model = nn.Linear(3, 4)
    found = outputs(model, Sample(X, Y), size=3)
    torch.testing.assert_close(found, model(X).detach())
    with pytest.raises(InputError, match="one number a class"):
        outputs(nn.Flatten(0), Sample(X, Y))
    with pytest.raises(InputError, match="not finite"):
        outputs(nn.Threshold(1e9, float("nan")), Sample(X, Y))
