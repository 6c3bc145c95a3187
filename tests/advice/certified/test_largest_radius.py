"""The search: what it returns was proved, it spends no more than it may, and it finds the largest there is."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from normgauge.advice.certified.largest_radius import certified_by, largest_radius

ROOM = torch.tensor([math.inf, 1.0, 2.0], dtype=torch.float64)


class Engine:
    """L(r) as given, for one class that matters."""

    name = "made"

    def __init__(self, slope, tries=8, hint=math.inf):
        self.slope, self.tries, self.asked, self.hinted = slope, tries, [], hint

    def hint(self, sample):
        return self.hinted

    def __call__(self, sample, radius, target):
        self.asked.append(radius)
        value = self.slope(radius)
        return None if value is None else torch.tensor([-math.inf, math.log(value), -math.inf], dtype=torch.float64)


def searched(engine, certified=0.0, attacked=None):
    return largest_radius(engine, 0, 0, ROOM, certified, attacked)


def test_the_quotient_is_strictly_below_the_exact_one():
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        room = torch.rand(4, generator=generator, dtype=torch.float64) * 10 ** float(
            torch.randn(1, generator=generator)
        )
        logs = torch.randn(4, generator=generator, dtype=torch.float64) * 5
        found = Fraction(certified_by(room, logs))
        least = min(Fraction(float(m)) / Fraction(math.exp(float(v))) for m, v in zip(room, logs, strict=True))
        assert least * (1 - Fraction(1, 10**11)) < found < least


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_class_without_room_certifies_nothing(bad):
    assert certified_by(torch.tensor([math.inf, 1.0, bad]), torch.zeros(3)) == 0.0
    assert certified_by(ROOM, torch.full((3,), math.nan, dtype=torch.float64)) == 0.0
    assert certified_by(ROOM, torch.full((3,), math.inf, dtype=torch.float64)) == 0.0


def test_a_bound_over_all_inputs_is_found_at_once():
    engine = Engine(lambda r: 4.0)
    assert searched(engine) == pytest.approx(0.25, rel=1e-11) and engine.asked[0] == math.inf and len(engine.asked) == 2


@pytest.mark.parametrize("attacked", [None, 0.8, 5.0])
@pytest.mark.parametrize("growth", [0.5, 2.0, 6.0])
def test_a_bound_that_grows_with_the_ball_is_met_where_it_passes(growth, attacked):
    def slope(r):
        return None if math.isinf(r) else 1 + growth * r**2

    low, high = 0.0, 1.0
    for _ in range(60):  # room 1 = L(r) r
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) * middle < 1 else (low, middle)
    engine = Engine(slope, tries=9)
    found = searched(engine, attacked=attacked)
    assert 0.98 * low < found <= low and len(engine.asked) <= 9


def test_what_passed_is_kept_where_a_larger_radius_is_refused():
    assert searched(Engine(lambda r: 1.0 if r < 0.3 else None), attacked=1.0) == pytest.approx(0.3, rel=0.06)
    assert searched(Engine(lambda r: None)) == 0.0 and searched(Engine(lambda r: None), certified=0.1) == 0.1


def test_a_bound_that_jumps_is_never_believed_beyond_a_radius_it_passed():
    def slope(r):
        return 100.0 if 0.2 < r < 0.4 else 1.5 if r <= 0.2 else 3.0

    found = searched(Engine(slope))
    assert any(found <= r and slope(r) * found < 1 for r in (0.2, 0.4, math.inf, found))


@pytest.mark.parametrize("tries", [0, 1, 3, 8])
def test_the_work_is_counted(tries):
    engine = Engine(lambda r: None if math.isinf(r) else 1 + r, tries)
    searched(engine, attacked=3.0)
    assert len(engine.asked) <= tries


def test_a_bound_that_is_too_good_certifies_more_than_the_attack_allows():
    assert searched(Engine(lambda r: None if math.isinf(r) else 0.9), attacked=1.0) > 1.0


def test_a_radius_that_an_engine_hints_at_is_tried_first_then_a_little_more_or_half():
    easy = Engine(lambda r: None if r > 0.02 else 1.0, 4, hint=0.01)
    assert searched(easy, certified=1e-6, attacked=1.0) == pytest.approx(0.015)
    assert easy.asked == pytest.approx([math.inf, 0.01, 0.015, 0.0225])
    hard = Engine(lambda r: None if r > 0.004 else 1.0, 4, hint=0.01)
    assert searched(hard, certified=1e-6, attacked=1.0) == 0.0025 and hard.asked[1:] == [0.01, 0.005, 0.0025]
    low = Engine(lambda r: 1.0, 3, hint=1e-9)  # of no use below what is known
    assert searched(low, certified=1e-6) == pytest.approx(1.0)
