"""Streams: which weights write to one, which read it, and what makes it unfit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from normgauge.geometry.symmetry.streams import streams
from tests.geometry.symmetry.right import draw, labelled

TOKENS = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """A residual block in front of a head; the normalizer by module or by hand."""

    def __init__(self, norm: nn.Module | None) -> None:
        super().__init__()
        self.stem, self.place = nn.Linear(6, 4), nn.Parameter(torch.zeros(9, 4))
        self.norm, self.inner, self.outer, self.head = norm, nn.Linear(4, 7), nn.Linear(7, 4), nn.Linear(4, 3)

    def normalized(self, h: Tensor) -> Tensor:
        return self.norm(h) if self.norm is not None else h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x) + self.place[: x.shape[1]]
        h = h + self.outer(torch.tanh(self.inner(self.normalized(h))))
        return self.head(self.normalized(h))


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.RMSNorm(4), None], ids=["layer", "rms", "by hand"])
def test_a_residual_stream_has_its_writers_and_readers(norm):
    (stream,) = streams(labelled(draw(Block(norm)), TOKENS))
    assert stream.width == 4 and stream.behind and stream.direct == []
    assert {p.name for p in stream.writers} == {"stem.weight", "stem.bias", "place", "outer.weight", "outer.bias"}
    assert {p.name for p in stream.readers} == {"inner.weight", "head.weight"}
    assert [n.kind for n in stream.normals] == ["layer" if isinstance(norm, nn.LayerNorm) else "rms"] * 2


def test_positions_beyond_the_batch_move_too():
    (stream,) = streams(labelled(draw(Block(nn.LayerNorm(4))), TOKENS))
    (table,) = [part for part in stream.writers if part.name == "place"]
    assert torch.equal(table.places, torch.arange(36).reshape(9, 4))


class Bent(Block):
    """The stream itself goes through an activation."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.head(self.normalized(h + self.outer(torch.tanh(self.inner(h).relu())))) + h[..., :3].tanh()


class Flipped(Block):
    """The channels of the stream change places on the way."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.normalized(self.stem(x).flip(-1)))


@pytest.mark.parametrize("kind", [Bent, Flipped])
def test_what_anything_else_touches_is_no_stream(kind):
    assert list(streams(labelled(draw(kind(nn.LayerNorm(4))), TOKENS))) == []
