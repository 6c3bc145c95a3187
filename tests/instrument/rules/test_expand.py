from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normgauge.core.bound import Scope
from normgauge.instrument.compose import compose
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.expand import EXPANSIONS, expansion_of
from normgauge.instrument.rules.flow import Context
from normgauge.instrument.trace import record_trace
from tests.instrument.rules.one_step import expanded_uppers

PAD = torch.tensor([[False] * 4, [False, False, True, True]])
CAUSAL = torch.ones(4, 4, dtype=torch.bool).triu(1)
KEYS, VALUES = (
    torch.linspace(-1, 1, 2 * 7 * 5).double().reshape(2, 7, 5),
    torch.linspace(1, -2, 2 * 7 * 3).double().reshape(2, 7, 3),
)
FLOATS = torch.linspace(-1, 1, 28).double().reshape(4, 7)


torch.manual_seed(0)


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
    uppers = expanded_uppers(*CASES[name], torch.randn(2, 4, 6).double())
    if any(kind in name for kind in ("cross", "pre-norm", "static")):
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
