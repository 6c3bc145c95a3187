"""What the tape follows, and what it must not lose."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.instrument.measure import gauge


class Lambda(nn.Module):
    """A module around a function of x and two linear layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4).double(), nn.Linear(4, 4).double()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def batch(n: int = 3) -> Tensor:
    return torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def true_norm(model: nn.Module, x: Tensor) -> float:
    jacobian = torch.autograd.functional.jacobian(model, x).reshape(-1, x.numel())
    return float(torch.linalg.matrix_norm(jacobian, 2))


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
    assert gauge(model, x, search=False).log_upper >= math.log(true_norm(model, x))


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
    reading = gauge(Lambda(function), batch(), search=False)
    assert reading.log_upper == math.inf
    assert str(reading.evidence) == "unknown"
    assert any(word in f.why or word in f.name for f in reading.unknown)


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
    assert gauge(model, batch(), search=False).log_upper == pytest.approx(math.log(100))
    assert torch.equal(model.a.weight, before)


def test_scripted_parts_are_not_taken_for_constants() -> None:
    with pytest.warns(DeprecationWarning, match="script"):
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double())
    model = Lambda(lambda m, x: m.a(x) + scripted(x))
    reading = gauge(model, batch(), search=False)
    assert reading.log_upper == math.inf and reading.unknown


def test_dictionaries_tuples_and_several_inputs() -> None:
    model = Lambda(lambda m, x, mask: {"hidden": m.b(x), "logits": m.a(x) * mask})
    inputs = {"x": batch(), "mask": torch.full((3, 4), 2.0, dtype=torch.float64)}
    reading = gauge(model, inputs, search=False)
    assert reading.input_name == "x" and any("hidden" in n for n in reading.notes)
    assert reading.log_upper == pytest.approx(
        math.log(2 * float(torch.linalg.matrix_norm(model.a.weight.detach(), 2))), abs=1e-6
    )
    other = gauge(model, inputs, input="mask", search=False)
    assert other.input_name == "mask" and other.log_upper != reading.log_upper
    named = gauge(model, inputs, output="hidden", search=False)
    assert named.log_upper == pytest.approx(
        math.log(float(torch.linalg.matrix_norm(model.b.weight.detach(), 2))), abs=1e-6
    )


@dataclass
class Pair:
    x: Tensor
    scale: float


def test_dataclasses_in_and_out() -> None:
    model = Lambda(lambda m, pair: Pair(m.a(pair.x) * pair.scale, 1.0))
    assert gauge(model, Pair(batch(), 2.0), search=False).log_upper < 3


def test_labels_beside_the_input_are_left_out() -> None:
    reading = gauge(nn.Linear(4, 2), (torch.randn(3, 4), torch.tensor([0, 1, 0])), search=False)
    assert any("labels" in note for note in reading.notes)


def test_integer_inputs_are_measured_from_the_embedding_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 3))
    reading = gauge(model, torch.tensor([[1, 2], [3, 4]]))
    norm = math.log(float(torch.linalg.matrix_norm(model[1].weight.detach().double(), 2)))
    assert reading.log_upper == pytest.approx(norm, abs=1e-6) and reading.log_lower <= reading.log_upper + 1e-9
    assert reading.log_lower > reading.log_upper - 0.05
    table = model[0].weight.detach()
    assert any(f"at most {float(torch.cdist(table, table).max()):.3g} apart" in note for note in reading.notes)


def test_wrapped_models_are_unwrapped() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    parallel = nn.DataParallel(model)
    x = torch.randn(3, 4)
    values = {gauge(m, x, search=False).log_upper for m in (model, compiled, parallel)}
    assert len(values) == 1
    inside = nn.Sequential(torch.compile(model, backend="eager"), nn.Tanh())
    assert not gauge(inside, x, search=False).unknown


def test_low_precision_models_are_measured_in_float64() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)).to(torch.bfloat16)
    reading = gauge(model, torch.randn(3, 4).to(torch.bfloat16), scope="point")
    assert str(reading.evidence) == "proved" and reading.log_lower <= reading.log_upper


def test_a_model_that_refuses_float64_is_still_measured() -> None:
    def branch(m: Any, x: Tensor) -> Tensor:
        return x * 3 if x.type() == "torch.FloatTensor" else x

    reading = gauge(Lambda(branch).float(), batch().float(), scope="point")
    assert any("float64" in note for note in reading.notes) and str(reading.evidence) == "estimated"
    assert reading.log_lower <= reading.log_upper + 1e-4


def test_constants_of_another_precision_are_widened() -> None:
    constant = torch.randn(4, 4)
    model = Lambda(lambda m, x: x @ constant + torch.ones(4) @ torch.eye(4, dtype=torch.float32))
    reading = gauge(model.float(), batch().float(), scope="point")
    assert str(reading.evidence) == "proved" and reading.log_lower <= reading.log_upper + 1e-6


def test_samples_that_interact_are_measured_together() -> None:
    model = Lambda(lambda m, x: m.a(x) - m.a(x).mean(0, keepdim=True))
    reading = gauge(model, batch(), scope="point", search=False)
    assert any("influence each other" in note for note in reading.notes)
    assert math.exp(reading.log_upper) >= true_norm(model, batch()) * (1 - 1e-9)


def test_no_path_and_no_tensor_are_errors() -> None:
    with pytest.raises(InputError, match="does not depend"):
        gauge(Lambda(lambda m, x: m.a.weight * 1.0), batch())
    with pytest.raises(InputError, match="str"):
        gauge(Lambda(lambda m, x: "nothing"), batch())
