"""`radius`: exact where the answer is known, below every attack, and loud where a proof is broken."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.advice.certified import predictions
from normgauge.advice.certified.margin_bounds import ComposedBounds
from normgauge.core.bound import Evidence
from normgauge.core.certified import ALREADY_WRONG, TIED, CertifiedRadii
from normgauge.core.errors import InputError
from tests.advice.certified.nets import NAMES, built
from tests.instrument.local.nets import Fn


def some(name: str) -> tuple[nn.Module, Tensor]:
    """A network and the first samples of its batch: each sample is searched, proved and attacked alone."""
    model, x = built(name)
    return model, x[: 2 if name == "conv" else 4]


@functools.cache
def radii(name: str) -> CertifiedRadii:
    return ng.radius(*some(name))


@pytest.fixture(scope="module", params=NAMES)
def found(request) -> CertifiedRadii:
    return radii(request.param)


def test_without_restarts_nothing_is_attacked():
    assert all(sample.attacked is None for sample in ng.radius(*built("linear"), restarts=0).samples)


def test_the_public_name_is_the_function():
    assert callable(ng.radius) and ng.radius is predictions.radius


def test_a_linear_classifier_has_its_exact_radius():
    model, x = built("linear")
    weight, outputs = model.weight.detach().double(), model.double()(x.double()).detach()
    for sample in ng.radius(model.float(), x).samples:
        y, f = sample.predicted, outputs[sample.index]
        truth = min(float((f[y] - f[i]) / (weight[y] - weight[i]).norm()) for i in range(4) if i != y)
        assert truth * (1 - 1e-9) < sample.radius < truth
        assert sample.attacked is not None and truth < sample.attacked < 1.001 * truth
        assert sample.evidence is Evidence.PROVED and sample.method == "composition"


def test_every_radius_lies_below_its_attack(found):
    assert all(s.radius > 0 and s.attacked is not None and s.radius < s.attacked for s in found.samples)
    assert not found.refuted
    radii = [0.0, *(s.radius for s in found.samples), *(s.attacked for s in found.samples if s.attacked)]
    assert all(found.verified_accuracy(r) <= found.attacked_accuracy(r) for r in radii)
    assert found.verified_accuracy(0) == 1.0 and found.verified_accuracy(math.inf) == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_no_point_inside_a_certified_radius_has_another_class(name):
    (model, x), found = some(name), radii(name)
    wide, generator = model.double(), torch.Generator().manual_seed(5)
    lengths = torch.tensor([s.radius for s in found.samples], dtype=torch.float64)
    before = wide(x.double()).argmax(1)
    for _ in range(60):
        at = x.double().requires_grad_()
        outputs = wide(at)
        others = outputs.scatter(1, before[:, None], -math.inf)
        mixed = (others.clamp_min(-1e9) * torch.rand(outputs.shape, generator=generator).double()).sum(1)
        (slope,) = torch.autograd.grad((mixed - outputs.gather(1, before[:, None]).squeeze(1)).sum(), at)
        slope = slope + torch.randn(x.shape, generator=generator).double() * slope.flatten(1).norm(dim=1).mean() * 0.1
        scale = (lengths / slope.flatten(1).norm(dim=1)).reshape(-1, *[1] * (x.ndim - 1))
        assert torch.equal(wide((x.double() + slope * scale).detach()).argmax(1), before)


def test_rounding_that_is_not_enclosed_is_said():
    model, x = built("linear")
    grown = nn.Sequential(model, Fn(torch.exp))
    assert {s.evidence for s in ng.radius(grown, x, restarts=0).samples} == {Evidence.COMPUTED}
    assert {s.evidence for s in radii("probabilities").samples} == {Evidence.PROVED}
    assert {s.evidence for s in radii("conv").samples} == {Evidence.PROVED}


class Boastful:
    """An engine whose bounds are a tenth of what holds."""

    name, tries = "boast", 8

    def __init__(self, session):
        self.inner = ComposedBounds(session)

    def hint(self, sample):
        return math.inf

    def __call__(self, sample, radius, target):
        logs = self.inner(sample, radius, target)
        return None if logs is None else logs - math.log(10)


class Slightly(Boastful):
    """One that is wrong by a twentieth, in balls alone."""

    def __call__(self, sample, radius, target):
        return None if math.isinf(radius) else self.inner(sample, radius, target) - math.log(1.05)


@pytest.mark.parametrize("engine", [Boastful, Slightly])
def test_a_broken_proof_is_caught_by_the_attack(monkeypatch, engine):
    monkeypatch.setattr(predictions, "ENGINES", (engine,))
    found = ng.radius(*built("linear"))
    assert len(found.refuted) == 8 and found.verified_accuracy(0) == 0.0
    for sample in found.samples:
        assert sample.radius == 0.0 and sample.evidence is Evidence.REFUTED and "REFUTED: boast" in sample.reason
    assert str(found).splitlines()[1].startswith("Sample 0: REFUTED")


def test_samples_that_are_wrong_have_radius_zero_and_no_attack():
    model, x = some("relu")
    named = model(x).argmax(1)
    labels = torch.where(torch.arange(4) < 2, (named + 1) % 4, named)
    found = ng.radius(model, (x, labels), restarts=1, steps=5)
    assert [s.reason for s in found.samples] == [ALREADY_WRONG] * 2 + [""] * 2
    assert all(s.radius == 0 and s.attacked is None and s.margin < 0 for s in found.samples[:2])
    assert found.verified_accuracy(0) == 2 / 4 == found.attacked_accuracy(0)
    assert found.samples == ng.radius(model, x, labels.tolist(), restarts=1, steps=5).samples


def test_a_tie_has_radius_zero():
    model = nn.Linear(3, 3)
    nn.init.constant_(model.weight, 0.5)
    nn.init.zeros_(model.bias)
    (sample,) = ng.radius(model, torch.ones(1, 3)).samples
    assert sample.margin == 0 and sample.radius == 0 and sample.reason == TIED


def test_a_constant_network_cannot_be_moved():
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    (sample,) = ng.radius(model, torch.ones(1, 3)).samples
    assert math.isinf(sample.radius) and sample.attacked is None


class Unknown(nn.Linear):
    def forward(self, x):
        return torch.special.bessel_j0(super().forward(x))


class Branching(nn.Linear):
    def forward(self, x):
        return super().forward(x) * (2.0 if float(x.sum()) > 0 else 1.0)


@pytest.mark.parametrize("kind", [Unknown, Branching])
def test_without_a_bound_nothing_is_certified_and_the_reason_is_told(kind):
    torch.manual_seed(0)
    found = ng.radius(kind(4, 3), torch.randn(2, 4), steps=5)
    assert all(s.radius == 0 and s.evidence is Evidence.UNKNOWN and "no bound" in s.reason for s in found.samples)
    assert found.verified_accuracy(0) == 0.0


def test_two_runs_are_the_same_and_nothing_is_touched():
    model, x = built("relu")
    x = x[:2]
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(11)
    state = torch.random.get_rng_state()
    first, second = (ng.radius(model, x, steps=8).samples for _ in range(2))
    assert first == second and model.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


class Mixing(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class Drawing(nn.Linear):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5, training=True)


FLAT = torch.ones(4, 3)
MISTAKES = {
    "integers": (nn.Linear(3, 2), FLAT.long(), None, "expected real numbers, got torch.int64"),
    "one vector": (nn.Linear(3, 2), FLAT[0], None, "along the first axis, got shape (3,)"),
    "NaN": (nn.Linear(3, 2), FLAT * math.nan, None, "holds NaN"),
    "one class": (nn.Linear(3, 1), FLAT, None, "two classes or more, (samples, classes), got shape (4, 1)"),
    "numbers": (nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), FLAT, None, "got shape (4,)"),
    "wrong shape": (nn.Linear(5, 2), FLAT, None, "forward raised"),
    "samples that mix": (Mixing(3, 2), torch.randn(4, 3), None, "influence each other"),
    "chance": (Drawing(3, 2), FLAT, None, "draws random numbers in eval mode"),
    "a label too large": (nn.Linear(3, 2), FLAT, [0, 1, 2, 0], "from 0 to 1, as the network has 2 outputs, got 0 to 2"),
    "a negative label": (nn.Linear(3, 2), FLAT, [0, 1, -1, 0], "got -1 to 1"),
    "too few labels": (nn.Linear(3, 2), FLAT, [0, 1], "one a sample, got torch.int64 of shape (2,)"),
    "labels that are numbers": (nn.Linear(3, 2), FLAT, [0.0, 1.0, 0.5, 0.0], "got torch.float32 of shape (4,)"),
    "one-hot labels": (nn.Linear(3, 2), FLAT, torch.eye(2).long()[[0, 1, 0, 1]], "become numbers by .argmax(1)"),
    "words": (nn.Linear(3, 2), FLAT, "cats", "labels: expected one class number a sample, got str"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_words(name):
    model, batch, labels, said = MISTAKES[name]
    with pytest.raises(InputError) as error:
        ng.radius(model, batch, labels)
    assert said in str(error.value)


def test_options_out_of_range_are_refused():
    with pytest.raises(InputError, match="restarts and seed from 0 and steps from 1 on, got -1, 0 and 40"):
        ng.radius(nn.Linear(3, 2), FLAT, restarts=-1)
