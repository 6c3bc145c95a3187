"""The budget holds after every call, by an independent bound and by the gauge."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo import cifar_resnet, gpt, mlp


def folded(model: nn.Module) -> float:
    """log10 of the product of folded norms of an MLP, by singular values in float64."""
    total = 0.0
    for layer in model.layers:
        weight, norm = layer.linear.weight.detach().double(), layer.norm
        scale = norm.weight.detach().double().abs() / (norm.running_var.double() + norm.eps).sqrt()
        total += math.log10(float(torch.linalg.matrix_norm(scale[:, None] * weight, 2)))
    return total + math.log10(float(torch.linalg.matrix_norm(model.head.weight.detach().double(), 2)))


def points(seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(256, 20, generator=draw)
    return x, (x[:, :4].prod(1) > 0).long() + 2 * (x[:, 4] > 0).long()


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_no_step_exceeds_the_budget(optimizer: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    x, y = points()
    model = mlp((20, 24, 24, 4), norm="batch")
    model(x)
    cap = ng.cap(model.eval(), x[:4], log10=0.7)
    training = optimizer(model.parameters(), lr=0.05)
    for step in range(150):
        model.train()
        training.zero_grad()
        F.cross_entropy(model(x), y).backward()
        training.step()
        assert cap() <= 0.7
        model.eval()
        assert folded(model) <= cap.log10 + 1e-9
        if step % 50 == 49:
            assert ng.gauge(model, x[:4], scope="global", search=False, effort="quick").log10_folded <= 0.7
    assert cap.at_cap and set(cap.at_cap) <= set(cap.taken)
    assert "at their cap" in str(cap)


def test_a_budget_that_is_kept_changes_nothing() -> None:
    torch.manual_seed(0)
    model = mlp((20, 24, 4), norm="batch").eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    cap = ng.cap(model, torch.randn(4, 20), log10=9.0)
    cap()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert cap.at_cap == [] and "no layer is at its cap" in str(cap)


def nets() -> list[tuple[str, nn.Module, Tensor]]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    conv = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2)
    )
    groups = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.GroupNorm(2, 6), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=2))
    return [
        ("layer", mlp((10, 12, 12, 3), norm="layer"), torch.randn(4, 10)),
        ("rms", mlp((10, 12, 12, 3), norm="rms"), torch.randn(4, 10)),
        ("plain", mlp((10, 12, 12, 3)), torch.randn(4, 10)),
        ("gpt", gpt(vocab=12, width=16, depth=2, heads=2, context=6), torch.randint(0, 12, (2, 6))),
        ("encoder", layer, torch.randn(2, 5, 16)),
        ("conv", conv, torch.randn(2, 3, 9, 9)),
        ("groups", groups, torch.randn(2, 3, 9, 9)),
    ]


@pytest.mark.parametrize(("name", "model", "x"), nets(), ids=lambda v: v if isinstance(v, str) else "")
def test_bound_is_not_below_the_gauge(name: str, model: nn.Module, x: Tensor) -> None:
    cap = ng.cap(model.eval(), x, log10=50.0)
    assert cap.uncontrolled == ()
    start = cap()
    for budget in (start, start - 1.5):
        cap.budget = budget
        cap()
        reading = ng.gauge(model, x, scope="global", search=False, effort="quick", balance=False)
        assert reading.log10_folded <= cap.log10 + 1e-3 * len(cap.plan.maps)
        assert cap.log10 <= budget


@pytest.mark.slow
def test_residual_network() -> None:
    torch.manual_seed(0)
    model, x = cifar_resnet(20).eval(), torch.rand(2, 3, 12, 12)
    cap = ng.cap(model, x, log10=3.0)
    assert cap() <= 3.0
    assert ng.gauge(model, x, scope="global", search=False, effort="quick", balance=False).log10_folded <= 3.02


class Gated(nn.Module):
    """A learned scale and a gate, which no term stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.scale = nn.Linear(6, 6), nn.Linear(6, 6), nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (self.first(x) * self.gate(x))


def test_what_is_not_controlled_is_named() -> None:
    model = Gated()
    cap = ng.cap(model, torch.randn(3, 6), log10=0.0)
    words = " ".join(cap.uncontrolled)
    assert "mul" in words and "when the model was traced" in words
    cap()
    assert cap.controlled <= 0.0 and cap.log10 == math.inf and set(cap.taken) == {"first", "gate"}


@pytest.mark.parametrize("given", [math.inf, math.nan])
def test_budgets_that_are_none(given: float) -> None:
    with pytest.raises(ng.NormgaugeError, match="finite budget"):
        ng.cap(nn.Linear(2, 2), torch.randn(1, 2), log10=given)


def test_a_model_without_maps() -> None:
    for make in (lambda m, x: ng.penalty(m, x), lambda m, x: ng.cap(m, x, log10=1.0)):
        with pytest.raises(ng.NormgaugeError, match="no linear map"):
            make(nn.ReLU(), torch.randn(1, 2))


class Apart(nn.Module):
    """A normalizer along one axis between maps along the same or the other, all of one size."""

    def __init__(self, before: nn.Module, behind: nn.Module) -> None:
        super().__init__()
        self.before, self.norm, self.behind = before, nn.BatchNorm1d(4), behind
        with torch.no_grad():
            self.norm.running_var.copy_(torch.tensor([1e-4, 1.0, 1.0, 1.0]))
            self.before.weight[0] = 0.0  # were it the channel that is divided by so little, it would not matter

    def forward(self, x: Tensor) -> Tensor:
        return self.behind(self.norm(self.before(x)))


@pytest.mark.parametrize("before", ["linear", "conv"])
@pytest.mark.parametrize("behind", ["linear", "conv"])
def test_a_normalizer_along_another_axis_than_the_map_before_it(before: str, behind: str) -> None:
    torch.manual_seed(0)
    made = {"linear": lambda: nn.Linear(4, 4), "conv": lambda: nn.Conv1d(4, 4, 1)}
    model, x = Apart(made[before](), made[behind]()).double().eval(), torch.randn(2, 4, 4).double()
    jacobian = torch.autograd.functional.jacobian(lambda z: model(z[None])[0], x[0]).reshape(16, 16)
    assert float(torch.linalg.matrix_norm(jacobian, 2).log10()) <= ng.cap(model, x, log10=9.0)()
    ng.penalty(model, x).close()


def test_weights_and_gains_that_are_used_twice_keep_the_budget() -> None:
    torch.manual_seed(0)
    one, norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
    for parts in ((one, nn.ReLU(), one, norm, one), (nn.Linear(4, 4), norm, nn.ReLU(), nn.Linear(4, 4), norm)):
        model, x = nn.Sequential(*parts).eval(), torch.randn(3, 4)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(2.0)
        cap = ng.cap(model, x, log10=1.0)
        assert 0.99 <= cap() <= 1.0 and cap.in_reach


def test_clipping_waits_for_the_batches_that_statistics_have_seen() -> None:
    def clipped(batches: int) -> float:
        torch.manual_seed(0)
        model, x = mlp((20, 24, 4), norm="batch"), torch.randn(64, 20)
        cap = ng.cap(model.eval(), x[:4], log10=-3.0, clip=0.01)
        model.train()
        for _ in range(batches):
            model(x)
        top, weight = [], model.layers[0].linear.weight
        for _ in range(2):
            top.append(float(torch.linalg.matrix_norm(weight.detach(), 2)))
            cap()
        return math.log10(top[0] / top[1])

    assert clipped(8) > 4 * clipped(1) > 0
