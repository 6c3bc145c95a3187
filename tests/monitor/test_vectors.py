"""Many small weights at once give what each gives alone."""

import math

import pytest
import torch
from torch import nn

from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.listener import Listener, ObservedSigma
from normgauge.monitor.sheet import Row, Sheet, fetch_numbers
from normgauge.monitor.vectors import Normalizers, Segments, Vectors


def kept(vectors: Vectors, weights: list[torch.Tensor]) -> None:
    vectors.keep(weights)
    vectors.copy(weights)


def read(vectors: Vectors, weights: list[torch.Tensor], slopes: list[torch.Tensor | None], sheet: Sheet) -> None:
    vectors.put(weights, vectors.stage(weights, slopes, lambda place, slope: slope), sheet)


def numbers(sheet: Sheet) -> dict[int, Row]:
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    return sheet.layers


def test_each_weight_gets_its_own_numbers() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(3), torch.randn(2, 4), torch.randn(1)]
    slopes = [torch.randn(3), None, torch.randn(1)]
    vectors = Vectors([4, 7, 9])
    kept(vectors, [w - 0.5 for w in weights])
    sheet = Sheet()
    read(vectors, weights, slopes, sheet)
    found = numbers(sheet)
    for row, weight, slope in zip([4, 7, 9], weights, slopes, strict=True):
        assert found[row]["frobenius"] == pytest.approx(float(weight.norm()), rel=1e-6)
        assert found[row]["update"] == pytest.approx(0.5 * weight.numel() ** 0.5, rel=1e-5)
        if slope is None:
            assert "gradient" not in found[row]
        else:
            assert found[row]["gradient"] == pytest.approx(float(slope.norm()), rel=1e-6)
            before = float((slope * (weight - 0.5)).sum())  # the weight the gradient belongs to
            assert found[row]["dot"] == pytest.approx(before, rel=1e-5, abs=1e-6)


def test_without_gradients_there_are_none() -> None:
    sheet = Sheet()
    read(Vectors([0]), [torch.ones(4)], [None], sheet)
    assert numbers(sheet) == {0: {"frobenius": 2.0}}


def test_half_precision_is_widened() -> None:
    sheet = Sheet()
    read(Vectors([0]), [torch.full((4,), 300.0, dtype=torch.float16)], [None], sheet)
    assert numbers(sheet)[0]["frobenius"] == pytest.approx(600.0)


def test_segments_reduce_by_part() -> None:
    parts = Segments()
    parts.fit([torch.zeros(2), torch.zeros(3)])
    values = torch.tensor([1.0, 5.0, 2.0, 8.0, 2.0])
    assert parts.reduce(values, "max").tolist() == [5.0, 8.0]
    assert parts.reduce(values, "mean").tolist() == [3.0, 4.0]


def test_numbers_of_several_kinds_come_together() -> None:
    sheet = Sheet()
    sheet.put(sheet.layers[0], "found", torch.tensor(1.5))
    sheet.put(sheet.layers[0], "drift", torch.tensor(2.5, dtype=torch.float64))
    sheet.put(sheet.layers[1], "found", 3.5)
    sheet.put_column([1, 2], "update", torch.tensor([4.5, 5.5]))
    sheet.put(sheet.network, "input", torch.tensor(6.5))
    sheet.put_part(sheet.losses, range(3, 5), torch.tensor([7.5, 8.5]))
    assert numbers(sheet) == {0: {"found": 1.5, "drift": 2.5}, 1: {"found": 3.5, "update": 4.5}, 2: {"update": 5.5}}
    assert sheet.network == {"input": 6.5} and sheet.losses == {3: 7.5, 4: 8.5}


