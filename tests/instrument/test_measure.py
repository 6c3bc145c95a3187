"""The measurement as a user meets it: known values, scopes, modes, bad input."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core import checker
from normgauge.core.errors import InputError
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10
from normgauge.instrument import known, stretch
from normgauge.instrument.compose import Composition
from normgauge.instrument.local import headline
from normgauge.instrument.measure import gauge, readings
from normgauge.instrument.probe import screen
from normgauge.instrument.probe.search import Found
from normgauge.instrument.session import Session
from normgauge.instrument.slopes import largest_slope
from tests.instrument.claimed_rules import LOG2, LOG3, Triple, claimed, rule_of


def layer_norm_mlp() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(8):
        linear = nn.Linear(32, 32)
        nn.init.normal_(linear.weight, 0, math.sqrt(4 / 32))
        layers += [linear, nn.LayerNorm(32), nn.ReLU()]
    return nn.Sequential(*layers)


def test_without_a_scope_the_samples_are_read() -> None:
    model, x = layer_norm_mlp(), torch.randn(2, 32)
    reading = gauge(model, x, search=False)
    assert str(reading.scope) == "point"
    assert reading.log_upper == pytest.approx(gauge(model, x, scope="point", search=False).log_upper, abs=1e-9)
    assert str(ng.what_if(model, x, search=False).reading.scope) == "point"


def test_scopes_of_a_deep_layer_norm_net() -> None:
    model = layer_norm_mlp()
    point, ball, everywhere = readings(model, torch.randn(1, 32), ("point", "ball:0.0001", "global"), search=False)
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
        for _ in range(3):
            linear = nn.Linear(16, 16, bias=False)
            nn.init.eye_(linear.weight)
            linear.weight.data *= a
            layers += [linear, nn.BatchNorm1d(16, eps=1e-14, momentum=None), nn.ReLU()]
        model = nn.Sequential(*layers).double()
        model(torch.randn(512, 16, dtype=torch.float64))
        reading = gauge(model, torch.randn(4, 16, dtype=torch.float64), scope="global", search=False)
        assert reading.published["log10_P_w"] == pytest.approx(3 * math.log10(a), abs=1e-6)
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


def test_json_round_trip() -> None:
    reading = gauge(
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(3, 4), scope="ball:0.5", search=False
    )
    again = Reading.from_json(reading.to_json())
    assert again.to_json() == reading.to_json()


def test_sigma_zero_is_said_in_words() -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)).double()
    reading = gauge(model, torch.ones(1, 4, dtype=torch.float64), scope="point", search=False)
    assert "ε floor" in reading.layer("0").note
    assert reading.layer("0").gain.hi == pytest.approx(-math.log(1e-5) / 2, abs=1e-6)


BAD = [
    (lambda: gauge(nn.Linear(2, 2), torch.full((1, 2), math.nan), scope="global"), "input holds NaN"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(0, 2), scope="global"), "at least one sample"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2, dtype=torch.float64), scope="global"), "expected torch.float32"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2, dtype=torch.long), scope="global"), "expected|raised"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2, device="meta"), scope="global"), "expected a tensor on cpu"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 3), scope="global"), "forward raised RuntimeError"),
    (lambda: gauge(nn.Linear(2, 2), "batch", scope="global"), "got str"),
    (lambda: gauge(nn.Linear(2, 2), {"input": 3}, scope="global"), "at least one tensor"),
    (lambda: gauge(nn.Linear(2, 2), {"input_ids": [[1]]}), 'without any; pass return_tensors="pt", padding=True'),
    (lambda: gauge(nn.Linear(2, 2), ["a", "b"]), 'return_tensors="pt", padding=True'),
    (lambda: gauge(lambda x: x, torch.zeros(1, 2), scope="global"), "torch.nn.Module"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), scope="sphere"), "scope"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), scope="ball:-1"), "scope"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), scope="global", mode="test"), "mode"),
    (lambda: gauge(nn.Linear(2, 2), torch.zeros(1, 2), scope="global", input="y"), "expected one of"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]


def test_an_unknown_option_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match="colour"):
        gauge(nn.Linear(2, 2), torch.zeros(1, 2), scope="global", colour="red")


def test_nan_weights_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.data[0, 0] = math.inf
    with pytest.raises(InputError, match=r"weight 1\.weight holds an infinite value"):
        gauge(model, torch.zeros(1, 2), scope="global")


def test_masks_kept_as_buffers_are_fine() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x[:, None, :] * 0.5 + self.mask, -1).sum(1)

    reading = gauge(Causal(), torch.randn(3, 4), scope="point")
    assert not reading.unknown and reading.log_lower <= reading.log_upper < math.inf


def test_a_slope_of_a_smaller_scope_refutes_a_larger_ones_bound(monkeypatch):
    """Slopes move to larger scopes once all are measured; the bounds are judged after that."""

    def blind(session: Session, parts: Composition, *known: Tensor | None) -> Found:
        """A search that finds next to nothing over all inputs."""
        found = largest_slope(session, parts, *known)
        if parts.ctx.scope.kind != "global":
            return found
        less = found.log_best - 9
        return dataclasses.replace(found, log_lower=found.log_lower - 9, log_best=less, lengths=(1.0, math.exp(less)))

    monkeypatch.setattr(known, "largest_slope", blind)
    monkeypatch.setattr(stretch, "reached", lambda here, there: {})
    rules, x = claimed(triple=rule_of(2.0)), torch.ones(1, 2)
    assert ng.gauge(Triple(), x, scope="global", rules=rules).evidence is ng.Evidence.PROVED
    everywhere = ng.readings(Triple(), x, ("global", "point"), rules=rules)[0]
    assert everywhere.evidence is ng.Evidence.REFUTED and everywhere.log_upper == math.inf
    assert everywhere.log_refuted == pytest.approx(LOG2) and everywhere.log_lower == pytest.approx(LOG3)


def test_a_program_that_writes_to_its_input_leaves_the_other_scopes_their_samples() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            x[:, 0] *= 3.0
            return self.last(x)

    torch.manual_seed(0)
    model, x = InPlace(), torch.randn(1, 3)
    together = readings(model, x, ["global", "ball:0.1", "point"], search=False)
    alone = [readings(model, x, [str(r.scope)], search=False)[0] for r in together]
    assert [r.evidence for r in together] == [ng.Evidence.PROVED] * 2 + [ng.Evidence.COMPUTED]
    assert [r.log_upper for r in together] == [r.log_upper for r in alone]


@pytest.mark.parametrize("evidence", [ng.Evidence.PROVED, ng.Evidence.COMPUTED])
def test_a_slope_is_never_told_below_what_encloses_it_however_many_samples(monkeypatch, evidence) -> None:
    """With many samples the search looks at most of them roughly; what is known of each is told all the same."""
    monkeypatch.setattr(screen, "BUDGET", 0.0)
    if evidence is ng.Evidence.COMPUTED:
        monkeypatch.setattr(
            headline, "_swept_samples", lambda session, *_: session.cache.update({headline.WHY_NOT: "so"})
        )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 7)).double()
    x = torch.randn(60, 8, dtype=torch.float64)
    few, many = gauge(model, x[:30]), gauge(model, x)
    assert many.evidence is evidence and few.log_lower <= many.log_lower
    truth = [math.log10(float(torch.linalg.matrix_norm(torch.func.jacrev(model)(row).detach(), 2))) for row in x]
    for row, slope in zip(many.samples, truth, strict=True):
        assert row["log10_lower"] <= slope + 1e-9 and row["log10_lower"] == pytest.approx(slope, abs=1e-6)
        assert row["log10_lower"] >= row["log10_upper"] - 1e-6
    assert many.log_median is not None and many.log_median.width < 1e-5
    assert checker.check(many.to_json()) == []
