"""What `symmetries` promises besides the right count: the model comes back, and what it cannot say is said."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normgauge as ng
from normgauge.core.errors import InputError
from normgauge.geometry.symmetry import ScaleFree, scale_free, symmetries
from tests.geometry.symmetry.right import bn_net, draw

X = torch.randn(12, 8, generator=torch.Generator().manual_seed(2))


def test_the_model_comes_back_bit_for_bit():
    model = bn_net().train()
    model[4].eval()  # frozen inside a model that trains
    model(X).sum().backward()
    before = copy.deepcopy(model.state_dict())
    grads = [p.grad.clone() for p in model.parameters()]
    state, modes = torch.get_rng_state(), [m.training for m in model.modules()]
    ng.symmetries(model, X, mode="train")
    with pytest.raises(InputError, match="would change what Sequential computes in eval mode"):
        ng.canonical(model, X)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert all(torch.equal(a, p.grad) for a, p in zip(grads, model.parameters(), strict=True))
    assert modes == [m.training for m in model.modules()] and torch.equal(state, torch.get_rng_state())


def test_the_model_comes_back_after_an_error():
    model = bn_net().train()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match="does not run on this batch"):
        ng.symmetries(model, torch.randn(4, 5), mode="train")
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert all(p.dtype == torch.float32 for p in model.parameters()) and model.training


def test_a_mode_that_is_none():
    with pytest.raises(InputError, match="expected train or eval"):
        ng.symmetries(bn_net(), X, mode="test")


def test_without_normalizers_it_says_so_and_what_was_looked_at():
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
    found = ng.symmetries(model, X, mode="train")
    assert not found.groups and "no symmetry found; looked at" in found.summary() and "addmm" in found.summary()
    pairs = ng.symmetries(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), X, mode="train")
    assert "no scale symmetry found" in pairs.summary() and pairs.of("pair")


class Odd(nn.Module):
    """A network with an operation nothing is known about."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.special.bessel_j0(self.norm(self.a(x))))


def test_an_unknown_operation_is_named_and_nothing_wrong_is_found_beside_it():
    found = ng.symmetries(Odd(), X, mode="train")
    assert any("bessel" in name for name in found.unknown)
    assert {g.parameters for g in found.of("scale")} == {("a.weight", "a.bias")}
    assert not found.rejected and found.groups and all(g.exact < 1e-9 for g in found.groups)
    assert "no statement on" in str(found)


def test_train_and_eval_mode_differ_where_running_statistics_stay():
    found = ng.symmetries(bn_net().train(), X, mode="train")
    (scale, *_) = [g for g in found.of("scale") if g.parameters[0] == "0.weight"]
    assert scale.count == 7 and scale.rows == (7, 0)
    assert scale.eval_defect is not None and scale.eval_defect < 1e-12
    assert scale.eval_alone is not None and scale.eval_alone > 1e-3
    assert 1e-12 < scale.defect < 1e-2  # ε


def test_json_and_text():
    found = ng.symmetries(bn_net(), X, mode="train")
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert {"parameters", "kind", "count", "defect"} <= set(data["groups"][0])
    assert {g["kind"] for g in data["groups"]} <= {"scale", "shift", "pair"}
    assert data["dimension"] == found.dimension and "change nothing" in str(found)


def test_scale_free_groups_for_the_dynamics():
    groups = scale_free(bn_net(), X)
    assert ScaleFree(("0.weight", "0.bias"), 7) in groups and ScaleFree(("3.weight", "3.bias"), 6) in groups


BATCHES = [torch.randn(40, 6, generator=torch.Generator().manual_seed(s)) for s in range(4)]


class Returned(nn.Module):
    """Several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = F.leaky_relu(self.first(x))
        return {"hidden": h, "logits": self.second(h)}


def test_the_output_looked_at_is_said():
    model = draw(Returned())
    both = symmetries(model, BATCHES[0], mode="train")
    assert sum(g.count for g in both.groups) == 5 and any("logits" in note and "hidden" in note for note in both.notes)
    assert not symmetries(model, BATCHES[0], mode="train", output="hidden").groups


def test_dropout_given_as_a_function_is_off():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.o = nn.Linear(6, 18), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.q(x).chunk(3, -1)
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4 if self.training else 0.0)
            return self.o(F.dropout(mixed, 0.5, self.training))

    said = symmetries(draw(Net()), torch.randn(6, 4, 6), mode="train")
    (shift,) = [g for g in said.groups if g.what == "shift that another bias takes back"]
    assert shift.parameters == ("q.bias", "o.bias")


class Refusing(nn.Module):
    """Runs in single precision only."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise RuntimeError("only single precision")
        return self.a(x)


def test_a_model_that_does_not_run_in_double_is_refused_in_its_own_words():
    with pytest.raises(InputError, match="in float64: only single precision"):
        symmetries(Refusing(), BATCHES[0], mode="train")


def test_one_sample_under_batch_norm_is_refused():
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    with pytest.raises(InputError, match="more than 1 value per channel"):
        symmetries(model, BATCHES[0][:1], mode="train")


def test_a_model_of_whole_numbers_has_no_output_to_look_at():
    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    with pytest.raises(InputError, match="expected a floating tensor"):
        symmetries(Counting(), torch.arange(6), mode="train")


def test_weights_that_share_memory_are_refused():
    model = nn.Sequential(nn.Linear(6, 6), nn.LeakyReLU(), nn.Linear(6, 6))
    model[2].weight = nn.Parameter(model[0].weight.detach().T)
    with pytest.raises(InputError, match=r"0\.weight and 2\.weight share memory"):
        symmetries(model, BATCHES[0], mode="train")
