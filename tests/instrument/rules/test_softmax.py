from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules.flow import SamplesMixed
from tests.instrument.rules.one_step import bound, check, composed, jacobian_norm, last


def logits(*shape: int, scale: float = 1.0) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return scale * torch.randn(shape, dtype=torch.float64)


FORMS = [
    nn.Softmax(dim=-1), nn.Softmax(dim=1), nn.Softmin(dim=-1), lambda x: F.softmax(x, 1),
    lambda x: torch.softmax(x, -1), lambda x: x.softmax(0), lambda x: F.softmin(x, dim=1),
    lambda x: torch.special.softmax(x, -1),
]  # fmt: skip
LOGS = [
    nn.LogSoftmax(dim=-1),
    lambda x: F.log_softmax(x, 1),
    lambda x: torch.log_softmax(x, 0),
    lambda x: x.log_softmax(-1),
]


@pytest.mark.parametrize("form", [*FORMS, *LOGS], ids=range(len(FORMS) + len(LOGS)))
def test_every_form_stays_above_its_jacobians(form):
    check(form, logits(2, 2, 3), "global", tries=2)
    check(form, logits(2, 2, 3, scale=3.0), "ball:0.1", tries=2)


@pytest.mark.parametrize("scope", ["point", "ball:0.01", "ball:0.5", "ball:20"])
@pytest.mark.parametrize("scale", [0.1, 12.0])
def test_jacobians_and_ranges_stay_inside(scope, scale):
    for form in (nn.Softmax(dim=-1), nn.Softmax(dim=1), nn.LogSoftmax(dim=-1), nn.LogSoftmax(dim=1)):
        check(form, logits(2, 3, 2, scale=scale), scope, tries=2)
    check(nn.Softmax2d(), logits(1, 3, 2, 1, scale=scale), scope, tries=2)


def test_one_half_is_attained_at_two_equal_logits():
    x = torch.tensor([0.3, 0.3]).double()
    assert check(lambda x: x.softmax(-1), x, exact=True) == pytest.approx(0.5)
    assert check(lambda x: x.softmax(-1), x, "point", exact=True) == pytest.approx(0.5)
    far = torch.tensor([0.0, 0.0, -40.0]).double()
    assert 0.99 * bound(lambda x: x.softmax(-1), far) < jacobian_norm(lambda x: x.softmax(-1), far)


def test_a_point_knows_its_probabilities():
    x = logits(5, 8, scale=3.0)
    at_point = bound(lambda x: x.softmax(-1), x, "point")
    assert jacobian_norm(lambda x: x.softmax(-1), x) <= at_point <= 0.5
    flat = torch.zeros(10).double()
    assert bound(lambda x: x.softmax(-1), flat, "point") == pytest.approx(0.1)
    assert jacobian_norm(lambda x: x.softmax(-1), flat) == pytest.approx(0.1)
    sharp = torch.tensor([30.0, 0.0, 0.0]).double()
    assert jacobian_norm(lambda x: x.softmax(-1), sharp) <= bound(lambda x: x.softmax(-1), sharp, "point") < 1e-12


def test_saturated_probabilities_are_not_called_constant():
    sharp = torch.tensor([50.0, 0.0]).double()  # p rounds to (1, 2e-22): the slope is 2·p(1−p), not 0
    value = bound(lambda x: x.softmax(-1), sharp, "point")
    assert value >= 2 * math.exp(-50) * (1 - 1e-9)
    assert bound(lambda x: x.softmax(-1), sharp, "ball:36") == pytest.approx(0.5)
    masked = torch.tensor([1.0, -math.inf, 0.5]).double()
    assert bound(lambda x: x.softmax(-1), masked, "point") <= 0.5


