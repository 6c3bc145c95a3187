"""Which axis holds the samples: whatever mixes them, no per-sample number may fall below a slope of the whole map."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.rules import REGISTRY, Context, Flow, Gain, Step, Transfer


class Between(nn.Module):
    """Cubes before and after: samples of very different slopes, so that mixing them shows."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x.pow(3)).pow(3)


BATCH = torch.tensor(
    [[3.0, 2.0, 1.0, 0.5], [0.1, 0.1, 0.05, 0.2], [0.3, 0.1, 0.2, 0.1], [0.2, 0.3, 0.1, 0.4]], dtype=torch.float64
)
TURN = torch.eye(4, dtype=torch.float64)[[1, 2, 3, 0]]
MIXING = {
    "linear": lambda x: F.linear(x.T, TURN).T,
    "linear of vectors": lambda x: F.linear(x.T, TURN[0]),
    "linear without turning back": lambda x: F.linear(x.T, TURN),
    "bilinear": lambda x: F.bilinear(x.T, torch.ones(4, 1, dtype=x.dtype), TURN[:, :, None]).T,
    "matmul": lambda x: TURN @ x,
    "einsum": lambda x: torch.einsum("ij,jk->ik", TURN, x),
    "cumsum": lambda x: x.cumsum(0),
    "roll": lambda x: x.roll(1, 0),
    "flip": lambda x: x.flip(0),
    "pad": lambda x: F.pad(x.T[None], (1, 0), mode="circular")[0, :, :4].T,
    "index": lambda x: x[[1, 2, 3, 0]],
    "pool": lambda x: F.max_pool1d(x.T[None], 3, 1, 1)[0].T,
    "interpolate": lambda x: F.interpolate(x.T[None], 7, mode="linear")[0].T,
    "conv": lambda x: F.conv1d(x[None], TURN[:, :, None])[0],
    "layer norm": lambda x: F.layer_norm(x.T, (4,)).T,
    "softmax": lambda x: x.softmax(0),
    "logsumexp": lambda x: x.logsumexp(0, keepdim=True) + x,
    "length": lambda x: x + x.norm(dim=0, keepdim=True),
    "mean": lambda x: x + x.mean(0),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "product": lambda x: x * x.roll(1, 0),
    "gram": lambda x: x @ x.T,
    "reshape": lambda x: x.T.reshape(4, 4),
    "cat": lambda x: torch.cat([x, x.roll(1, 0)], 1),
}


def steepest(model: nn.Module, x: Tensor) -> float:
    rows = torch.autograd.functional.jacobian(lambda v: model(v).flatten(), x).reshape(-1, x.numel())
    return float(torch.linalg.matrix_norm(rows, 2))


@pytest.mark.parametrize("scope", ["point", "ball:0.01"])
@pytest.mark.parametrize("name", MIXING)
def test_a_step_along_the_samples_is_measured_as_one_point(name, scope):
    model = Between(MIXING[name])
    reading = ng.gauge(model, BATCH, scope=scope, search=False)
    assert reading.log_upper >= math.log(steepest(model, BATCH)) - 1e-9
    assert reading.log_lower <= reading.log_upper


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.roll(1, 0)


def silent(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """A rule that is right about the slope and says nothing of the samples."""
    return Transfer((Gain(ctx.full(0.0)),))


def test_the_steps_are_asked_whatever_a_rule_says_of_the_samples():
    model = nn.Sequential(Between(nn.Identity()), Turned(), Between(nn.Identity()))
    reading = ng.gauge(model, BATCH, scope="point", rules=REGISTRY.extended({Turned: silent}))
    assert reading.log_upper >= math.log(steepest(model, BATCH)) - 1e-9


def test_samples_that_stand_alone_stay_apart():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3)).double()
    reading = ng.gauge(model, BATCH, scope="point", search=False)
    assert len({row["log10_upper"] for row in reading.samples}) == 4


class Rows(nn.Module):
    """Lengths of rows: two entries a sample on an axis with all samples become one row of two."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Bilinear(2, 2, 1, bias=False)
        self.product.weight.data = torch.eye(2, dtype=torch.float64)[None]

    def forward(self, x: Tensor) -> Tensor:
        h = x.reshape(-1).unflatten(0, (-1, 2))
        return self.product(h, h)


def test_entries_on_the_samples_own_axis_become_a_row():
    x = torch.ones(3, 2, dtype=torch.float64)
    assert ng.gauge(Rows(), x, scope="point").log_upper >= math.log(2 * math.sqrt(2)) - 1e-9


class Squares(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


@pytest.mark.parametrize("seed", range(6))
def test_one_vector_is_one_sample(seed):
    torch.manual_seed(seed)
    layers = [part for _ in range(4) for part in (nn.Linear(8, 8), Squares())]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight)
    model, x = nn.Sequential(*layers).double(), torch.randn(8, dtype=torch.float64)
    reading = ng.gauge(model, x, scope="point", search=False)
    slope = steepest(model, x)
    assert reading.log_upper >= math.log(slope) - 1e-9
    assert reading.log_lower == pytest.approx(math.log(slope), abs=1e-5)


def test_the_slope_found_for_one_vector_is_one_it_has():
    class Cube(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.pow(3)

    model = nn.Sequential(Cube(), nn.Linear(4, 4, bias=False), Cube()).double()
    model[1].weight.data = TURN.clone()
    x = torch.tensor([3.0, 0.1, 0.1, 0.1], dtype=torch.float64)
    reading = ng.gauge(model, x, scope="ball:0.01")
    assert math.exp(reading.log_lower) <= 9 * 3.01**8 * (1 + 1e-6) <= math.exp(reading.log_upper) * (1 + 1e-5)


def test_a_loss_of_one_vector_counts_all_its_outputs():
    model = nn.Linear(3, 5).double()
    one, batch = (ng.gauge(model, x.double(), scope="global", search=False) for x in (torch.ones(3), torch.ones(1, 3)))
    assert one.loss["l1_sum"] == pytest.approx(batch.loss["l1_sum"])
