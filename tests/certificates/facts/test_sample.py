import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.core.errors import InputError
from normgauge.lab.zoo.split import Split

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
        DataSample(X, Y),
    ],
    ids=["pair", "list", "tensors", "loader", "items", "items loader", "split", "sample"],
)
def test_every_form_gives_the_same_samples_in_order(data: Any) -> None:
    found = DataSample.of(data, "train")
    assert len(found) == 10
    assert torch.equal(torch.cat(list(found.batches(4))), X)
    assert torch.equal(torch.cat([y for _, y in found.pairs(3)]), Y)
    assert torch.equal(found.take([7, 2]), X[[7, 2]])
    some = found.part(torch.tensor([1, 4])).inputs
    assert some is not None and torch.equal(some, X[[1, 4]])


def test_unlabeled() -> None:
    found = DataSample.of(X, "unlabeled", labelled=False)
    assert found.labels is None and len(found) == 10
    assert DataSample.of(Items(), "unlabeled", labelled=False).labels is None
    with pytest.raises(InputError, match="no labels"):
        list(found.pairs())


class Sometimes(Items):
    """Mirrors an input half of the time; gives a label of its own now and then."""

    def __init__(self, *, flip: float = 0.0, relabel: float = 0.0) -> None:
        super().__init__()
        self.flip, self.relabel = flip, relabel

    def __getitem__(self, i: int) -> Any:
        x, y = X[i].flip(0) if torch.rand(()) < self.flip else X[i], int(Y[i])
        return x, int(torch.randint(3, ())) if torch.rand(()) < self.relabel else y


@pytest.mark.parametrize("data", [Items(noise=1.0), Sometimes(flip=0.5), Sometimes(relabel=0.9)])
@pytest.mark.parametrize("name", ["train", "holdout", "surrogate"])
def test_samples_that_change_are_refused(data: Any, name: str) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        with pytest.raises(InputError, match=rf"{name}: \d+ of its 10 samples changed .* without random transforms"):
            DataSample.of(data, name)


def test_only_inputs_count_without_labels() -> None:
    torch.manual_seed(0)
    assert len(DataSample.of(Sometimes(relabel=1.0), "unlabeled", labelled=False)) == 10
    with pytest.raises(InputError, match=r"unlabeled: .* changed"):
        DataSample.of(Sometimes(flip=0.5), "unlabeled", labelled=False)


class Turned(TensorDataset):
    """Holds tensors, gives others."""

    inputs, labels = X, Y

    def __getitem__(self, i: int) -> Any:
        return -X[i], Y[i]


def test_what_a_data_set_gives_counts_not_what_it_holds() -> None:
    found = DataSample.of(Turned(X, Y), "train")
    assert torch.equal(next(found.batches()), -X)


