"""The measurement as a user meets it: known values, scopes, modes, bad input."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError, UnknownOpError
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.instrument.measure import gauge, readings
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.trace.step import Step


def layer_norm_mlp(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for _ in range(8):
        linear = nn.Linear(32, 32)
        nn.init.normal_(linear.weight, 0, math.sqrt(4 / 32))
        layers += [linear, nn.LayerNorm(32), nn.ReLU()]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("seed", [0, 1])
def test_scopes_of_a_deep_layer_norm_net(seed: int) -> None:
    model = layer_norm_mlp(seed)
    point, ball, everywhere = readings(model, torch.randn(8, 32), ("point", "ball:0.0001", "global"), search=False)
    assert everywhere.log_upper / LN10 > 20
    assert abs(ball.log_upper - point.log_upper) / LN10 < 0.2
    assert (point.log_upper - point.log_lower) / LN10 < 4
    assert point.log_upper <= ball.log_upper <= everywhere.log_upper


def test_identity_weights_under_batch_norm() -> None:
    """The bound does not see the scale of the weights under BatchNorm: a = 0.1, 1 and 10 alike."""
    bounds = []
    for a in (0.1, 1.0, 10.0):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for _ in range(8):
            linear = nn.Linear(16, 16, bias=False)
            nn.init.eye_(linear.weight)
            linear.weight.data *= a
            layers += [linear, nn.BatchNorm1d(16, eps=1e-14, momentum=None), nn.ReLU()]
        model = nn.Sequential(*layers).double()
        model(torch.randn(4096, 16, dtype=torch.float64))
        reading = gauge(model, torch.randn(4, 16, dtype=torch.float64), search=False)
        assert reading.published["log10_P_w"] == pytest.approx(8 * math.log10(a), abs=1e-6)
        bounds.append(reading.log_upper)
    assert max(bounds) - min(bounds) < 1e-6


def test_train_mode_measures_the_batch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh()).double()
    x = torch.randn(6, 5, dtype=torch.float64)
    reading = gauge(model, x, scope="point", mode="train", search=False)
    model.train()
    jacobian = torch.autograd.functional.jacobian(model, x).reshape(24, 30)
    assert reading.mode == "train"
    assert math.exp(reading.log_upper) >= float(torch.linalg.matrix_norm(jacobian, 2))
    assert reading.log_lower <= reading.log_upper


def test_weight_constants_bound_the_effect_of_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = torch.randn(1, 6, dtype=torch.float64)
    reading = gauge(model, x, scope="point", search=False)
    for name in ("0", "3"):
        weight = model.get_submodule(name).weight
        rows = [torch.autograd.grad(o, weight, retain_graph=True)[0].flatten() for o in model(x)[0]]
        truth = float(torch.linalg.matrix_norm(torch.stack(rows), 2))
        bound = reading.layer(name).log_weight_lipschitz
        assert bound is not None and truth <= math.exp(bound) * (1 + 1e-9)
    assert reading.layer("3").log_weight_lipschitz == pytest.approx(math.log(truth), abs=1e-6)


def test_loss_constants() -> None:
    reading = gauge(nn.Linear(4, 9).double(), torch.randn(2, 4, dtype=torch.float64), search=False)
    base = reading.log_upper / LN10
    assert reading.loss["cross_entropy"] == pytest.approx(base + math.log10(math.sqrt(2)))
    assert reading.loss["l1_sum"] == pytest.approx(base + math.log10(3))


def test_slacks_add_up_to_the_gap_of_a_chain() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    reading = gauge(model, torch.randn(4, 8, dtype=torch.float64), scope="point", search=False)
    assert sum(r.log_slack or 0 for r in reading.layers) / LN10 == pytest.approx(reading.gap, abs=0.02)
    owner = reading.gap_owner()
    assert owner is not None and owner.log_slack == max(r.log_slack or 0 for r in reading.layers)


def test_json_round_trip(tmp_path: object) -> None:
    reading = gauge(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(3, 4), scope="ball:0.5")
    again = Reading.from_json(reading.to_json())
    assert again.to_json() == reading.to_json()


def double_it(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Twice.

    Holds:  here.
    """
    return Transfer((Gain(ctx.log(2.0)),))


