"""Real convolutional networks: no unknown operation, sound brackets, the expected sizes."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch

from normgauge.core.spelled import LN10
from normgauge.instrument.measure import readings
from normgauge.lab.zoo import IMAGENET_MEAN, IMAGENET_STD, build_network, cifar10, cifar_resnet, load_state

DATA = os.environ.get("NORMGAUGE_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="needs the CIFAR weights and images: set NORMGAUGE_DATA")


@needs_data
def test_resnet20_with_its_real_weights() -> None:
    assert DATA is not None
    model = load_state(cifar_resnet(20), Path(DATA) / "weights" / "resnet20_cifar10.safetensors").eval()
    images = cifar10("test", limit=100).normalized(IMAGENET_MEAN, IMAGENET_STD).inputs[84:]
    point, ball, everywhere = readings(model, images, ("point", "ball:0.1", "global"), search=False)
    for reading in (point, ball, everywhere):
        known = "computed" if reading is point else "proved"  # sixteen proofs would take longer than the default allows
        assert not reading.unknown and not reading.unbounded and str(reading.evidence) == known
        assert reading.log_lower <= reading.log_upper <= reading.log_folded + 1e-9
    assert everywhere.log_folded / LN10 < 10.5
    assert everywhere.log_upper / LN10 < everywhere.log_folded / LN10 - 0.3
    assert math.exp(point.log_lower) >= 60
    assert max(point.samples, key=lambda s: s["log10_lower"])["index"] == 10  # image 94


@needs_data
def test_resnet56_with_its_real_weights() -> None:
    assert DATA is not None
    model = load_state(cifar_resnet(56), Path(DATA) / "weights" / "resnet56_cifar10.safetensors").eval()
    images = cifar10("test", limit=1).normalized(IMAGENET_MEAN, IMAGENET_STD).inputs
    (reading,) = readings(model, images, ("global",), balance=False, search=False, width=1e-2)
    assert not reading.unknown and reading.log_upper / LN10 < 24


@pytest.mark.parametrize(
    ("name", "shape", "finite"),
    [("resnet18", (2, 3, 16, 16), True), ("efficientnet_b3", (1, 3, 32, 32), False)],
)
def test_zoo_networks_have_no_unknown_operation(name: str, shape: tuple[int, ...], finite: bool) -> None:
    torch.manual_seed(0)
    model = build_network(name).eval()
    scopes = ("point", "ball:0.001", "global")
    point, ball, everywhere = readings(model, torch.randn(shape), scopes, balance=False, search=False, width=0.1)
    assert not point.unknown and not ball.unknown and not everywhere.unknown
    assert math.isfinite(point.log_upper) and math.isfinite(ball.log_upper)
    assert point.log_lower <= point.log_upper
    assert math.isfinite(everywhere.log_upper) == finite
    if not finite:  # the gates multiply unbounded branches
        assert str(everywhere.evidence) == "unknown"
        assert any("mul" in f.name for f in everywhere.no_bound)
