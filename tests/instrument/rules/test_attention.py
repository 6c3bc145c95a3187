from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.instrument.rules import attention
from normgauge.instrument.rules.attention import _single_product, largest_singular, lift, softmax_weights
from normgauge.instrument.rules.flow import Commute, SamplesMixed
from tests.instrument.rules.one_step import bound, check, composed, jacobian_norm, last

OPTIONS = ["plain", "causal", "bool", "float", "shared", "wide"]
SCOPES = ["point", "ball:0.01", "ball:0.5", "global"]


@pytest.fixture(autouse=True)
def _plain_kernel():
    torch.manual_seed(0)
    with sdpa_kernel(SDPBackend.MATH):
        yield


def case(option: str, role: str):
    heads = 1 if option == "shared" else 2
    operands = {
        "query": torch.randn(2, 2, 5, 3),
        "key": torch.randn(2, heads, 6, 3),
        "value": torch.randn(2, heads, 6, 4),
    }
    operands = {name: t.double() for name, t in operands.items()}
    extra: dict[str, object] = {}
    if option == "causal":
        extra = {"is_causal": True}
    if option == "bool":
        mask = torch.rand(2, 1, 5, 6) > 0.4
        mask[..., 0] = True
        mask[0, 0, 1] = False  # a query that may attend to nothing
        extra = {"attn_mask": mask}
    if option == "float":
        extra = {"attn_mask": 2 * torch.randn(5, 6).double(), "scale": 1.3}
    if option == "shared":
        extra = {"enable_gqa": True, "is_causal": True}
    if option == "wide":  # the finite masks of Hugging Face
        extra = {
            "attn_mask": torch.full((1, 6), 0.0)
            .double()
            .index_fill(1, torch.tensor([4]), torch.finfo(torch.float32).min)
        }

    def function(x):
        return F.scaled_dot_product_attention(**{**operands, role: x}, **extra)

    return function, operands[role]


@pytest.mark.parametrize("role", ["query", "key", "value"])
@pytest.mark.parametrize("option", OPTIONS)
def test_no_partial_jacobian_exceeds_the_bound(option, role):
    function, x = case(option, role)
    uppers = [check(function, x, scope) for scope in SCOPES]
    assert uppers == sorted(uppers)
    if role != "key":  # exact at a point: the covariance and P themselves
        assert uppers[0] == pytest.approx(jacobian_norm(function, x), rel=1e-6)


@pytest.mark.parametrize("role", ["query", "key", "value"])
def test_traces_bound_what_matrices_bound(monkeypatch, role):
    function, x = case("causal", role)
    tight = [bound(function, x, scope) for scope in SCOPES[:2]]
    monkeypatch.setattr(attention, "WORK", 0.0)
    loose = [check(function, x, scope) for scope in SCOPES[:2]]
    assert all(a <= b * (1 + 1e-9) for a, b in zip(tight, loose, strict=True))


def test_chunks_do_not_change_the_bound(monkeypatch):
    function, x = case("bool", "key")
    whole = [bound(function, x, scope) for scope in SCOPES]
    monkeypatch.setattr(attention, "CHUNK", 1)
    assert [bound(function, x, scope) for scope in SCOPES] == pytest.approx(whole)


def test_self_attention_at_a_point_on_a_ball_and_after_a_normalizer():
    tokens, width = 16, 8
    weights = [torch.randn(width, width).double() / math.sqrt(width) for _ in range(3)]
    x = F.layer_norm(torch.randn(1, tokens, width).double(), (width,))

    def head(x):
        return F.scaled_dot_product_attention(*(F.linear(x, w) for w in weights))

    true = jacobian_norm(head, x)
    point, near, far = (check(head, x, scope) for scope in ("point", "ball:0.001", "ball:0.1"))
    assert true <= point < 5 * true and near < 1.05 * point < far
    after = check(lambda x: head(F.layer_norm(x, (width,), eps=1.0)), x, "global")
    assert math.isfinite(after)


def test_unbounded_tokens_have_no_constant():
    x = torch.tensor([[[0.0], [30.0], [-30.0]]]).double()

    def head(x):
        return F.scaled_dot_product_attention(x, x, x)

    transfer, _ = last(head, x)
    assert "unbounded tokens" in transfer.unbounded and math.isinf(bound(head, x))
    assert jacobian_norm(head, x) > 600
    assert check(head, x, "point") < 605


