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
