"""What cannot be differentiated twice is named; what torch gets wrong is right, against differences of the loss."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import normgauge as ng
from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product
from tests.geometry.hessian.made import data, net


def test_frozen_unused_and_random_parts_are_said():
    model = nn.Sequential(net(), nn.Dropout(0.3))
    model[0][0].weight.requires_grad_(False)
    model.register_parameter("idle", nn.Parameter(torch.ones(2)))
    notes = " | ".join(Product(model, F.cross_entropy, [data()], mode="train").notes)
    assert "frozen parameters are not part of it: 0.0.weight" in notes
    assert "does not depend on idle" in notes
    assert "dropout draws one mask a batch and holds it: 1" in notes


def test_steps_without_a_slope_are_said():
    def loss(out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out, target) + out.round().mean()

    assert any("derivative of round is zero" in note for note in Product(net(), loss, [data()]).notes)


@torch.no_grad()
def _blind(out: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(out, target)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 2


LOSSES = {
    "shape": (lambda o, t: F.cross_entropy(o, t, reduction="none"), r"scalar, got shape \(40,\) on batch 0"),
    "accuracy": (lambda o, t: (o.argmax(1) == t).float().mean(), "argmax passes no gradient on"),
    "detached": (lambda o, t: F.cross_entropy(o.detach(), t), "detach passes no gradient on"),
    "data": (lambda o, t: F.cross_entropy(o.data, t), "data passes no gradient on"),
    "number": (lambda o, t: F.cross_entropy(o, t).item(), "tensor with one entry, got a float"),
    "switched off": (_blind, "switched off"),
    "constant": (lambda o, t: torch.ones(()), "no operation leads from a parameter"),
    "sign": (lambda o, t: o.sign().mean(), "derivative of sign is zero"),
    "nan": (lambda o, t: o.mean() * float("nan"), "finite number, got nan"),
    "gradient": (lambda o, t: (o[:1] * 0).sqrt().sum(), "its gradient on batch 0 is not finite"),
    "wrong target": (lambda o, t: F.cross_entropy(o, t[:3]), "raised ValueError on batch 0"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_has_no_curvature_is_refused_with_the_reason(name):
    loss, message = LOSSES[name]
    with pytest.raises(InputError, match=message):
        Product(net(), loss, [data()])


def test_an_operation_without_second_derivative_is_named():
    with pytest.raises(InputError, match=r"no second derivative.*once_differentiable"):
        Product(net(), lambda o, t: F.cross_entropy(Once.apply(o), t), [data()])


class Hidden(torch.autograd.Function):
    """A square whose backward hides how it depends on its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x**2

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.x * g


def test_a_backward_written_by_hand_is_said():
    product = Product(net(), lambda o, t: Hidden.apply(o).mean() + F.cross_entropy(o, t), [data()])
    assert any(note.startswith("Hidden has a backward written by hand") for note in product.notes)


def test_an_operation_of_torch_without_second_derivative_is_named():
    def loss(out: Tensor, target: Tensor) -> Tensor:
        return torch.cdist(out, torch.zeros(2, 3), p=1.0).mean() + F.cross_entropy(out, target)

    product = Product(net(), loss, [data()])
    with pytest.raises(InputError, match=r"no second derivative.*cdist"):
        product.hvp(torch.ones(product.size))


def test_a_batch_of_one_in_train_mode_names_the_normalizer():
    x, y = data()
    with pytest.raises(InputError, match=r"batch 1 has one value a channel at 1.*drop_last"):
        Product(net(), F.cross_entropy, [(x[:20], y[:20]), (x[:1], y[:1])], mode="train")
    Product(net(), F.cross_entropy, [(x[:1], y[:1])], mode="eval")


def old(norm: Callable[..., nn.Module], layer: nn.Module, **options: int | None) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have its parametrizations used
        return norm(layer, **options)


def headed(layer: nn.Module, *between: nn.Module, width: int = 4) -> nn.Module:
    return nn.Sequential(layer, *between, nn.Tanh(), nn.Flatten(), nn.Linear(width, 2))


MADE: dict[str, Callable[[], nn.Module]] = {
    "weight norm": lambda: headed(parametrizations.weight_norm(nn.Linear(3, 4))),
    "weight norm of columns": lambda: headed(parametrizations.weight_norm(nn.Linear(3, 4), dim=1)),
    "weight norm of the whole": lambda: headed(parametrizations.weight_norm(nn.Linear(3, 4), dim=None)),
    "weight norm of a kernel": lambda: headed(
        nn.Unflatten(1, (1, 3)), parametrizations.weight_norm(nn.Conv1d(1, 2, 2))
    ),
    "weight norm by hooks": lambda: headed(old(nn.utils.weight_norm, nn.Linear(3, 4))),
    "weight norm by hooks, whole": lambda: headed(old(nn.utils.weight_norm, nn.Linear(3, 4), dim=None)),
    "spectral norm": lambda: headed(parametrizations.spectral_norm(nn.Linear(3, 4))),
    "spectral norm by hooks": lambda: headed(old(nn.utils.spectral_norm, nn.Linear(3, 4))),
    "orthogonal": lambda: headed(parametrizations.orthogonal(nn.Linear(3, 3)), width=3),
    "hardsigmoid": lambda: headed(nn.Linear(3, 4), nn.Hardsigmoid()),
    "RMSNorm": lambda: headed(nn.Linear(3, 4), nn.RMSNorm(4)),
}


def made(name: str) -> nn.Module:
    torch.manual_seed(1)
    model = MADE[name]()
    model(torch.randn(8, 3))  # spectral normalization takes its first steps
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()


def by_differences(model: nn.Module, x: Tensor, y: Tensor, step: float = 1e-3) -> Tensor:
    """The Hessian from values of the loss alone."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    here = torch.cat([p.detach().reshape(-1) for p in parameters])

    @torch.no_grad()
    def loss(at: Tensor) -> Tensor:
        for parameter, part in zip(parameters, at.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(part.view_as(parameter))
        return F.cross_entropy(model(x), y)

    hessian = torch.zeros(len(here), len(here), dtype=here.dtype)
    moves = step * torch.eye(len(here), dtype=here.dtype)
    for i, j in itertools.combinations_with_replacement(range(len(here)), 2):
        a, b = moves[i], moves[j]
        second = loss(here + a + b) - loss(here + a - b) - loss(here - a + b) + loss(here - a - b)
        hessian[i, j] = hessian[j, i] = second / (4 * step**2)
    loss(here)
    return hessian


@pytest.mark.parametrize("name", MADE)
def test_the_hessian_is_that_of_the_loss(name):
    model = made(name)
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.arange(8) % 2
    true = torch.linalg.eigvalsh(by_differences(model, x, y))
    found = ng.curvature(model, F.cross_entropy, [(x, y)], dtype=torch.float64)
    size = float(true.abs().max())
    assert found.eigenvalues[0].value == pytest.approx(float(true[-1]), abs=1e-4 * size)
    assert found.smallest.value == pytest.approx(float(true[0]), abs=1e-4 * size)
    assert found.trace.value == pytest.approx(float(true.sum()), abs=4 * found.trace.standard_error + 1e-3 * size)


def test_what_has_no_second_derivative_is_refused_by_name():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))
    data = [(torch.randn(8, 3), torch.arange(8) % 4)]
    for loss in (F.multi_margin_loss, lambda out, y: torch.cdist(out, out.detach() + 1).mean()):
        with pytest.raises(ng.NormgaugeError, match="no second derivative"):
            ng.curvature(model, loss, data)
