"""The loss along its gradient, and covariate shift."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.geometry.hessian import Product, covariate_shift, landscape
from tests.geometry.hessian.made import data, fitted, net


class Bowl(nn.Module):
    """L = ½ Σ a w²: everything along the gradient is known."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tensor([4.0, 1.0]).to(x) * self.w**2).sum() / 2 + 0 * x.sum()


def test_the_walk_along_the_gradient_of_a_bowl():
    batch = [(torch.zeros(3, 1), torch.zeros(3))]
    found = landscape(Bowl(), lambda out, target: out, batch, steps=(0.1, 0.5), dtype=torch.float64)
    assert found.loss == 4.0 and found.gradient_norm == pytest.approx(20**0.5)
    for point in found.points:
        w = torch.tensor([1 - 4 * point.step, 2 * (1 - point.step)])
        assert point.loss == pytest.approx(float(2 * w[0] ** 2 + w[1] ** 2 / 2))
        assert point.smoothness == pytest.approx(float(torch.tensor([16.0, 2.0]).norm()) / 20**0.5)
    assert found.effective_beta == pytest.approx((260 / 20) ** 0.5)
    assert found.loss_range == (min(p.loss for p in found.points), found.points[1].loss)
    assert found.to_json()["gradient_predictiveness"] == [
        found.points[0].gradient_change,
        found.points[1].gradient_change,
    ]


def test_small_steps_see_the_curvature_along_the_gradient():
    model, batch = fitted(net()).double(), [data()]
    product = Product(model, F.cross_entropy, batch, mode="train")
    direction = product.gradient / product.gradient.norm()
    found = landscape(model, F.cross_entropy, batch, steps=(1e-5,))
    assert found.effective_beta == pytest.approx(float(product.hvp(direction).norm()), 1e-3)


def test_bad_steps_and_a_flat_place_are_refused():
    with pytest.raises(InputError, match="positive learning rates"):
        landscape(net(), F.cross_entropy, [data()], steps=(0.1, -1.0))
    flat = nn.Linear(6, 1)
    with pytest.raises(InputError, match="gradient is zero"):
        landscape(flat, lambda out, target: (out * 0).sum(), [data()])


def test_covariate_shift_moves_the_earlier_layers_only():
    model, batch = fitted(net()).double(), [data()]
    names = [name for name, _ in model.named_parameters()]
    rows = covariate_shift(model, F.cross_entropy, batch, rate=0.5)
    assert [row.layer for row in rows] == ["1", "3"]
    loss = F.cross_entropy(model.train()(batch[0][0].double()), batch[0][1])
    before = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))
    with torch.no_grad():
        for name in names[:4]:
            model.get_parameter(name).sub_(0.5 * before[name])
    loss = F.cross_entropy(model(batch[0][0].double()), batch[0][1])
    after = torch.autograd.grad(loss, list(model[3].parameters()))
    g, h = (torch.cat([t.reshape(-1) for t in pair]) for pair in ((before["3.weight"], before["3.bias"]), after))
    assert rows[1].change == pytest.approx(float((g - h).norm()))
    assert rows[1].relative == pytest.approx(float((g - h).norm() / g.norm()))
    assert rows[1].cosine == pytest.approx(float(F.cosine_similarity(g, h, 0)))
    assert set(rows[0].to_json()) == {"layer", "change", "relative", "cosine"}


def test_no_update_no_shift_and_bad_updates():
    model = net()
    none = {"0.weight": torch.zeros_like(model[0].weight)}
    rows = covariate_shift(model, F.cross_entropy, [data()], update=none)
    assert [(row.change, row.cosine) for row in rows] == [(0.0, pytest.approx(1))] * 2
    with pytest.raises(InputError, match="one only"):
        covariate_shift(model, F.cross_entropy, [data()])
    with pytest.raises(InputError, match="names of trained parameters, got nothing"):
        covariate_shift(model, F.cross_entropy, [data()], update={"nothing": torch.zeros(1)})
