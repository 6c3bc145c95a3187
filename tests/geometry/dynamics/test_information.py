import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics import (
    ScaleFree,
    compare_metrics,
    fisher,
    radial_directions,
    scores,
    tangent_directions,
)
from tests.geometry.dynamics.nets import batch_norm_net, data


def per_sample(net: nn.Module, x: torch.Tensor, names: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Every ∂log p(c|x_n)/∂θ by a backward pass of its own: (N, C, P); and p."""
    log_p = net(x).log_softmax(-1)
    parameters = [dict(net.named_parameters())[name] for name in names]
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters, retain_graph=True)])
        for value in log_p.flatten()
    ]
    return torch.stack(rows).reshape(*log_p.shape, -1).detach(), log_p.exp().detach()


def basis(net: nn.Module, name: str) -> list[dict[str, torch.Tensor]]:
    shape = dict(net.named_parameters())[name].shape
    return [{name: unit.reshape(shape)} for unit in torch.eye(shape.numel(), dtype=torch.float64)]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_matrix_is_that_of_per_sample_gradients(training):
    net, _ = batch_norm_net(eps=1e-3)
    x = data(6)[0]
    net.train(training)
    found, directions = fisher(net, x, basis(net, "3.weight")), basis(net, "3.weight")
    score, p = per_sample(net, x, ["3.weight"])
    assert torch.allclose(found, torch.einsum("nc,nci,ncj->ij", p, score, score) / 6, atol=1e-12)
    assert torch.allclose(scores(net, x, directions), score, atol=1e-12)
    assert float(found.diagonal().max()) > 1e-3


@pytest.mark.parametrize("eps", [1e-30, 1e-2])
def test_fisher_does_not_see_an_exact_symmetry_and_cho_lee_does(eps):
    net, groups = batch_norm_net(eps=eps)
    for group in groups:
        found = compare_metrics(net, data()[0], group)
        ones = torch.ones(group.rows, dtype=torch.float64)
        assert torch.allclose(found.cho_lee_radial, ones) and torch.allclose(found.cho_lee_tangent, ones)
        share = float((found.fisher_radial / found.fisher_tangent).median())
        assert share < 1e-25 if eps < 1e-20 else 1e-9 < share < 1e-1


def test_layer_norm_shifts_are_invisible_too():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = torch.randn(8, 5, dtype=torch.float64)
    shifts = [{"0.weight": torch.outer(torch.ones(6), unit)} for unit in torch.eye(5)] + [{"0.bias": torch.ones(6)}]
    other = [{"0.bias": torch.eye(6)[0]}]
    matrix = fisher(net, x, [*shifts, *other])
    assert float(matrix[:6, :6].abs().max()) < 1e-30 and float(matrix[:6, 6].abs().max()) < 1e-16
    assert float(matrix[6, 6]) > 1e-3


def test_both_metrics_are_the_same_in_every_gauge():
    net, groups = batch_norm_net()
    x = data()[0]
    before = compare_metrics(net, x, groups[0])
    with torch.no_grad():
        net[0].weight *= 100
    after = compare_metrics(net, x, groups[0])
    assert torch.allclose(after.fisher_tangent, before.fisher_tangent, rtol=1e-9)
    euclidean = [{"0.weight": torch.eye(12, 8)}]
    large = float(fisher(net, x, euclidean))
    with torch.no_grad():
        net[0].weight /= 100
    assert float(fisher(net, x, euclidean)) == pytest.approx(1e4 * large, rel=1e-9)


def test_the_model_is_left_as_it_was():
    net, groups = batch_norm_net()
    net[4].eval()
    net.requires_grad_(False)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    compare_metrics(net, data()[0], groups[0])
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert net[1].training and not net[4].training
    assert not any(p.requires_grad or p.grad is not None for p in net.parameters())


def test_a_frozen_layer_is_measured_frozen():
    net, groups = batch_norm_net()
    net[1].eval()
    assert (
        float(compare_metrics(net, data()[0], groups[0]).fisher_radial.min()) > 1e-6
    )  # affine now, and not scale-free
    assert float(compare_metrics(net, data()[0], groups[1]).fisher_radial.max()) < 1e-25


def test_directions_are_of_one_row_each():
    net, groups = batch_norm_net()
    named = dict(net.named_parameters())
    radial, across = radial_directions(groups[1], named), tangent_directions(groups[1], named)
    assert len(radial) == len(across) == 10
    assert torch.equal(sum(d["3.weight"] for d in radial), net[3].weight)
    for r, (a, b) in enumerate(zip(radial, across, strict=True)):
        assert float((a["3.weight"] * b["3.weight"]).sum().abs()) < 1e-14
        assert float(b["3.weight"].norm()) == pytest.approx(float(a["3.weight"].norm()))
        assert torch.equal(b["3.weight"].abs().sum(1) > 0, torch.arange(10) == r)


def test_a_direction_the_output_does_not_see_has_length_zero():
    net, _ = batch_norm_net()
    net.register_parameter("spare", nn.Parameter(torch.ones(2, dtype=torch.float64)))
    assert float(fisher(net, data()[0], [{"spare": torch.ones(2)}])) == 0


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.w).sum()


@pytest.mark.parametrize(
    ("directions", "words"),
    [([], "got none"), ([{"nowhere": torch.ones(1)}], "got .'nowhere'."),
     ([{"0.weight": torch.ones(3)}], r"has shape \(3,\)")],
    ids=["none", "unknown", "shape"],
)  # fmt: skip
def test_directions_that_do_not_fit_are_refused(directions, words):
    net, _ = batch_norm_net()
    with pytest.raises(InputError, match=words):
        fisher(net, data()[0], directions)


def test_an_output_that_is_no_logits_is_refused():
    with pytest.raises(InputError, match="returns logits"):
        fisher(Scalar(), torch.ones(3, 8), [{"w": torch.ones(8)}])


def test_groups_of_several_parameters():
    net = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6, eps=1e-30), nn.Tanh(), nn.Linear(6, 3)).double()
    found = compare_metrics(net, torch.randn(8, 5, dtype=torch.float64), ScaleFree(("0.weight", "0.bias"), 1))
    assert float(found.fisher_radial) < 1e-25 < 1e-6 < float(found.fisher_tangent)
