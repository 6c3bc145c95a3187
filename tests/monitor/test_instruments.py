"""What is heard at the door of a network, and read from an optimizer."""

from __future__ import annotations

import math
import weakref

import pytest
import torch
from torch import nn

from normgauge.monitor.instruments import Instruments
from normgauge.monitor.layers import WatchedLayer, find_layers
from normgauge.monitor.schedule import Level
from normgauge.monitor.sheet import Sheet, fetch_numbers


def unexpected(error: Exception) -> None:
    raise error


def filled(sheet: Sheet) -> Sheet:
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    return sheet


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def heard(model: nn.Module, batch: torch.Tensor, optimizer: torch.optim.Optimizer | None = None):
    instruments = Instruments(model, find_layers(model), [] if optimizer is None else [optimizer], unexpected)
    instruments.arm()
    model(batch)
    sheet = filled(instruments.read())
    instruments.close()
    return instruments, sheet


def test_the_input_and_the_running_statistics_are_measured(model):
    batch = 3 * torch.randn(40, 6)
    _, found = heard(model, batch)
    assert found.network["input"] == pytest.approx(batch.square().mean().sqrt().item(), rel=1e-6)
    assert not found.half
    assert found.layers[1]["running"] == pytest.approx(model[1].running_var.mean().item(), rel=1e-6)
    assert "batch" not in found.layers[1]


def test_a_normalizer_in_eval_mode_is_compared_with_its_batch(model):
    batch = torch.randn(40, 6)
    model[1].eval()
    _, found = heard(model, batch)
    assert found.layers[1]["batch"] == pytest.approx(model[0](batch).var(0, correction=0).mean().item(), rel=1e-5)


def test_float16_is_noticed_inside_autocast(model):
    with torch.autocast("cpu", torch.float16):
        _, found = heard(model, torch.randn(16, 6))
    assert found.half


def test_a_broken_input_is_seen_also_at_a_step_not_meant_to_be_read(model):
    instruments = Instruments(model, find_layers(model), (), unexpected)
    instruments.arm()
    instruments.read()
    batch = torch.randn(16, 6)
    batch[3, 2] = torch.nan
    model(batch)
    assert math.isnan(filled(instruments.read()).network["input"])
    instruments.close()


def test_tokens_and_passes_without_gradients_leave_nothing():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    _, found = heard(model, torch.arange(10))
    assert "input" not in found.network
    with torch.no_grad():
        _, found = heard(model[1], torch.randn(3, 4))
    assert "input" not in found.network


def test_the_settings_of_the_optimizer_go_to_their_layers(model):
    groups = [
        {"params": model[0].parameters(), "lr": 0.5},
        {"params": model[1].parameters(), "weight_decay": 3.0},
        {"params": model[3].parameters(), "betas": (0.999, 0.9999)},
    ]
    instruments, sheet = heard(model, torch.randn(16, 6), torch.optim.AdamW(groups, lr=0.1, weight_decay=0.01))
    sheet.layers[1] = {"running": 2.0, "dot": 5.0}
    rows = instruments.finish(sheet, None, 1)
    assert (rows[0]["rate"], rows[0]["momentum"], rows[0]["weight_decay"]) == (0.5, 0.9, 0.01)
    assert (rows[1]["weight_decay"], rows[1]["eps"], rows[1]["running"]) == (3.0, 1e-5, 2.0)
    assert "dot" not in rows[1]
    assert rows[2]["momentum"] == 0.999
    instruments, sheet = heard(model, torch.randn(16, 6), torch.optim.SGD(model.parameters(), 0.1, momentum=0.7))
    assert instruments.finish(sheet, None, 1)[0]["momentum"] == 0.7


def test_no_hook_stays_behind(model):
    heard(model, torch.randn(16, 6))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_failure_is_reported_and_the_pass_goes_on(model):
    troubles: list[Exception] = []
    instruments = Instruments(model, find_layers(model), None, troubles.append)
    instruments.arm()
    model[1].eval()
    instruments._listener.hear(model[1], (torch.randn(3, 6),), {}, None)
    assert [type(trouble) for trouble in troubles] == [TypeError]
    instruments.close()


class OnePlus(nn.Module):
    """RMS normalization whose gain is 1 + weight, as Gemma has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


def test_a_gain_that_is_made_of_a_weight_follows_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), OnePlus(8), nn.Linear(8, 3))
    instruments = Instruments(model, find_layers(model), [], unexpected)
    for gain in (1.0, 3.0, 0.5):
        with torch.no_grad():
            model[1].weight.fill_(gain - 1)
        instruments.arm()
        model(torch.randn(20, 6))
        found = filled(instruments.read()).layers
        assert found[1]["gamma_max"] == pytest.approx(gain)
        folded = torch.linalg.matrix_norm(model[2].weight.detach() * gain, 2).item()
        assert found[2]["folded"] == pytest.approx(folded, rel=0.02)
    instruments.close()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_has_no_finite_norm_and_one_that_is_0_has_norm_0(broken):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 24), nn.LayerNorm(24), nn.Linear(24, 20), nn.LayerNorm(20), nn.Linear(20, 5))
    instruments = Instruments(model, find_layers(model), [], unexpected)
    for step in (1, 2):
        instruments.arm()
        model(torch.randn(20, 20))
        if step == 2:
            with torch.no_grad():
                model[0].weight[3, 4] = broken
                model[2].weight.zero_()
        rows = instruments.finish(filled(instruments.read()), None, step)
    instruments.close()
    assert math.isnan(rows[0]["norm_lower"]) and math.isnan(rows[0]["folded"])
    assert (rows[2]["norm_lower"], rows[2]["folded"]) == (0.0, 0.0)
    assert rows[4]["norm_lower"] > 0.0
    assert math.isnan(instruments.totals(rows)["log10_P_w_lower"])


def test_gradients_that_are_made_for_a_reading_live_until_what_reads_them_is_launched(monkeypatch):
    """A device is told where they lie: memory that was let go of by then may be somebody else's."""
    net = nn.Sequential(nn.Embedding(40, 8, sparse=True), nn.Flatten(), nn.Linear(16, 3))
    made: list[weakref.ref[torch.Tensor]] = []
    whole, launch = WatchedLayer.gradient.fget, Instruments._launch
    assert whole is not None

    def gradient(layer: WatchedLayer) -> torch.Tensor | None:
        found = whole(layer)
        if found is not None and layer.role == "embedding":
            made.append(weakref.ref(found))
        return found

    seen: list[bool] = []

    def launched(self, name, *rest):
        if isinstance(name, tuple) and name[0] == "told":
            seen.extend(ref() is not None for ref in made)
        return launch(self, name, *rest)

    monkeypatch.setattr(WatchedLayer, "gradient", property(gradient))
    monkeypatch.setattr(Instruments, "_launch", launched)
    instruments = Instruments(net, find_layers(net), [], unexpected)
    for level in (Level.PLAIN, Level.LIGHT):
        instruments.arm(level)
        net(torch.tensor([[1, 2], [3, 4]])).square().sum().backward()
        made.clear()
        instruments.read()
        assert seen and all(seen)
    instruments.close()
    assert all(ref() is None for ref in made)  # and no longer
