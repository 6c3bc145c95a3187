"""The batch that most tests of the advice use."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
