"""Products of Hessians are right on every normalizer, and what cannot be differentiated twice is named."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, dense_hessian
from normgauge.geometry.hessian.graph import ATTENTION_NOTE
from normgauge.geometry.hessian.operator import dense_matrix
from normgauge.geometry.hessian.product import by_layer
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


def test_frozen_unused_and_random_parts_are_said():
    model = nn.Sequential(net(), nn.Dropout(0.3))
    model[0][0].weight.requires_grad_(False)
    model.register_parameter("idle", nn.Parameter(torch.ones(2)))
    notes = " | ".join(Product(model, F.cross_entropy, [data()], mode="train").notes)
    assert "frozen parameters are not part of it: 0.0.weight" in notes
    assert "does not depend on idle" in notes
    assert "dropout draws one mask a batch and holds it: 1" in notes


def test_half_precision_is_measured_in_float32():
    product = Product(net().bfloat16(), F.cross_entropy, [data()])
    assert product.dtype == torch.float32


def test_steps_without_a_slope_are_said():
    def loss(out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out, target) + out.round().mean()

    assert any("derivative of round is zero" in note for note in Product(net(), loss, [data()]).notes)


@torch.no_grad()
def _blind(out: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(out, target)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 2


LOSSES = {
    "shape": (lambda o, t: F.cross_entropy(o, t, reduction="none"), r"scalar, got shape \(40,\) on batch 0"),
    "accuracy": (lambda o, t: (o.argmax(1) == t).float().mean(), "argmax passes no gradient on"),
    "detached": (lambda o, t: F.cross_entropy(o.detach(), t), "detach passes no gradient on"),
    "data": (lambda o, t: F.cross_entropy(o.data, t), "data passes no gradient on"),
    "number": (lambda o, t: F.cross_entropy(o, t).item(), "tensor with one entry, got a float"),
    "switched off": (_blind, "switched off"),
    "constant": (lambda o, t: torch.ones(()), "no operation leads from a parameter"),
    "sign": (lambda o, t: o.sign().mean(), "derivative of sign is zero"),
    "nan": (lambda o, t: o.mean() * float("nan"), "finite number, got nan"),
    "gradient": (lambda o, t: (o[:1] * 0).sqrt().sum(), "its gradient on batch 0 is not finite"),
    "wrong target": (lambda o, t: F.cross_entropy(o, t[:3]), "raised ValueError on batch 0"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_has_no_curvature_is_refused_with_the_reason(name):
    loss, message = LOSSES[name]
    with pytest.raises(InputError, match=message):
        Product(net(), loss, [data()])


def test_an_operation_without_second_derivative_is_named():
    with pytest.raises(InputError, match=r"no second derivative.*once_differentiable"):
        Product(net(), lambda o, t: F.cross_entropy(Once.apply(o), t), [data()])


class Hidden(torch.autograd.Function):
    """A square whose backward hides how it depends on its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x**2

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.x * g


def test_a_backward_written_by_hand_is_said():
    product = Product(net(), lambda o, t: Hidden.apply(o).mean() + F.cross_entropy(o, t), [data()])
    assert any(note.startswith("Hidden has a backward written by hand") for note in product.notes)


def test_an_operation_of_torch_without_second_derivative_is_named():
    def loss(out: Tensor, target: Tensor) -> Tensor:
        return torch.cdist(out, torch.zeros(2, 3), p=1.0).mean() + F.cross_entropy(out, target)

    product = Product(net(), loss, [data()])
    with pytest.raises(InputError, match=r"no second derivative.*cdist"):
        product.hvp(torch.ones(product.size))


def test_a_batch_of_one_in_train_mode_names_the_normalizer():
    x, y = data()
    with pytest.raises(InputError, match=r"batch 1 has one value a channel at 1.*drop_last"):
        Product(net(), F.cross_entropy, [(x[:20], y[:20]), (x[:1], y[:1])], mode="train")
    Product(net(), F.cross_entropy, [(x[:1], y[:1])], mode="eval")


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
