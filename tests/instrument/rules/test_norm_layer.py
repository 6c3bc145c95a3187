"""Normalizers of each sample: closed formulas, the slope at a point, and uses that are not covered."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge import gauge
from normgauge.instrument.rules.flow import SamplesMixed
from tests.cases import weight
from tests.instrument.rules.one_step import bound, check, composed, jacobian_norm, last

PLAIN = {
    "layer": lambda x: F.layer_norm(x, (5,), eps=1e-3),
    "layer over two axes": lambda x: F.layer_norm(x, (4, 5), eps=1e-3),
    "rms": lambda x: F.rms_norm(x, (5,), eps=1e-3),
    "group": lambda x: F.group_norm(x, 2, eps=1e-3),
    "instance": lambda x: F.instance_norm(x, eps=1e-3),
}


@pytest.mark.parametrize("name", PLAIN)
def test_without_gains_the_bound_is_the_slope(name):
    function, x = PLAIN[name], weight(2, 4, 5)
    assert bound(function, x, "point") == pytest.approx(jacobian_norm(function, x), rel=1e-6)
    check(function, x, "ball:0.3")
    assert bound(function, x) == pytest.approx(1e-3**-0.5, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_without_eps_takes_that_of_float32(dtype):
    upper = math.exp(
        gauge(nn.RMSNorm(4).to(dtype), torch.ones(2, 4, dtype=dtype), scope="global", search=False).log_upper
    )
    assert upper == pytest.approx(torch.finfo(torch.float32).eps ** -0.5, rel=1e-6)


@pytest.mark.parametrize("own", [True, False, None])
def test_statistics_are_taken_from_where_the_call_says(own):
    given = {} if own is None else {"use_input_stats": own}
    upper = bound(lambda x: F.instance_norm(x, torch.zeros(3), torch.full((3,), 4.0), **given), weight(2, 3, 20))
    assert upper == pytest.approx((4.0 + 1e-5) ** -0.5 if own is False else 1e-5**-0.5, rel=1e-6)


@pytest.mark.parametrize("dim", [1, 2])
def test_a_length_is_divided_out(dim):
    x = weight(2, 4, 5)
    shortest = float(x.norm(dim=dim).min())
    assert bound(lambda x: F.normalize(x, dim=dim), x, "point") == pytest.approx(1 / shortest, rel=1e-8)
    check(lambda x: F.normalize(x, dim=dim), x, f"ball:{shortest / 2:g}")
    assert bound(lambda x: F.normalize(x, dim=dim, eps=0.1), x) == pytest.approx(10.0, rel=1e-8)


def test_a_local_response_stays_under_its_formula():
    def function(x):
        return F.local_response_norm(x, 3, alpha=2.0, beta=0.5, k=0.1)

    upper = 0.1**-0.5 + math.sqrt(3) * 2 / 3 * 0.3**-0.5
    assert bound(function, weight(1, 6, 4)) == pytest.approx(upper, rel=1e-6)
    assert max(jacobian_norm(function, scale * weight(1, 6, 4)) for scale in (0.01, 0.1, 0.3, 1.0)) <= upper


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: F.local_response_norm(x[None], 3, alpha=-1e-4), "not all positive"),
        (lambda x: F.normalize(x, p=1.0), "p=1.0"),
        (nn.InstanceNorm1d(3), "unbatched"),
    ],
)
def test_what_is_not_covered_says_so(function, said):
    assert said in last(function, weight(3, 4))[0].unknown


@pytest.mark.parametrize(
    "function", [lambda x: F.layer_norm(x.T, (4,)), lambda x: F.group_norm(x.T, 2), lambda x: F.normalize(x, dim=0)]
)
def test_samples_on_a_normalized_axis_are_mixed(function):
    with pytest.raises(SamplesMixed, match="a normalizer over the samples"):
        composed(function, weight(4, 4), "point", samples=4)