def test_long_parts_give_the_same() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(9000), torch.randn(70, 80)]
    slopes = [torch.randn(9000), torch.randn(70, 80)]
    vectors = Vectors([0, 1], whole=False)
    kept(vectors, [w + 1 for w in weights])
    sheet = Sheet()
    read(vectors, weights, slopes, sheet)
    found = numbers(sheet)
    for row, (weight, slope) in enumerate(zip(weights, slopes, strict=True)):
        assert "frobenius" not in found[row]
        assert found[row]["update"] == pytest.approx(weight.numel() ** 0.5, rel=1e-5)
        assert "gradient" not in found[row]
        assert found[row]["sampled_gradient"] == pytest.approx(float(slope.norm()), rel=1e-5)
        assert found[row]["dot"] == pytest.approx(float((slope * (weight + 1)).double().sum()), rel=1e-3)


@pytest.mark.parametrize("sizes", [(6, 6, 6), (6, 4, 6)])
@pytest.mark.parametrize("affine", [True, False])
def test_normalizers_that_are_alike_give_what_each_gives_alone(
    sizes: tuple[int, ...], affine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    modules = [nn.BatchNorm1d(size, affine=affine) for size in sizes]
    for module in modules:
        module.running_var = torch.rand(module.num_features) + 0.5
        if affine:
            nn.init.normal_(module.weight)
    layers = {k: WatchedLayer(f"{k}", module, "weight" if affine else None, "norm") for k, module in enumerate(modules)}
    listener = Listener(nn.Sequential(*modules), lambda error: None)
    for module in modules:
        listener.spreads[module] = ObservedSigma([torch.rand(module.num_features) + 0.1])
    weights = {row: layer.weight for row, layer in layers.items()} if affine else {}
    found, scaled = [], []
    for alone in (False, True):
        if alone:
            monkeypatch.setattr(Normalizers, "_one_size", lambda self, heard: 0)
        normalizers, sheet = Normalizers(), Sheet()
        scaled.append(normalizers.read(normalizers.hear(layers, listener, weights, sheet), sheet))
        found.append(numbers(sheet))
    assert found[0].keys() == found[1].keys() == layers.keys()
    for row in layers:
        assert found[0][row] == pytest.approx(found[1][row], rel=1e-6)
        assert torch.equal(scaled[0][row], scaled[1][row])


def test_a_batch_normalization_that_changes_its_mode_or_statistics_is_asked_again() -> None:
    module = nn.BatchNorm1d(3)
    layers, listener = {0: WatchedLayer("0", module, "weight", "norm")}, Listener(module, lambda error: None)
    normalizers = Normalizers()
    weights = {0: module.weight.detach()}
    normalizers.hear(layers, listener, weights, Sheet())
    first = normalizers.forms[0]
    normalizers.hear(layers, listener, weights, Sheet())
    assert normalizers.forms[0] is first and first.own
    module.eval()
    normalizers.hear(layers, listener, weights, Sheet())
    assert not normalizers.forms[0].own
    module.running_var = torch.full((3,), 4.0)
    normalizers.hear(layers, listener, weights, Sheet())
    assert normalizers.forms[0].stored is not None and normalizers.forms[0].stored[1].tolist() == [4.0] * 3
    module.eps = 0.5
    normalizers.hear(layers, listener, weights, Sheet())
    assert normalizers.forms[0].eps == 0.5


@pytest.mark.parametrize("size", [4.8e29, 3e-28])
def test_norms_whose_squares_float32_cannot_hold_are_numbers(size) -> None:
    weights = [torch.ones(3), torch.ones(200, 100), torch.ones(2)]
    slopes = [torch.full_like(weights[0], size), torch.full_like(weights[1], size), torch.ones(2)]
    for some in ([0, 2], [0, 1, 2]):  # added up by segments, and by dot products
        vectors, sheet = Vectors(some), Sheet()
        read(vectors, [weights[k] for k in some], [slopes[k] for k in some], sheet)
        found = numbers(sheet)
        for k in some:
            assert found[k]["gradient"] == pytest.approx(float(slopes[k].double().norm()), rel=1e-5, abs=0.0)
    assert Vectors([0]).norms(slopes[:1]).item() == pytest.approx(size * 3**0.5, rel=1e-6, abs=0.0)
    slopes[0][1] = math.inf
    assert Vectors([0]).norms(slopes[:1]).item() == math.inf
