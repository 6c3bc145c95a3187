"""Families as moves: directions against autograd, dimensions against ranks, matrices against their inverses."""

from __future__ import annotations

import pytest
import torch

from normgauge.geometry.symmetry.generators import (
    Generator,
    Part,
    dimension,
    matrix_family,
    mixed_channels,
    put_entries,
    taken_entries,
    tangents,
    turned_channels,
)

DRAW = torch.Generator().manual_seed(0)
STATE = {
    "a": torch.randn(4, 3, generator=DRAW, dtype=torch.float64),
    "b": torch.randn(2, 4, generator=DRAW, dtype=torch.float64),
    "gain": 1 + torch.rand(4, generator=DRAW, dtype=torch.float64),
}
ROWS = torch.arange(12).reshape(4, 3).T  # (…, channels)
COLUMNS = torch.arange(8).reshape(2, 4)
PARTS = [Part("a", ROWS, inverse=False), Part("b", COLUMNS, inverse=True)]


def scaled(name: str) -> Generator:
    return Generator("scale", "scale", (name,), 1, lambda state, t: {name: state[name] * t.exp()})


def test_tangents_are_the_derivatives_of_the_moves():
    family = matrix_family("mixed", [mixed_channels(4, PARTS)])
    found = tangents(family, STATE)
    zero = torch.zeros(family.count, dtype=torch.float64)
    for name in ("a", "b"):
        slopes = torch.autograd.functional.jacobian(lambda t, name=name: family.move(STATE, t)[name].reshape(-1), zero)
        assert torch.allclose(found[name], slopes.T, atol=1e-8)


def test_dimensions_are_those_of_what_the_families_span():
    family = matrix_family("mixed", [mixed_channels(4, PARTS)])
    assert dimension([], STATE) == 0
    assert dimension([family], STATE) == family.count == 12
    assert dimension([family, family, scaled("a"), scaled("b")], STATE) == 12 + 2
    assert dimension([family], STATE, limit=11) is None


@pytest.mark.parametrize("gain", ["", "gain"])
@pytest.mark.parametrize("kind", ["mixed", "turned"])
def test_a_move_and_its_opposite_end_where_they_began_and_products_stay(kind, gain):
    parts = [PARTS[0], Part("b", COLUMNS, inverse=True, gain=gain)]
    channels = (
        mixed_channels(4, parts) if kind == "mixed" else turned_channels(4, *torch.tensor([[0, 1], [2, 3]]), parts)
    )
    family = matrix_family(kind, [channels])
    numbers = torch.randn(family.count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    after = {**STATE, **family.move(STATE, numbers)}
    back = family.move(after, -numbers)
    assert all(torch.allclose(back[name], STATE[name]) for name in ("a", "b"))
    by = torch.diag(STATE["gain"]) if gain else torch.eye(4, dtype=torch.float64)
    assert torch.allclose(after["b"] @ by @ after["a"], STATE["b"] @ by @ STATE["a"])
    assert torch.allclose(after["a"].norm(), STATE["a"].norm()) is (kind == "turned")


def test_a_shift_behind_a_gain_takes_the_matrix_between_the_gains():
    part = Part("gain", torch.arange(4), inverse=False, gain="gain")
    forth = torch.randn(4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    g = torch.diag(STATE["gain"])
    wanted = STATE["gain"] @ torch.linalg.inv(g) @ forth @ g
    assert torch.allclose(part.moved(STATE, forth, torch.eye(4, dtype=torch.float64)), wanted)


def test_entries_are_taken_and_put_at_the_same_places():
    places = torch.tensor([[5, 0], [7, 11]])
    assert torch.equal(taken_entries(STATE, "a", places), STATE["a"].reshape(-1)[[5, 0, 7, 11]].reshape(2, 2))
    changed = put_entries(STATE, "a", places, taken_entries(STATE, "a", places) + 1)
    assert torch.equal((changed - STATE["a"]).nonzero(), torch.tensor([[0, 0], [1, 2], [2, 1], [3, 2]]))
