"""Random instances: reproducible, one stream a claim, and what they say they are."""

from __future__ import annotations

import pytest
import torch

from normgauge.theory.draw import Draw, draw_counts


def test_every_claim_has_a_stream_of_its_own():
    one, again = Draw(1, "T.L1"), Draw(1, "T.L1")
    assert torch.equal(one.normal(3), again.normal(3))
    assert not torch.equal(Draw(1, "T.L1").normal(3), Draw(1, "T.L2").normal(3))
    assert not torch.equal(Draw(1, "T.L1").normal(3), Draw(2, "T.L1").normal(3))
    q = one.orthogonal(5)
    assert torch.allclose(q @ q.T, torch.eye(5, dtype=torch.float64))
    values = one.uniform(1000, low=2.0, high=3.0)
    assert 2 <= float(values.min()) < 2.1 and 2.9 < float(values.max()) < 3
    assert {one.integer(0, 3) for _ in range(100)} == {0, 1, 2}


def test_counts_are_counts():
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    counts = draw_counts(Draw(0, "counts"), p, 400, 50)
    assert counts.shape == (50, 3) and bool((counts.sum(1) == 400).all())
    assert (counts.mean(0) / 400).tolist() == pytest.approx(p.tolist(), abs=0.02)