def test_growth_with_the_number_of_tokens_is_real():
    tokens = 64
    q = torch.zeros(1, tokens, 1).double()
    q[..., 0] = 1
    k = torch.zeros(1, tokens, 1).double()
    k[0, 0] = 60.0
    upper = check(
        lambda v: F.scaled_dot_product_attention(q, k, v), torch.randn(1, tokens, 2).double(), "global", exact=True
    )
    assert upper == pytest.approx(8.0, rel=1e-6)


def test_samples_are_measured_one_by_one():
    x = torch.randn(3, 2, 4, 2).double() * torch.tensor([0.1, 1.0, 3.0]).double()[:, None, None, None]

    def head(x):
        return F.scaled_dot_product_attention(x, x, x)

    together = composed(head, x, "point", samples=3).log_upper
    alone = [composed(head, x[i : i + 1], "point").log_upper for i in range(3)]
    assert torch.allclose(together, torch.cat(alone))
    transposed = x.transpose(0, 2)
    with pytest.raises(SamplesMixed):
        composed(lambda x: head(x.transpose(0, 2)), transposed, "point", samples=4)


def test_what_is_not_covered_says_so():
    x = torch.randn(2, 3, 2).double()
    train, _ = last(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), x)
    assert "dropout" in train.unknown
    biased, _ = last(lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=x @ x.mT), x)
    assert "mask" in biased.unknown
    broadcast, _ = last(lambda x: F.scaled_dot_product_attention(x, x[:1], x), x)
    assert "broadcast" in broadcast.unknown


def test_two_axes_keywords_and_shared_operands():
    x = torch.randn(4, 3).double()
    check(lambda x: F.scaled_dot_product_attention(value=2 * x, query=x, key=x), x, "point")
    transfer, _ = last(lambda x: F.scaled_dot_product_attention(x.sin(), x.cos(), x.tanh()), x)
    assert transfer.gains[2].form == Commute((-2,))
    assert transfer.gains[0].form is None


def test_weights_rise_by_their_odds_and_underflow_comes_back():
    mask = torch.zeros(1, 3).double()
    weights = softmax_weights(torch.tensor([[0.0, -5000.0, 1.0]]).double())
    for change in (0.0, 0.3, 3000.0):
        top = lift(weights, torch.tensor([[change]]).double(), mask)
        assert (top >= weights).all() and (top <= 1 + 1e-9).all()
    assert lift(weights, torch.tensor([[3000.0]]).double(), mask)[0, 1] > 0.99
    assert lift(weights, torch.tensor([[9e9]]).double(), mask.fill_(-math.inf)).sum() == 0
    moved = torch.tensor([[-0.3, -5000.0, 1.3]]).double()
    assert softmax_weights(moved)[0, 2] == pytest.approx(
        float(lift(weights, torch.tensor([[0.3]]).double(), torch.zeros(1, 3))[0, 2])
    )


def test_spectral_norms_of_many_matrices():
    for shape in ((3, 5, 4), (2, 1, 7), (40, 60, 50), (2, 0, 3)):
        matrices = torch.randn(shape).double()
        exact = torch.linalg.svdvals(matrices)[:, 0] if 0 not in shape else torch.zeros(2).double()
        upper = largest_singular(matrices)
        assert (upper >= exact * (1 - 1e-12)).all() and (upper <= exact * 1.06 + 1e-12).all()


@pytest.mark.parametrize("size", [1.0, 1e-90, 1e90])
def test_norms_by_squaring_hold_in_float32_and_without_it(size: float, monkeypatch) -> None:
    generator = torch.Generator().manual_seed(0)
    flat = torch.eye(40, dtype=torch.float64).expand(50, -1, -1)
    matrices = torch.cat([torch.randn(50, 40, 40, generator=generator, dtype=torch.float64), flat]) * size
    truth = torch.linalg.matrix_norm(matrices, 2)
    for precision in ("highest", "medium"):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda precision=precision: precision)
        upper = largest_singular(matrices)
        assert (upper >= truth).all() and (upper[:50] <= 1.02 * truth[:50]).all() and (upper <= 1.2 * truth).all()
    assert float(largest_singular(torch.zeros_like(matrices)).max()) == 0.0


def test_short_numbers_in_float32_products_are_seen(monkeypatch) -> None:
    matrices = torch.randn(100, 40, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    usual = torch.Tensor.float
    monkeypatch.setattr(torch.Tensor, "float", lambda self: usual(self).bfloat16().to(torch.float32))
    assert (largest_singular(matrices) >= torch.linalg.matrix_norm(matrices, 2)).all()
    assert _single_product(matrices, 1e-5) is None
