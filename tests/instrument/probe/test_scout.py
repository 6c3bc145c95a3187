"""Single precision says where to look; how steep it is there is computed in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch import Tensor

from normgauge.instrument.probe import linearize, search
from normgauge.instrument.probe.linearize import SampleMap
from tests.instrument.probe.cases import build, dense_norms

Opened = Callable[[], AbstractContextManager[Callable[[Tensor], Tensor]]]


def opening(function: Callable[[Tensor], Tensor], seen: list[torch.dtype]) -> Opened:
    def watched(x: Tensor) -> Tensor:
        seen.append(x.dtype)
        return function(x)

    @contextmanager
    def opened() -> Iterator[Callable[[Tensor], Tensor]]:
        yield watched

    return opened


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearize, "WORTH", 0.0)


@pytest.mark.parametrize("name", ["layer", "rms, many outputs", "group", "attention", "two inputs, many outputs"])
def test_the_samples_own_slopes_are_as_good_as_in_float64(name: str) -> None:
    network, x = build(name)
    seen: list[torch.dtype] = []
    found = search(network, x, len(x), 0.0, quick=opening(copy.deepcopy(network).float(), seen))
    truth, alone = dense_norms(network, x), search(network, x, len(x), 0.0)
    assert seen and set(seen) == {torch.float32} and found.log_lower.dtype == torch.float64
    assert (found.log_lower.exp() <= truth).all()
    assert torch.allclose(found.log_lower, alone.log_lower, rtol=0, atol=1e-5)


@pytest.mark.parametrize("radius", [0.5, math.inf])
def test_a_climb_reaches_what_it_reaches_in_float64(radius: float) -> None:
    network, x = build("layer")
    found, alone = (
        search(network, x, len(x), radius, steps=64, quick=quick)
        for quick in (opening(copy.deepcopy(network).float(), []), None)
    )
    assert found.log_best >= alone.log_best - 0.02 and found.steps == alone.steps == 64


@pytest.mark.parametrize("radius", [0.0, 0.5, math.inf])
def test_a_wrong_scout_costs_steepness_but_claims_nothing(radius: float) -> None:
    network, x = build("layer")
    wrong = copy.deepcopy(network).float()
    found = search(network, x, len(x), radius, steps=16, quick=opening(lambda y: 100 * wrong(y.flip(1)), []))
    assert found.log_best <= search(network, x, len(x), math.inf, steps=256).log_best
    if radius == 0:
        assert (found.log_lower.exp() <= dense_norms(network, x)).all()


def test_a_short_run_is_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearize, "WORTH", 1.0)
    network, x = build("layer")
    seen: list[torch.dtype] = []
    rows = SampleMap(network, x, len(x))
    with rows.scouted(opening(network, seen)) as same:
        assert same is rows
    with rows.scouted(None) as same:
        assert same is rows
    assert not seen


def test_the_scout_knows_its_precision_and_its_calls_count() -> None:
    network, x = build("layer")
    rows = SampleMap(network, x, len(x))
    with rows.scouted(opening(copy.deepcopy(network).float(), [])) as scout:
        values = scout.values(rows.start)
        assert scout.eps == torch.finfo(torch.float32).eps and scout.rounding > rows.rounding
        assert (scout.samples, scout.outputs) == (rows.samples, rows.outputs)
    assert torch.allclose(values, rows.values(rows.start), atol=1e-5) and rows.calls == 3
