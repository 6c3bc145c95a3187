"""What becomes of a layer's scale behind it: absorbed, drowned, undone, or heard."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from normgauge.advice.chains import absorbed, chains, channel_uptake, weight_row_norms
from normgauge.advice.view import TraceView
from normgauge.instrument.session import opened


class Dense(nn.Module):
    """Two convolutions side by side in front of one BatchNorm, as in a densely connected network."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 3, padding=1)
        self.bn, self.drop = nn.BatchNorm2d(8), nn.Dropout(0.1)
        self.c, self.last = nn.Conv2d(8, 6, 3), nn.Linear(6 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn(torch.cat([self.a(x), self.b(x)], 1)).relu()
        return self.last(self.drop(self.c(h)).flatten(1))


@pytest.fixture
def images() -> Tensor:
    return torch.randn(12, 2, 4, 4, generator=torch.Generator().manual_seed(0))


def looked_at(model: nn.Module, batch: Tensor, use) -> object:
    """Run ``use`` on the view of a model, with its steps by name."""
    with opened(model.eval(), batch) as session:
        view = TraceView.of(session)
        return use(view, {view.names[s.index]: s for s in session.trace.steps})


def test_a_scale_in_front_of_a_batch_normalizer_is_absorbed_through_a_concatenation(images):
    torch.manual_seed(0)

    def use(view, steps):
        assert {chain.end for chain in chains(view)} == {"join", "output"}
        return absorbed(view, steps["a"].outputs[0]), absorbed(view, steps["c"].outputs[0])

    assert looked_at(Dense(), images, use) == (True, False)


class Tied(nn.Module):
    """A normalizer whose output two layers take up, one of them a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, 2)
        self.up, self.narrow = nn.ConvTranspose2d(2, 3, 2), nn.Conv2d(2, 2, 1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return self.up(h).sum((2, 3)) + self.narrow(h).mean((1, 2, 3))[:, None]


def test_where_channels_do_not_line_up_nothing_is_said(images):
    torch.manual_seed(0)

    def use(view, steps):
        assert weight_row_norms(view, steps["norm"].inputs[0]) is None  # the input itself
        assert weight_row_norms(view, steps["up"].outputs[0]) is None
        return channel_uptake(view, steps["norm"].outputs[0], 2)  # the grouped kernel has one input a group

    assert looked_at(Tied(), images, use) is None


def test_columns_and_rows_are_those_of_the_layers_beside(images):
    torch.manual_seed(0)
    model = Dense()

    def use(view, steps):
        taken = channel_uptake(view, steps["bn"].outputs[0], 8)
        flat = channel_uptake(view, steps["c"].outputs[0], 6)
        torch.testing.assert_close(taken, model.c.weight.detach().double().pow(2).sum((0, 2, 3)).sqrt())
        torch.testing.assert_close(flat, model.last.weight.detach().double().reshape(3, 6, 4).pow(2).sum((0, 2)).sqrt())
        norms, _ = weight_row_norms(view, steps["c"].outputs[0])
        torch.testing.assert_close(norms, model.c.weight.detach().double().flatten(1).norm(dim=1))
        assert weight_row_norms(view, steps["bn"].inputs[0]) is None  # a concatenation made it
        assert channel_uptake(view, steps["last"].outputs[0], 3) is None  # nothing takes it up
        return True

    assert looked_at(model, images, use)
