"""Readings of a real network, measured once."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from normgauge.core.checker import digest
from normgauge.instrument.measure import readings
from normgauge.loading import load_model
from tests.conftest import balanced_alone

ROOT = Path(__file__).parents[2]
Data = dict[str, Any]
SCOPES = ("point", "ball:0.1", "global")


@pytest.fixture(scope="session")
def net() -> list[Data]:
    """The network of the documentation at four samples, in three scopes."""
    path = ROOT / "examples" / "net.py"
    batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    with balanced_alone():
        return [stored(r) for r in readings(load_model(f"{path}:build"), batch, SCOPES, search=False)]


def stored(reading: Any) -> Data:
    data: Data = json.loads(json.dumps(reading.to_json(), allow_nan=False))
    return data


def resealed(data: Data) -> Data:
    """What someone who knows how digests are made would leave behind."""
    return {**data, "digest": digest(data)}


def changed(data: Data, path: tuple[Any, ...], by: float) -> Data:
    """A copy with one number changed."""
    result = copy.deepcopy(data)
    node: Any = result
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] += by if isinstance(node[path[-1]], float) else round(math.copysign(1, by))
    return result
