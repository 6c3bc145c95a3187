"""PAC-Bayes rows: valid for the noisy network, the same in every gauge, never about the network itself."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.bounds.kl import kl_inverse
from normgauge.certificates.case import Case
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.gibbs.posterior import Gaussian, grid_divergence, proportional
from normgauge.certificates.gibbs.risk import drawn_error
from normgauge.certificates.gibbs.space import WeightSpace, weight_space
from normgauge.certificates.rows import gibbs
from normgauge.certificates.surrogate import train_half
from normgauge.core.certificate import NETWORK, Consumed, Row, RowKind
from normgauge.core.errors import InputError
from tests.certificates.rows.made import case_of, points, small, trained

KEYS = ["gibbs.maurer", "gibbs.dziugaite", "gibbs.data_dependent_prior", "score.lla"]


TRAIN = points(2000, 0)


FRESH = DataSample.of(points(20_000, 1), "fresh")


def asked(case: Case, **options: object) -> dict[str, Row]:
    return {row.key: row for row in gibbs.gibbs_rows(case, **options)}  # type: ignore[arg-type]


CHANNELS = tuple(10.0 ** (k / 3.5 - 1) for k in range(8))


def scaled(model: nn.Module, factors: tuple[float, ...]) -> nn.Module:
    """The same function: each row under the BatchNorm times a factor, its statistics along with it."""
    twin, factor = copy.deepcopy(model), torch.tensor(factors)
    with torch.no_grad():
        for layer in twin.layers:  # type: ignore[union-attr]
            linear, norm = layer.linear, layer.norm
            linear.weight.mul_(factor[:, None])
            linear.bias.mul_(factor)
            norm.running_mean.mul_(factor)
            norm.running_var.add_(norm.eps).mul_(factor**2).sub_(norm.eps)
    return twin


@pytest.fixture(scope="module")
def bn_case() -> Case:
    return case_of(trained(TRAIN), TRAIN, epochs=2)


@dataclass
class Run:
    """All rows, and the posterior each of them is about."""

    rows: dict[str, Row]
    posteriors: dict[str, tuple[WeightSpace, Gaussian]]


@pytest.fixture(scope="module")
def run(bn_case: Case) -> Run:
    found = Run({}, {})
    last: list[tuple[WeightSpace, Gaussian]] = []

    def watched(where: WeightSpace, posterior: Gaussian, *args: Any, **options: Any) -> float:
        last[:] = [(where, posterior)]
        return drawn_error(where, posterior, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gibbs, "drawn_error", watched)
        for row in gibbs.gibbs_rows(bn_case, draws=300):
            found.rows[row.key], found.posteriors[row.key] = row, last[0]
    return found


@pytest.fixture(scope="module")
def bn_rows(run: Run) -> dict[str, Row]:
    return run.rows


def test_every_row_is_there_and_none_is_about_this_network(bn_rows: dict[str, Row]) -> None:
    assert list(bn_rows) == KEYS
    for row in bn_rows.values():
        assert row.kind in (RowKind.BOUND, RowKind.SCORE)
        assert row.about != NETWORK
        assert sum(value for _, value in row.terms) == pytest.approx(row.value)
        assert row.source
        assert row.formula
        assert Consumed.TRAIN_LABELS in row.consumed
    assert all(Consumed.TRAINING in bn_rows[key].consumed for key in KEYS[1:3])


def test_maurer_pays_for_divergence_grid_and_draws(bn_case: Case, bn_rows: dict[str, Row]) -> None:
    row = bn_rows["gibbs.maurer"]
    where = weight_space(bn_case.model, TRAIN[0][:1])
    seen, m = dict(row.terms)["sampled Gibbs loss on D"], bn_case.m
    drawn = kl_inverse(seen, math.log(2 / 0.005) / 300)
    values = []
    for share in gibbs.SHARES:
        far = grid_divergence(proportional(where.mean, share), {})
        values.append(kl_inverse(drawn, (far + math.log(2 * math.sqrt(m) / 0.045)) / m))
    assert row.value is not None
    assert min(abs(row.value - value) for value in values) < 1e-9


@pytest.mark.parametrize("key", KEYS[:3])
def test_the_bounds_hold_for_the_gibbs_error(key: str, run: Run) -> None:
    row, (where, posterior) = run.rows[key], run.posteriors[key]
    truth = drawn_error(where, posterior, FRESH, 500, seed=77)
    assert row.value is not None
    assert truth < row.value < 0.8
    assert row.kind is RowKind.BOUND


@pytest.mark.parametrize("factors", [(10.0,) * 8, (0.1,) * 8, CHANNELS], ids=["up", "down", "each channel"])
def test_a_rescaled_batch_norm_network_gets_the_same_row(
    factors: tuple[float, ...], bn_case: Case, bn_rows: dict[str, Row]
) -> None:
    twin = case_of(scaled(bn_case.model, factors), TRAIN, epochs=0)
    assert float((twin.logits - bn_case.logits).abs().max()) < 1e-3
    row = asked(twin, draws=300)["gibbs.maurer"]
    assert row.value == pytest.approx(bn_rows["gibbs.maurer"].value, abs=2e-3)


@pytest.mark.parametrize("norm", [None, "layer"], ids=["none", "layer"])
def test_other_networks_get_all_rows_too(norm: str | None) -> None:
    found = asked(case_of(trained(TRAIN, norm), TRAIN, epochs=1), draws=100)
    assert list(found) == KEYS
    assert all(found[key].kind in (RowKind.BOUND, RowKind.VACUOUS) for key in KEYS[:3])
    assert found["score.lla"].kind is (RowKind.NOT_APPLICABLE if norm is None else RowKind.SCORE)


def test_no_training_allowed_leaves_the_rows_that_train_out(bn_case: Case) -> None:
    found = asked(case_of(bn_case.model, TRAIN, epochs=0), draws=50)
    assert found["gibbs.maurer"].kind is RowKind.BOUND
    for key in KEYS[1:3]:
        assert found[key].kind is RowKind.NOT_APPLICABLE
        assert "epochs" in found[key].reason


def test_the_initial_weights_as_centre_are_nearer(bn_case: Case, bn_rows: dict[str, Row]) -> None:
    row = asked(bn_case, draws=300, initial=small().state_dict())["gibbs.dziugaite"]
    assert dict(row.terms)["divergence"] < dict(bn_rows["gibbs.dziugaite"].terms)["divergence"]


def test_initial_weights_of_another_network_are_named(bn_case: Case) -> None:
    row = asked(bn_case, draws=10, initial={"strange": torch.zeros(1)})["gibbs.maurer"]
    assert row.kind is RowKind.NOT_APPLICABLE
    assert "strange" in row.reason


def test_a_half_at_hand_is_used(bn_case: Case, bn_rows: dict[str, Row]) -> None:
    asked_for = []

    def prepared() -> object:
        asked_for.append(1)
        return train_half(bn_case)

    shared = asked(bn_case, draws=300, prepared=prepared)["gibbs.data_dependent_prior"]
    assert asked_for == [1]
    assert shared == bn_rows["gibbs.data_dependent_prior"]


def test_batch_statistics_in_eval_mode_are_no_function_of_an_input() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 2))
    found = asked(case_of(model, points(100, 0)), draws=10)
    assert list(found) == KEYS
    assert all(found[key].kind is RowKind.NOT_APPLICABLE for key in KEYS[:2])
    assert "no function of a single input" in found["gibbs.maurer"].reason


class Constant(nn.Module):
    """No weights at all."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, 0], -x[:, 0]], 1)


