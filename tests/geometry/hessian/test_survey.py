"""`ng.curvature`: the numbers agree with a dense Hessian, the contract holds, the model is untouched."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F

import normgauge as ng
from normgauge.core.errors import InputError
from normgauge.geometry.hessian import dense_hessian
from normgauge.geometry.hessian.survey import condition_number
from tests.geometry.hessian.made import data, fitted, net
from tests.instrument.trace.test_untouched import assert_untouched, prepared, snapshot


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_everything_against_the_dense_hessian(mode):
    model, batch = fitted(net()), [data()]
    values = torch.linalg.eigvalsh(dense_hessian(model, F.cross_entropy, batch, mode=mode)).flip(0)
    found = ng.curvature(model, F.cross_entropy, batch, mode=mode, dtype=torch.float64, samples=64)
    assert [e.value for e in found.eigenvalues] == pytest.approx(values[:5].tolist(), 1e-6)
    assert found.smallest.value == pytest.approx(float(values[-1]), 1e-2, 1e-4)
    assert abs(found.trace.value - float(values.sum())) < 5 * found.trace.standard_error
    assert found.density is not None and found.density.probes == 0
    kept = values.abs() >= 1e-6 * values[0]
    assert found.condition.kept == int(kept.sum())
    assert found.condition.value == pytest.approx(float(values[0] / values.abs()[kept].min()), 1e-3)
    assert sum(layer.trace.value for layer in found.layers) == pytest.approx(found.trace.value)
    assert found.converged and not found.notes


def test_layers_are_blocks():
    model, batch = fitted(net()), [data()]
    whole = dense_hessian(model, F.cross_entropy, batch)
    found = ng.curvature(model, F.cross_entropy, batch, dtype=torch.float64)
    assert [(layer.name, layer.parameters) for layer in found.layers] == [("0", 56), ("1", 16), ("3", 27)]
    last = torch.linalg.eigvalsh(whole[-27:, -27:])[-1]
    assert found.layers[-1].top.value == pytest.approx(float(last), 2e-2)
    without = ng.curvature(model, F.cross_entropy, batch, layers=False)
    assert [layer.top for layer in without.layers] == [None] * 3


def test_the_json_is_the_contract():
    stages: set[str] = set()
    found = ng.curvature(
        net(hidden=120), F.cross_entropy, data(), top=3, density=True, probes=2, steps=10,
        progress=lambda stage, fraction: stages.add(stage) if 0 <= fraction <= 1 else pytest.fail("fraction"),
    )  # fmt: skip
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert len(shown["eigenvalues"]) == 3 and {"value", "residual"} <= set(shown["eigenvalues"][0])
    assert {"value", "standard_error"} <= set(shown["trace"])
    assert isinstance(shown["sharpness_scale_free"], float)
    assert shown["density"]["probes"] == 2 and shown["condition"] is None
    assert stages == {"largest eigenvalues", "smallest eigenvalue", "trace", "layers", "density"}
    assert shown["products"]["density"] == 20
    assert any("float32" in note for note in shown["notes"]) and any("1.bias" in note for note in shown["notes"])


def test_it_prints_and_saves(tmp_path):
    found = ng.curvature(net(), F.cross_entropy, data())
    shown = str(found)
    assert "scale-free sharpness" in shown and "condition number" in shown and "residual" in shown
    found.save(tmp_path / "c.json")
    stored = json.loads((tmp_path / "c.json").read_text())
    assert stored == found.to_json() and type(found).from_json(stored).eigenvalues == found.eigenvalues
    with pytest.raises(InputError, match="cannot write"):
        found.save(tmp_path / "no" / "c.json")


def test_the_model_is_untouched():
    model, x = prepared()
    before = snapshot(model)
    ng.curvature(model, F.cross_entropy, (x, torch.tensor([0, 1, 2, 0, 1])), mode="train", density=True)
    assert_untouched(before, model)


def test_a_page_without_density_or_layers():
    from normgauge.render.curvature import curvature_html

    found = ng.curvature(net(hidden=120), F.cross_entropy, data(), layers=False, top=1)
    page = curvature_html(dataclasses.replace(found, layers=(), converged=False))
    assert found.density is None and "<polyline" not in page and "did not settle" in page
    assert "<h2>Layers</h2>" not in page


def test_too_few_products_and_downward_curvature_are_said():
    shown = str(ng.curvature(net(), F.cross_entropy, data()))
    assert "The loss curves downwards" in shown


def test_bad_options():
    with pytest.raises(InputError, match="at least 1 eigenvalue"):
        ng.curvature(net(), F.cross_entropy, data(), top=0)
    with pytest.raises(InputError, match="between 0 and 1"):
        condition_number([1.0, 0.5], 2.0)
    assert condition_number([0.0, 0.0]).value == 1.0
