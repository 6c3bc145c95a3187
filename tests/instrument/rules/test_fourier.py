"""Complex numbers: moduli are sizes, nothing drops an imaginary part, and what is not covered says so."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng


class Does(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


GATE = torch.polar(torch.tensor([2.0, 0.5, 1.0, 3.0]).double(), torch.tensor([0.3, 1.6, 4.0, 1.5]).double())
MATRIX = torch.complex(torch.zeros(3, 4).double(), torch.arange(12.0).double().reshape(3, 4))
COVERED = {
    "times a number": lambda x: (x * (1 + 100j)).abs(),
    "times an imaginary tensor": lambda x: (x * torch.tensor([100j] * 4)).abs(),
    "times a gate": lambda x: (x * GATE).abs(),
    "gate first": lambda x: (GATE * x).imag,
    "divided": lambda x: (x / (0.01j * GATE)).abs(),
    "plus": lambda x: (3 * x + GATE).abs(),
    "product of branches": lambda x: ((x * GATE).abs() * x).tanh(),
    "matrix": lambda x: (x.to(torch.complex128) @ MATRIX.T).abs(),
    "einsum": lambda x: torch.einsum("bi,oi->bo", x * GATE, MATRIX).real,
    "linear": lambda x: F.linear(x.to(torch.complex128), MATRIX).imag,
    "pairs": lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(-1, 2, 2)) * 5j).flatten(1),
    "copies": lambda x: torch.cat([x * GATE, x * 2j], 1)[:, [0, 0, 5, 3]].reshape(-1, 2, 2).transpose(1, 2).abs(),
    "sum": lambda x: (x * GATE).sum(1, keepdim=True).abs(),
    "conjugate": lambda x: (x * GATE).conj().imag,
    "fft": lambda x: torch.fft.fft(x).imag,
    "fft padded": lambda x: torch.fft.fft(x, n=7).real,
    "fft cut": lambda x: torch.fft.fft(x, n=3, norm="ortho").abs(),
    "mixing tokens": lambda x: torch.fft.fft(torch.fft.fft(x.reshape(-1, 2, 2), dim=-1), dim=-2).real.flatten(1),
    "fft2": lambda x: torch.fft.fft2(x.reshape(-1, 2, 2)).real.flatten(1),
    "fftn": lambda x: torch.fft.fftn(x.reshape(-1, 2, 2), dim=(1, 2), norm="forward").abs().flatten(1),
    "filter": lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.tensor([1.0, 7j, -2.0]), n=4),
    "half spectrum": lambda x: torch.fft.irfft(x[:, :3] * (1 + 2j), n=5),
    "half of two": lambda x: torch.fft.irfft(x[:, :2] * 1j + x[:, 2:], n=2),
    "hermitian": lambda x: torch.fft.hfft(x * GATE),
    "inverse hermitian": lambda x: torch.fft.ihfft(x).abs(),
    "filter in two axes": lambda x: torch.fft.irfft2(torch.fft.rfft2(x.reshape(-1, 2, 2)) * (1 + 3j)).flatten(1),
    "over the samples": lambda x: torch.fft.fft(x.pow(3), dim=0).real.pow(3),
    "over all axes": lambda x: torch.fft.fftn(x.pow(3)).imag.pow(3),
}


def steepest(model: nn.Module, x: Tensor) -> float:
    rows = torch.autograd.functional.jacobian(lambda v: model(v).flatten(), x).reshape(-1, x.numel())
    return float(torch.linalg.matrix_norm(rows, 2))


@pytest.mark.parametrize("name", COVERED)
def test_a_bound_with_complex_numbers_inside_holds_and_is_finite(name):
    torch.manual_seed(0)
    model, x = Does(COVERED[name]), torch.randn(3, 4).double()
    reading = ng.gauge(model, x, scope="point", search=False)
    assert not reading.unknown
    assert math.log(steepest(model, x)) - 1e-9 <= reading.log_upper < math.inf
    ball = ng.gauge(model, x, scope="ball:0.1", search=False)
    beside = x + 0.05 * torch.nn.functional.normalize(torch.randn(3, 4).double())
    assert ball.log_upper >= math.log(steepest(model, beside)) - 1e-9


ROOT = math.sqrt(2)
ATTAINED = {
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x)), 2.0),
    "rfft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), 2.0),
    "ifft": (lambda x: torch.view_as_real(torch.fft.ifft(x).resolve_conj()), 0.5),
    "irfft": (lambda x: torch.fft.irfft(torch.view_as_complex(x.reshape(-1, 2, 2)), n=3), ROOT / math.sqrt(3)),
    "irfft of two": (lambda x: torch.fft.irfft(torch.view_as_complex(x.reshape(-1, 2, 2)), n=2), 1 / ROOT),
}


@pytest.mark.parametrize("name", ATTAINED)
def test_the_constants_of_fourier_transforms_are_exact(name):
    function, constant = ATTAINED[name]
    model, x = Does(function), torch.randn(2, 4).double()
    assert math.exp(ng.gauge(model, x, scope="global", search=False).log_upper) == pytest.approx(constant, rel=1e-8)
    assert steepest(model, x[:1]) == pytest.approx(constant, rel=1e-9)


@pytest.mark.parametrize("function", [lambda x: (x * 1j).tanh().abs(), lambda x: (x * 1j).exp().abs()])
def test_a_rule_for_real_numbers_is_not_used_for_complex_ones(function):
    reading = ng.gauge(Does(function), torch.randn(3, 4).double(), scope="global", search=False)
    assert reading.log_upper == math.inf
    assert any("complex" in finding.why for finding in reading.unknown)
