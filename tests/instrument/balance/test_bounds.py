"""Function-preserving rescalings: the function and the balanced bound stay, the published products move."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.instrument.balance import balanced_bound, both_bounds, bounds, descend, folded_bound
from normgauge.instrument.balance.weighted import Weighting
from normgauge.instrument.measure import gauge
from normgauge.instrument.session import opened
from normgauge.instrument.spectral import circulant

LN10 = math.log(10)
TOLERANCE = 1e-3  # decades; what the optimiser is trusted to


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def settle_statistics(model: nn.Module, x: Tensor) -> nn.Module:
    """Give BatchNorm real running statistics and every affine parameter a life of its own."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.RMSNorm):
            nn.init.uniform_(module.weight, 0.3, 1.7)
    model.train()
    for _ in range(20):
        model(x + 0.1 * torch.randn_like(x))
    return model.eval()


def scale_before_norm(linear: nn.Module, norm: nn.Module, factors: Tensor) -> None:
    """(W_c, b_c, mean_c) × t_c and var' = t²(var + ε) − ε: exactly the same eval function."""
    with torch.no_grad():
        linear.weight *= factors.reshape(-1, *([1] * (linear.weight.ndim - 1)))
        if linear.bias is not None:
            linear.bias *= factors
        norm.running_mean *= factors
        norm.running_var.copy_(factors.square() * (norm.running_var + norm.eps) - norm.eps)


