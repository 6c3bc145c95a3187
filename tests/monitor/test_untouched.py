"""A training is the same to the bit with and without a monitor, and a watched model can be used in every other way."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrizations as made
from torch.nn.utils import parametrize

import normgauge as ng
from normgauge.core import store


class Noisy(nn.Module):
    """A parametrization that draws random numbers, counts its calls and keeps a new buffer at each."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("last", torch.zeros(()))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = self.last + torch.rand(())
        return weight * (1 + 0.01 * torch.rand(()) + 0.001 * self.calls + 0.01 * self.last)


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T


def registered(parametrization, layer):
    parametrize.register_parametrization(layer, "weight", parametrization)
    return layer


def net(first, norm=lambda: nn.BatchNorm1d(8), last=lambda: nn.Linear(8, 2)):
    return nn.Sequential(first, norm(), nn.ReLU(), nn.Dropout(0.2), last())


NETS = {
    "batch norm": lambda: net(nn.Linear(8, 8)),
    "layer norm": lambda: net(nn.Linear(8, 8), lambda: nn.LayerNorm(8)),
    "group norm": lambda: net(nn.Linear(8, 8), lambda: nn.GroupNorm(2, 8)),
    "rms norm": lambda: net(nn.Linear(8, 8), lambda: nn.RMSNorm(8)),
    "spectral norm": lambda: net(made.spectral_norm(nn.Linear(8, 8))),
    "weight norm": lambda: net(made.weight_norm(nn.Linear(8, 8))),
    "orthogonal": lambda: net(made.orthogonal(nn.Linear(8, 8))),
    "spectral norm twice": lambda: net(made.spectral_norm(made.weight_norm(nn.Linear(8, 8)))),
    "old spectral norm": lambda: net(nn.utils.spectral_norm(nn.Linear(8, 8))),
    "own parametrization": lambda: net(registered(Symmetric(), nn.Linear(8, 8))),
    "random parametrization": lambda: net(registered(Noisy(), nn.Linear(8, 8))),
    "wide": lambda: net(nn.Linear(8, 160), lambda: nn.BatchNorm1d(160), lambda: nn.Linear(160, 2)),
    "lazy": lambda: net(nn.LazyLinear(8)),
    "double": lambda: net(nn.Linear(8, 8)).double(),
    "compiled": lambda: torch.compile(net(nn.Linear(8, 8)), backend="eager"),
}

MODES = {"every step": {"every": 1}, "every third": {"every": 3}, "budget": {}}


def trained(build, folder, options, steps=8):
    torch.manual_seed(3)
    model = build()
    kind = torch.float64 if any(p.dtype == torch.float64 for p in model.parameters()) else torch.float32
    given = torch.randn(16, 8, generator=torch.Generator().manual_seed(1), dtype=kind)
    if any(nn.parameter.is_lazy(p) for p in model.parameters()):
        monitor = None if folder is None else ng.Monitor(model, folder, **options)
        model(given)
    else:
        monitor = None if folder is None else ng.Monitor(model, folder, **options)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    losses, copies = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(given).square().mean()
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(loss=loss, lr=0.01)
        losses.append(loss.item())
        copies.append(copy.deepcopy(model.state_dict()))
    if monitor is not None:
        monitor.close()
    return losses, copies, torch.get_rng_state()


@pytest.mark.filterwarnings("ignore:.*(Lazy|lazy|torch.nn.utils).*")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETS)
def test_the_training_is_the_same_to_the_bit(name, mode, tmp_path):
    alone, states, random = trained(NETS[name], None, {})
    beside, others, random_beside = trained(NETS[name], tmp_path, MODES[mode])
    assert alone == beside and torch.equal(random, random_beside)
    for state, other in zip(states, others, strict=True):
        assert all(torch.equal(state[key], other[key]) for key in state)
    run = store.read(tmp_path)
    assert run.steps and not any("failed" in note["sentence"] for note in run.notes)


