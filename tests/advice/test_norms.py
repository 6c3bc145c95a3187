"""A normalizer on a batch: the variances it divides by are those of the definition."""

from __future__ import annotations

import torch
from torch import nn

from normgauge.advice.norms import MeasuredNorm, norm_of
from normgauge.instrument.session import opened


def measured(module: nn.Module, batch: torch.Tensor) -> MeasuredNorm | None:
    with opened(module.eval(), batch) as session:
        (step,) = session.trace.steps
        return norm_of(step, session.native)


def test_a_layer_normalizer_has_one_variance_a_sample(batch):
    norm = measured(nn.LayerNorm(8), batch)
    assert norm is not None and norm.size == 8 and norm.seen is None
    variance = batch.double().var(1, correction=0)
    torch.testing.assert_close(norm.variance.flatten(), variance)
    torch.testing.assert_close(norm.sigma.flatten(), (variance + 1e-5).sqrt())


def test_a_batch_normalizer_divides_by_what_it_stored_and_is_compared_with_what_it_sees(batch):
    module = nn.BatchNorm1d(8)
    nn.init.uniform_(module.running_var, 1, 2)
    nn.init.constant_(module.weight, -3.0)
    norm = measured(module, batch)
    assert norm is not None and norm.seen is not None and norm.gamma is not None and norm.size == 16
    torch.testing.assert_close(norm.variance.flatten(), module.running_var.double())
    torch.testing.assert_close(norm.seen, (batch.double().mean(0), batch.double().var(0, correction=0)))
    assert norm.gamma.tolist() == [3.0] * 8


def test_other_layers_are_no_normalizers(batch):
    assert measured(nn.Linear(8, 8), batch) is None
