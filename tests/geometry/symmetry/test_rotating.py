"""Rotations through normalizers and rotary embeddings, shears and mixings of streams: applied to networks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.geometry.symmetry.rotating import complement
from tests.geometry.symmetry.right import assert_family, draw, families

X = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1))
TURNED = "rotation of what is normalized"


@pytest.mark.parametrize("width", [2, 3, 6])
def test_the_complement_is_orthonormal_and_orthogonal_to_ones(width):
    basis = complement(width)
    assert torch.allclose(basis.T @ basis, torch.eye(width - 1, dtype=torch.float64))
    assert float(basis.sum(0).abs().max()) < 1e-14


@pytest.mark.parametrize(
    ("norm", "count"), [(nn.RMSNorm(4), 4 * 3 // 2), (nn.LayerNorm(4), 3 * 2 // 2)], ids=["rms", "layer"]
)
def test_rotations_of_what_is_normalized(norm, count):
    model = draw(nn.Sequential(nn.Linear(6, 4), norm, nn.Linear(4, 3)))
    shift = {"1.bias"} if isinstance(norm, nn.LayerNorm) else set()
    assert_family(model, X, TURNED, count, {"0.weight", "0.bias", "2.weight"} | shift)


def test_an_activation_behind_the_normalizer_forbids_them():
    model = draw(nn.Sequential(nn.Linear(6, 4), nn.RMSNorm(4), nn.Tanh(), nn.Linear(4, 3)))
    assert families(model, X, TURNED)[0] == []


class Stream(nn.Module):
    """A stream that is read as it is and, with a normalizer, normalized too."""

    def __init__(self, norm: nn.Module | None) -> None:
        super().__init__()
        self.stem, self.other, self.direct = nn.Linear(6, 4), nn.Linear(6, 4, bias=False), nn.Linear(4, 3)
        self.norm, self.head = norm, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x) + self.other(x)
        return self.direct(h) + (self.head(self.norm(h)).tanh() if self.norm is not None else 0)


WRITERS = {"stem.weight", "stem.bias", "other.weight"}


def test_what_the_normalizer_takes_off_may_be_mixed_in():
    assert_family(draw(Stream(nn.LayerNorm(4))), X, "mixed into the mean", 4, WRITERS | {"direct.weight"})
    assert families(draw(Stream(nn.RMSNorm(4))), X, "mixed into the mean")[0] == []


def test_a_stream_without_a_normalizer_takes_any_matrix():
    assert_family(draw(Stream(None)), X, "channels mixed in a stream", 4 * 3, WRITERS | {"direct.weight"})


class Rotary(nn.Module):
    """Queries and keys turned by an angle that grows with the position, in the planes of channels 0, 2 and 1, 3."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * torch.tensor([1.0, 0.1], dtype=x.dtype)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        q, k = (t * cos + torch.cat([-t[..., 2:], t[..., :2]], -1) * sin for t in (self.q(x), self.k(x)))
        return (q @ k.mT).softmax(-1) @ self.v(x)


def test_planes_of_a_rotary_embedding():
    found = assert_family(
        draw(Rotary()), TOKENS, "rotation of queries and keys", 2, {"q.weight", "q.bias", "k.weight", "k.bias"}
    )
    weight = {name: torch.eye(4, 6, dtype=torch.float64) for name in ("q.weight", "k.weight")}
    biases = {name: torch.zeros(4, dtype=torch.float64) for name in ("q.bias", "k.bias")}
    turned = found.move({**weight, **biases}, torch.tensor([0.3, 0.0], dtype=torch.float64))["q.weight"][:, :4]
    wanted, (cos, sin) = torch.eye(4, dtype=torch.float64), (math.cos(0.3), math.sin(0.3))
    wanted[[0, 0, 2, 2], [0, 2, 0, 2]] = torch.tensor([cos, -sin, sin, cos], dtype=torch.float64)
    assert torch.allclose(turned, wanted) or torch.allclose(turned, wanted.T)  # either sense of the angle
