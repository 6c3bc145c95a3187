from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.core.bound import Scope
from normgauge.instrument.compose import compose
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.expand import EXPANSIONS, expansion_of
from normgauge.instrument.rules.flow import Context
from normgauge.instrument.trace import record_trace
from tests.instrument.rules.one_step import jacobian_norm

PAD = torch.tensor([[False] * 4, [False, False, True, True]])
CAUSAL = torch.ones(4, 4, dtype=torch.bool).triu(1)
KEYS, VALUES = (
    torch.linspace(-1, 1, 2 * 7 * 5).double().reshape(2, 7, 5),
    torch.linspace(1, -2, 2 * 7 * 3).double().reshape(2, 7, 3),
)
ONES = torch.ones(4, 2, 3).double()
FLOATS = torch.linspace(-1, 1, 28).double().reshape(4, 7)


torch.manual_seed(0)


class Called(nn.Module):
    def __init__(self, module, how):
        super().__init__()
        self.module, self.how = module, how

    def forward(self, x):
        return self.how(self.module, x)


def first(out):
    while isinstance(out, tuple):
        out = out[0]
    return out


def attention(how, **options):
    return nn.MultiheadAttention(6, 2, batch_first=True, **options), how


CASES = {
    "self": attention(lambda m, x: m(x, x, x)),
    "without weights": attention(lambda m, x: m(x, x, x, need_weights=False), bias=False),
    "weights": attention(lambda m, x: m(x, x, x)[1]),
    "weights of each head": attention(lambda m, x: m(x, x, x, average_attn_weights=False)[1]),
    "sequence first": (nn.MultiheadAttention(6, 2), lambda m, x: m(x, x, x)),
    "unbatched": (nn.MultiheadAttention(6, 2), lambda m, x: m(x[0], x[0], x[0])),
    "added keys": attention(lambda m, x: m(x, x, x, key_padding_mask=PAD), add_bias_kv=True, add_zero_attn=True),
    "cross": attention(lambda m, x: m(x, KEYS, VALUES, attn_mask=FLOATS), kdim=5, vdim=3),
    "causal": attention(lambda m, x: m(x, x, x, attn_mask=CAUSAL, is_causal=True)),
    "both masks": attention(lambda m, x: m(x, x, x, attn_mask=CAUSAL.expand(4, 4, 4), key_padding_mask=PAD)),
    "functional": (nn.Linear(6, 18), lambda m, x: F.multi_head_attention_forward(
        x, x, x, 6, 2, m.weight, m.bias, None, None, False, 0.0, torch.eye(6).double(), None, training=False)),
    "static": (nn.Linear(6, 18), lambda m, x: F.multi_head_attention_forward(
        x, x, x, 6, 2, m.weight, m.bias, None, None, False, 0.0, torch.eye(6).double(), None, training=False,
        static_k=torch.ones(8, 3, 3).double(), static_v=torch.ones(8, 3, 3).double())),
    "lstm": (nn.LSTM(6, 3), lambda m, x: m(x)),
    "deep lstm": (nn.LSTM(6, 3, 2, bidirectional=True, batch_first=True), lambda m, x: m(input=x)),
    "projected lstm": (nn.LSTM(6, 3, proj_size=2, bias=False), lambda m, x: m(x)),
    "lstm from a state": (nn.LSTM(6, 3, batch_first=True), lambda m, x: m(x, (x[None, :, 0, :3],) * 2)[1][1]),
    "gru": (nn.GRU(6, 3), lambda m, x: m(x)),
    "deep gru": (nn.GRU(6, 3, 2, bidirectional=True, batch_first=True), lambda m, x: m(x, ONES)),
    "unbatched gru": (nn.GRU(6, 3), lambda m, x: m(x[0])[1]),
    "rnn": (nn.RNN(6, 3, batch_first=True), lambda m, x: m(x)),
    "relu rnn": (nn.RNN(6, 3, nonlinearity="relu"), lambda m, x: m(x[0], torch.zeros(1, 3).double())),
    "lstm cell": (nn.LSTMCell(6, 3), lambda m, x: m(x[:, 0], m(x[:, 1]))),
    "gru cell": (nn.GRUCell(6, 3), lambda m, x: m(x[:, 0], m(x[:, 1]))),
    "rnn cell": (nn.RNNCell(6, 3), lambda m, x: m(x[:, 0], m(x[:, 1]))),
    "encoder layer": (nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), lambda m, x: m(x)),
    "pre-norm encoder layer": (nn.TransformerEncoderLayer(6, 2, 8, 0.1, F.gelu, norm_first=True, batch_first=True),
                               lambda m, x: m(x, src_key_padding_mask=PAD)),
    "encoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2),
                lambda m, x: m(x, src_key_padding_mask=PAD)),
    "decoder layer": (nn.TransformerDecoderLayer(6, 2, 8, batch_first=True),
                      lambda m, x: m(x, x[:, :3].detach() * 0.5, tgt_mask=CAUSAL, tgt_is_causal=True)),
    "transformer": (nn.Transformer(6, 2, 1, 1, 8, batch_first=True), lambda m, x: m(x, x[:, :3])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_equations_agree_and_bound_the_jacobian(name):
    torch.manual_seed(0)
    module, how = CASES[name]
    model = Called(module.double().eval(), how)
    x = torch.randn(2, 4, 6).double()
    with sdpa_kernel(SDPBackend.MATH):
        trace = record_trace(model, (x,), {}, x, lambda out: (first(out), []), REGISTRY.is_leaf, expansion_of)
        assert not any(step.trouble for step in trace.steps)
        found = jacobian_norm(lambda x: first(model(x)), x)
        uppers = []
        for scope in ("point", "ball:0.02", "global"):
            parts = compose(trace, REGISTRY, Context(Scope.parse(scope), 1))
            assert not any(t.unknown for t in parts.transfers.values()), [t.unknown for t in parts.transfers.values()]
            uppers.append(math.exp(min(float(parts.log_upper), 700.0)))
    assert found <= uppers[0] * (1 + 1e-9) and uppers[0] <= uppers[1] * (1 + 1e-9)
    assert uppers[1] < 1e290
    if any(kind in name for kind in ("lstm", "gru", "rnn", "cross", "pre-norm", "static")) and "state" not in name:
        assert uppers[2] < 1e290  # bounded factors: finite everywhere


def test_a_changed_forward_is_not_expanded():
    class Mine(nn.GRU):
        def forward(self, input, hx=None):
            return super().forward(input, hx)

    assert expansion_of(Mine) is None and expansion_of(nn.Linear) is None
    assert expansion_of(nn.GRU) is EXPANSIONS[nn.GRU]
    assert expansion_of(F.relu) is None


def test_equations_that_disagree_make_the_result_unknown(monkeypatch):
    monkeypatch.setitem(EXPANSIONS, nn.RNNCell, lambda module, input, hx=None: F.linear(input, module.weight_ih))
    cell, x = nn.RNNCell(2, 3).double(), torch.randn(2, 2).double()
    trace = record_trace(cell, (x,), {}, x, lambda out: (out, []), REGISTRY.is_leaf, expansion_of)
    assert any("disagree" in step.trouble for step in trace.steps)
    assert math.isinf(float(compose(trace, REGISTRY, Context(Scope.parse("point"), 1)).log_upper))
