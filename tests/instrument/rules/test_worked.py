"""Every rule shows its formula with the layer's numbers in it, and the arithmetic gives the gain."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.bound import Scope
from normgauge.core.interval import INF, LogInterval
from normgauge.instrument.compose import Composition, compose, own_gain
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.conv import ConvLayer, layout
from normgauge.instrument.rules.flow import Context, Gain, SamplesMixed, Transfer
from normgauge.instrument.rules.recognise import recognise
from normgauge.instrument.rules.worked import result, stated_gain, within, worst_sample
from normgauge.instrument.spectral.conv import ConvSpec
from normgauge.instrument.testing import check_rule, make_bench
from normgauge.instrument.trace import record_trace
from normgauge.instrument.trace.step import Trace
from tests.cases import CASES, EVERYWHERE, RuleCase, statistics, weight
from tests.instrument.rules.one_step import Wrapped

LONGEST = 160
TELLS_NOTHING: dict[str, str] = {}  # rule: why it has nothing to put into its formula


def compositions(model: nn.Module, x: Tensor, training: bool) -> Iterator[Composition]:
    """All three scopes, the batch as one point and, where they do not interact, sample by sample."""
    trace = recognise(record_trace(model, (x,), {}, x, lambda out: (out, []), REGISTRY.is_leaf, lambda target: None))
    for scope in EVERYWHERE:
        for samples in {1, x.shape[0]} if scope != "global" else {1}:
            try:
                yield compose(trace, REGISTRY, Context(Scope.parse(scope), samples, training=training))
            except SamplesMixed:
                continue


def transfers(model: nn.Module, x: Tensor, training: bool = False) -> Iterator[tuple[str, str, Transfer]]:
    """Rule, scope and transfer of every step a rule covers."""
    for parts in compositions(model.double(), x.double(), training):
        for step in parts.trace.steps:
            rule, transfer = parts.rules[step.index], parts.transfers[step.outputs[0].index]
            if rule is not None and not transfer.unknown:
                yield rule.id, str(parts.ctx.scope), transfer


@cache
def of_case(case: RuleCase) -> list[tuple[str, str, Transfer]]:
    bench = make_bench(case.make, case.inputs, case.mode, 0)
    return list(transfers(bench.model, bench.x, case.mode == "train"))


def evaluated(text: str) -> float | None:
    """The value of written arithmetic; None where there are words in it."""
    number = r"\d[\d.]*(?:e[-+]?\d+)?"
    for sign, code in {"·": "*", "−": "-", "²": "**2", "^": "**", "∞": "inf", "π": "pi"}.items():
        text = text.replace(sign, code)
    text = re.sub(rf"√({number})", r"sqrt(\1)", text).replace("√(", "sqrt(")
    allowed = {"sqrt": math.sqrt, "exp": math.exp, "sin": math.sin, "pi": math.pi, "inf": INF, "max": max, "min": min}
    words = set(re.findall(r"[^\W\d_]+", re.sub(number, "", text)))
    if not words <= set(allowed) or re.search(r"[^\w\s.,()*/+-]", text):
        return None
    try:
        return float(eval(text, {"__builtins__": {}}, allowed))
    except (ZeroDivisionError, OverflowError):
        return INF


def arithmetic(worked: str) -> list[tuple[float, float]]:
    """What every ``put in = number`` of a text gives, beside the number it says."""
    pairs = []
    for sentence in worked.split("; "):
        *_, put_in, said = ["", *sentence.split(" = ")]
        value = evaluated(put_in) if re.search(r"\d", put_in) else None
        if value is not None and stated_gain(f"= {said}") is not None:
            log = stated_gain(f"= {said}").hi
            pairs.append((value, math.exp(log) if log < INF else INF))
    return pairs


def check(rule: str, scope: str, transfer: Transfer) -> int:
    """Assert that the text is short, ends with the gain, and that its arithmetic is right; how much of it there is."""
    worked, gain = transfer.worked, own_gain(transfer)
    assert worked, f"{rule} at {scope} has no worked formula"
    assert len(worked) <= LONGEST, worked
    said = stated_gain(worked)
    assert said is not None, f"{rule}: {worked!r} does not end with '= number' or 'in [a, b]'"
    if math.isinf(gain.hi):
        assert said.hi == gain.hi, worked
    else:
        assert said.hi == pytest.approx(gain.hi, abs=4e-4 if "10^" in worked else 1e-4), worked
    if worked.endswith("]"):
        assert said.hi >= gain.hi and said.lo <= gain.lo and said.lo == pytest.approx(gain.lo, abs=4e-4), worked
    done = arithmetic(worked)
    for value, told in done:
        assert value == pytest.approx(told, rel=1e-4, abs=1e-12), worked
    return len(done)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_worked_out_is_the_gain(case):
    seen = of_case(case)
    for rule, scope, transfer in seen:
        check(rule, scope, transfer)
    assert case.rule in {rule for rule, _, _ in seen} or not seen  # dropout that is off leaves no step


def test_every_rule_puts_its_numbers_in():
    told = {rule for case in CASES for rule, _, transfer in of_case(case) if transfer.worked}
    missing = {rule.id for rule in REGISTRY.entries()} - told
    assert missing == set(TELLS_NOTHING)


def test_most_rules_can_be_worked_out_again():
    again = {rule for case in CASES for rule, _, transfer in of_case(case) if arithmetic(transfer.worked)}
    # an enclosure is not arithmetic; the others have a constant that no number of the layer decides, or none at all
    assert {rule.id for rule in REGISTRY.entries()} - again == {
        "affine.linear", "conv.convolution", "pooling.avg_pool", "pooling.interpolate", "projection.einsum",
        "activation.jump", "embedding.embedding", "softmax.logsumexp", "softmax.glu", "activation.modulus",
        "fourier.part", "scalar.scalar_function",
    }  # fmt: skip


# what the contract cases do not reach: a map, its input, a scope, and how the text of the last step begins there
Other = tuple[Callable[[Tensor], Tensor], Tensor, str, str]
OTHERS: dict[str, Other] = {
    "zero weight": (lambda x: F.linear(x, 0 * weight(3, 4)), weight(2, 4), "point", "‖W‖₂, W 3×4, in [0, 0]"),
    "huge weight": (lambda x: F.linear(x, 1e305 * weight(2, 2)), weight(2, 2), "point", "‖W‖₂, W 2×2, in [10^305"),
    "two entries": (nn.LayerNorm(2), weight(1, 2), "point", "max|γ|·ε/(σ²+ε)^1.5 = 1·1e-05/("),
    "one entry": (nn.LayerNorm(1), weight(3, 1), "ball:0.1", "a single entry less its own mean = 0"),
    "one uncentred": (nn.RMSNorm(1, eps=0.1), weight(1, 1), "point", "max|γ|·ε/(rms²+ε)^1.5 = 1·0.1/("),
    "floor": (nn.LayerNorm(3), 1e-3 * weight(1, 3), "ball:0.1", "s = max(0, σ(x₀) − ρ/√n) = max(0, "),
    "tokens": (nn.LayerNorm(5), weight(1, 3, 5), "point", "row "),
    "batch": (nn.BatchNorm1d(3), weight(4, 3), "point", "channel "),
    "images": (lambda x: F.group_norm(x.flatten(0, 1), 2), weight(2, 2, 4, 3), "point", "sample "),
    "outside": (
        lambda x: x / (x.square().mean(-1, keepdim=True).sqrt() + 0.1),
        weight(1, 6),
        "point",
        "max|γ|/(rms + ε) =",
    ),
    "lower floor": (lambda x: x / (x - x.mean(0)).square().mean(0).sqrt().clamp_min(0.1), weight(3, 2), "global", ""),
    "inside": (lambda x: x / (x.square().mean(1, keepdim=True) + 0.1).sqrt(), weight(2, 6, 3), "global", "max|γ|/√ε"),
    "all dropped": (lambda x: F.dropout(x, 1.0), weight(2, 3), "point", "p = 1, everything is dropped = 0"),
    "no alpha left": (lambda x: F.alpha_dropout(x, 1.0, True), weight(2, 3), "point", "p = 1, everything is dropped"),
    "alone": (nn.Softmax(1), weight(2, 1), "point", "a single p, always 1 = 0"),
    "log alone": (nn.LogSoftmax(1), weight(2, 1), "point", "log 1, always 0 = 0"),
    "large gate": (nn.GLU(1), 9 * weight(1, 4), "point", "A = sup|x|, max(1, s·√(1 + A²(1−s)²)) = max(1, "),
    "scalar": (lambda x: 3 * x, weight(2, 3), "point", "|c| = 3"),
    "nothing": (lambda x: 0 * x, weight(2, 3), "point", "max|c| = 0"),
    "block": (
        lambda x: x.mean(1, keepdim=True) * weight(3),
        weight(2, 3),
        "point",
        "largest ‖block of c‖ over c (3) =",
    ),
    "over a branch": (lambda x: 2 / (1 + x.sigmoid().flip(1)), weight(1, 3), "ball:0.1", "sup|a|/inf|b|² = 2/"),
    "copied": (
        lambda x: x / (1 + x.sigmoid().mean(1, keepdim=True)),
        weight(1, 3),
        "point",
        "max(1/inf|b|, sup|a|/inf|b|²), times √copies = ",
    ),
    "choice": (lambda x: torch.where(x > 0, x, 2 * x), weight(2, 3), "point", "the choice may jump"),
    "split": (lambda x: torch.stack(x.chunk(2, 1)), weight(2, 4), "point", "√(most copies of one entry) = √1 = 1"),
    "moving bias": (
        lambda x: torch.addmm(x, weight(2, 3), weight(3, 4), beta=2),
        weight(2, 4),
        "point",
        "|β|·√copies = 2·√1",
    ),
    "both move": (
        lambda x: torch.addmm(x, x, weight(4, 4), beta=2),
        weight(2, 4),
        "point",
        "max(|β|·√copies, |α|·‖AB‖)",
    ),
    "batched": (lambda x: weight(3, 2, 4) @ x, weight(3, 4, 2), "global", "largest ‖C_b‖₂ of 3 matrices, C_b 2×4"),
    "pointwise": (
        nn.Conv2d(2, 3, 1),
        weight(1, 2, 4, 4),
        "point",
        "‖K‖, K 3×2×1×1 on 4×4, stride 1, padding 0, by its matrix",
    ),
    "circulant": (
        nn.Conv2d(8, 8, 3, padding=1),
        weight(1, 8, 24, 24),
        "point",
        "‖K‖, K 8×8×3×3 on 24×24, stride 1, padding 1, by ",
    ),
    "uneven": (
        nn.Conv2d(2, 2, 3, (1, 2), (0, 1)),
        weight(1, 2, 5, 5),
        "point",
        "‖K‖, K 2×2×3×3 on 5×5, stride 1×2, padding 0×1, by ",
    ),
    "attended": (
        lambda x: F.scaled_dot_product_attention(x, weight(1, 3, 4), weight(1, 3, 4)),
        weight(1, 2, 4),
        "point",
        "3 keys, s = 0.5, R_q, R_k, R_v = ",
    ),
    "mish": (lambda x: x * F.softplus(x).tanh(), weight(1, 3), "global", "|scale|·sup|φ'| of mish = 1·1.0885"),
    "root": (lambda x: (1 + x.square().flip(1)).rsqrt(), weight(1, 3), "point", "½·(inf x)^(−1.5) = 0.5·"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_uses_are_worked_out_too(name):
    function, x, scope, start = OTHERS[name]
    model = function if isinstance(function, nn.Module) else Wrapped(function)
    found = []
    for parts in compositions(model.double().train(name == "batch"), x.double(), False):
        for step in parts.trace.steps:
            rule, transfer = parts.rules[step.index], parts.transfers[step.outputs[0].index]
            assert rule is not None and not transfer.unknown, transfer.unknown
            check(rule.id, str(parts.ctx.scope), transfer)
        found += [transfer.worked] * (str(parts.ctx.scope) == scope)
    assert any(worked.startswith(start) for worked in found), found


def test_the_deciding_sample_and_channel_are_named():
    layer = statistics(nn.BatchNorm1d(3))
    scale = (layer.weight / (layer.running_var + layer.eps).sqrt()).abs()
    x = torch.tensor([[1.0, 2.0, 4.0], [1.0, 1.1, 1.2], [0.0, 5.0, 9.0]])
    (by_channel, *_) = [t.worked for _, scope, t in transfers(layer, x) if scope == "point"]
    assert by_channel.startswith(f"channel {int(scale.argmax())}: ")
    by_sample = {t.worked for _, scope, t in transfers(nn.LayerNorm(3), x) if len(t.gains[0].log) == 3}
    assert by_sample and all(worked.startswith("sample 1: ") for worked in by_sample)


def test_the_longest_rows_of_attention_are_those_at_the_sample():
    q, k, v = weight(1, 3, 4), weight(1, 5, 4), weight(1, 5, 2)
    model = Wrapped(lambda x: F.scaled_dot_product_attention(x, k, v))
    lengths = ", ".join(f"{float(t.norm(dim=-1).max()):.6g}" for t in (q, k, v))
    told = [t.worked for _, scope, t in transfers(model, q) if scope == "point"]
    assert told and all(f"5 keys, s = 0.5, R_q, R_k, R_v = {lengths}; in q = " in worked for worked in told)


def test_a_padding_of_two_sizes_is_shown_as_such():
    spec = ConvSpec((9,), padding=((1, 2),))
    assert layout(ConvLayer(weight(2, 2, 4), None, spec)) == "K 2×2×4 on 9, stride 1, padding (1, 2)"


def test_the_ending_is_read_back():
    assert stated_gain("√n = √4 = 2").hi == math.log(2)
    assert stated_gain("x, in [2.5, 1e+04]") == LogInterval(math.log(2.5), math.log(1e4))
    assert stated_gain("a = 10^400.5").hi == pytest.approx(400.5 * math.log(10))
    assert stated_gain("a = ∞").hi == INF and stated_gain("a = 0").hi == -INF
    assert stated_gain("a = 2, at channel 3") is None and stated_gain("") is None


@pytest.mark.parametrize("log", [0.0, 1.2345, -7.5, 30.0, 800.0, -800.0, INF, -INF])
def test_enclosures_are_rounded_outwards(log):
    said = stated_gain(within("x", LogInterval(log, log)))
    assert said.lo <= log <= said.hi
    assert said.lo == said.hi == log or said.hi - said.lo < 5e-4


def test_numbers_beyond_a_float_are_powers_of_ten():
    assert result(math.log(12.52071)) == "12.521"
    assert result(2000.0) == "10^868.5890" and result(INF) == "∞" and result(-INF) == "0"
    assert worst_sample(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.0, 0.0, 9.0])) == 2


def test_check_rule_compares_the_text_with_the_gain():
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    def rule(worked: str):
        return lambda step, incoming, ctx: Transfer((Gain(ctx.full(math.log(2))),), worked=worked)

    check_rule(Twice, (2, 3), rules=REGISTRY.extended({Twice: named(rule("|c| = 2"))}))
    with pytest.raises(AssertionError, match=r"expected the gain 2, got '\|c\| = 3'"):
        check_rule(Twice, (2, 3), rules=REGISTRY.extended({Twice: named(rule("|c| = 3"))}))
    with pytest.raises(AssertionError, match="expected a text that ends with"):
        check_rule(Twice, (2, 3), rules=REGISTRY.extended({Twice: named(rule("twice"))}))


def named(function):
    function.__name__ = "twice"
    return function


def test_a_text_costs_no_norm(monkeypatch):
    """Formatting alone: the texts of a wide network take a small part of its rules."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(10))).double()
    x = weight(32, 64)
    trace = record_trace(model, (x,), {}, x, lambda out: (out, []), REGISTRY.is_leaf, lambda target: None)
    calls = []
    for name in ("matrix_norm", "vector_norm", "svdvals", "eigvalsh"):
        original = getattr(torch.linalg, name)
        monkeypatch.setattr(torch.linalg, name, lambda *a, _f=original, **k: (calls.append(1), _f(*a, **k))[1])
    with_text = _norms(trace, calls)
    monkeypatch.setattr("normgauge.instrument.rules.affine.within", lambda *a: "")
    monkeypatch.setattr("normgauge.instrument.rules.spread._worked", lambda *a: "")
    monkeypatch.setattr("normgauge.instrument.rules.activation.equal", lambda *a: "")
    assert _norms(trace, calls) == with_text > 0


def _norms(trace: Trace, calls: list[int]) -> int:
    calls.clear()
    compose(trace, REGISTRY, Context(Scope.parse("point"), 32))
    return len(calls)
