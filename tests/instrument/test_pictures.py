from __future__ import annotations

import base64
import io

import pytest
import torch
from PIL import Image
from torch import nn

import normgauge as ng
from normgauge.instrument.pictures import sample_picture


def opened(uri: str) -> Image.Image:
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(body)))


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_a_picture_is_a_png_with_the_samples_own_values(channels, mode):
    sample = torch.arange(channels * 6 * 5, dtype=torch.float32).reshape(channels, 6, 5) - 7
    image = opened(sample_picture(sample) or "")
    assert image.mode == mode and image.size == (5, 6)
    expected = ((sample + 7) / sample.add(7).max() * 255).round().to(torch.uint8)
    seen = torch.tensor(list(image.tobytes()), dtype=torch.uint8).reshape(6, 5, channels).movedim(2, 0)
    assert torch.equal(seen, expected)


def test_a_large_picture_is_shrunk_in_proportion():
    assert opened(sample_picture(torch.rand(3, 64, 256)) or "").size == (64, 16)


def test_a_constant_picture_is_no_division_by_zero():
    assert opened(sample_picture(torch.full((1, 8, 8), 3.0)) or "").getextrema() == (0, 0)


@pytest.mark.parametrize(
    "sample",
    [torch.rand(8), torch.rand(2, 8, 8), torch.rand(3, 2, 8), torch.full((1, 8, 8), float("nan"))],
    ids=["vector", "two channels", "too flat", "nan"],
)
def test_what_is_no_image_has_no_picture(sample):
    assert sample_picture(sample) is None


def test_the_most_sensitive_samples_of_a_reading_have_pictures_unless_they_are_not_wanted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, 3))
    batch = torch.randn(12, 1, 8, 8)
    shown = ng.gauge(model, batch, scope="point").samples
    pictured = {row["index"] for row in shown if "picture" in row}
    steepest = sorted(shown, key=lambda row: -row["log10_lower"])[:8]
    assert pictured == {row["index"] for row in steepest}
    plain = ng.gauge(model, batch, scope="point", pictures=False)
    assert len(plain.samples) == 12 and not any("picture" in row for row in plain.samples)
