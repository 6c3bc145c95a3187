"""What the tape follows, and what it must not lose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.measure import gauge
from tests.instrument.trace.nets import Lambda, Net, batch, linear, slope, sound, true_norm


def relu_in_place(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    F.relu_(h)
    return m.b(h)


def write_through_a_view(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    h[:, :2].mul_(3.0)
    return m.b(h)


def write_seen_by_an_older_view(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    view = h[:, 1:3]
    h.mul_(5.0)
    return view * 1.0


def assignment(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    h[:, 1:3] = 4 * m.b(x)[:, :2]
    return h


def filling_a_buffer(m: Any, x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], 8, dtype=x.dtype)
    out[:, :4] = 7 * m.a(x)
    out[:, 4:] += m.b(x)
    return out


def filling_through_views(m: Any, x: Tensor) -> Tensor:
    out = x.new_full((x.shape[0], 8), 2.0)
    out[:, :4].copy_(7 * m.a(x))
    out[:, 2:5] += 3 * x[:, :3]
    out[:, 4:6].add_(m.b(x)[:, :2])
    return out


def augmented(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    h += m.b(x)
    h *= 2
    return h


def shared(m: Any, x: Tensor) -> Tensor:
    return m.a(torch.relu(m.a(torch.relu(m.a(x)))))


def from_the_input(m: Any, x: Tensor) -> Tensor:
    return x + m.b(torch.tanh(m.a(x)))


def dense(m: Any, x: Tensor) -> Tensor:
    one = m.a(x)
    two = m.b(one + x)
    return torch.cat([x, one, two], 1)


def loop(m: Any, x: Tensor) -> Tensor:
    for layer in (m.a, m.b, m.a):
        x = F.gelu(layer(x))
    return x


def views(m: Any, x: Tensor) -> Tensor:
    h = m.a(x).reshape(-1, 2, 2).transpose(1, 2).flatten(1)
    one, two = h.chunk(2, dim=1)
    return torch.stack([one, two.flip(1)], 2).permute(2, 0, 1).sum(0)


def shaped_like(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    return torch.where(torch.ones_like(h) > 0, h + torch.zeros_like(h), h.new_zeros(1))


FOLLOWED = [
    shaped_like,
    relu_in_place, write_through_a_view, write_seen_by_an_older_view, assignment, filling_a_buffer,
    filling_through_views, augmented, shared,
    from_the_input, dense, loop, views,
]  # fmt: skip


@pytest.mark.parametrize("function", FOLLOWED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("scope", ["global", "ball:0.1", "point"])
def test_follows(function: Callable[..., Any], scope: str) -> None:
    model, x = Lambda(function), batch()
    reading = gauge(model, x, scope=scope, search=False)
    assert not reading.unknown, reading.unknown
    truth = true_norm(model, x)
    assert math.exp(reading.log_upper) >= truth * (1 - 1e-9)
    assert math.exp(reading.log_upper) < 30 * truth


def test_an_overwritten_view_counts_the_new_contents() -> None:
    """h is scaled by 5 after the view was taken: forgetting that would print a bound five times too small."""
    model, x = Lambda(write_seen_by_an_older_view), batch()
    assert true_norm(model, x) == pytest.approx(5 * float(torch.linalg.matrix_norm(model.a.weight.detach()[1:3], 2)))
    assert gauge(model, x, scope="global", search=False).log_upper >= math.log(true_norm(model, x))


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda m, x: m.a(x) * float(x.sum()), "__float__"),
        (lambda m, x: m.a(x) * x.sum().item(), "item"),
        (lambda m, x: m.a(x) + torch.tensor(x.tolist()), "tolist"),
        (lambda m, x: m.a(x) + torch.from_numpy(x.numpy()), "numpy"),
        (lambda m, x: torch.linalg.qr(m.a(x))[1], "qr"),
        (lambda m, x: torch.linalg.inv(m.a(x).T @ m.a(x)), "inv"),
    ],
)
def test_what_cannot_be_followed_is_named_and_infinite(function: Callable[..., Any], word: str) -> None:
    reading = gauge(Lambda(function), batch(), scope="global", search=False)
    assert reading.log_upper == math.inf
    assert str(reading.evidence) == "unknown"
    assert any(word in f.why or word in f.name for f in reading.unknown)


def counted(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    h = m.a(x) * mask.to(x)
    return m.b(torch.tanh(h) / mask.sum(1, keepdim=True).clamp(min=1).to(h))


def typed(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    h = m.a(x)
    return h * mask.type_as(h) / (mask + 1).to(h)


def broadcast(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    keep, h = torch.broadcast_tensors(mask[:, :1] + 1.0, m.a(x))
    return h / keep


def filled(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    h = m.a(x)
    return h / torch.full_like(h, mask.sum().clamp(min=1))


def expanded(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    h = m.b(torch.relu(m.a(x)))
    return h / (mask.sum(1, keepdim=True) + 0.5).expand_as(h).to(h)


def beside_a_gate(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    return torch.sigmoid(m.a(x)) * mask.to(x).masked_fill(mask == 0, 0.1) * torch.tanh(m.b(x))


@pytest.mark.parametrize("function", [counted, typed, broadcast, filled, expanded, beside_a_gate])
@pytest.mark.parametrize("scope", ["global", "ball:0.5", "point"])
def test_an_operand_that_lends_its_form_alone_makes_no_branch(function: Callable[..., Any], scope: str) -> None:
    """A mask in the precision of what it multiplies is as constant as before: only values are measured, not their form.

    The bound is finite, above every slope of autograd's in the scope, and the mask is no second operand.
    """
    model = Lambda(function)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(3, 4, dtype=torch.float64, generator=generator)
        mask = (torch.rand(3, 4, generator=generator) > 0.4).long()
        reading = gauge(model, (x, mask), scope=scope, search=False)
        assert not reading.unknown and not reading.no_bound and math.isfinite(reading.log_upper)
        for _ in range(8):
            noise = torch.randn(x.shape, dtype=x.dtype, generator=generator)
            reach = {"point": 0.0, "ball:0.5": 0.5 / float(noise.norm(dim=1).max()), "global": 3.0}[scope]
            steep = true_norm(lambda y, mask=mask: model(y, mask), x + reach * noise)
            assert math.exp(reading.log_upper) >= steep * (1 - 1e-9)
        if function is counted and scope == "global":
            assert all(len(step.inputs) == 1 for step in reading.proof.steps)


def cut_by_itself(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    h = m.a(x)
    return h * (x > 0).to(h) + mask.to(h)


def counted_by_itself(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    h = m.a(x) * mask.to(x)
    return h / (x > 0).sum(1, keepdim=True).to(h)


def filled_by_itself(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    return m.a(x) * torch.full_like(mask, 2, dtype=x.dtype).fill_(x[0, 0])


def written_by_itself(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    keep = mask.to(x)
    keep[:, :2] = m.a(x)[:, :2]
    return m.b(x) * keep


def swept_by_itself(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    one, two = torch.broadcast_tensors(m.a(x), mask.to(x))
    return one.expand_as(two) * two * m.b(x).to(two)


@pytest.mark.parametrize(
    "function", [cut_by_itself, counted_by_itself, filled_by_itself, written_by_itself, swept_by_itself]
)
def test_a_mask_made_of_the_input_is_no_constant(function: Callable[..., Any]) -> None:
    model, mask = Lambda(function), (torch.rand(3, 4, generator=torch.Generator().manual_seed(5)) > 0.3).long()
    assert gauge(model, (batch(), mask), scope="global", search=False).log_upper == math.inf
    ball = gauge(model, (batch(), mask), scope="ball:0.2", search=False)
    generator = torch.Generator().manual_seed(1)
    for _ in range(16):
        noise = torch.randn(3, 4, dtype=torch.float64, generator=generator)
        steep = true_norm(lambda y: model(y, mask), batch() + 0.2 * noise / noise.norm(dim=1).max())
        assert sound(ball, steep)


@pytest.mark.parametrize("form", [lambda i, h: torch.broadcast_tensors(i, i[:1])[0], lambda i, h: i.clone().to(i)])
@pytest.mark.parametrize("other", [False, True])
def test_tokens_in_another_form_are_still_the_tokens(form: Callable[..., Any], other: bool) -> None:
    """Integers that took the form of what depends on the input look up embeddings that are measured."""

    def twice(ids: Tensor, table: nn.Module) -> Tensor:
        h = table(ids)
        again = ids.type_as(torch.zeros_like(h).long() + h.long()) if other else form(ids, h)
        return h + 3 * table(again)

    torch.manual_seed(0)
    model = Net(twice, nn.Embedding(5, 4).double())
    reading = gauge(model, torch.tensor([[1, 2], [3, 4]]), scope="global", search=False)
    assert reading.log_upper >= math.log(math.sqrt(10)) - 1e-9  # of both lookups side by side


def test_weights_made_from_the_input_are_followed() -> None:
    def hyper(m: Any, x: Tensor) -> Tensor:
        weights = {"weight": torch.outer(torch.tanh(x[0]), torch.tanh(x[1])), "bias": m.a.bias}
        return torch.func.functional_call(m.a, weights, (torch.tanh(x),))

    model, x = Lambda(hyper), batch()
    for scope in ("point", "global"):
        reading = gauge(model, x, scope=scope, search=False)
        assert math.exp(reading.log_upper) >= true_norm(model, x) * (1 - 1e-9)


def test_weights_exchanged_for_one_call_count_as_they_were() -> None:
    def exchange(m: Any, x: Tensor) -> Tensor:
        return torch.func.functional_call(m.a, {"weight": 100 * torch.eye(4, dtype=x.dtype)}, (x,))

    model = Lambda(exchange)
    before = model.a.weight.detach().clone()
    assert gauge(model, batch(), scope="global", search=False).log_upper == pytest.approx(math.log(100))
    assert torch.equal(model.a.weight, before)


def test_scripted_parts_are_not_taken_for_constants() -> None:
    with pytest.warns(DeprecationWarning, match="script"):
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double())
    model = Lambda(lambda m, x: m.a(x) + scripted(x))
    reading = gauge(model, batch(), scope="global", search=False)
    assert reading.log_upper == math.inf and reading.unknown


class Patched(nn.Conv1d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(F.leaky_relu(input, 3.0), weight, bias)


def test_results_written_into_a_given_tensor() -> None:
    def into(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        torch.mul(x, 2.0, out=y)
        torch.add(y, x, out=y)
        return y

    assert ng.gauge(Net(into), batch(), scope="global", search=False).log_upper == pytest.approx(math.log(3))


def test_a_method_that_a_layers_forward_calls_is_part_of_it() -> None:
    torch.manual_seed(0)
    model, images = Patched(4, 4, 3).double(), torch.rand(2, 4, 9, dtype=torch.float64)
    reading = ng.gauge(model, images, scope="global", search=False)
    assert math.isfinite(reading.log_upper)
    assert sound(reading, slope(model, -images, torch.autograd.functional.vjp(model, -images, model(-images))[1]))


@pytest.fixture
def exchanged_class() -> Iterator[None]:
    forward = nn.Linear.forward
    nn.Linear.forward = lambda self, x: 100 * F.linear(x, self.weight, self.bias)  # type: ignore[method-assign]
    yield
    nn.Linear.forward = forward  # type: ignore[method-assign]


@pytest.fixture
def hook_on_everything() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, given, out: 100 * out if isinstance(module, nn.Linear) else None
    )
    yield
    handle.remove()


@pytest.mark.usefixtures("exchanged_class")
def test_a_patched_class_is_not_what_its_rule_knows() -> None:
    model = nn.Sequential(linear())
    assert sound(ng.gauge(model, batch(), scope="global", search=False), slope(model, batch(), batch()))


@pytest.fixture
def exchanged_function() -> Iterator[None]:
    function = F.linear
    F.linear = lambda x, weight, bias=None: 100 * function(x, weight, bias)  # type: ignore[assignment]
    yield
    F.linear = function


@pytest.mark.usefixtures("exchanged_function")
def test_a_patched_function_is_not_what_its_layers_rule_knows() -> None:
    model = nn.Sequential(linear())
    reading = ng.gauge(model, batch(), scope="global", search=False)
    assert math.isfinite(reading.log_upper) and sound(reading, slope(model, batch(), batch()))


@pytest.mark.usefixtures("hook_on_everything")
def test_global_hooks_are_seen() -> None:
    model = nn.Sequential(linear())
    assert sound(ng.gauge(model, batch(), scope="global", search=False), slope(model, batch(), batch()))
