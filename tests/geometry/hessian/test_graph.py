"""What the curvature is measured on: batches, objectives, precision, and what is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, dense_hessian
from normgauge.geometry.hessian.graph import ATTENTION_NOTE
from tests.geometry.hessian.made import benchmark, data, fitted, net


def test_batches_weigh_as_many_samples_as_they_hold():
    model = fitted(net()).double().eval()
    x, y = data()
    whole = Product(model, F.cross_entropy, [(x, y)])
    parts = Product(model, F.cross_entropy, [(x[:7], y[:7]), (x[7:], y[7:])])
    vector = torch.randn(whole.size, dtype=torch.float64)
    assert parts.loss == pytest.approx(whole.loss, 1e-12)
    assert torch.allclose(parts.gradient, whole.gradient)
    assert torch.allclose(parts.hvp(vector), whole.hvp(vector))
    assert parts.count == 1


def test_fused_attention_runs_on_the_math_kernel_and_says_so():
    model, batch, _ = benchmark().case("fused attention")
    loss = F.cross_entropy(model.float()(batch[0].float()), batch[1])
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):  # what happens without us
        torch.autograd.grad(sum(g.sum() for g in gradients), list(model.parameters()))
    product = Product(model, F.cross_entropy, [batch])
    assert ATTENTION_NOTE in product.notes
    assert float(product.hvp(torch.ones(product.size)).norm()) > 0


def test_an_objective_takes_the_batch_as_it_is():
    model, (x, y) = net(), data()
    product = Product(
        model,
        batches=[{"x": x, "y": y}],
        objective=lambda model, batch: F.cross_entropy(model(batch["x"]), batch["y"]),
    )
    assert product.loss == pytest.approx(Product(model, F.cross_entropy, (x, y)).loss)


def test_data_sets_and_loaders_give_batches():
    x, y = data()
    wanted = Product(net(), F.cross_entropy, [(x, y)])
    for given in (TensorDataset(x, y), DataLoader(TensorDataset(x, y), batch_size=16), (x, y)):
        assert Product(net(), F.cross_entropy, given).loss == pytest.approx(wanted.loss, 1e-6)


def test_half_precision_is_measured_in_float32():
    product = Product(net().bfloat16(), F.cross_entropy, [data()])
    assert product.dtype == torch.float32


BATCHES = {
    "none": ([], "at least one batch"),
    "a tensor": (torch.zeros(3, 6), r"give one batch as \[\(x, y\)\]"),
    "no pairs": ([torch.zeros(3, 6)], r"pairs \(input, target\)"),
    "empty": ([(torch.zeros(0, 6), torch.zeros(0, dtype=torch.long))], "at least one sample"),
    "no tensors": ([("a", "b")], "expected tensors"),
    "a number": (3, "got a int"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_bad_batches_are_refused(name):
    batches, message = BATCHES[name]
    with pytest.raises(InputError, match=message):
        Product(net(), F.cross_entropy, batches)


def test_bad_models_and_options_are_refused():
    with pytest.raises(InputError, match="without any"):
        Product(nn.ReLU(), F.cross_entropy, [data()])
    with pytest.raises(InputError, match="parameters are frozen"):
        Product(net().requires_grad_(False), F.cross_entropy, [data()])
    with pytest.raises(InputError, match="either loss"):
        Product(net(), None, [data()])
    with pytest.raises(InputError, match="expected eval or train"):
        Product(net(), F.cross_entropy, [data()], mode="test")
    with pytest.raises(InputError, match="at most 5000"):
        dense_hessian(net(hidden=600), F.cross_entropy, [data()])
