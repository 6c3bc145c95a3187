"""Uses that were once measured wrongly, or that a tape can easily get wrong."""

from __future__ import annotations

import math
import types

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge import gauge
from normgauge.instrument.measure import readings
from normgauge.instrument.testing import check_rule
from tests.cases import weight


def overlapping(x: Tensor) -> Tensor:
    y = x * 1.0
    a, b = y[:, :3], y[:, 1:]
    a *= 2
    b += 1
    a[:, 1] = x[:, 0]
    return y * 3 + torch.cat([a, b[:, :1]], 1)


def recurrence(x: Tensor) -> Tensor:
    y = x * 1.0
    for i in range(4):
        y[:, i] = y[:, i - 1] * 0.5 + x[:, i]
    return y


def filled(x: Tensor) -> Tensor:
    y = torch.zeros(3, *x.shape, dtype=x.dtype)
    for i in range(3):
        y[i] = x * (i + 1)
    return y.sum(0)


FUNCTIONS = {
    "a normalizer over the samples": lambda x: F.layer_norm(x.T, (2,), eps=0.1),
    "a group norm over the samples": lambda x: F.group_norm(x.T[None], 1, eps=0.1),
    "the larger of a row and its mean": lambda x: torch.max(x.mean(1, keepdim=True), weight(4) - 9),
    "a limit broadcast upwards": lambda x: x.mean(1, keepdim=True).clamp(min=weight(4) - 9),
    "a limit that depends on the input": lambda x: weight(2, 4).clamp(min=x.mean(1, keepdim=True) + 9),
    "limits that cross": lambda x: x.clamp(2.0, 1.0) * x.tanh(),
    "a negative alpha": lambda x: torch.add(x.relu(), x.sigmoid(), alpha=-3.0).square(),
    "rsub with alpha": lambda x: torch.rsub(x, weight(4), alpha=3.0),
    "std of everything": lambda x: x.std(False).expand(2, 4),
    "scatter of a number": lambda x: x.tanh() * x.scatter(1, torch.zeros(2, 1, dtype=torch.long), 30.0).clamp(-40, 40),
    "batch norm whose shift matters": lambda x: F.batch_norm(x, None, None, weight(4), weight(4) + 5, True).square(),
    "batch norm with a negative gain": lambda x: F.batch_norm(x, weight(4) + 5, weight(4) ** 2, -weight(4)).exp(),
    "strides over a transpose": lambda x: x.T.as_strided((2, 4), (1, 2)),
    "overlapping views": overlapping,
    "a recurrence written in place": recurrence,
    "a buffer filled piece by piece": filled,
    "a swap": lambda x: torch.stack([x[:, 1], 4 * x[:, 0]], 1),
    "samples that meet": lambda x: torch.maximum(x, x.flip(0)) - x.mean(0),
    "detached": lambda x: x.detach() * 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bound_holds(name):
    check_rule(FUNCTIONS[name], (2, 4), scopes=("global", "ball:0.1", "ball:2", "point"), unknown=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.norm(x, ord=1, dim=1),
        lambda x: F.softplus(x, threshold=0.1),
        lambda x: F.celu(x, -1.0),
        lambda x: torch.div(x, 0.3, rounding_mode="floor"),
        lambda x: torch.zeros(2, 4, dtype=x.dtype).index_put((torch.tensor([0]), torch.tensor([1])), x[:1, 0], True),
    ],
)
def test_what_is_not_covered_is_infinite(function):
    x = torch.randn(2, 4, dtype=torch.float64)
    model = nn.Sequential()
    model.forward = types.MethodType(lambda self, x: function(x), model)  # type: ignore[method-assign]
    assert [reading.log_upper for reading in readings(model, x, search=False)] == [math.inf] * 3


def test_a_forward_patched_on_the_instance_is_followed():
    layer = nn.Linear(4, 3)
    layer.forward = types.MethodType(lambda self, x: 10 * F.linear(x, self.weight), layer)  # type: ignore[method-assign]
    reading = gauge(nn.Sequential(layer), torch.randn(2, 4), scope="global", search=False)
    true = 10 * float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))
    assert math.exp(reading.log_upper) == pytest.approx(true, rel=1e-6)


