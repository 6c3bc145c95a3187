"""The batch that the questions are asked about."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
