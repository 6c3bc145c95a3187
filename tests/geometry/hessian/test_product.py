"""Products of Hessians are right on every normalizer, blocks and scale-free ones too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, dense_hessian, eigenvalues, scale_free
from normgauge.geometry.hessian.operator import dense_matrix
from normgauge.geometry.hessian.product import by_layer, zero_tensors
from tests.geometry.hessian.made import benchmark, data, fitted, net
from tests.instrument.trace.test_untouched import assert_untouched, prepared, snapshot

CASES = (
    "BatchNorm1d, train",
    "BatchNorm1d, eval",
    "LayerNorm",
    "GroupNorm",
    "InstanceNorm2d, train",
    "RMSNorm",
    "attention, train",
    "fused attention",
)


@pytest.mark.parametrize("name", CASES)
def test_the_hessian_is_that_of_differences_of_gradients(name):
    bench = benchmark()
    model, batch, mode = bench.case(name)
    wanted = bench.truth(*bench.flat_loss(model, batch))
    found = dense_matrix(Product(model, F.cross_entropy, [batch], mode=mode), symmetric=False)
    assert bench.off(found, wanted) < 1e-10
    assert bench.off(found, found.T) < 1e-12


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func itself
def test_torch_func_hessian_is_the_one_that_is_wrong():
    row = benchmark().ways("LayerNorm")
    assert row["normgauge"] < 1e-10 and row["jvp(grad)"] < 1e-10
    if torch.__version__.startswith("2.13"):  # a later one may be right
        assert row["torch.func.hessian"] > 1e-2


class ByHand(nn.Module):
    """Batch normalization out of sums and roots: no fused kernel has a part in its derivatives."""

    def __init__(self, like: nn.BatchNorm1d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = like.weight, like.bias, like.eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.sum(0) / len(x)
        variance = (centred * centred).sum(0) / len(x)
        return centred / (variance + self.eps).sqrt() * self.weight + self.bias


def test_batch_norm_has_the_hessian_of_its_formula():
    model = net().double()
    written = nn.Sequential(model[0], ByHand(model[1]), model[2], model[3])
    batch = [data()]
    fused = dense_hessian(model, F.cross_entropy, batch, mode="train")
    assert torch.allclose(fused, dense_hessian(written, F.cross_entropy, batch, mode="train"), rtol=1e-10, atol=1e-12)


def test_a_quadratic_loss_has_the_hessian_it_is_made_of():
    model = nn.Linear(3, 1, bias=False).double()
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = dense_hessian(model, lambda out, target: ((out - target) ** 2).mean(), [(x, torch.zeros(7, 1))])
    assert torch.allclose(found, 2 * x.T @ x / 7)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_graphs_built_anew_give_the_products_of_kept_ones(mode):
    model = nn.Sequential(net(), nn.Dropout(0.5)).double()
    x, y = data()
    batches = [(x[:20], y[:20]), (x[20:], y[20:])]
    kept, streamed = (Product(model, F.cross_entropy, batches, mode=mode, keep=keep) for keep in (True, False))
    vector = torch.randn(kept.size, dtype=torch.float64)
    assert torch.equal(kept.hvp(vector), streamed.hvp(vector))  # the same dropout masks, above all


def test_a_streamed_product_refuses_a_model_that_moved_on():
    model = net()
    product = Product(model, F.cross_entropy, [data()], keep=False)
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(InputError, match="changed since"):
        product.hvp(torch.zeros(product.size))


def test_blocks_are_those_of_the_whole_matrix():
    product = Product(net().double(), F.cross_entropy, [data()], mode="train")
    whole = dense_matrix(product)
    groups = by_layer(product.names)
    assert list(groups) == ["0", "1", "3"]
    names = groups["1"]
    first, last = product.blocks[names[0]], product.blocks[names[-1]]
    assert torch.allclose(dense_matrix(product.block(names)), whole[first.start : last.stop, first.start : last.stop])


def test_a_flat_vector_is_the_parameters_in_order():
    model = net()
    product = Product(model, F.cross_entropy, [data()])
    parts = product.split(product.weights())
    assert all(torch.equal(parts[name], p) for name, p in model.named_parameters())
    with pytest.raises(InputError, match=r"expected shape \(\d+,\)"):
        product.hvp(torch.zeros(3))


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(mode, training):
    model, x = prepared(training=training)
    before = snapshot(model)
    product = Product(model, F.cross_entropy, [(x, torch.tensor([0, 1, 2, 0, 1]))], mode=mode)
    product.hvp(torch.ones(product.size))
    assert_untouched(before, model)


def test_the_model_is_left_as_it_was_after_a_failure():
    model, x = prepared(fail=RuntimeError("on purpose"))
    before = snapshot(model)
    with pytest.raises(InputError, match="raised RuntimeError on batch 0: on purpose"):
        Product(model, F.cross_entropy, [(x, torch.zeros(5, dtype=torch.long))], mode="train")
    assert_untouched(before, model)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x[:, None])[0][:, -1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_recurrent_layers_differentiate_twice(dtype):
    torch.manual_seed(0)
    product = Product(Recurrent(), F.cross_entropy, [data()], dtype=dtype)
    matrix = dense_matrix(product, symmetric=False)
    assert torch.allclose(matrix, matrix.T, atol=1e-6)
    assert float(matrix[product.blocks["cells.weight_ih_l0"]].norm()) > 1e-3


def sharpness(model: nn.Module, units: str | None) -> float:
    product = Product(model, F.cross_entropy, [data()], mode="train", dtype=torch.float64)
    operator = product if units is None else scale_free(product, units)
    return float(eigenvalues(operator, 1, tolerance=1e-9)[0].values[0])


def rescaled(factor: Tensor | float) -> nn.Module:
    """The same function in train mode: BatchNorm hides the scale of what comes before it."""
    model = fitted(net(nn.BatchNorm1d(8, eps=1e-12))).double()
    with torch.no_grad():
        model[0].weight.mul_(factor)
        model[0].bias.mul_(torch.as_tensor(factor).squeeze())
    return model


def test_scaling_a_tensor_moves_the_sharpness_and_not_the_scale_free_one():
    one, ten = rescaled(1.0), rescaled(0.05)
    assert sharpness(ten, None) > 5 * sharpness(one, None)
    for units in ("tensor", "channel"):
        assert sharpness(ten, units) == pytest.approx(sharpness(one, units), 1e-6)


def test_scaling_single_channels_needs_channel_units():
    factors = torch.logspace(-1, 1, 8, dtype=torch.float64)[:, None]
    one, many = rescaled(1.0), rescaled(factors)
    product = Product(many, F.cross_entropy, [data()], mode="train")
    assert product.loss == pytest.approx(Product(one, F.cross_entropy, [data()], mode="train").loss)
    # the biases of the first layer have no effect at all under BatchNorm, so their own units do not matter
    assert sharpness(many, "channel") == pytest.approx(sharpness(one, "channel"), 1e-6)
    assert sharpness(many, "tensor") != pytest.approx(sharpness(one, "tensor"), 0.05)


def test_the_scaled_matrix_is_dhd():
    product = Product(net(), F.cross_entropy, [data()], dtype=torch.float64)
    whole = dense_matrix(product)
    d = torch.cat([p.detach().double().norm().expand(p.numel()) for p in net().parameters()])
    assert torch.allclose(dense_matrix(scale_free(product)), d[:, None] * whole * d[None], rtol=1e-6, atol=1e-12)
    assert zero_tensors(product) == ["1.bias"]
    with pytest.raises(InputError, match="tensor or channel"):
        scale_free(product, "row")