class Twos(Sampler[list[int]]):
    """Batches by hand."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[8, 1], [2, 4]])


ITEMS, TENSORS = Items(), TensorDataset(X, Y)


@pytest.mark.parametrize(
    ("loader", "places"),
    [
        (DataLoader(TENSORS, sampler=SubsetRandomSampler([7, 2, 5])), [2, 5, 7]),
        (DataLoader(ITEMS, sampler=SubsetRandomSampler([7, 2, 5])), [2, 5, 7]),
        (DataLoader(ITEMS, sampler=[4, 3], batch_size=2), [3, 4]),
        (DataLoader(ITEMS, sampler=[4, 3], batch_size=None), [3, 4]),
        (DataLoader(TENSORS, batch_size=4, drop_last=True), list(range(8))),
        (DataLoader(TENSORS, batch_sampler=Twos()), [1, 2, 4, 8]),
        (DataLoader(TENSORS, batch_sampler=BatchSampler(range(6), 4, drop_last=True)), [0, 1, 2, 3]),
    ],
    ids=["subset", "subset of items", "list", "no batches", "dropped", "own batches", "batch sampler"],
)
def test_a_loader_gives_what_its_sampler_chooses(loader: Any, places: list[int]) -> None:
    found = DataSample.of(loader, "holdout")
    assert torch.equal(next(found.batches()), X[places])
    assert found.labels is not None and torch.equal(found.labels, Y[places])


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (DataLoader(TENSORS, sampler=WeightedRandomSampler([1.0] * 10, 3, replacement=False)), "by weight"),
        (DataLoader(TENSORS, sampler=RandomSampler(TENSORS, replacement=True)), "draws samples again"),
        (
            DataLoader(TENSORS, batch_sampler=BatchSampler(RandomSampler(X, replacement=True), 2, False)),
            "draws samples",
        ),
        (DataLoader(TENSORS, sampler=RandomSampler(X, num_samples=5)), "other samples at each reading"),
        (DataLoader(TENSORS, sampler=[1, 1, 2]), "gives 3 samples, 1 of them again"),
        (DataLoader(TENSORS, sampler=SubsetRandomSampler([1, 1])), "gives 2 samples, 1 of them again"),
        (DataLoader(TENSORS, sampler=BatchSampler(range(4), 2, False), batch_size=None), "gives places"),
        (DataLoader(TENSORS, collate_fn=lambda items: items), "its own collate_fn"),
    ],
    ids=["weights", "replacement", "inside", "fewer", "repeated", "repeated subset", "batches", "collate"],
)
def test_a_loader_that_draws_again_or_changes_samples_is_refused(loader: Any, words: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(InputError, match=words):
        DataSample.of(loader, "holdout")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(X[0], 0)])


class Nothing(Dataset[Any]):
    def __len__(self) -> int:
        return 0


class Endless(Dataset[Any]):
    def __getitem__(self, i: int) -> Any:
        return X[0], 0


class Words(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        return "word", 0


class Broken(Words):
    def __getitem__(self, i: int) -> Any:
        return X[i] if i else X[i] * math.nan, 0


class Bare(Words):
    def __getitem__(self, i: int) -> Any:
        return X[i]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (X, "class numbers"),
        ((X, Y.float()), "class numbers"),
        ((X, Y[:4]), r"10 class numbers as labels, got .* of shape \(4,\)"),
        ((X, Y - 1), "from 0"),
        ((torch.zeros(0, 3), Y[:0]), "one input a row"),
        (Stream(), "length and an order"),
        (DataLoader(Stream()), "length and an order"),
        (Endless(), "length and an order"),
        (DataSample(X, None), "with labels"),
        ((X / 0, Y), "train: 10 of 10 inputs hold numbers that are not finite"),
        (Broken(), "train: 1 of 2 inputs hold numbers that are not finite"),
        (Bare(), r"data set of \(tensor, label\)"),
        (Nothing(), "at least one sample"),
        (Words(), "data set of tensors"),
        ("text", "as tensors"),
    ],
    ids=[
        "no labels",
        "floats",
        "too few",
        "negative",
        "empty",
        "stream",
        "loaded stream",
        "endless",
        "unlabeled",
        "infinite",
        "nan item",
        "no label",
        "nothing",
        "words",
        "text",
    ],
)
def test_what_cannot_be_read_is_refused(data: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        DataSample.of(data, "train")


def test_outputs_are_finite_numbers_one_a_class() -> None:
    model = nn.Linear(3, 4)
    found = model_outputs(model, DataSample(X, Y), size=3)
    torch.testing.assert_close(found, model(X).detach())
    order = torch.tensor([7, 0, 3])
    torch.testing.assert_close(model_outputs(model, DataSample(X, Y), 2, order), found[order])
    with pytest.raises(InputError, match="one number a class"):
        model_outputs(nn.Flatten(0), DataSample(X, Y))
    with pytest.raises(InputError, match="not finite"):
        model_outputs(nn.Threshold(1e9, float("nan")), DataSample(X, Y))
