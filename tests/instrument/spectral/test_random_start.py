"""Random starts: bounds of the largest eigenvalue that are wrong as seldom as they say, on spectra made to hide it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import normgauge as ng
from normgauge.core.rounding import dot_error
from normgauge.instrument.spectral import dense
from normgauge.instrument.spectral.random_start import (
    STARTS,
    RandomEnds,
    batched_lanczos,
    ends_from,
    krylov_facts,
    random_start_ends,
    steps_for,
    weight_seed,
)

SPECTRA = {
    "flat": torch.ones(300),
    "one above a flat rest": torch.cat([torch.tensor([1.02]), torch.ones(299)]),
    "geometric": 0.9 ** torch.arange(300.0),
    "rank one": torch.cat([torch.tensor([1.0]), torch.zeros(299)]),
    "crowded at the top": 1 - torch.arange(300.0) * 1e-4,
    "tiny": 1e-150 * (1 + torch.rand(300, generator=torch.Generator().manual_seed(1))),
}


def ends(matrices: Tensor, chance: float, seed: int, steps: int, starts: int = STARTS) -> RandomEnds:
    """Both ends of λ_max(MᵀM) of a batch."""
    count, rows, size = matrices.shape
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(count, starts, size, generator=generator, dtype=torch.float64)
    error = 2 * dot_error(max(rows, size)) * matrices.norm(dim=(1, 2)) ** 2
    return random_start_ends(lambda x: (x @ matrices.mT) @ matrices, start, steps, chance, error)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("steps", [2, 10, 33, 300])
def test_both_ends_hold_whatever_the_spectrum(name: str, steps: int) -> None:
    spectrum = SPECTRA[name].double()
    turn = torch.linalg.qr(torch.randn(300, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    found = ends((turn * spectrum)[None], 1e-8, 3, steps)
    truth = float(spectrum.max()) ** 2
    assert float(found.lower) <= truth * (1 + 1e-12) <= float(found.upper) * (1 + 2e-12)


@pytest.mark.parametrize("size", [64, 512])
def test_the_steps_asked_for_reach_the_width(size: int) -> None:
    matrix = torch.randn(1, size, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    found = ends(matrix, 1e-8, 1, steps_for(size, 1e-8, 0.01))
    assert math.log(float(found.upper) / float(found.lower)) / 2 <= 0.02
    assert float(found.upper) >= float(torch.linalg.matrix_norm(matrix[0], 2)) ** 2 * (1 - 1e-12)


def test_it_fails_no_more_often_than_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    spectra = torch.rand(3000, 40, generator=generator, dtype=torch.float64)
    spectra[:, 0] = 1 + 10 ** (-3 * torch.rand(3000, generator=generator, dtype=torch.float64))
    found = ends(torch.diag_embed(spectra), 0.2, 7, steps=3, starts=1)
    missed = int((found.upper < spectra.amax(1) ** 2).sum())
    assert 0 < missed <= 0.2 * 3000 + 3 * math.sqrt(3000 * 0.2 * 0.8)


def test_a_start_that_hides_the_top_is_what_the_chance_is_about() -> None:
    spectrum = torch.linspace(0.5, 1.0, 50, dtype=torch.float64)
    spectrum[0] = 2.0
    start = torch.randn(1, STARTS, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start[..., 0] = 0.0
    found = random_start_ends(lambda x: x * spectrum**2, start, 15, 1e-8, 1e-14)
    assert float(found.upper) < 4.0


def test_products_too_rough_to_trust_give_no_bound() -> None:
    matrix = torch.randn(1, 60, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = torch.randn(1, STARTS, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = random_start_ends(lambda x: (x @ matrix.mT) @ matrix, start, 20, 1e-8, error=10.0)
    assert math.isinf(float(found.upper))


def test_one_map_that_is_no_number_does_not_stop_the_others() -> None:
    matrices = torch.randn(3, 20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrices[1, 2, 3] = math.nan
    found = ends(matrices, 1e-8, 1, 20)
    true = torch.linalg.matrix_norm(matrices[[0, 2]], 2).square()
    assert not bool(found.upper[1] < math.inf) and not bool(found.lower[1] > 0)
    assert bool((found.lower[[0, 2]] <= true).all()) and bool((true <= found.upper[[0, 2]]).all())


def test_lanczos_goes_on_beyond_an_invariant_space() -> None:
    start = torch.zeros(1, 1, 6, dtype=torch.float64)
    start[..., :2] = 1.0
    basis, images, _ = batched_lanczos(lambda x: x * torch.arange(6.0).double(), start, 6)
    assert torch.allclose(basis[0, 0] @ basis[0, 0].T, torch.eye(6, dtype=torch.float64), atol=1e-9)
    assert images.shape == basis.shape


def test_a_seed_follows_from_the_weight_alone() -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    assert weight_seed(weight) == weight_seed(weight.clone()) != weight_seed(weight + 1)


def test_a_large_matrix_is_proved_by_chance_where_that_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "CHANCE_FROM", 100)
    monkeypatch.setattr(dense, "EIGENVALUE_LIMIT", 90)
    matrix = torch.randn(150, 120, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = math.log(float(torch.linalg.matrix_norm(matrix, 2)))
    for given in (matrix, matrix.T):
        found = dense.dense_norm(given, chance=1e-8)
        assert (found.method, found.chance) == ("random starts", 1e-8)
        assert found.log.lo <= truth <= found.log.hi <= truth + 0.02
        assert found == dense.dense_norm(given, chance=1e-8)
        assert dense.dense_norm(given).chance == 0.0


def test_a_reading_adds_up_the_chances_of_its_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "CHANCE_FROM", 100)
    monkeypatch.setattr(dense, "EIGENVALUE_LIMIT", 90)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(120, 130), torch.nn.ReLU(), torch.nn.Linear(130, 110))
    reading = ng.gauge(model, torch.randn(2, 120), scope="global", search=False, balance=False)
    assert reading.failure_probability == pytest.approx(2e-8)
    assert reading.evidence is ng.Evidence.PROVED
    assert "fails with p ≤ 2e-08" in " ".join(str(reading).split())  # a note may wrap anywhere


@pytest.mark.parametrize("rough", [0.0, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_first_steps_of_a_run_prove_something_too_and_bear_rougher_products(name: str, rough: float) -> None:
    spectrum = SPECTRA[name].double()
    truth = float(spectrum.max()) ** 2
    noise = torch.Generator().manual_seed(5)

    def normal(x: Tensor) -> Tensor:
        off = torch.randn(x.shape, generator=noise, dtype=torch.float64)
        size = rough * truth * torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * spectrum.square() + size * off / torch.linalg.vector_norm(off, dim=-1, keepdim=True)

    start = torch.randn(1, STARTS, 300, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    facts = krylov_facts(normal, start, 40)
    error = (rough + dot_error(4)) * truth
    uppers = [float(ends_from(facts, 1e-8, error, steps, 1e6).upper) for steps in (1, 2, 3, 5, 9, 17, 40)]
    assert min(uppers) >= truth * (1 - 1e-12)
    assert math.isfinite(min(uppers))
    if rough == 0.0 and name != "tiny":  # whose squares lose their last digits to underflow
        assert uppers[-1] < 1.2 * truth < uppers[0]
