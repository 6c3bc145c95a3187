"""λ_max followed through trainings."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, Tracker, eigenvalues
from tests.geometry.hessian.made import benchmark, data, net
from tests.instrument.trace.test_untouched import assert_untouched, snapshot


@pytest.mark.parametrize(("norm", "lr"), [("batch", 0.1), ("none", 0.1)])
def test_three_products_a_reading_within_one_percent(norm, lr):
    pytest.importorskip("sklearn")
    row = benchmark().tracking(norm, lr, 0.0, 20, after=40)
    assert row["within 1 %"] == 1.0
    assert row["products, mean of the others"] <= 3.0


def test_readings_of_a_model_that_rests_cost_one_product():
    model, batch = net(), [data()]
    tracker = Tracker(model, F.cross_entropy)
    first = tracker.read(batch)
    before = snapshot(model)
    again = [tracker.read(batch) for _ in range(3)]
    assert_untouched(before, model)
    assert tracker.products[1:] == [1, 1, 1]
    assert again[-1].value == pytest.approx(first.value, 1e-4)
    exact, _ = eigenvalues(Product(model, F.cross_entropy, batch, mode="train"), 1)
    assert first.value == pytest.approx(float(exact.values[0]), 1e-4)


def test_a_model_that_jumps_is_read_with_a_residual_that_says_so():
    model, batch = net(), [data()]
    tracker = Tracker(model, F.cross_entropy, products=1)
    tracker.read(batch)
    spent = 0
    for seed in range(40):
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape))
        tracker.read(batch)
        spent += tracker.products[-1]
    assert spent <= 40 + 20  # one each, and what is lent
    exact, _ = eigenvalues(Product(model, F.cross_entropy, batch, mode="train"), 1)
    last = tracker.readings[-1]
    assert last.residual > 0.02 * last.value and last.value < float(exact.values[0]) * (1 + 1e-6)


def test_another_model_is_refused():
    model = net()
    tracker = Tracker(model, F.cross_entropy)
    tracker.read([data()])
    model[0].bias.requires_grad_(False)
    with pytest.raises(InputError, match="start a new tracker"):
        tracker.read([data()])
    with pytest.raises(InputError, match="at least 1"):
        Tracker(model, F.cross_entropy, products=0)
