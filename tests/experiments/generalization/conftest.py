"""The digits as bytes, once; results of every experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.generalization import data
from experiments.generalization.place import write


@pytest.fixture(scope="session")
def images() -> data.Data:
    """The data on the CPU, pixels in [0, 1]."""
    pytest.importorskip("sklearn")
    return data.load("digits", "cpu")


NETS = (("none", 0.1), ("batch", 0.05), ("layer", 0.2))


def _save(folder: Path, experiment: str, label: str, settings: dict[str, Any], found: dict[str, Any]) -> None:
    made = {"device": "CPU", "torch": "2", "seconds": 90.0}
    told = {"experiment": experiment, "label": label, "settings": settings, "environment": made, "found": found}
    write(folder / f"{experiment}__{label}.json", told)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of every experiment with numbers that are easy to follow."""
    for seed, bound in enumerate((0.01001, 0.01011)):
        made = {"bound": bound, "surrogate": 0.006, "disagreement": 0.00401}
        found = {"certificate": made, "single": {"bound": 0.02}, "holdout": 0.005, "truth": {"error": 0.004}}
        _save(tmp_path, "disagreement", f"mnist-{seed}", {"data": "mnist", "delta": 0.05, "seed": seed}, found)
    for k, (norm, value) in enumerate(NETS):
        shape = {"data": "digits", "norm": norm, "width": 4, "depth": 1, "net": "mlp", "seed": 0, "delta": 0.05}
        rows = [
            {"key": "a", "name": "hold-out", "kind": "bound", "value": value + 1e-6, "about": "this network"},
            {"key": "d", "name": "Gibbs", "kind": "bound", "value": value, "about": "a noisy network"},
            {"key": "b", "name": "spectral", "kind": "vacuous", "value": None if k else 1.2e6},
            {"key": "c", "name": "unit", "kind": "not applicable", "value": None},
        ]
        found = {"certificate": {"rows": rows[: 4 - (k == 2)]}, "errors": {"test_error": value}}
        _save(tmp_path, "tables", norm, shape, found)
        nets = [_net(k, value, noise) for noise in (0.0, 0.3)]
        _save(tmp_path, "local", norm, {**shape, "radii": [0.1, 1.0]}, {"nets": nets})
        # half as many samples for the same error, with BatchNorm
        sizes = [{"m": m, "test_error": 8 / m / (1 + k % 2), "gap": 4 / m} for m in (100, 200, 400)]
        _save(tmp_path, "samples", norm, shape, {"sizes": sizes})
        attacked = [{**_net(k, value, 0.0), "attack": a, "attacked_error": 0.5} for a in (0.0, 1.0)]
        _save(tmp_path, "adversarial", norm, {**shape, "sizes": [0.0, 1.0], "radii": [0.1, 1.0]}, {"nets": attacked})
    return tmp_path


def _net(k: int, value: float, noise: float) -> dict[str, Any]:
    gap = value + noise
    masked = [None, None] if k == 2 else [gap, gap]
    slopes = {"global": -gap, "balls": [gap, -gap], "masked": masked, "point": gap, "margin": 1.0 - noise * 4}
    jacobian = {"jacobian_mean": 0.0, "jacobian_max": 1.0}
    return {"noise": noise, "train_error": 0.0, "test_error": gap, "gap": gap, **slopes, **jacobian}