def test_values_kept_in_a_buffer_survive_the_next_run():
    class Keeper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(2, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.kept.zero_()
            self.kept[:, :2] = x[:, :2] * 3
            part = self.kept[:, 1:3]
            part += x[:, 2:]
            return self.kept * self.kept

    uppers = [r.log_upper for r in readings(Keeper(), torch.randn(2, 4), ("point", "ball:0.1", "point"), search=False)]
    assert uppers[0] == uppers[2] < math.inf


def test_samples_that_meet_in_eval_mode_share_one_lower_bound():
    class Meeting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.batch_norm(x, None, None, training=True)

    reading = gauge(Meeting(), torch.randn(5, 3), scope="global")
    assert reading.log_lower <= reading.log_upper + 1e-9


def test_a_network_autograd_refuses_still_has_an_upper_bound():
    class Overwriting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.sigmoid()
            y.mul_(2.0)
            return y

    found = readings(Overwriting(), torch.randn(2, 3), search=False)
    assert len(found) == 3
    for reading in found:
        assert math.isfinite(reading.log_upper) and reading.log_lower <= reading.log_upper


def test_spectral_normalization_is_held_still_in_train_mode():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 5))
    model = nn.Sequential(layer, nn.ReLU()).train()
    first, second = (
        gauge(model, torch.ones(2, 5), scope="global", mode="train", search=False).log_upper for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("form", ["module", "functional", "torch"])
@pytest.mark.parametrize("scope", ["point", "global"])
def test_rms_norm_without_eps_takes_that_of_the_models_own_precision(form, scope):
    """The measurement runs in float64, whose ε is nine decades smaller."""
    norms = {
        "module": nn.RMSNorm(8, elementwise_affine=False),
        "functional": lambda x: F.rms_norm(x, (8,)),
        "torch": lambda x: torch.rms_norm(x, (8,)),
    }
    plain = torch.rms_norm

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return norms[form](1e-6 * self.linear(x))

    torch.manual_seed(0)
    model, x = Small(), torch.randn(4, 8)
    reading = gauge(model, x, scope=scope)
    assert torch.rms_norm is plain
    assert reading.log_lower <= reading.log_upper and not reading.notes
    steepest = max(torch.linalg.matrix_norm(torch.func.jacrev(model)(row), 2).item() for row in x)
    assert reading.log_lower == pytest.approx(math.log(steepest), abs=0.05)


def test_a_model_with_a_constant_for_each_sample_is_followed_in_its_batch():
    """One row against a constant of the whole batch broadcasts, another map: the sample is moved where it stands."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.register = nn.Linear(6, 6), torch.randn(5, 6)

        def forward(self, x):
            return self.linear(x) + self.register.to(x)

    torch.manual_seed(0)
    reading = gauge(Shifted(), torch.randn(5, 6), scope="global")
    assert reading.layers[-1].log_reached == pytest.approx(reading.log_lower, abs=1e-3)


class Lambda(nn.Module):
    """A function of a linear map's output."""

    def __init__(self, function) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        return self.function(self.linear(x))


def test_sign_is_flat_at_the_samples_and_jumps_elsewhere():
    torch.manual_seed(0)
    model, x = Lambda(lambda h: torch.sign(h) * torch.log1p(h.abs())), torch.randn(5, 4)
    point, ball = readings(model, x, ("point", "ball:0.1"))
    steepest = max(torch.linalg.matrix_norm(torch.func.jacrev(model)(row), 2).item() for row in x)
    assert point.log_lower == pytest.approx(math.log(steepest), abs=1e-5) and point.log_lower <= point.log_upper < 2
    assert point.unbounded == () and any("sign is discontinuous" in f.why for f in ball.no_bound)


@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "round"])
def test_a_step_function_at_its_jump_is_not_flat(name):
    jumps = torch.full((1, 4), 0.5 if name == "round" else 0.0)

    class Step(nn.Module):
        def forward(self, x):
            return getattr(torch, name)(x * 1.0)

    assert gauge(Step(), jumps, scope="point", search=False).log_upper == math.inf
    assert gauge(Step(), jumps + 0.2, scope="point", search=False).log_upper == -math.inf


def test_behind_an_unknown_step_nothing_is_called_proved():
    torch.manual_seed(0)
    model = Lambda(lambda h: torch.special.erfcx(h) * h)
    reading = gauge(model, torch.randn(3, 4), scope="global", search=False)
    assert [f.name for f in reading.unknown] == ["special_erfcx"] and reading.unbounded == ()


