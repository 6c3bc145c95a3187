"""Dense maps: the spectral norm exactly, and the product rule for two branches."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from normgauge.core.bound import Scope
from normgauge.instrument.rules.affine import matrix_transfer
from normgauge.instrument.rules.flow import Context, Matrix, SamplesMixed
from tests.cases import weight
from tests.instrument.rules.one_step import bound, check, composed, last


@pytest.mark.parametrize("matrix", [weight(5, 4), weight(2, 4), weight(4)], ids=["tall", "wide", "vector"])
def test_a_linear_map_has_its_largest_singular_value(matrix):
    upper = check(lambda x: F.linear(x, matrix), weight(2, 3, 4), exact=True, linear=True)
    assert upper == pytest.approx(float(torch.linalg.matrix_norm(torch.atleast_2d(matrix), 2)), rel=1e-8)


def test_the_enclosures_of_one_context_belong_to_their_weights():
    ctx, flow = Context(Scope.parse("global"), 1), last(lambda x: x + 0, weight(2, 3))[1]
    first, second = (matrix_transfer(m, None, flow, ctx).gains[0] for m in (torch.eye(3), 5 * torch.eye(3)))
    assert float(first.log) == pytest.approx(0, abs=1e-6) and float(second.log) == pytest.approx(math.log(5), abs=1e-6)
    assert isinstance(first.form, Matrix)


def test_the_length_of_rows_counts_the_bias():
    shift = torch.full((4,), 10.0).double()
    _, flow = last(lambda x: F.linear(x.tanh(), weight(4, 4), shift), weight(3, 4))
    assert 20 < float(flow.norm) <= 20 + 2 * float(torch.linalg.matrix_norm(weight(4, 4), 2)) * (1 + 1e-6)


def test_a_weight_that_depends_on_the_input_is_unknown():
    assert "depends on the input" in last(lambda x: F.linear(x, x[:2]), weight(3, 4))[0].unknown


@pytest.mark.parametrize("scope", ["point", "ball:0.3"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.bilinear(x, weight(2, 3), weight(5, 4, 3)),
        lambda x: F.bilinear(weight(2, 3), x, weight(5, 3, 4)),
        lambda x: F.bilinear(x, x.sin(), weight(5, 4, 4)),
    ],
    ids=["first", "second", "both"],
)
def test_a_bilinear_map_stays_under_its_bound(function, scope):
    assert check(function, weight(2, 4), scope) < math.inf


def test_a_bilinear_map_of_unbounded_branches_has_no_bound():
    function = lambda x: F.bilinear(x, x, weight(5, 4, 4))  # noqa: E731
    assert last(function, weight(2, 4))[0].no_bound and bound(function, weight(2, 4)) == math.inf


def test_samples_on_the_last_axis_are_mixed():
    with pytest.raises(SamplesMixed, match="over the samples"):
        composed(lambda x: F.linear(x.T, weight(3, 3)), weight(3, 4), "point", samples=3)
