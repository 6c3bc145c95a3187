"""A traced model: options, the clock, what is kept between scopes, and whether samples interact."""

from __future__ import annotations

import math

import torch
from torch import nn

import normgauge as ng
from normgauge.instrument.measure import gauge
from tests.instrument.trace.nets import Lambda, batch, true_norm


def test_samples_that_interact_are_measured_together() -> None:
    model = Lambda(lambda m, x: m.a(x) - m.a(x).mean(0, keepdim=True))
    reading = gauge(model, batch(), scope="point", search=False)
    assert any("influence each other" in note for note in reading.notes)
    assert math.exp(reading.log_upper) >= true_norm(model, batch()) * (1 - 1e-9)


def test_the_whole_batch_as_one_point_and_the_precision_are_fields():
    mixed = ng.gauge(nn.Sequential(nn.BatchNorm1d(4)), torch.randn(5, 4), mode="train", scope="point")
    alone = ng.gauge(nn.Linear(4, 2), torch.randn(5, 4), scope="point")
    assert mixed.together and not alone.together
    assert alone.precision == "float64" and alone.to_json()["precision"] == "float64"