def test_a_forward_without_gradients_is_said_and_its_slopes_are_found_by_secants():
    torch.manual_seed(0)
    model = Lambda(torch.no_grad()(lambda h: 3 * h))
    model.forward = torch.no_grad()(model.forward)
    point, ball = readings(model, torch.randn(3, 4), ("point", "ball:0.1"))
    assert point.log_lower == -math.inf and any("torch.no_grad" in note for note in point.notes)
    assert ball.log_lower > ball.log_upper - 1.0


def test_a_steeper_branch_of_the_models_own_is_named_as_the_reason():
    class Branching(nn.Module):
        def forward(self, x):
            return 5 * x if x.sum() > 0 else x * 1.0

    point, ball, everywhere = readings(Branching(), torch.full((1, 3), -0.1), ("point", "ball:0.5", "global"))
    assert point.path_dependent and str(point.evidence) == "proved" and point.log_upper == pytest.approx(0, abs=1e-6)
    assert str(ball.evidence) == "refuted" and ball.log_upper == math.inf and ball.log_lower > math.log(4.9)
    assert "another path of the data is steeper, or a rule is wrong" in " ".join(str(ball).split())
    assert str(everywhere.evidence) == "unknown" and everywhere.log_upper == math.inf and everywhere.path_dependent
    assert "path depends on the data" in everywhere.no_bound[0].why and not everywhere.unbounded
    assert any("along the path the data took the bound is 10^" in note for note in everywhere.notes)


def test_rms_norm_without_eps_goes_by_the_input_where_there_are_no_weights():
    class Bare(nn.Module):
        def forward(self, x):
            return F.rms_norm(x * 1e-3, (8,))

    torch.manual_seed(0)
    reading = gauge(Bare(), torch.randn(4, 8).bfloat16(), scope="point")
    assert reading.log_lower <= reading.log_upper and not any("above" in note for note in reading.notes)
    square = (1e-3 * torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).bfloat16().double()).square().mean(1)
    eps = torch.finfo(torch.float32).eps  # bfloat16 is squared in float32
    assert reading.log_upper == pytest.approx(float((1e-3 / (square + eps).sqrt()).log().max()), abs=1e-3)


def test_rms_norm_without_eps_behind_an_embedding_goes_by_the_weights():
    """Seen from inside the measurement the weights are float64."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 8), nn.RMSNorm(8))
    reading = gauge(model, torch.tensor([[0, 3], [1, 2]]), scope="global", search=False)
    assert reading.log_upper == pytest.approx(-0.5 * math.log(torch.finfo(torch.float32).eps), abs=1e-6)


@pytest.mark.parametrize("tokens", [False, True], ids=["tensor", "embedding"])
def test_a_network_that_writes_to_its_input_is_measured(tokens):
    """The second run of the steps must not start from what the first has overwritten."""

    class Tripled(nn.Module):
        def forward(self, x):
            x[:, 1] *= 3.0
            return x.tanh()

    torch.manual_seed(0)
    model = nn.Sequential(*([nn.Embedding(5, 3)] if tokens else []), Tripled(), nn.Linear(3, 3)).double()
    batch = torch.tensor([[0, 3], [1, 2]]) if tokens else torch.randn(2, 3).double()
    reading = gauge(model, batch, scope="global", search=False)
    assert reading.evidence == "proved" and reading.log_upper < math.inf


@pytest.mark.parametrize("number", [0.7, 0.3, 1 / 3, 1e-3])
def test_a_number_beside_a_tensor_is_not_rounded_to_single_precision(number):
    """In float32 0.7 is 1.7e-8 too small, and 0.3 too large to be taken away."""

    class Scaled(nn.Module):
        def forward(self, h):
            return h * number

    class Divided(nn.Module):
        def forward(self, h):
            return h / number

    x = torch.full((1, 3), 2.0, dtype=torch.float64)
    assert gauge(Scaled(), x, scope="global", search=False).log_upper >= math.log(number)
    assert gauge(Divided(), x, scope="global", search=False).log_upper >= -math.log(number)
    check_rule(lambda h: (h - number).square().sum(-1), (2, 3), scopes=("ball:0.1", "point"))
