"""What `symmetries` and `canonical` promise besides the right count."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.core.errors import InputError
from normgauge.geometry.symmetry import ScaleFree, scale_free
from normgauge.geometry.symmetry.find import analysed
from normgauge.geometry.symmetry.labels import Torus, eliminate
from normgauge.geometry.symmetry.verify import random_move


def bn_net() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
    )
    for module in model:
        if isinstance(module, nn.BatchNorm1d):
            module.running_var.uniform_(0.5, 2.0)
            module.running_mean.normal_()
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return model.eval()


def conv_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    ).eval()  # fmt: skip


X = torch.randn(12, 8, generator=torch.Generator().manual_seed(2))
IMAGES = torch.randn(6, 2, 6, 6, generator=torch.Generator().manual_seed(3))


def test_elimination_against_dense_linear_algebra():
    draw = torch.Generator().manual_seed(0)
    for _ in range(30):
        matrix = torch.randint(-2, 3, (5, 8), generator=draw).double()
        rows = [{j + 1: float(v) for j, v in enumerate(row)} for row in matrix.tolist()]
        solved = eliminate(row.items() for row in rows)
        free = [j for j in range(1, 9) if j not in solved]
        assert len(free) == 8 - int(torch.linalg.matrix_rank(matrix))
        for chosen in free:
            value = torch.zeros(9, dtype=torch.float64)
            value[chosen] = 1.0
            for pivot, terms in solved.items():
                value[pivot] = terms.get(chosen, 0.0)
            assert torch.allclose(matrix @ value[1:], torch.zeros(5, dtype=torch.float64), atol=1e-9)


def test_equal_labels_are_one_variable():
    torus = Torus()
    a, b = torus.fresh(3), torus.fresh(3)
    torus.same(a[:2], b[:2])
    torus.fix(b[1:2])
    assert len(torus.solve().free) == 3  # a0 = b0, a2, b2; a1 and b1 are fixed


def test_the_model_comes_back_bit_for_bit():
    model = bn_net().train()
    model[4].eval()  # frozen inside a model that trains
    model(X).sum().backward()
    before = copy.deepcopy(model.state_dict())
    grads = [p.grad.clone() for p in model.parameters()]
    state, modes = torch.get_rng_state(), [m.training for m in model.modules()]
    ng.symmetries(model, X)
    with pytest.raises(InputError, match="would change what Sequential computes in eval mode"):
        ng.canonical(model, X)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert all(torch.equal(a, p.grad) for a, p in zip(grads, model.parameters(), strict=True))
    assert modes == [m.training for m in model.modules()] and torch.equal(state, torch.get_rng_state())


def test_the_model_comes_back_after_an_error():
    model = bn_net().train()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match="does not run on this batch"):
        ng.symmetries(model, torch.randn(4, 5))
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert all(p.dtype == torch.float32 for p in model.parameters()) and model.training


def test_a_mode_that_is_none():
    with pytest.raises(InputError, match="expected train or eval"):
        ng.symmetries(bn_net(), X, mode="test")


def test_without_normalizers_it_says_so_and_what_was_looked_at():
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
    found = ng.symmetries(model, X)
    assert not found.groups and "no symmetry found; looked at" in found.summary() and "addmm" in found.summary()
    pairs = ng.symmetries(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), X)
    assert "no scale symmetry found" in pairs.summary() and pairs.of("pair")


class Odd(nn.Module):
    """A network with an operation nothing is known about."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.special.bessel_j0(self.norm(self.a(x))))


def test_an_unknown_operation_is_named_and_nothing_wrong_is_found_beside_it():
    found = ng.symmetries(Odd(), X)
    assert any("bessel" in name for name in found.unknown)
    assert {g.parameters for g in found.of("scale")} == {("a.weight", "a.bias")}
    assert not found.rejected and all(g.exact < 1e-9 for g in found.groups)
    assert "no statement on" in str(found)


def test_train_and_eval_mode_differ_where_running_statistics_stay():
    found = ng.symmetries(bn_net().train(), X)
    (scale, *_) = [g for g in found.of("scale") if g.parameters[0] == "0.weight"]
    assert scale.count == 7 and scale.rows == (7, 0)
    assert scale.eval_defect is not None and scale.eval_defect < 1e-12
    assert scale.eval_alone is not None and scale.eval_alone > 1e-3
    assert 1e-12 < scale.defect < 1e-2  # ε


def test_json_and_text():
    found = ng.symmetries(bn_net(), X)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert {"parameters", "kind", "count", "defect"} <= set(data["groups"][0])
    assert {g["kind"] for g in data["groups"]} <= {"scale", "shift", "pair"}
    assert data["dimension"] == found.dimension and "change nothing" in str(found)


def test_scale_free_groups_for_the_dynamics():
    groups = scale_free(bn_net(), X)
    assert ScaleFree(("0.weight", "0.bias"), 7) in groups and ScaleFree(("3.weight", "3.bias"), 6) in groups


def moved(model: nn.Module, batch: torch.Tensor) -> nn.Module:
    """The same function in other scales."""
    twin = copy.deepcopy(model)
    with analysed(model, batch, "train", strict=True) as found:
        state = dict(found.trial.state)
        for seed, generator in enumerate(found.generators):
            if generator.kind == "scale" or generator.what.startswith("scale"):
                state.update(random_move(generator, state, seed))
    named = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
    with torch.no_grad():
        for name, tensor in state.items():
            named[name].copy_(tensor)
    return twin


@pytest.mark.parametrize(("make", "batch"), [(bn_net, X), (conv_net, IMAGES)], ids=["dense", "images"])
def test_canonical_is_the_same_function_and_the_same_for_every_gauge(make, batch):
    model = make()
    other = moved(model, batch)
    assert not torch.allclose(other[0].weight, model[0].weight, rtol=0.05)
    first, second = ng.canonical(model, batch), ng.canonical(other, batch)
    assert first.eval_defect < 1e-5 and first.train_defect < 1e-2
    with torch.no_grad():
        change = (first.model(batch) - model(batch)).norm() / model(batch).norm()
    assert change < 1e-5
    assert torch.allclose(
        first.model[0].weight.flatten(1).norm(dim=1), torch.ones(len(first.model[0].weight)), atol=1e-5
    )
    assert first.model[0].bias.abs().max() < 1e-6
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_canonical_leaves_the_balanced_bound():
    model = bn_net()
    twin = ng.canonical(model, X).model
    bounds = [ng.gauge(m, X, scope="global", search=False).to_json()["log10_upper"] for m in (model, twin)]
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-3)


def test_canonical_leaves_scales_that_an_eps_makes_visible():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    found = ng.canonical(model, X)
    assert found.eval_defect < 1e-6 and found.train_defect < 1e-6
    assert found.model[0].weight.mean(0).abs().max() < 1e-6  # rows under a mean are centred


def test_statistics_that_are_read_twice_are_no_gauge():
    """Scales of shared statistics, and of those behind another normalizer, are no symmetries in eval mode."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8)
    shared = nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 8), norm, nn.ReLU(), nn.Linear(8, 2))
    for _ in range(50):
        shared(torch.randn(32, 6))
    with pytest.raises(InputError, match="would change what Sequential computes in eval mode"):
        ng.canonical(shared.eval(), torch.randn(16, 6))
