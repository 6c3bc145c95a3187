"""Where a search may go."""

from __future__ import annotations

import math

import pytest
import torch

from normgauge.instrument.probe.domain import INSIDE, Domain, landmarks
from tests.instrument.probe.cases import gaussian


def test_a_point_outside_comes_to_the_nearest_place_inside() -> None:
    center, offset = gaussian(5, 7), gaussian(5, 7, seed=1)
    domain = Domain(center, 0.5)
    found = domain.project(center + 10 * offset)
    shrunk = center + 0.5 * (1 - INSIDE) * offset / offset.norm(dim=1, keepdim=True)
    assert torch.allclose(found, shrunk, atol=1e-12)
    assert ((found - center).norm(dim=1) <= 0.5 * (1 - INSIDE)).all()
    inside = center + 1e-3 * offset
    assert torch.equal(domain.project(inside), center + (inside - center))
    assert Domain(center, math.inf).project(offset) is offset


def test_a_move_is_as_long_as_the_sample_and_no_longer_than_the_radius() -> None:
    center = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.3, 0.4]], dtype=torch.float64)
    assert Domain(center, 2.0).unit_step.tolist() == pytest.approx([2.0, 1.0, 0.5])
    assert Domain(center, math.inf).unit_step.tolist() == pytest.approx([5.0, 1.0, 0.5])


def test_a_quotient_from_a_projected_point_stays_in_the_ball() -> None:
    domain = Domain(gaussian(4, 3), 0.1)
    edge = domain.project(domain.center + 9 * gaussian(4, 3, seed=1))
    step = domain.room * torch.nn.functional.normalize(edge - domain.center)
    assert ((edge + step - domain.center).norm(dim=1) < 0.1).all()
    assert Domain(domain.center, 0.0).room == math.inf


@pytest.mark.parametrize("radius", [0.0, 1e-10, math.inf])
def test_a_jitter_moves_by_a_billionth_and_never_out_of_the_ball(radius: float) -> None:
    center = torch.cat([gaussian(3, 4), torch.zeros(1, 4, dtype=torch.float64)])
    moved = Domain(center, radius).jitter(center, gaussian(4, 4, seed=1)) - center
    assert (moved != 0).all()
    assert (moved.norm(dim=1) < (1e-10 if radius == 1e-10 else 1e-7)).all()


def test_the_landmarks_are_those_promised() -> None:
    center = gaussian(3, 5)
    found = list(landmarks(center, gaussian(3, 5, seed=1)))
    assert all(mark.shape == center.shape and mark.isfinite().all() for mark in found) and len(found) == 16
    constant, zero = found[0], found[1]
    assert torch.equal(constant, constant[:, :1].expand(3, 5)) and zero.eq(0).all()
    assert torch.allclose(constant[:, 0], center.mean(1))
    sizes = [float((mark / center).mean()) for mark in found[5:13]]  # the same direction, from 1e-4 to 1e4
    assert sizes == pytest.approx([10.0**k for k in (-4, -2, -1, -0.5, 0.5, 1, 2, 4)])
