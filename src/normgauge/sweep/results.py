"""What a sweep found, as files: results.json with trials and points, results.csv with one row a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from normgauge.render.sweep import Outcome, Point, measures, points
from normgauge.sweep.config import Config
from normgauge.sweep.files import SCHEMA, spelled
from normgauge.version import __version__

FORMAT = "normgauge-sweep"

SCORES = ("train_accuracy", "test_accuracy", "gap", "train_loss", "test_loss", "loss_gap")
PRODUCTS = ("log10_P_w", *(f"log10_prod_inv_sigma_{end}" for end in ("min", "rms", "max")))


def measure_names(scopes: Sequence[str]) -> list[str]:
    """What a trial may measure when it is gauged in these scopes."""
    bounds = [f"{scope}.log10_{end}" for scope in scopes for end in ("upper", "folded", "lower")]
    return [*SCORES, *bounds, *PRODUCTS, "alarms"]


def to_json(config: Config, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything, in the form that results.json and ``--json`` hold."""
    names = measures(outcomes)
    return {
        "schema": SCHEMA,
        "format": FORMAT,
        "normgauge": __version__,
        "name": config.name,
        "config": str(config.path),
        "shared": dict(config.shared),
        "varied": list(config.varied),
        "points": [_point(point, names) for point in points(outcomes)],
        "trials": [_trial(outcome) for outcome in outcomes],
    }


def _point(point: Point, names: Sequence[str]) -> dict[str, Any]:
    return {
        "settings": dict(point.settings),
        "seeds": len(point.outcomes),
        "done": point.done,
        "failed": sum(outcome.status == "failed" for outcome in point.outcomes),
        "mean": {name: spelled(point.mean(name)) for name in names},
        "std": {name: spelled(point.std(name)) for name in names},
    }


def _trial(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "settings": dict(outcome.point),
        "seed": outcome.seed,
        "status": outcome.status,
        "attempts": outcome.attempts,
        "seconds": outcome.seconds,
        "error": outcome.error,
        "notes": list(outcome.notes),
        "values": {name: spelled(value) for name, value in outcome.values.items()},
    }