def test_unknown_ops_user_rules_and_strict() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.i0e(x) + 0.5 * torch.special.erfcx(x.abs())  # steeper than 1.57 nowhere

    model = nn.Sequential(nn.Linear(3, 3), Odd())
    x = torch.rand(2, 3)
    reading = gauge(model, x)
    assert reading.log_upper == math.inf and {f.name for f in reading.unknown} == {"1.special_i0e", "1.special_erfcx"}
    with pytest.raises(UnknownOpError, match=r"special_i0e.*special_erfcx"):
        gauge(model, x, strict=True)
    known = gauge(model, x, rules=REGISTRY.extended({Odd: double_it}), strict=True, search=False)
    assert math.isfinite(known.log_upper) and REGISTRY.lookup(Odd) is None


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x


def test_products_are_unbounded_globally_and_fine_elsewhere() -> None:
    model, x = Product(), torch.randn(3, 4)
    point, ball, everywhere = readings(model, x, ("point", "ball:0.1", "global"), search=False)
    assert everywhere.log_upper == math.inf and str(everywhere.evidence) == "proved"
    assert everywhere.unbounded and not everywhere.unknown
    assert math.exp(point.log_upper) == pytest.approx(2 * float(x.abs().max()), rel=1e-6)
    assert ball.log_upper > point.log_upper
    gauge(model, x, strict=True, search=False)


@pytest.mark.parametrize("scale", [1e15, 1e-30])
def test_extreme_weights(scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(20)))
    with torch.no_grad():
        for layer in model:
            layer.weight *= scale
    reading = gauge(model, torch.randn(2, 6), search=False)
    assert reading.log_upper / LN10 == pytest.approx(20 * math.log10(scale), abs=20)


@pytest.mark.parametrize("scope", ["point", "global"])
def test_diverged_networks_are_infinite_never_finite(scope: str) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(12)), nn.LayerNorm(4)).double()
    with torch.no_grad():
        for layer in model[:-1]:
            layer.weight.fill_(1e40)
    reading = gauge(model, torch.ones(2, 4, dtype=torch.float64), scope=scope)
    assert reading.log_upper == math.inf and "diverged" in reading.unknown[0].why


def test_sigma_zero_is_said_in_words() -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)).double()
    reading = gauge(model, torch.ones(1, 4, dtype=torch.float64), scope="point", search=False)
    assert "ε floor" in reading.layer("0").note
    assert reading.layer("0").gain.hi == pytest.approx(-math.log(1e-5) / 2, abs=1e-6)


BAD = [
    (lambda: gauge(nn.Linear(2, 2), torch.full((1, 2), math.nan)), "input holds NaN"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(0, 2)), "at least one sample"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2, dtype=torch.float64)), "expected torch.float32"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2, dtype=torch.long)), "expected|raised"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2, device="meta")), "expected a tensor on cpu"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 3)), "forward raised RuntimeError"),
    (lambda: gauge(nn.Linear(2, 2), "batch"), "got str"),
    (lambda: gauge(nn.Linear(2, 2), {"input": 3}), "at least one tensor"),
    (lambda: gauge(lambda x: x, torch.zeros(1, 2)), "torch.nn.Module"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), scope="sphere"), "scope"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), scope="ball:-1"), "scope"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), mode="test"), "mode"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), input="y"), "expected one of"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]


def test_an_unknown_option_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match="colour"):
        gauge(nn.Linear(2, 2), torch.zeros(1, 2), colour="red")


def test_nan_weights_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.data[0, 0] = math.inf
    with pytest.raises(InputError, match=r"weight 1\.weight holds an infinite value"):
        gauge(model, torch.zeros(1, 2))


def test_masks_kept_as_buffers_are_fine() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x[:, None, :] * 0.5 + self.mask, -1).sum(1)

    reading = gauge(Causal(), torch.randn(3, 4), scope="point")
    assert not reading.unknown and reading.log_lower <= reading.log_upper < math.inf


def test_a_slope_above_the_bound_is_cut_only_within_rounding() -> None:
    class Steep(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 3.0 * x

    def wrong(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
        """Too small."""
        return Transfer((Gain(ctx.log(2.0)),))

    def nearly(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
        """Too small by rounding."""
        return Transfer((Gain(ctx.log(3.0 * (1 - 1e-6))),))

    x = torch.randn(3, 4)
    loud = gauge(Steep(), x, rules=REGISTRY.extended({Steep: wrong}))
    assert str(loud.evidence) == "refuted" and loud.log_upper == math.inf
    assert loud.log_refuted == pytest.approx(math.log(2)) and loud.log_lower == pytest.approx(math.log(3))
    quiet = gauge(Steep(), x, rules=REGISTRY.extended({Steep: nearly}))
    assert quiet.log_lower == quiet.log_upper and any("by rounding" in note for note in quiet.notes)
