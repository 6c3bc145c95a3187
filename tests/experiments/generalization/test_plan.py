"""The units."""

from __future__ import annotations

import pytest

from experiments.generalization import plan
from experiments.generalization.train import Recipe
from normgauge import NormgaugeError


@pytest.mark.parametrize("quick", [False, True])
def test_every_experiment_has_units_with_names_of_their_own(quick: bool) -> None:
    units = plan.load(quick=quick)
    assert {unit.experiment for unit in units} == set(plan.EXPERIMENTS)
    assert len({unit.name for unit in units}) == len({unit.slug for unit in units}) == len(units)
    for unit in units:
        Recipe(**{"epochs": 1, **unit.settings["recipe"]})
        assert {"width", "depth", "data", "norm"} <= set(unit.settings)


def test_settings_of_a_case_are_laid_over() -> None:
    units = {unit.name: unit for unit in plan.load()}
    assert units["disagreement/cifar10-1"].settings["delta"] == 0.01
    assert units["disagreement/mnist-1"].settings["delta"] == 0.05
    assert units["disagreement/cifar10-1"].settings["net"] == "resnet18"
    assert units["local/mnist-layer-256-4"].device == "cpu"


def test_a_surrogate_has_a_rest_to_be_certified_on() -> None:
    sizes = {"mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000}
    units = plan.select(plan.load(), ["disagreement"])
    assert {unit.settings["data"] for unit in units} == set(sizes)
    for unit in units:
        assert sizes[unit.settings["data"]] - unit.settings["first"] >= 10_000


def test_units_are_chosen_by_how_their_name_begins() -> None:
    units = plan.load()
    assert [u.label for u in plan.select(units, ["disagreement/mnist"])] == ["mnist-0", "mnist-1", "mnist-2"]
    assert plan.select(units, []) == units
    with pytest.raises(NormgaugeError, match="disagreement, local"):
        plan.select(units, ["cake"])
