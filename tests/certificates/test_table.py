import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import normgauge as ng
from normgauge.core.certificate import Certificate, Row, RowKind
from normgauge.core.errors import InputError
from normgauge.lab.training import train
from normgauge.lab.zoo import Split
from normgauge.lab.zoo.data import digits

pytestmark = pytest.mark.usefixtures("few_draws")
LISTED = {
    "holdout.clopper_pearson",
    "holdout.kl",
    "theorem20.published",
    "theorem20.rademacher",
    "theorem20.variation",
    "theorem20.kl",
    "theorem20.holdout",
    "corollary21",
    "corollary22.batch",
    "corollary22.local",
    "corollary22.global",
    "corollary22.none",
    "corollary22.published",
    "equation66",
    "hkk",
    "xu_mannor",
    "kawaguchi",
    "than_phan",
    "score.lla",
    "capacity.cisneros2025",
    "capacity.vc",
    "capacity.neyshabur2015",
    "capacity.golowich",
    "capacity.bartlett2017",
    "capacity.neyshabur2018",
    "gibbs.maurer",
    "gibbs.dziugaite",
    "gibbs.data_dependent_prior",
    "compression.sample",
    "disagreement.surrogate",
    "score.cell-sensitivity",
    "score.spherical-sharpness",
    "score.folded-capacity-margin",
    "score.balanced-capacity-margin",
}


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def layered() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 10))


class Odd(nn.Module):
    """A layer without a rule, and without a gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


def data() -> tuple[Split, tuple[Tensor, Tensor], Tensor]:
    test = digits("test")
    return digits("train"), (test.inputs[:200], test.labels[:200]), test.inputs[200:]


def fitted(build: Any, epochs: int = 4) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build()
    train(model, digits("train"), epochs=epochs, lr=5e-3)
    return model


def certified(model: nn.Module, **options: Any) -> Certificate:
    sample, fresh, extra = data()
    return ng.certify(model, sample, fresh, extra, **{"epochs": 0, **options})


@pytest.mark.parametrize("build", [plain, convolutional, layered], ids=["plain MLP", "BN CNN", "LN MLP"])
def test_every_row_is_listed_and_typed(build: Any) -> None:
    model = fitted(build)
    found = certified(model)
    keys = [row.key for row in found.rows]
    assert set(keys) >= LISTED and len(set(keys)) == len(keys)
    error = float((model.eval()(digits("test").inputs).argmax(1) != digits("test").labels).double().mean())
    for row in found.rows:
        assert row.source and row.formula and row.family and row.consumed, row.key
        assert row.kind is not RowKind.NOT_APPLICABLE or row.reason, row.key
        if row.kind is RowKind.BOUND:
            assert row.value is not None and row.value < row.limit
            assert row.about != "this network" or row.value > error - 0.08, row.key  # 355 test images
        if row.kind in (RowKind.BOUND, RowKind.VACUOUS):
            assert row.confidence == 0.95, row.key
    assert found.row("holdout.clopper_pearson").kind is RowKind.BOUND
    again = Certificate.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert again.rows == found.rows


def test_an_unknown_layer_keeps_the_rows_that_do_not_need_it() -> None:
    model = fitted(lambda: nn.Sequential(nn.Linear(64, 16), Odd(), nn.Linear(16, 10)))
    found = certified(model)
    assert found.row("holdout.clopper_pearson").kind is RowKind.BOUND
    assert found.row("equation66").kind is RowKind.ESTIMATE
    for key in ("theorem20.variation", "corollary21", "corollary22.local", "xu_mannor", "hkk"):
        row = found.row(key)
        assert row.kind is RowKind.NOT_APPLICABLE and "bessel_j0" in row.reason, key


class Forked(nn.Module):
    """Other inputs may take another way."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > -1e9 else 1e6 * self.linear(x)


def test_a_network_that_branches_on_its_data_has_no_proved_slope() -> None:
    found = certified(Forked())
    for key in ("theorem20.variation", "corollary22.none", "corollary22.local", "corollary21"):
        row = found.row(key)
        assert row.kind is RowKind.NOT_APPLICABLE and "not proved" in row.reason, key


def test_the_network_is_left_as_it_was() -> None:
    model = fitted(convolutional).train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.random.get_rng_state()
    found = certified(model)
    assert torch.equal(state, torch.random.get_rng_state())
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())
    assert "eval mode" in found.notes[0]
    assert certified(model).to_json() == found.to_json()  # the same numbers again


def test_without_anything_but_the_sample() -> None:
    found = ng.certify(fitted(plain), digits("train"), epochs=0)
    for key in ("holdout.kl", "theorem20.holdout", "equation66", "corollary21", "disagreement.surrogate"):
        assert found.row(key).kind is RowKind.NOT_APPLICABLE
    assert found.curves == ()