def test_worst_logits_of_a_ball_stay_inside():
    x = torch.tensor([2.0, -1.0, 0.0]).double()
    for radius in (0.3, 1.0, 3.0):
        moved = x + radius * torch.tensor([-1.0, 1.0, 0.0]).double() / math.sqrt(2)
        _, flow = last(lambda x: x.softmax(-1), x, f"ball:{radius}")
        p = moved.softmax(-1)
        assert float(flow.low) <= float(p.min()) and float(p.max()) <= float(flow.high)
        assert jacobian_norm(lambda x: x.softmax(-1), moved) <= float(flow.slope.exp())


@pytest.mark.parametrize("n", [1, 2, 5])
def test_log_softmax_is_exact_at_a_point(n):
    x = logits(3, n, scale=2.0)
    if n == 1:
        assert bound(lambda x: x.log_softmax(-1), x, "point") == 0.0
        return
    check(lambda x: x.log_softmax(-1), x, "point", exact=True)
    assert bound(lambda x: x.log_softmax(-1), x) == pytest.approx(math.sqrt(n))


def test_a_single_entry_is_constant():
    assert bound(lambda x: x.softmax(-1), logits(3, 1)) == 0.0


def test_samples_and_axes():
    x = logits(3, 4, 5, scale=4.0)
    together = composed(lambda x: x.softmax(1), x, "point", samples=3).log_upper
    for i in range(3):
        alone = composed(lambda x: x.softmax(1), x[i : i + 1], "point").log_upper
        assert float(together[i]) == pytest.approx(float(alone))
    moved = composed(lambda x: x.movedim(0, 2).softmax(0), x, "point", samples=3)
    assert torch.allclose(moved.log_upper, together)
    for mixing in (
        lambda x: x.softmax(0),
        lambda x: x.log_softmax(0),
        lambda x: x.logsumexp(0),
        lambda x: x.logsumexp((0, 1)),
    ):
        with pytest.raises(SamplesMixed):
            composed(mixing, x, "point", samples=3)
    with pytest.raises(SamplesMixed):
        composed(lambda x: F.glu(x, 0), x[:2], "point", samples=2)


def test_logsumexp():
    for form in (
        lambda x: x.logsumexp(-1),
        lambda x: torch.logsumexp(x, (0, 2), keepdim=True),
        lambda x: torch.special.logsumexp(x, 1),
    ):
        for scope in ("global", "ball:0.5"):
            check(form, logits(2, 3, 4), scope)
    peak = torch.tensor([40.0, 0.0]).double()
    assert 0.99 * check(lambda x: x.logsumexp(0), peak) < jacobian_norm(lambda x: x.logsumexp(0), peak)
    flow = composed(lambda x: x.logsumexp(1), logits(3, 4, 5), "point", samples=3).flows
    assert list(flow.values())[-1].axis == 0


@pytest.mark.parametrize("scale", [0.1, 2.0, 20.0])
def test_glu_in_a_ball(scale):
    for form in (nn.GLU(), lambda x: F.glu(x, 0)):
        for scope in ("point", "ball:0.3"):
            check(form, logits(4, 6, scale=scale), scope)
    transfer, flow = last(nn.GLU(), logits(4, 6))
    assert transfer.unbounded and float(flow.slope) == math.inf


def test_glu_is_tight_at_its_worst_gate():
    size = 10.0
    s = (3 - math.sqrt(1 - 8 / size**2)) / 4
    x = torch.tensor([size, math.log(s / (1 - s))]).double()
    assert 0.99 * bound(nn.GLU(), x, "point") < jacobian_norm(nn.GLU(), x) <= bound(nn.GLU(), x, "point")


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_the_axis_torch_chooses_when_none_is_given():
    check(nn.Softmax(dim=None), logits(2, 3, 4, scale=3.0), "point")
    check(lambda x: F.softmax(x), logits(4, 3, scale=3.0), "point")


def test_gumbel_softmax_is_unknown():
    assert last(lambda x: F.gumbel_softmax(x, dim=-1), logits(2, 3))[0].unknown
