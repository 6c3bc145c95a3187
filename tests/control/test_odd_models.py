"""Models that are put together in odd ways: tied, shared, frozen, parametrized, in half precision, of every layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import normgauge as ng


class Twice(nn.Module):
    """One map used twice, or two maps with one weight."""

    def __init__(self, tied: bool = False, norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6) if tied else self.first
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.second(torch.relu(self.norm(self.first(x)))))


class Skip(nn.Module):
    """x + Wx: no weight makes it smaller than 1."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x)


def chain(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*layers)


def nets() -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    x, line, box = torch.randn(4, 6), torch.randn(2, 2, 9), torch.randn(2, 2, 4, 4, 4)
    own = nn.BatchNorm1d(8, track_running_stats=False)
    return {
        "shared": (Twice(), x),
        "shared with its norm": (Twice(norm=True), x),
        "tied": (Twice(tied=True), x),
        "bare": (chain(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 3)), x),
        "batch's own statistics": (chain(nn.Linear(6, 8), own, nn.ReLU(), nn.Linear(8, 3)), x),
        "norm first": (chain(nn.BatchNorm1d(6), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), x),
        "double": (chain(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double(), x.double()),
        "bfloat16": (chain(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).bfloat16(), x.bfloat16()),
        "1d": (chain(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.ConvTranspose1d(4, 2, 3, groups=2)), line),
        "3d": (chain(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 4, 2, groups=4)), box),
    }


@pytest.mark.parametrize("name", nets())
def test_budget_is_kept_by_the_gauge_too(name: str) -> None:
    model, x = nets()[name]
    model.train(name.startswith("batch's own"))
    cap = ng.cap(model, x, log10=9.0)
    assert cap.uncontrolled == ()
    cap.budget = cap() - 1.0
    assert cap() <= cap.budget and cap.in_reach
    reading = ng.gauge(model, x, scope="global", search=False, pictures=False, effort="quick", balance=False)
    assert reading.log10_folded <= cap.budget + 1e-3


@pytest.mark.parametrize("name", [name for name in nets() if name != "bfloat16"])
def test_every_weight_gets_a_gradient(name: str) -> None:
    model, x = nets()[name]
    ng.penalty(model, x)().backward()
    maps = [module for module in model.modules() if isinstance(module, nn.Linear | nn.modules.conv._ConvNd)]
    assert maps and all(m.weight.grad is not None and m.weight.grad.isfinite().all() for m in maps)


def test_frozen_weights_stay_and_are_named() -> None:
    model, x = chain(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 6)
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    cap = ng.cap(model, x, log10=-1.0)
    assert cap() <= -1.0 and torch.equal(model[0].weight, before)
    assert cap.uncontrolled == ("0: its weight is frozen, and counts as it is",)
    assert ng.penalty(model, x).uncontrolled == cap.uncontrolled


def test_parametrized_weights_are_penalized_and_named_by_cap() -> None:
    model, x = chain(parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 6)
    penalty = ng.penalty(model, x, every=1)
    penalty().backward()
    gains = model[0].parametrizations.weight.original0
    assert gains.grad is not None and float(gains.grad.abs().max()) > 0 and penalty.uncontrolled == ()
    cap = ng.cap(model, x, log10=-1.0)
    assert cap.uncontrolled == ("0: its weight is computed from other tensors, and counts as it is",)
    assert cap() <= -1.0


def test_a_budget_out_of_reach_is_said_and_takes_nothing() -> None:
    model, x = Skip(), torch.randn(4, 6)
    before = model.linear.weight.clone()
    cap = ng.cap(model, x, log10=-0.5)
    assert cap() > 0.0 and not cap.in_reach
    assert "out of reach" in str(cap) and torch.equal(model.linear.weight, before)


def test_a_lazy_model_is_refused_in_words() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    for make in (lambda: ng.penalty(model, torch.randn(2, 3)), lambda: ng.cap(model, torch.randn(2, 3), log10=1.0)):
        with pytest.raises(ng.NormgaugeError, match="lazy module"):
            make()


def test_torchs_fused_encoder_layer_does_not_go_around_a_bounded_norm() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    with torch.no_grad():
        layer.norm1.weight.mul_(9.0)
    made, x = ng.bounded(layer, constant=1.0), torch.randn(2, 3, 8)
    slow = made.train()(x)
    with torch.no_grad():
        assert torch.allclose(made.eval()(x), slow, atol=1e-6)


def test_a_norm_that_is_used_twice_is_bounded_twice() -> None:
    norm = nn.LayerNorm(4)
    made = ng.bounded(nn.Sequential(norm, nn.Linear(4, 4), norm))
    assert made[0] is made[2] and not isinstance(made[2], nn.LayerNorm)
    back = ng.unbounded(made)
    assert back[0] is back[2] and isinstance(back[2], nn.LayerNorm)


def test_frozen_gains_stay_frozen_there_and_back() -> None:
    norm = nn.LayerNorm(4).requires_grad_(False)
    back = ng.unbounded(ng.bounded(nn.Sequential(norm)))
    assert not back[0].weight.requires_grad and not back[0].bias.requires_grad


def test_a_subclass_that_computes_the_same_is_bounded() -> None:
    class Named(nn.LayerNorm):
        pass

    assert not isinstance(ng.bounded(nn.Sequential(Named(4)))[0], nn.LayerNorm)


def test_large_steps_do_not_ruin_a_capped_batch_norm_net() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    model = chain(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())
    model.append(nn.Linear(16, 4))
    model(x)
    cap = ng.cap(model.eval(), x[:2], log10=0.3)
    training = torch.optim.AdamW(model.parameters(), 0.02)
    right = []
    for step in range(120):
        model.train()
        rows = torch.randint(0, len(x), (32,))
        training.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        training.step()
        assert cap() <= 0.3
        if step % 30 == 29:
            right.append(float((model.eval()(x).argmax(1) == y).float().mean()))
    assert min(right[1:]) > 0.8
    assert float(model[3].weight.detach().norm()) > 1.0
