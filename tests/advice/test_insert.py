"""`insert_norm`: a copy with normalizers where they were asked for, and every other weight under its own name."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from normgauge.advice import insert_norm
from normgauge.core.errors import InputError
from normgauge.lab.zoo import mlp


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return mlp((6, 8, 8, 3)).double()


def test_other_weights_keep_names_and_values_and_the_model_is_left_alone(model):
    before = copy.deepcopy(model.state_dict())
    twin = insert_norm(model, ("layers.0.linear", "layers.1.linear"), "batch")
    added = set(twin.state_dict()) - set(before)
    assert all(torch.equal(before[k], twin.state_dict()[k]) for k in before)
    assert {k.rpartition(".")[0] for k in added} == {"layers.0.linear.norm", "layers.1.linear.norm"}
    assert set(model.state_dict()) == set(before)
    assert isinstance(twin.layers[0].linear, nn.Linear) and twin.layers[0].linear.weight is not model.layers[0]


@pytest.mark.parametrize("kind", ["batch", "layer", "group", "rms"])
def test_it_computes_what_it_says(model, kind):
    x = torch.randn(5, 6, dtype=torch.float64)
    twin = insert_norm(model, "layers.0.linear", kind)
    made = {
        "batch": nn.BatchNorm1d(8),
        "layer": nn.LayerNorm(8),
        "group": nn.GroupNorm(2, 8),
        "rms": nn.RMSNorm(8),
    }[kind].double()
    h = made(model.layers[0].linear(x)).relu()
    torch.testing.assert_close(twin(x), model.head(model.layers[1](h)))


def test_it_trains_copies_pickles_and_changes_mode(model):
    twin = insert_norm(model.eval(), "layers.0.linear", "batch")
    norm = twin.layers[0].linear.norm
    assert bool((norm.running_var == 1).all()) and bool((norm.running_mean == 0).all())
    assert not norm.training and norm.weight.dtype == torch.float64
    assert twin.train().layers[0].linear.norm.training
    twin(torch.randn(4, 6, dtype=torch.float64)).sum().backward()
    assert norm.weight.grad is not None and int(norm.num_batches_tracked) == 1
    again = pickle.loads(pickle.dumps(twin)).eval()
    x = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(again(x), twin.eval()(x))
    torch.testing.assert_close(copy.deepcopy(twin)(x), twin(x))


def test_convolutions_and_normalizers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    net(torch.randn(2, 2, 5, 5))
    assert isinstance(insert_norm(net, "0", "instance").get_submodule("0.norm"), nn.InstanceNorm2d)
    assert isinstance(insert_norm(net, "1", "group", groups=3).get_submodule("1"), nn.GroupNorm)
    vectors = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
    assert isinstance(insert_norm(vectors, "1", "rms")[1], nn.RMSNorm)


@pytest.mark.parametrize(
    ("place", "kind", "message"),
    [
        ("nowhere", "batch", "no module 'nowhere' in this MLP"),
        ("layers.0.act", "batch", "the width of a ReLU is not known"),
        ("head", "other", "expected one of batch"),
    ],
)
def test_mistakes_are_said(model, place, kind, message):
    with pytest.raises(InputError, match=message):
        insert_norm(model, place, kind)