def watched(model, folder, step, steps=4):
    """Train a model with ``step``, which returns a loss, and read the run back."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with ng.Monitor(model, folder, every=1, optimizer=optimizer) as monitor:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = step(model)
            if isinstance(loss, torch.Tensor) and loss.requires_grad:
                loss.mean().backward()
            optimizer.step()
            monitor.step(loss=loss)
    return store.read(folder)


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(1, 4, 3), nn.LayerNorm(6), nn.Linear(24, 3)

    def forward(self, x):
        return self.head(input=self.norm(input=self.conv(input=x[:, None])).flatten(1))


def test_layers_called_by_keyword_are_heard(tmp_path):
    run = watched(ByName(), tmp_path, lambda model: model(torch.randn(5, 8)).square().mean())
    assert not run.notes and len(run.series("sigma_rms", "norm")) == 4 and len(run.series("norm_lower", "conv")) == 4


def test_a_loss_of_many_numbers_is_its_mean_and_a_word_is_noted(tmp_path):
    seen = []

    def step(model):
        seen.append(model(torch.randn(5, 8)).square().mean(1))
        return seen[-1]

    run = watched(net(nn.Linear(8, 8)), tmp_path / "a", step)
    (note,) = run.notes
    assert "the loss has 5 numbers" in note["sentence"]
    assert [line["loss"] for line in run.steps] == pytest.approx(
        [float(loss.detach().mean()) for loss in seen], rel=1e-5
    )
    run = watched(net(nn.Linear(8, 8)), tmp_path / "b", lambda model: "abc", 8)
    assert len(run.steps) == 8 and run.notes[0]["sentence"].startswith("the loss is no number")


def test_gradients_of_single_samples_are_taken_beside_a_monitor(tmp_path):
    def step(model):
        weights = {name: p.detach() for name, p in model.named_parameters()}
        each = vmap(grad(lambda w, x: functional_call(model, w, (x,)).square().mean()), (None, 0))
        for name, slope in each(weights, torch.randn(6, 1, 8)).items():
            model.get_parameter(name).grad = slope.mean(0)
        return 0.5

    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    run = watched(model, tmp_path, step)
    (note,) = run.notes
    assert "no σ of 1" in note["sentence"] and len(run.steps) == 4 and len(run.series("gradient", "0")) == 4


def test_a_lazy_model_is_watched_once_it_is_made(tmp_path):
    model = nn.Sequential(nn.LazyLinear(6), nn.Linear(6, 2))
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        model(torch.randn(4, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            monitor.step()
    run = store.read(tmp_path)
    assert [note["sentence"] for note in run.notes] == [
        "not watched: 0.weight, 0.bias (not made before the first pass, and watched from then on)."
    ]
    assert set(run.layers) == {"0", "1"} and len(run.series("norm_lower", "0")) == 3


def test_weights_of_eight_bits_are_measured_or_named(tmp_path):
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 4))
    model[0].weight = nn.Parameter(model[0].weight.detach().to(torch.float8_e4m3fn), requires_grad=False)
    model.register_parameter("codes", nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False))
    true = float(torch.linalg.matrix_norm(model[0].weight.double(), 2))
    run = watched(model, tmp_path, lambda model: model[1](torch.randn(5, 6)).square().mean())
    (note,) = run.notes
    assert note["sentence"] == "not watched: codes (whole numbers, not what they stand for)."
    lower, upper = (run.series(name, "0")[0][1] for name in ("norm_lower", "norm_upper"))
    assert lower <= true <= upper and lower > 0.9 * true and len(run.steps) == 4


class Unreadable(torch.Tensor):
    """A weight that says no number, once it is ``broken``."""

    broken = False

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if cls.broken and getattr(function, "__name__", "") == "detach":
            raise RuntimeError("these numbers are elsewhere")
        return super().__torch_function__(function, types, args, kwargs or {})


def test_a_weight_that_cannot_be_read_is_named_and_the_others_measured(tmp_path, monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].register_parameter("weight", nn.Parameter(model[0].weight.data.as_subclass(Unreadable)))
    monkeypatch.setattr(Unreadable, "broken", True)
    run = watched(model, tmp_path, lambda model: model[1](torch.randn(5, 4)).square().mean())
    notes = [note["sentence"] for note in run.notes]
    assert len(run.steps) == 4 and len(run.series("norm_lower", "1")) == 4
    assert len(notes) == 1 and notes[0].startswith("0 cannot be read (RuntimeError: these numbers are elsewhere)")


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_a_watched_model_is_traced_scripted_exported_and_copied(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))
    given = torch.randn(4, 8)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        expected = model(given)
        for other in (
            torch.jit.trace(model, given),
            torch.jit.script(model),
            torch.export.export(model, (given,)).module(),
            copy.deepcopy(model),
            pickle.loads(pickle.dumps(model)),
        ):
            assert torch.equal(other(given), expected)
        stream = io.BytesIO()
        torch.save(model, stream)
        assert b"normgauge" not in stream.getvalue()
        monitor.step()
    assert not [note for note in store.read(tmp_path).notes if "gradients" not in note["sentence"]]


def test_two_monitors_on_one_model_write_the_same(tmp_path):
    model = net(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with ng.Monitor(model, tmp_path / "a", every=1) as first, ng.Monitor(model, tmp_path / "b", every=1) as second:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(6, 8)).square().mean().backward()
            optimizer.step()
            first.step()
            second.step()
    one, two = store.read(tmp_path / "a"), store.read(tmp_path / "b")
    for column in ("sigma_rms", "gradient", "update", "folded"):
        assert [line["columns"][column] for line in one.steps] == [line["columns"][column] for line in two.steps]


def test_several_optimizers_give_each_layer_its_rate(tmp_path):
    model = nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8)
    )
    first = torch.optim.SGD(model[:2].parameters(), 0.1, momentum=0.9)
    second = torch.optim.AdamW(model[2:].parameters(), 0.01)
    with ng.Monitor(model, tmp_path, every=1, optimizer=[first, second]) as monitor:
        model(torch.randn(6, 4)).square().mean().backward()
        first.step()
        second.step()
        monitor.step()
    run = store.read(tmp_path)
    rates = {name: run.series("effective_lr", name)[0][1] for name in ("0", "2")}
    sizes = {name: run.series("frobenius", name)[0][1] ** 2 / 8 for name in ("0", "2")}
    assert rates["0"] * sizes["0"] == pytest.approx(0.1, rel=1e-4)
    assert rates["2"] * sizes["2"] == pytest.approx(0.01, rel=1e-4)
