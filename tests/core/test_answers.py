"""The calls that people try first: each works, or says what to do."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import normgauge as ng
from normgauge.core.rounding import power_down, power_up

X, Y = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def reading(model: nn.Module) -> ng.Reading:
    return ng.gauge(model, X, search=False)


REFUSED: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "a loader": (lambda m, r: ng.gauge(m, DataLoader(TensorDataset(X, Y))), r"next\(iter\(loader\)\)"),
    "a ball without a radius": (lambda m, r: ng.gauge(m, X, scope="ball"), "such as ball:0.1"),
    "a scope that is none": (lambda m, r: ng.gauge(m, X, scope="local"), "point .the samples."),
    "a number as scope": (lambda m, r: ng.gauge(m, X, 0.1), "such as ball:0.1"),
    "too many arguments": (lambda m, r: ng.gauge(m, X, "point", "eval"), "options go by name"),
    "eps": (lambda m, r: ng.gauge(m, X, eps=0.1), 'scope="ball:0.1"'),
    "norm": (lambda m, r: ng.gauge(m, X, norm="inf"), r"Euclidean.*e\*sqrt\(n\)"),
    "a mistyped option": (lambda m, r: ng.readings(m, X, scope=["point"]), "did you mean scopes"),
    "an option of gauge": (lambda m, r: ng.symmetries(m, X, mod="eval"), "did you mean mode"),
    "a folder for a model": (lambda m, r: ng.gauge("./bert", X), r"of a folder that is ng.load_model\('./bert'\)"),
    "ng.load of a folder": (lambda m, r: ng.load("./bert"), r"ng.load_model\(folder\)"),
    "the batch first": (lambda m, r: ng.gauge(X, m), "the model first, then the batch"),
    "the file first": (lambda m, r: ng.report("a.html", [r]), "readings first and the file second"),
    "labels apart": (lambda m, r: ng.certify(m, X, Y), r"give \(inputs, labels\)"),
    "targets apart": (lambda m, r: ng.curvature(m, nn.functional.cross_entropy, X, Y), r"\(inputs, targets\)"),
    "no path": (lambda m, r: ng.Monitor(m), "runs/a"),
    "lipschitz": (lambda m, r: r.lipschitz, "between lower"),
    "uper": (lambda m, r: r.uper, "did you mean upper"),
    "to_dict": (lambda m, r: r.to_dict(), "to_json"),
    "a number for a layer": (lambda m, r: r.explain(1), "as text, such as '1'"),
    "no such layer": (lambda m, r: r["7"], "it has 4: 0, 1, 2, 3"),
    "ng.lipschitz": (lambda m, r: ng.lipschitz(m, X), "ng.gauge"),
    "ng.watch": (lambda m, r: ng.watch("runs/a"), "normgauge watch runs/a"),
    "ng.load": (lambda m, r: ng.load("a.json"), "ng.Reading.load"),
    "ng.ratios": (lambda m, r: ng.ratios(m, X), "normgauge ratios"),
    "ng.check_rule": (lambda m, r: ng.check_rule, "ng.testing.check_rule"),
    "ng.guage": (lambda m, r: ng.guage(m, X), "did you mean gauge"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_a_call_that_cannot_be_says_what_to_do(call: str, model: nn.Module, reading: ng.Reading) -> None:
    run, words = REFUSED[call]
    with pytest.raises((ng.NormgaugeError, TypeError, AttributeError), match=words):
        run(model, reading)


def test_a_batch_with_labels_is_measured_without_them(model: nn.Module, reading: ng.Reading) -> None:
    found = ng.gauge(model, (X, Y), search=False)
    assert found.upper == reading.upper and any("labels?" in note for note in found.notes)


def test_a_reading_is_a_number(reading: ng.Reading) -> None:
    assert float(reading) == reading.upper >= math.exp(reading.log_upper)
    assert 0 < reading.lower <= math.exp(reading.log_lower) <= reading.upper
    assert reading["1"] is reading.layer("1")
    lower, upper = reading["1"].log10_gain
    assert 10**lower <= 10**upper == pytest.approx(math.exp(reading["1"].gain.hi))
    with pytest.raises(TypeError):
        iter(reading)  # type: ignore[call-overload]


def test_a_bound_there_is_not_is_infinite() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.zeta(x.square() + 2, torch.ones(()))

    found = ng.gauge(Odd(), torch.ones(1, 2), search=False)
    assert found.evidence == "unknown" and float(found) == math.inf


def test_powers_are_rounded_outwards_and_stay_in_range() -> None:
    for log in (-800.0, -1.0, 0.0, 0.5, 700.0):
        assert power_down(log) <= math.exp(log) <= power_up(log)
    assert power_up(1e4) == math.inf and power_down(1e4) == sys.float_info.max
    assert power_up(-math.inf) == power_down(-math.inf) == 0
    assert power_down(math.inf) == math.inf


def test_the_measuring_verbs_share_names_and_defaults() -> None:
    known = inspect.signature(ng.gauge).parameters
    for verb in (ng.readings, ng.what_if, ng.symmetries, ng.canonical):
        for name, parameter in inspect.signature(verb).parameters.items():
            if name in known:
                assert parameter.default == known[name].default, (verb.__name__, name)
    for verb in (ng.what_if, ng.symmetries):
        assert set(inspect.signature(verb).parameters) <= set(known)


def test_a_report_is_written_of_one_reading(reading: ng.Reading, tmp_path: Path) -> None:
    assert ng.report(reading, tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!")
