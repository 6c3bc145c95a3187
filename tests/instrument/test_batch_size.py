"""A forward pass that asks how many samples there are has the constants of the batch that is measured."""

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng


class Asks(nn.Module):
    """LayerNorm by hand whose ε is that of a batch of three, or of any other."""

    def forward(self, x: Tensor) -> Tensor:
        eps = 1e-5 if x.shape[0] == 3 else 1e-3
        centred = x - x.mean(1, keepdim=True)
        return centred * (x.var(1, unbiased=False, keepdim=True) + eps).rsqrt()


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.parametrize("scope", ["global", "ball:800"])
def test_constants_of_another_batch_prove_nothing(scope: str, search: bool) -> None:
    torch.manual_seed(0)
    reading = ng.gauge(Asks(), 300 * torch.randn(3, 4), scope=scope, search=search)
    assert reading.upper >= 316.2  # 1/sqrt(1e-5), where a batch of four has 1/sqrt(1e-3)
    assert reading.evidence == "refuted" or reading.upper < 1e3


def test_a_sample_is_not_measured_with_other_constants() -> None:
    torch.manual_seed(0)
    samples = torch.full((3, 4), 0.01) * torch.randn(3, 4)
    reading = ng.gauge(Asks(), samples, search=False)
    jacobian = torch.autograd.functional.jacobian(Asks().double(), samples.double()).reshape(12, 12)
    assert reading.upper >= float(torch.linalg.matrix_norm(jacobian, 2)) * (1 - 1e-9)


class Alone(nn.Module):
    """A map that is fifty times as large for a sample alone, or for several."""

    def __init__(self, alone: float = 50.0, among: float = 1.0) -> None:
        super().__init__()
        self.map, self.alone, self.among = nn.Linear(3, 2), alone, among

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.map(x) if mask is None else self.map(x) * mask
        return y * (self.among if x.shape[0] > 1 else self.alone)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scope", ["point", "ball:1", "global"])
def test_that_a_sample_alone_has_another_output_is_said(scope: str, masked: bool) -> None:
    batch = (torch.randn(4, 3), torch.ones(4, 1)) if masked else torch.randn(4, 3)
    reading = ng.gauge(Alone(), batch, scope=scope, search=False)
    assert any("all numbers hold for batches of 4 samples" in note for note in reading.notes)
    assert not any("batches of" in note for note in ng.gauge(Alone(2.0, 2.0), batch, search=False).notes)


def test_radius_says_it_and_cap_proves_nothing() -> None:
    x = torch.randn(4, 3)
    assert any("batches of 4 samples" in note for note in ng.radius(Alone(), x, effort="quick").notes)
    cap = ng.cap(Alone(), x, log10=9.0)
    assert cap() == float("inf") and "a sample alone has another output" in str(cap)


OTHERWISE: dict[str, tuple[nn.Module, str]] = {  # alone a sample has another output there too, for reasons with notes
    "statistics of the batch": (nn.Sequential(nn.Conv1d(3, 2, 1), nn.BatchNorm1d(2)), "train"),
    "samples that mix": (nn.Sequential(nn.Linear(5, 2), nn.Softmax(0)), "eval"),
    "random numbers": (nn.Sequential(nn.Linear(5, 2), nn.Dropout(0.5)), "train"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_other_reasons_are_not_told_as_this_one(name: str) -> None:
    model, mode = OTHERWISE[name]
    reading = ng.gauge(model, torch.randn(4, 3, 5), mode=mode, search=False)
    assert not any("batches of" in note for note in reading.notes)