def test_a_network_without_weights_has_no_rows() -> None:
    found = asked(case_of(Constant(), points(50, 0)), draws=10)
    assert all(row.kind is RowKind.NOT_APPLICABLE for row in found.values())
    assert "no weights" in found["gibbs.maurer"].reason


def test_a_network_without_canonical_scales_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_scales(*_: object) -> None:
        raise InputError("no graph")

    monkeypatch.setattr("normgauge.certificates.gibbs.space.canonical", no_scales)
    row = asked(case_of(small(), points(50, 0), epochs=0), draws=10)["gibbs.maurer"]
    assert row.about.startswith(gibbs.NOISY)
    assert "no graph" in row.about


def test_whole_numbers_as_inputs_are_run_too() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 2)).eval()
    inputs = torch.randint(5, (40, 3), generator=torch.Generator().manual_seed(0))
    found = asked(case_of(model, (inputs, inputs[:, 0] % 2), epochs=0), draws=20)
    assert found["gibbs.maurer"].kind in (RowKind.BOUND, RowKind.VACUOUS)


def test_the_model_and_the_random_state_are_left_alone(bn_case: Case) -> None:
    before = {name: tensor.clone() for name, tensor in bn_case.model.state_dict().items()}
    torch.manual_seed(3)
    asked(bn_case, draws=20)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in bn_case.model.state_dict().items())
    assert not any(module.training for module in bn_case.model.modules())


def test_the_sharpness_score_does_not_see_the_scale(bn_case: Case, bn_rows: dict[str, Row]) -> None:
    case = case_of(scaled(bn_case.model, CHANNELS), TRAIN, epochs=0)
    row = asked(case, draws=10)["score.lla"]
    assert row.kind is RowKind.SCORE
    assert row.confidence is None
    assert row.value == pytest.approx(bn_rows["score.lla"].value, rel=0.02)


def wide(classes: int = 2) -> nn.Sequential:
    """So many weights that no sample of this size pays for their noise."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 1000), nn.ReLU(), nn.Linear(1000, classes)).eval()


def test_a_divergence_that_says_it_all_needs_no_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*given: object, **more: object) -> float:
        raise AssertionError("networks were drawn")

    monkeypatch.setattr(gibbs, "drawn_error", drawn)
    found = list(itertools.islice(gibbs.gibbs_rows(case_of(wide(), points(60, 0), epochs=1)), 2))
    assert [row.key for row in found] == KEYS[:2]
    for row in found:
        assert row.kind is RowKind.VACUOUS
        assert row.value is not None
        assert 0.5 <= row.value <= 1
        assert row.reason.startswith("at least this")


@pytest.mark.parametrize(("size", "epochs"), [(60, 1), (400, 3)])
def test_what_is_said_without_draws_is_below_what_draws_would_say(
    size: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(wide(), points(size, 0), epochs=epochs)
    least = list(itertools.islice(gibbs.gibbs_rows(case), 2))
    monkeypatch.setattr(gibbs.Work, "hopeless", lambda work, exponent: None)
    drawn = list(itertools.islice(gibbs.gibbs_rows(case, draws=50), 2))
    assert [row.key for row in least] == KEYS[:2]
    for few, many in zip(least, drawn, strict=True):
        assert few.kind is RowKind.VACUOUS
        assert few.value is not None and many.value is not None
        assert few.value <= many.value
        assert dict(many.terms)["sampled Gibbs loss on D"] > 0


def test_pilots_are_spared_where_no_error_could_make_them_best(bn_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def pilot(work: gibbs.Work, where: WeightSpace, posterior: Gaussian, *rest: Any) -> float:
        tried.append(posterior)
        return 0.0

    monkeypatch.setattr(gibbs.Work, "pilot", pilot)
    asked(case_of(bn_case.model, TRAIN, epochs=0), draws=50)
    assert len(tried) == 1