def same_function(a: nn.Module, b: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        one, two = a(x), b(x)
    return float((one - two).abs().max() / one.abs().max())


def compare(a: nn.Module, b: nn.Module, x: Tensor) -> tuple[float, float, float]:
    """Changes in decades of the balanced bound, the folded bound and P_w; the function must be the same to 1e-9."""
    assert same_function(a, b, x) < 1e-9
    one, two = (gauge(m, x, scope="global", search=False) for m in (a, b))
    return (
        abs(one.log_capacity - two.log_capacity) / LN10,
        abs(one.log_folded - two.log_folded) / LN10,
        abs(one.published["log10_P_w"] - two.published["log10_P_w"]),
    )


def mlp(norm: type[nn.Module] | None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(12, 12), *([norm(12)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(12, 5)).double()


def test_scaling_under_batch_norm_over_six_decades() -> None:
    x = torch.randn(64, 12, dtype=torch.float64)
    model = settle_statistics(mlp(nn.BatchNorm1d), x)
    twin = copy.deepcopy(model)
    for i in (0, 3, 6):
        scale_before_norm(twin[i], twin[i + 1], 10 ** torch.empty(12, dtype=torch.float64).uniform_(0, 6))
    balanced, folded, product = compare(model, twin, x)
    assert balanced < TOLERANCE and folded < TOLERANCE
    assert product > 6


def test_scaling_of_convolutions_under_batch_norm() -> None:
    x = torch.randn(8, 3, 8, 8, dtype=torch.float64)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(36, 3),
    )
    model = settle_statistics(model.double(), x)
    twin = copy.deepcopy(model)
    scale_before_norm(twin[0], twin[1], 10 ** torch.empty(6, dtype=torch.float64).uniform_(0, 6))
    scale_before_norm(twin[3], twin[4], 10 ** torch.empty(4, dtype=torch.float64).uniform_(0, 6))
    balanced, folded, product = compare(model, twin, x)
    assert balanced < TOLERANCE and folded < TOLERANCE
    assert product > 3


def test_relu_pairs_move_the_folded_bound_but_not_the_balanced_one() -> None:
    x = torch.randn(16, 12, dtype=torch.float64)
    model = mlp(None)
    twin = copy.deepcopy(model)
    for i in (0, 2, 4):
        factors = 10 ** torch.empty(12, dtype=torch.float64).uniform_(-2, 2)
        with torch.no_grad():
            twin[i].weight *= factors[:, None]
            twin[i].bias *= factors
            twin[i + 2].weight /= factors[None]
    balanced, folded, product = compare(model, twin, x)
    assert balanced < TOLERANCE
    assert folded > 2 and product > 2


class Stream(nn.Module):
    """A pre-activation residual net."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(12, 10)
        self.ups = nn.ModuleList(nn.Linear(10, 16) for _ in range(3))
        self.downs = nn.ModuleList(nn.Linear(16, 10) for _ in range(3))
        self.head = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for up, down in zip(self.ups, self.downs, strict=True):
            h = h + down(torch.relu(up(h)))
        return self.head(h)


def test_residual_stream_scaling() -> None:
    x = torch.randn(16, 12, dtype=torch.float64)
    model = Stream().double()
    twin = copy.deepcopy(model)
    factors = 10 ** torch.empty(10, dtype=torch.float64).uniform_(-2, 2)
    with torch.no_grad():
        for writer in (twin.stem, *twin.downs):
            writer.weight *= factors[:, None]
            writer.bias *= factors
        for reader in (twin.head, *twin.ups):
            reader.weight /= factors[None]
    balanced, folded, _ = compare(model, twin, x)
    assert balanced < TOLERANCE
    assert folded > 2


def test_layer_norm_shift_is_folded_away() -> None:
    x = torch.randn(16, 12, dtype=torch.float64)
    model = mlp(nn.LayerNorm)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight += 1e3 * torch.randn(12, dtype=torch.float64)[None]
        twin[3].weight += 1e3 * torch.randn(12, dtype=torch.float64)[None]
    balanced, folded, product = compare(model, twin, x)
    assert balanced < TOLERANCE and folded < TOLERANCE
    assert product > 4


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_gains_move_into_the_next_linear_map(norm: type[nn.Module]) -> None:
    x = torch.randn(16, 12, dtype=torch.float64)
    model = nn.Sequential(
        nn.Linear(12, 12), norm(12, eps=1e-5), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4)
    ).double()
    twin = copy.deepcopy(model)
    factors = 10 ** torch.empty(12, dtype=torch.float64).uniform_(-2, 2)
    with torch.no_grad():
        twin[1].weight *= factors
        if norm is nn.LayerNorm:
            twin[1].bias *= factors
        twin[2].weight /= factors[None]
    balanced, _, product = compare(model, twin, x)
    assert balanced < TOLERANCE
    assert product > 1


def test_one_large_gain_is_cheap_once_folded_forward() -> None:
    """γ = 20 in one of 256 channels: ‖W·diag γ‖ is far below ‖W‖·20."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256)).double()
    with torch.no_grad():
        model[0].weight[7] = 20
    reading = gauge(model, torch.randn(4, 256, dtype=torch.float64), scope="point", search=False)
    assert reading.log_folded < reading.published["log10_theorem9"] * LN10 - math.log(1.5)


def test_zero_weights_give_a_zero_bound() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    nn.init.zeros_(model[2].weight)
    assert gauge(model, torch.randn(3, 4), scope="global").log_upper == -math.inf


class Twice(nn.Module):
    """One hidden layer that reaches the output twice, scaled differently."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.mode, self.linear = mode, nn.Linear(3, 3)
        self.scales = nn.Parameter(torch.tensor([30.0, 0.1, 2.0, 0.01, 50.0, 0.3]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        if self.mode == "scaled":
            return torch.cat([h, h.tanh()], 1) * self.scales
        if self.mode == "copied":
            return torch.cat([h * self.scales[:3], h * self.scales[3:]], 1).flip(1)
        return h * self.scales[:3] + (h / self.scales[:3]).relu()


@pytest.mark.parametrize("mode", ["scaled", "copied", "summed"])
def test_an_output_whose_channels_cannot_all_be_tied_to_one(mode: str) -> None:
    x = torch.randn(2, 3)
    for scope in ("global", "point"):
        reading = ng.gauge(Twice(mode), x, scope=scope)
        assert reading.evidence is ng.Evidence.PROVED and reading.log_refuted is None
        assert reading.log_upper - reading.log_lower < 1.5


def test_a_large_network_that_nothing_can_lower_keeps_the_folded_bound(monkeypatch) -> None:
    torch.manual_seed(0)
    maps = [nn.Linear(6, 6, bias=False).double() for _ in range(3)]
    for layer in maps:
        torch.nn.init.orthogonal_(layer.weight)  # norm 1 in every gauge: no weights lower the product
    model, x = nn.Sequential(*maps[:1], nn.ReLU(), *maps[1:]), torch.randn(2, 6, dtype=torch.float64)
    calls: list[Tensor] = []
    proved = Weighting.gains

    def counted(self, theta):
        calls.append(theta)
        return proved(self, theta)

    monkeypatch.setattr(Weighting, "gains", counted)
    monkeypatch.setattr(descend, "SMALL", 0.0)
    reading = gauge(model, x, scope="global", search=False)
    assert len(calls) == 1  # the folded bound alone was proved
    assert reading.log_capacity == reading.log_folded and abs(reading.log_upper) < 1e-6
    calls.clear()
    monkeypatch.setattr(descend, "SMALL", 3e6)
    gauge(model, x, scope="global", search=False)
    assert len(calls) == 2


def corner_net(seed: int, residual: bool) -> nn.Module:
    """Two hidden units, so that the minimum over the weights is one over a single number."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.first, self.second = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
            nn.init.normal_(self.first.weight[0], std=3.0)

        def forward(self, x: Tensor) -> Tensor:
            h = self.second(self.first(x).relu())
            return x + h if residual else h

    return Two().double()


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_balanced_bound_is_the_smallest_on_a_grid_of_weights(seed: int, residual: bool) -> None:
    """min over t of ‖diag(1, t) W₁‖·‖W₂ diag(1, 1/t)‖, by dense norms; the whole of D scales out."""
    model = corner_net(seed, residual)
    one, two = (w.detach() for w in (model.first.weight, model.second.weight))
    scales = torch.logspace(-2, 2, 4001, dtype=torch.float64)
    d = torch.stack([torch.ones_like(scales), scales], 1)
    norms = torch.linalg.matrix_norm(d[:, :, None] * one, 2) * torch.linalg.matrix_norm(two / d[:, None], 2)
    plain = math.log(float(torch.linalg.matrix_norm(one, 2) * torch.linalg.matrix_norm(two, 2)) + residual)
    best = math.log(float(norms.min()) + residual)
    with opened(model, torch.randn(2, 3, dtype=torch.float64)) as session:
        folded, balanced = session.bounds(session.composed(Scope.parse("global")))
    assert folded.total == pytest.approx(plain, abs=1e-6)
    assert best - 1e-5 <= balanced.total <= best + 1e-3
    assert balanced.total < folded.total - 0.01


def test_the_fold_behind_fixed_scales_is_one_linear_map() -> None:
    """Linear and BatchNorm are the linear map diag(γ/√(v+ε)) W: its dense norm is the folded bound."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)).double().eval()
    for tensor in (model[1].weight.data, model[1].running_var):
        tensor.uniform_(0.1, 3.0)
    scale = model[1].weight.detach() / (model[1].running_var + model[1].eps).sqrt()
    whole = torch.linalg.matrix_norm(scale[:, None] * model[0].weight.detach(), 2)
    reading = gauge(model, torch.randn(3, 4, dtype=torch.float64), scope="global", search=False)
    assert reading.log_folded == pytest.approx(math.log(float(whole)), abs=1e-6)
    assert reading.log_upper == pytest.approx(reading.log_folded, abs=1e-9)


def test_an_infinite_bound_is_left_as_it_is() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    with opened(nn.Sequential(nn.Linear(3, 3), Square()), torch.randn(2, 3)) as session:
        parts = session.composed(Scope.parse("global"))
        folded = folded_bound(parts)
        assert folded.total == math.inf and folded.weights == {} and balanced_bound(parts, folded) is folded


def wide_net(activation: nn.Module) -> tuple[nn.Module, Tensor]:
    """Two convolutions, so wide that a rough proof leaves frequencies out and no dense matrix is tried."""
    maps = [nn.Conv1d(2, 3, 3, padding=1), nn.Conv1d(3, 3, 3, padding=1)]
    x = torch.randn(2, 2, 900, dtype=torch.float64)
    return nn.Sequential(maps[0], nn.BatchNorm1d(3), activation, maps[1]).double().eval(), x


@pytest.mark.parametrize("worth", [True, False])
@pytest.mark.parametrize("limit", ["LARGE", "LARGE_IMAGE"])
def test_what_is_rough_never_enters_the_headline(monkeypatch, worth: bool, limit: str) -> None:
    monkeypatch.setattr(bounds, "is_worth_proving", lambda *_: worth)
    model, x = wide_net(nn.ReLU())
    fine = gauge(model, x, scope="global", search=False)
    monkeypatch.setattr(circulant, limit, 0.0)
    with opened(model, x) as session:
        parts = session.composed(Scope.parse("global"))
        rough, close = folded_bound(parts, rough=True), folded_bound(parts)
        folded, best = both_bounds(parts)
    assert rough.total > close.total + 1e-3  # so that a rough number in the wrong place would show
    assert folded.total == (rough if worth else close).total and best.total <= folded.total
    assert best.total == pytest.approx(fine.log_capacity, abs=2e-3)


@pytest.mark.parametrize("limit", ["LARGE", "LARGE_IMAGE"])
def test_a_rough_norm_is_proved_again_where_no_weights_move(monkeypatch, limit: str) -> None:
    model, x = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.Sigmoid()).double(), torch.randn(1, 2, 900).double()
    fine = gauge(model, x, scope="global", search=False)
    monkeypatch.setattr(circulant, limit, 0.0)
    found = gauge(model, x, scope="global", search=False)
    assert found.layers[0].gain.hi > fine.layers[0].gain.hi + 1e-3
    assert found.log_upper == pytest.approx(fine.log_upper, abs=2e-3)