def test_shared_samples_are_refused() -> None:
    sample, fresh, extra = data()
    mixed = torch.cat([fresh[0], sample.inputs[:9]]), torch.cat([fresh[1], sample.labels[:9]])
    with pytest.raises(InputError, match="holdout: 9 of its 209 samples are training samples too"):
        ng.certify(plain(), sample, mixed)
    with pytest.raises(InputError, match="unlabeled: 9 of its"):
        ng.certify(plain(), sample, fresh, torch.cat([extra, sample.inputs[:9]]))
    for noisy in ((sample.inputs[:200] + 1e-4, sample.labels[:200]), fresh):
        name = "unlabeled" if noisy is fresh else "holdout"
        with pytest.raises(InputError, match=f"{name}: 200 of its 200 samples are nearly training samples"):
            ng.certify(plain(), sample, noisy, sample.inputs[-200:] + 1e-4, epochs=0)
    with pytest.raises(InputError, match="at least two, got 1"):
        ng.certify(plain(), sample.first(1), fresh)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (plain, {"delta": 1.5}, "between 0 and 1"),
        (plain, {"cells": 0}, "from 1 up"),
        (plain, {"clip": 2.0}, "already"),
        (plain, {"loss": "mse"}, "'ramp' or"),
        (plain, {"clip": -1.0}, "positive"),
        (plain, {"encoder": "9"}, "first module of the sequence"),
        (Odd, {"encoder": "0"}, r"nn.Sequential\(encoder, head\)"),
        (lambda: nn.Linear(64, 4), {}, "class numbers below 4"),
        (lambda: nn.Linear(64, 1), {}, "one number z"),
    ],
    ids=["delta", "cells", "clip of the ramp", "loss", "clip", "encoder", "no sequence", "labels", "one output"],
)
def test_mistakes_are_named(model: Any, options: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        certified(model(), **options)


class Items(Dataset[Any]):
    """Read one by one."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.split.inputs[i], int(self.split.labels[i])


def test_data_sets_and_loaders_give_the_same_rows_as_tensors() -> None:
    model, sample, test = fitted(plain), digits("train").first(400), digits("test")
    found = ng.certify(model, sample, test, epochs=0)
    other = ng.certify(model, DataLoader(Items(sample), batch_size=7, shuffle=True), Items(test), epochs=0)
    assert [row.to_json() for row in other.rows] == [row.to_json() for row in found.rows]


def test_one_number_and_bad_inputs_are_named() -> None:
    bad = digits("train").inputs.clone()
    bad[3, 5] = math.nan
    with pytest.raises(InputError, match="1 of 1442 inputs hold numbers that are not finite"):
        ng.certify(plain(), (bad, digits("train").labels))
    with pytest.raises(InputError, match=r"such as \(0, z\)"):
        ng.certify(nn.Linear(64, 1), digits("train"))
    arrays = bad.numpy(), digits("train").labels.numpy()
    with pytest.raises(InputError, match="1 of 1442"):
        ng.certify(plain(), arrays)


def test_choosing_among_several_networks_is_paid_for() -> None:
    net = nn.Sequential(nn.Linear(8, 3))
    data, held = (
        (torch.randn(n, 8, generator=torch.Generator().manual_seed(n)), torch.arange(n) % 3) for n in (60, 90)
    )
    once, often = (ng.certify(net, data, held, epochs=0, tries=k) for k in (1, 20))
    first, second = (c.row("holdout.clopper_pearson") for c in (once, often))
    assert first.value < second.value and second.confidence == first.confidence == 0.95
    assert "at most 20 networks" in second.condition and "compared" not in first.condition
    assert Certificate.from_json(often.to_json()).tries == 20
    with pytest.raises(InputError, match="tries: expected"):
        ng.certify(net, data, held, tries=0)


def test_a_family_that_fails_is_reported_and_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Iterator[Row]:
        yield Row("capacity.none", "n", "capacity", RowKind.NOT_APPLICABLE, reason="r")
        raise KeyError("broken")

    monkeypatch.setattr("normgauge.certificates.table.capacity.capacity_rows", fails)
    data = torch.randn(40, 8), torch.arange(40) % 3
    found = ng.certify(nn.Sequential(nn.Linear(8, 3)), data, epochs=0)
    assert any("capacity" in note and "KeyError" in note for note in found.notes)
    assert {"PAC-Bayes", "score"} <= {row.family for row in found.rows}


class Memory(nn.Module):
    """The nearest training sample's label, kept where nobody perturbs it, under a head that can be."""

    def __init__(self, x: Tensor, y: Tensor, kind: str) -> None:
        super().__init__()
        self.kind, self.head = kind, nn.Linear(2, 2)
        with torch.no_grad():
            self.head.weight.copy_(5 * torch.eye(2))
            self.head.bias.zero_()
        if kind == "buffers":
            self.register_buffer("x", x, persistent=False)
            self.register_buffer("y", y)
        elif kind == "attributes":
            self.x, self.y = x, y
        elif kind == "list":
            self.kept = [x, y]
        elif kind == "rest of a storage":
            whole = torch.cat([torch.zeros(4), x.flatten(), y.float()])
            self.few = nn.Parameter(whole[:4])
            self.x, self.y = whole[4 : 4 + x.numel()].view_as(x), whole[4 + x.numel() :]
        elif kind == "numbers":
            self.kept = [x.tolist(), y.tolist()]

    def forward(self, q: Tensor) -> Tensor:
        x, y = (self.kept[0], self.kept[1]) if self.kind in ("list", "numbers") else (self.x, self.y)
        if self.kind == "numbers":
            x, y = torch.tensor(x), torch.tensor(y)
        said: Tensor = self.head(nn.functional.one_hot(y[torch.cdist(q, x).argmin(1)].long(), 2).float())
        return said


@pytest.mark.parametrize("kind", ["buffers", "attributes", "list", "rest of a storage", "numbers"])
def test_what_a_network_keeps_out_of_sight_is_paid_for_or_nothing_is_promised(kind: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(200, 20), torch.randint(0, 2, (200,))  # coin flips
    net = Memory(x, y, kind).eval()
    found = ng.certify(net, (x, y), unlabeled=torch.randn(200, 20), epochs=2)
    rows = [r for r in found.rows if r.family in ("PAC-Bayes", "disagreement")]
    assert len(rows) == 4 and all(r.kind is RowKind.NOT_APPLICABLE for r in rows)
    assert "not paid for" in rows[0].reason and any("not paid for" in r.reason or "anew" in r.reason for r in rows[1:])
    if kind in ("attributes", "buffers"):
        with pytest.raises(InputError, match="data_free: expected names"):
            ng.certify(net, (x, y), epochs=0, data_free=("z",))
        declared = ng.certify(net, (x, y), epochs=0, data_free=("x", "y"))
        assert declared.row("gibbs.maurer").kind is not RowKind.NOT_APPLICABLE
        assert "outside its tensors" in declared.row("gibbs.maurer").condition
        assert "named in data_free=" in declared.row("gibbs.maurer").condition


class Retrieval(nn.Module):
    """The labels of D in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.head = path, nn.Linear(2, 2)

    def forward(self, q: Tensor) -> Tensor:
        x, y = torch.load(self.path)
        said: Tensor = self.head(nn.functional.one_hot(y[torch.cdist(q, x).argmin(1)], 2).float())
        return said


def test_a_memory_in_a_file_is_seen(tmp_path: Path) -> None:
    x, y = torch.randn(100, 6), torch.randint(0, 2, (100,))
    torch.save((x, y), tmp_path / "memory.pt")
    found = ng.certify(Retrieval(tmp_path / "memory.pt"), (x, y), epochs=0)
    assert found.row("gibbs.maurer").kind is RowKind.NOT_APPLICABLE
    assert "not paid for" in found.row("gibbs.maurer").reason


POINTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(3)), torch.arange(60) % 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"coreset": torch.arange(60) < 50}, "coreset: expected the places"),
        ({"coreset": [True] * 60}, "coreset: expected the places"),
        ({"coreset": [0, 0, 1]}, "each once"),
        ({"coreset": [0.0, 1.9]}, "whole numbers"),
        ({"coreset": "ab"}, "coreset"),
        ({"groups": {0: 1}, "holdout": POINTS}, "got a dict"),
        ({"groups": [object()] * 60, "holdout": POINTS}, "got a object"),
        ({"groups": 3, "holdout": POINTS}, "got a int"),
        ({"delta": "a"}, "delta"),
        ({"delta": 5e-324}, "delta"),
        ({"tries": 10**400}, "tries"),
        ({"radius": "x"}, "radius"),
        ({"radius": True}, "radius"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": 1.5}, "epochs"),
        ({"seed": "a"}, "seed"),
        ({"partition": 3}, "partition"),
        ({"surrogate": nn.Linear(4, 2)}, "surrogate"),
        ({"holdout": (POINTS[0].double(), POINTS[1])}, "cannot take a batch of"),
    ],
    ids=lambda given: "" if isinstance(given, str) else ", ".join(given),
)
def test_options_of_the_wrong_form_are_refused_in_a_line(given: dict[str, Any], words: str) -> None:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(4))
    with pytest.raises(InputError, match=words) as caught:
        ng.certify(nn.Linear(4, 2), (x, torch.arange(60) % 2), **{"epochs": 0, **given})
    assert "\n" not in str(caught.value)


def test_a_network_that_answers_otherwise_alone_is_refused() -> None:
    class Squeezed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :2] if len(x) > 1 else x[:, :2].flip(1)

    with pytest.raises(InputError, match="other samples of the batch"):
        ng.certify(Squeezed(), POINTS, epochs=0)
