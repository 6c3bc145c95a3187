"""The comparison with other tools: its own references are right, a missing tool is no error, its verdicts hold."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
STORED = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def peers():
    for name in ("scipy", "sklearn"):
        pytest.importorskip(name, reason="benchmarks/peers.py needs normgauge[dev]")
    spec = importlib.util.spec_from_file_location("peers", ROOT / "benchmarks" / "peers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("groups", [1, 2])
def test_the_true_norm_of_a_convolution_is_that_of_its_matrix(peers, groups):
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False).double().requires_grad_(False)
    matrix = layer(torch.eye(100, dtype=torch.float64).reshape(100, 4, 5, 5)).reshape(100, 100)
    assert peers.conv_truth(layer.weight, 5, groups) == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), 1e-9)


def test_the_circular_formula_is_right_for_circular_padding(peers):
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False).double().requires_grad_(False)
    matrix = layer(torch.eye(50, dtype=torch.float64).reshape(50, 2, 5, 5)).reshape(50, 75)
    assert peers.circular(layer.weight, 5) == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), 1e-9)


def test_the_steepest_slope_of_a_linear_map_is_its_norm(peers):
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    assert peers.steepest(layer, torch.randn(2, 5)) == pytest.approx(peers.product(layer), 1e-9)


def test_a_missing_peer_is_left_out(peers):
    assert peers.installed("no-such-tool") is None


@pytest.mark.parametrize("name", ["LayerNorm", "BatchNorm", "residual"])
def test_eclipse_lies_below_a_slope_and_normgauge_does_not(name):
    row = STORED["networks"][name]
    assert row["eclipse"] < row["jacobian_at_samples"] <= row["point_upper"] <= row["global_upper"] * (1 + 1e-9)
    assert row["global_lower"] <= row["global_upper"]


@pytest.mark.parametrize(
    "name", ["torch spectral_norm, 64x64x3x3 @16", "circular formula, 3x3 @5", "groups=32, 64x64x3x3 @8"]
)
def test_a_claimed_norm_lies_below_the_true_one(name):
    row = STORED["layers"][name]
    assert row["claimed"] < 0.95 * row["true"]
    assert row["lower"] <= row["true"] * (1 + 1e-9) and row["true"] <= row["upper"] * (1 + 1e-9)
