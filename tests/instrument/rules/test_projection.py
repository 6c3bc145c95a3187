from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from normgauge.instrument.rules.flow import Commute, Matrix, SamplesMixed
from normgauge.instrument.rules.projection import spelled_out
from tests.instrument.rules.one_step import bound, check, composed, jacobian_norm, last


def data(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    torch.manual_seed(seed + sum(shape))
    return scale * torch.randn(shape, dtype=torch.float64)


C = data
ONE_SIDE = [
    (lambda x: x @ C(4, 5), (2, 3, 4)),
    (lambda x: C(5, 3) @ x, (2, 3, 4)),
    (lambda x: x @ C(2, 4, 5), (2, 3, 4)),
    (lambda x: C(2, 5, 3) @ x, (2, 3, 4)),
    (lambda x: x @ C(6, 4, 5), (3, 4)),
    (lambda x: x @ C(6, 1, 4, 5), (1, 2, 3, 4)),
    (lambda x: C(6, 1, 5, 3) @ x, (2, 3, 4)),
    (lambda x: x @ C(4), (2, 3, 4)),
    (lambda x: C(4, 3) @ x, (3,)),
    (lambda x: x @ C(3, 4), (3,)),
    (lambda x: x @ C(2, 3, 4), (3,)),
    (lambda x: x @ C(3), (3,)),
    (lambda x: torch.Tensor.__rmatmul__(x, C(5, 3)), (3, 4)),
    (lambda x: torch.Tensor.__rmatmul__(C(3, 4), x), (5, 3)),
    (lambda x: torch.mm(x, C(4, 2)), (3, 4)),
    (lambda x: torch.mm(input=C(4, 3), mat2=x), (3, 4)),
    (lambda x: torch.bmm(x, C(2, 4, 5)), (2, 3, 4)),
    (lambda x: torch.bmm(C(2, 5, 3), x), (2, 3, 4)),
    (lambda x: torch.mv(x, C(4)), (3, 4)),
    (lambda x: torch.mv(C(5, 4), x), (4,)),
    (lambda x: torch.dot(x, C(4)), (4,)),
    (lambda x: torch.outer(x, C(3)), (4,)),
    (lambda x: torch.outer(C(3), x), (4,)),
    (lambda x: torch.linalg.matmul(x, C(4, 2)), (3, 4)),
    (lambda x: torch.einsum("btd,de->bte", x, C(4, 5)), (2, 3, 4)),
    (lambda x: torch.einsum("hde,btd->bhte", C(2, 4, 5), x), (2, 3, 4)),
    (lambda x: torch.einsum("bthd,hde->bte", x, C(2, 4, 5)), (2, 3, 2, 4)),
    (lambda x: torch.einsum("bcd,b->bcd", x, C(2)), (2, 3, 4)),
    (lambda x: torch.einsum("ij,kl->ikjl", x, C(2, 3)), (3, 4)),
    (lambda x: torch.einsum("...td,de->...te", x, C(4, 5)), (2, 3, 4)),
    (lambda x: torch.einsum("ij,jk", x, C(4, 5)), (3, 4)),
    (lambda x: torch.addmm(C(5), x, C(4, 5)), (3, 4)),
    (lambda x: torch.addmm(C(3, 5), x, C(4, 5), beta=2.0, alpha=0.5), (3, 4)),
    (lambda x: torch.addmm(x, C(3, 2), C(2, 4), beta=-1.5), (3, 4)),
    (lambda x: torch.baddbmm(C(2, 3, 5), x, C(2, 4, 5), alpha=3), (2, 3, 4)),
    (lambda x: torch.addmv(C(3), x, C(4)), (3, 4)),
    (lambda x: x.cumsum(-1), (3, 4)),
    (lambda x: torch.cumsum(x, 0), (5, 4)),
]  # fmt: skip


@pytest.mark.parametrize("case", ONE_SIDE, ids=range(len(ONE_SIDE)))
def test_a_constant_on_one_side_is_exact(case):
    function, shape = case
    for scope in ("global", "ball:0.1"):
        check(function, data(*shape, seed=7), scope, exact=True, linear=True)


TWO_SIDES = [
    (lambda x: x @ x.transpose(-1, -2), (2, 3, 4)),
    (lambda x: x[..., :2, :] @ x[..., 2:].tanh(), (2, 4, 4)),
    (lambda x: torch.bmm(x, x.sin().transpose(1, 2)), (2, 3, 4)),
    (lambda x: torch.mv(x, x[0]), (3, 4)),
    (lambda x: torch.dot(x, x.sin()), (4,)),
    (lambda x: torch.outer(x, x.sin()), (4,)),
    (lambda x: torch.einsum("bqd,bkd->bqk", x, x.sin()), (2, 3, 4)),
    (lambda x: torch.einsum("bqd,ckd->bcqk", x, x.sin()), (2, 2, 3)),
    (lambda x: torch.einsum("bqd,bqd->bq", x, x.sin()), (2, 2, 3)),
    (lambda x: x[:, :1] @ x.unsqueeze(0).sin().transpose(-1, -2), (3, 2, 4)),
    (lambda x: torch.Tensor.__rmatmul__(x, x.sin().T[:2]), (3, 3)),
    (lambda x: torch.addmm(x, x.sin(), x.cos(), alpha=0.5), (3, 3)),
    (lambda x: torch.baddbmm(x[:1], x.sin(), x.cos()), (2, 3, 3)),
]


@pytest.mark.parametrize("case", TWO_SIDES, ids=range(len(TWO_SIDES)))
def test_two_branches_in_a_ball(case):
    function, shape = case
    for scope in ("point", "ball:0.01", "ball:1"):
        check(function, data(*shape, seed=3), scope, tries=4)


def test_a_product_of_branches_without_bounds_has_none():
    transfer, flow = last(lambda x: x @ x.T, data(3, 4))
    assert transfer.no_bound and not transfer.unknown and float(flow.slope) == math.inf
    assert bound(lambda x: x.tanh() @ x.sigmoid().T, data(3, 4)) < math.inf
    check(lambda x: x.tanh() @ x.sigmoid().T, data(3, 4))


def test_a_square_at_a_point_is_within_twice_its_norm():
    x = data(1, 5)
    at_point = bound(lambda x: x @ x.T, x, "point")
    assert 0.99 * at_point < jacobian_norm(lambda x: x @ x.T, x) <= at_point  # 2‖x‖, attained


def attention(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Two heads by hand on layer-normalized tokens."""
    h = torch.nn.functional.layer_norm(x, x.shape[-1:])
    q, k, v = (h @ data(4, 4, scale=0.5, seed=s) for s in (1, 2, 3))
    q, k, v = (t.reshape(*t.shape[:-1], 2, 2).transpose(-2, -3) for t in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(2)
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    out = scores.softmax(-1) @ v
    return out.transpose(-2, -3).reshape(x.shape)


@pytest.mark.parametrize("scope", ["point", "ball:0.01", "ball:0.3", "global"])
def test_attention_by_hand_is_sound(scope):
    for scale in (1.0, 5.0):
        upper = check(attention, data(1, 3, 4, scale=scale), scope)
        assert upper < math.inf
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    check(lambda x: attention(x, causal), data(1, 3, 4), scope)


def test_attention_by_hand_keeps_samples_apart():
    x = data(3, 4, 4)
    together = composed(attention, x, "ball:0.1", samples=3).log_upper
    for i in range(3):
        assert float(together[i]) == pytest.approx(float(composed(attention, x[i : i + 1], "ball:0.1").log_upper))


def test_all_attention_on_one_token_costs_the_root_of_the_tokens():
    weights = torch.zeros(16, 16).double()
    weights[:, 0] = 1.0
    assert check(lambda x: weights @ x, data(16, 3), exact=True, linear=True) == pytest.approx(4.0)


def test_samples():
    x = data(3, 4, 5)
    assert composed(lambda x: x @ C(5, 2), x, "ball:0.1", 3).log_upper.shape == (3,)
    left = composed(lambda x: (C(6, 4) @ x.movedim(0, 2)).sum(0), x.transpose(1, 2).contiguous(), "ball:0.1", 3)
    assert left.flows[left.trace.output.index].axis == 1
    folded = composed(lambda x: torch.bmm(x.reshape(6, 2, 5), x.reshape(6, 2, 5).mT), x, "ball:0.1", 3)
    alone = [
        composed(lambda x: torch.bmm(x.reshape(2, 2, 5), x.reshape(2, 2, 5).mT), x[i : i + 1], "ball:0.1")
        for i in range(3)
    ]
    assert torch.allclose(folded.log_upper, torch.cat([a.log_upper for a in alone]))
    mixing = [
        lambda x: C(2, 3) @ x[:, 0],
        lambda x: x[:, 0] @ x[:, 1].T,
        lambda x: x.cumsum(0),
        lambda x: torch.einsum("abc,adc->bd", x, x),
        lambda x: torch.einsum("abc,ad->dbc", x, C(3, 2)),
        lambda x: torch.addmm(x[0, 0], C(4, 2), C(2, 5)) + x[0],
    ]
    for function in mixing:
        with pytest.raises(SamplesMixed):
            composed(function, x, "ball:0.1", 3)


def test_forms_for_channel_weights():
    assert isinstance(last(lambda x: x @ C(4, 5), data(3, 4))[0].gains[0].form, Matrix)
    assert last(lambda x: C(5, 3) @ x, data(3, 4))[0].gains[0].form == Commute((0,))
    assert isinstance(last(lambda x: torch.addmm(C(5), x, C(4, 5)), data(3, 4))[0].gains[0].form, Matrix)
    by_branch = last(lambda x: x.tanh() @ x.sigmoid().T, data(3, 4))[0].gains
    assert by_branch[0].form is None and by_branch[1].form == Commute((0,))
    assert last(lambda x: torch.einsum("ij,jk->ki", x, C(4, 5)), data(3, 4))[0].gains[0].form is None


def test_equations_without_arrow_or_with_dots():
    assert spelled_out("ij,jk", (2, 2)) == "ij,jk->ik"
    assert spelled_out("...ij,...jk->...ik", (4, 3)) == "ghij,hjk->ghik"


@pytest.mark.parametrize("equation", ["ii,ij->j", "ij,k->k", "ijk,jl->il"])
def test_other_sums_are_unknown(equation):
    shapes = [tuple(3 for _ in term) for term in equation.split("->")[0].split(",")]
    assert last(lambda x: torch.einsum(equation, x, C(*shapes[1])), data(*shapes[0]))[0].unknown
    assert last(lambda x: torch.einsum("ij,jk,kl->il", x, C(3, 3), C(3, 3)), data(3, 3))[0].unknown


def test_large_centres_fall_back_on_a_cheap_bound(monkeypatch):
    x = data(2, 6, 6)
    exact = bound(lambda x: x @ x.sin(), x, "point")
    monkeypatch.setattr("normgauge.instrument.rules.product.WORK_LIMIT", 1.0)
    check(lambda x: x @ x.sin(), x, "point")
    assert exact <= bound(lambda x: x @ x.sin(), x, "point") < 3 * exact
