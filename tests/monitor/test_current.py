"""Weights are looked up once, and again where a layer has another tensor than before."""

import torch
from torch import nn
from torch.nn.utils import parametrizations

from normgauge.monitor.current import STRIDE, CurrentWeights
from normgauge.monitor.layers import WatchedLayer, find_layers
from normgauge.monitor.norms import Norms


def watched(model: nn.Module) -> tuple[CurrentWeights, list[WatchedLayer], list[str]]:
    unread: list[str] = []
    layers = find_layers(model)
    return CurrentWeights(layers, Norms(), lambda layer, error: unread.append(layer.name)), layers, unread


def test_nothing_is_looked_up_again_while_only_numbers_change() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5))
    current, _, _ = watched(model)
    first = current.laid_out({})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(3, 6)).square().sum().backward()
    optimizer.step()
    assert current.laid_out({}) is first
    assert torch.equal(first.weights[0], model[0].weight) and torch.equal(first.weights[1], model[1].weight)
    assert not first.weights[0].requires_grad


def test_another_tensor_another_parameter_and_another_layer_are_seen() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    current, layers, _ = watched(model)
    current.laid_out({})
    model[0].weight.data = torch.ones(5, 6)
    assert torch.equal(current.laid_out({}).weights[0], torch.ones(5, 6))
    model[1].weight = nn.Parameter(torch.full((4, 5), 2.0))
    assert torch.equal(current.laid_out({}).weights[1], torch.full((4, 5), 2.0))
    model[1].weight.data = model[1].weight.data.view(5, 4)  # in the same place
    assert current.laid_out({}).weights[1].shape == (5, 4)
    layers.append(WatchedLayer("new", nn.Linear(3, 2), "weight", "matrix"))
    assert sorted(current.laid_out({}).weights) == [0, 1, 2]


def test_weights_that_are_computed_are_looked_up_each_time() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 4))
    current, layers, _ = watched(model)
    row = next(row for row, layer in enumerate(layers) if layer.reparametrized)
    before = current.laid_out({}).weights[row].clone()
    with torch.no_grad():
        model[0].parametrizations.weight.original0.mul_(3)
    assert torch.allclose(current.laid_out({}).weights[row], 3 * before)


def test_a_weight_that_cannot_be_read_is_told_and_tried_again() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    current, _, unread = watched(model)
    weight = model[0].weight
    del model[0].weight
    assert sorted(current.laid_out({}).weights) == [1] and unread == ["0"]
    model[0].weight = weight
    assert sorted(current.laid_out({}).weights) == [0, 1]


def test_a_convolution_is_followed_once_the_size_of_its_input_is_known() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3))
    layers, norms = find_layers(model), Norms()
    current = CurrentWeights(layers, norms, lambda layer, error: None)
    unknown = current.laid_out({})
    assert 0 not in norms
    known = current.laid_out({model[0]: (6, 6)})
    assert known is not unknown and 0 in norms and current.laid_out({model[0]: (6, 6)}) is known
    assert current.laid_out({model[0]: (8, 8)}) is not known


def test_large_weights_are_sampled_and_say_what_a_row_stands_for() -> None:
    model = nn.Sequential(nn.Linear(300, 256), nn.Linear(256, 9))
    layout = watched(model)[0].laid_out({})
    assert [len(sample) for sample in layout.samples] == [256 // STRIDE, 9]
    assert torch.equal(layout.samples[0], model[0].weight[::STRIDE])
    assert [layout.stands_for(place) for place in (0, 1)] == [STRIDE, 1.0]
