from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.instrument.rules.one_step import bound, composed, jacobian_norm, last

LAYERS = [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout]
SHAPES = {nn.Dropout1d: (2, 3, 4), nn.Dropout2d: (2, 3, 2, 2), nn.Dropout3d: (1, 3, 2, 2, 2)}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_train_mode_attains_its_constant(kind, p):
    torch.manual_seed(1)
    layer, x = kind(p), torch.randn(SHAPES.get(kind, (2, 4, 3))).double()
    for scope in ("global", "ball:0.1"):
        upper = bound(layer, x, scope)
        slopes = [jacobian_norm(layer, x) for _ in range(6)]
        if max(slopes) == 0:  # nothing was kept in any draw
            continue
        assert max(slopes) <= upper * (1 + 1e-12)
        assert max(slopes) > 0.99 * upper
        assert max(slopes) == pytest.approx(upper, rel=1e-6)
    if "Alpha" not in kind.__name__:
        assert upper == pytest.approx(1 / (1 - p))


def test_ranges_hold_for_another_mask():
    x = torch.randn(3, 40).double()
    for layer in (nn.Dropout(0.5), nn.AlphaDropout(0.3)):
        transfer, _ = last(layer, x, "point")
        for _ in range(5):
            out = layer(x)
            assert float(transfer.low) <= float(out.min()) and float(out.max()) <= float(transfer.high)


@pytest.mark.parametrize("kind", LAYERS)
def test_eval_mode_is_the_identity(kind):
    layer, x = kind(0.5).eval(), torch.randn(SHAPES.get(kind, (3, 4, 5))).double()
    parts = composed(lambda x: layer(x + 0), x, "ball:0.1")
    assert float(parts.log_upper) == pytest.approx(0.0, abs=1e-12)
    assert bound(kind(0.0), x + 0) == 1.0


def test_functional_forms():
    x = torch.randn(2, 3, 4).double()
    assert bound(lambda x: F.dropout(x, 0.75), x) == pytest.approx(4.0)
    assert bound(lambda x: F.dropout(x, 0.75, training=False) + 0, x) == pytest.approx(1.0)
    assert bound(lambda x: torch.dropout(x, 0.75, True), x) == pytest.approx(4.0)
    assert bound(lambda x: torch.dropout(x, 0.75, False) + 0, x) == pytest.approx(1.0)
    assert bound(lambda x: F.dropout1d(x, 0.5), x) == pytest.approx(2.0)
    assert bound(lambda x: F.dropout((x + 0), 0.5, inplace=True), x) == pytest.approx(2.0)
    alpha = 1.7580993408473766
    for form in (
        lambda x: F.alpha_dropout(x, 0.4, training=True),
        lambda x: F.feature_alpha_dropout(x, 0.4, training=True),
    ):
        assert bound(form, x) == pytest.approx(1 / math.sqrt(0.6 * (1 + 0.4 * alpha**2)))
    assert bound(lambda x: F.alpha_dropout(x, 0.4) + 0, x) == pytest.approx(1.0)


def test_dropping_everything_is_constant():
    x = torch.randn(2, 3, 4).double()
    for layer in (nn.Dropout(1.0), nn.AlphaDropout(1.0), nn.Dropout1d(1.0)):
        assert bound(layer, x) == 0.0
        assert jacobian_norm(layer, x) == 0.0
        assert float(last(layer, x)[1].norm) == 0.0


def test_samples_stay_apart():
    x = torch.randn(3, 4).double()
    assert composed(nn.Dropout(0.5), x, "ball:0.1", samples=3).log_upper.shape == (3,)


def test_dropout_says_for_which_masks_its_bound_holds():
    notes = {scope: last(nn.Dropout(0.5), torch.ones(3, 4).double(), scope)[0].note for scope in ("global", "point")}
    assert "every mask that can" in notes["global"] and "mask drawn" in notes["point"]
