from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.bound import Scope
from normgauge.instrument.compose import compose
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Context, SamplesMixed
from normgauge.instrument.rules.normalizer import Normalizer
from normgauge.instrument.rules.recognise import recognise, root_mean_square, smooth_gate, standardize
from normgauge.instrument.trace import record_trace
from tests.instrument.rules.one_step import Wrapped, composed, inside, jacobian_norm

EPS = 1e-5
GAMMA = torch.linspace(0.5, 2.0, 8).double()


def huggingface(x):
    variance = x.pow(2).mean(-1, keepdim=True)
    return GAMMA * (x * torch.rsqrt(variance + EPS)).to(torch.float32)


def gemma(x):
    return x.float() * torch.rsqrt((x * x).mean(-1, True) + EPS) * (1.0 + GAMMA)


def llama(x):
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)).type_as(x) * GAMMA


def by_square_root(x):
    return x / torch.sqrt(torch.square(x).mean(dim=-1, keepdim=True) + EPS) * GAMMA


def reversed_order(x):
    return x.pow(2).sum(-1, keepdim=True).div(8).add(EPS).rsqrt().mul(x).mul(GAMMA)


def centred(x):
    shifted = x - x.mean(-1, keepdim=True)
    return shifted / (shifted.square().mean(-1, keepdim=True) + EPS).sqrt() * GAMMA


def by_variance(x):
    return (x - x.mean(-1, keepdim=True)) * (x.var(-1, unbiased=False, keepdim=True) + EPS) ** -0.5 * GAMMA


def by_one_over(x):
    return (x - x.mean(-1, keepdim=True)) * (1 / (x.var(-1, unbiased=False, keepdim=True) + EPS).sqrt()) * GAMMA


def variance_and_mean(x):
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + EPS) * GAMMA


def moments(x):
    mean = x.mean(-1)
    variance = x.square().mean(-1) - mean**2
    return (x - mean.unsqueeze(-1)) * (variance[..., None] + EPS).rsqrt() * GAMMA


def in_place(x):
    shifted = x - x.mean(-1, keepdim=True)
    return shifted.div((shifted**2).mean(-1, keepdim=True).add_(EPS).sqrt_()).mul_(GAMMA)


ROOT_MEAN_SQUARES = [huggingface, gemma, llama, by_square_root, reversed_order]
STANDARDS = [centred, by_variance, by_one_over, variance_and_mean, moments, in_place]


def traced(function, x: Tensor):
    return record_trace(Wrapped(function), (x,), {}, x, lambda out: (out, []), REGISTRY.is_leaf, lambda target: None)


def measured(function, x: Tensor, scope: str, samples: int = 1):
    trace = recognise(traced(function, x))
    parts = compose(trace, REGISTRY, Context(Scope.parse(scope), samples))
    assert parts.transfers and not any(t.unknown for t in parts.transfers.values())
    return trace, parts


def kinds(function, x: Tensor) -> list[str]:
    return [step.kind for step in recognise(traced(function, x)).steps]


@pytest.mark.parametrize("scope", ["point", "ball:0.1", "global"])
@pytest.mark.parametrize("function", ROOT_MEAN_SQUARES + STANDARDS, ids=lambda f: f.__name__)
def test_each_style_is_recognised_with_torchs_own_numbers(function, scope):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8).double()
    gain = 1 + GAMMA if function is gemma else GAMMA
    module = (nn.LayerNorm(8, EPS) if function in STANDARDS else nn.RMSNorm(8, EPS)).double()
    with torch.no_grad():
        module.weight.copy_(gain)
    trace, parts = measured(function, x, scope, samples=2)
    assert trace.steps[0].kind in ("standardize", "root_mean_square")
    assert not {"rsqrt", "sqrt", "pow", "mean", "var_mean"} & {s.kind for s in trace.steps}
    own = composed(module, x, scope, samples=2)
    assert torch.allclose(parts.log_upper, own.log_upper, atol=1e-8)
    assert trace.output is not None and own.trace.output is not None
    ours, theirs = parts.flows[trace.output.index], own.flows[own.trace.output.index]
    assert torch.allclose(ours.radius, theirs.radius, rtol=1e-6) and (ours.norm <= theirs.norm * 2 + 1e-9).all()


def channels_first(x):
    mean = x.mean(1, keepdim=True)
    variance = (x - mean).pow(2).mean(1, keepdim=True)
    x = (x - mean) / torch.sqrt(variance + EPS)
    return GAMMA[:, None, None] * x + GAMMA[:, None, None]


def annotated_transformer(x):
    return GAMMA * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + EPS)


def eps_outside(x):
    return x / (x.norm(dim=-1, keepdim=True) / math.sqrt(8) + EPS)


def query_norm(x):
    return math.sqrt(8) * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-3)


def unit(x):
    return x / x.norm(p=2, dim=-1, keepdim=True)


def over_images(x):
    return (x - x.mean((1, 2, 3), keepdim=True)) / (x.var((1, 2, 3), keepdim=True) + EPS).sqrt()


def gain_first(x):
    return (GAMMA * x) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


def over_rows(x):
    return x * torch.rsqrt(x.pow(2).mean(-2, keepdim=True) + EPS)


OTHERS = [channels_first, annotated_transformer, eps_outside, query_norm, over_images, gain_first, over_rows, unit]


