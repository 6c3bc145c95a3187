"""The model as a function of the measured tensor alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normgauge.instrument.measure import gauge


def test_integer_inputs_are_measured_from_the_embedding_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 3))
    reading = gauge(model, torch.tensor([[1, 2], [3, 4]]))
    norm = math.log(float(torch.linalg.matrix_norm(model[1].weight.detach().double(), 2)))
    assert reading.log_upper == pytest.approx(norm, abs=1e-6) and reading.log_lower <= reading.log_upper + 1e-9
    assert reading.log_lower > reading.log_upper - 0.05
    table = model[0].weight.detach()
    assert any(f"at most {float(torch.cdist(table, table).max()):.3g} apart" in note for note in reading.notes)