@pytest.mark.parametrize("scope", ["point", "ball:0.3", "global"])
@pytest.mark.parametrize("function", OTHERS, ids=lambda f: f.__name__)
def test_other_layouts_stay_under_their_bound(function, scope):
    torch.manual_seed(1)
    x = torch.randn(1, 8, 2, 8).double()
    trace, parts = measured(function, x, scope)
    assert trace.steps[0].kind in ("standardize", "root_mean_square")
    upper = math.exp(float(parts.log_upper))
    assert trace.output is not None
    flow = parts.flows[trace.output.index]
    radius = Scope.parse(scope).radius
    for k in range(4):
        noise = torch.randn_like(x)
        moved = x if k == 0 else noise * 1e-3 if math.isinf(radius) else x + noise / noise.norm() * radius
        assert jacobian_norm(function, moved) <= upper * (1 + 1e-9)
        assert inside(flow, function(moved))
        assert float((function(moved) - function(x)).norm()) <= float(flow.radius) * (1 + 1e-9) + 1e-12
    if function is unit and scope == "global":
        assert math.isinf(upper) and "may be 0" in parts.transfers[trace.output.index].unbounded
    else:
        assert math.isfinite(upper)


def test_samples_stay_apart_or_say_that_they_do_not():
    x = torch.randn(4, 3, 8).double()
    _, parts = measured(over_rows, x, "point", samples=4)
    alone = [measured(over_rows, x[i : i + 1], "point")[1].log_upper for i in range(4)]
    assert torch.allclose(parts.log_upper, torch.cat(alone))
    with pytest.raises(SamplesMixed):
        measured(lambda x: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + EPS), x, "point", samples=4)


GATES = {
    "gelu_new": (
        lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
        1.1289934,
    ),
    "gelu_fast": (lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))), 1.1289934),
    "gelu_python": (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), 1.1289045),
    "quick_gelu": (lambda x: x * torch.sigmoid(1.702 * x), 1.099840),
    "silu": (lambda x: torch.sigmoid(x) * x, 1.099840),
    "mish": (lambda x: x * torch.tanh(F.softplus(x)), 1.088499),
    "minus": (lambda x: -2 * (x * torch.sigmoid(x)), 2.19968),
}


@pytest.mark.parametrize("name", GATES)
def test_gates_written_out_have_the_activations_constant(name):
    function, constant = GATES[name]
    x = torch.linspace(-6, 6, 4001).double()[None]
    trace, parts = measured(function, x, "global")
    assert trace.steps[0].kind == "smooth_gate"
    assert math.exp(float(parts.log_upper)) == pytest.approx(constant, rel=1e-5)
    slope = float(torch.autograd.functional.jacobian(lambda x: function(x).sum(), x).abs().max())
    assert 0.999 * constant < slope <= constant
    assert trace.output is not None
    assert inside(parts.flows[trace.output.index], function(x))


STRANGERS = [
    lambda x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS),  # not centred below
    lambda x: x * torch.rsqrt(x.var(-1, keepdim=True) + EPS),  # not centred above
    lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + x.mean(-2, keepdim=True).square() + 1),
    lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) - 1e-3),  # ε below 0
    lambda x: x * torch.rsqrt(x.pow(4).mean(-1, keepdim=True) + EPS),
    lambda x: x / (x.norm(p=1, dim=-1, keepdim=True) + EPS),
    lambda x: x / (x.pow(2).mean(-1, keepdim=True) + EPS),  # not a root
    lambda x: x * torch.rsqrt(x.pow(2).mean(-1) + EPS),  # broadcast against the wrong axis
    lambda x: x * torch.rsqrt(x.pow(2).mean() + EPS),
    lambda x: 0.5 * x * (1.0 + torch.tanh(x + 0.044715 * x**3)),
    lambda x: 0.5 * x * (1.0 + torch.erf(x)),
    lambda x: x * torch.sigmoid(-x),
    lambda x: x * torch.tanh(x),
    lambda x: x * x.sin(),
    lambda x: x.exp() * x.mean(-1, keepdim=True).clamp(-1, 1),
]


@pytest.mark.parametrize("function", STRANGERS)
def test_what_only_looks_like_one_is_left_alone(function):
    x = torch.randn(8, 8).double() + 1
    assert not {"standardize", "root_mean_square", "smooth_gate"} & set(kinds(function, x))


def test_a_marker_that_does_not_reproduce_the_output_is_refused(monkeypatch):
    x = torch.randn(2, 8).double()
    monkeypatch.setattr("normgauge.instrument.rules.recognise._agrees", lambda got, want: False)
    assert "rsqrt" in kinds(huggingface, x)


def test_the_markers_compute_what_they_say():
    x = torch.randn(3, 8).double()
    layer, rms = (Normalizer(kind, GAMMA, None, EPS, dims=(-1,)) for kind in ("layer", "rms"))
    assert torch.allclose(standardize(x, layer), F.layer_norm(x, (8,), GAMMA, eps=EPS))
    assert torch.allclose(root_mean_square(x, rms), F.rms_norm(x, (8,), GAMMA, eps=EPS))
    assert torch.allclose(smooth_gate(x, "swish", 1.0, 1.0), F.silu(x))


def test_a_norm_behind_a_residual_and_a_value_used_again():
    def block(x):
        h = x + x.sin()
        return h + huggingface(h) * h.sigmoid()

    names = kinds(block, torch.randn(2, 8).double())
    assert names.count("root_mean_square") == 1 and "rsqrt" not in names
