"""What is measured every epoch, against the definition and against the instrument itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import normgauge as ng
from experiments.than2025 import data, nets, plan
from experiments.than2025.epoch import Gauge
from experiments.than2025.layers import Matrix, modes, observe, sigma, survey
from experiments.than2025.power import Power
from normgauge.lab import zoo


@pytest.mark.parametrize(
    ("net", "matrices", "normalizers"), [("resnet18", 21, 20), ("resnet20", 20, 19), ("efficientnet_b3", 131, 78)]
)
def test_survey_finds_every_layer(net: str, matrices: int, normalizers: int) -> None:
    model = zoo.build_network(net)
    found, sites = survey(model, torch.rand(2, 3, 32, 32))
    assert len(found) == matrices
    assert sum(site.normalizes for site in sites) == normalizers
    for site in sites:  # every normalizer of these networks follows a convolution of as many channels
        assert site.source is not None
        assert found[site.source].module.weight.shape[0] == site.module.num_features
    assert model.training


@pytest.mark.parametrize(("net", "norm", "count"), [("mlp", None, 2), ("resnet18", None, 20), ("resnet18", "rms", 20)])
def test_sites_without_a_normalizer(net: str, norm: str | None, count: int) -> None:
    model = zoo.build_network(net, norm=norm)
    size = (2, 1, 8, 8) if net == "mlp" else (2, 3, 32, 32)
    _, sites = survey(model, torch.rand(size))
    assert len(sites) == count
    assert all(site.normalizes == (norm is not None) and site.source is not None for site in sites)


@pytest.mark.parametrize(
    ("module", "shape", "groups"),
    [
        (nn.LayerNorm(6), (5, 6), (5, 6)),
        (nn.GroupNorm(2, 6), (5, 6), (10, 3)),
        (nn.GroupNorm(3, 6), (5, 6, 2, 2), (15, 8)),
        (nn.InstanceNorm2d(6), (5, 6, 2, 2), (30, 4)),
    ],
)
def test_sigma_by_group(module: nn.Module, shape: tuple[int, ...], groups: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    wanted = (x.reshape(groups).var(-1, correction=0) + module.eps).sqrt()
    torch.testing.assert_close(sigma(module, x), wanted)


def test_sigma_by_channel_and_rms() -> None:
    x = torch.randn(7, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    each = x.transpose(0, 1).reshape(3, -1)
    torch.testing.assert_close(sigma(nn.BatchNorm2d(3), x), (each.var(-1, correction=0) + 1e-5).sqrt())
    torch.testing.assert_close(sigma(nn.ReLU(), x), each.std(-1, correction=0))
    rows = x[..., 0, 0]
    torch.testing.assert_close(
        sigma(nn.RMSNorm(3), rows), (rows.square().mean(-1) + torch.finfo(torch.float32).eps).sqrt()
    )


def test_batch_statistics_leave_no_trace() -> None:
    model = zoo.mlp((4, 8, 8, 2), norm="batch")
    model.layers[0].norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _, sites = survey(model, torch.rand(3, 4))
    seen = observe(model, sites, 5 * torch.rand(64, 4), train=True)
    deployed = observe(model, sites, 5 * torch.rand(64, 4), train=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training and not model.layers[0].norm.training
    assert not torch.allclose(seen[1], deployed[1])  # the second layer sees normalized values only in the first case
    with modes(model, normalizers_train=False):
        assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(7, 5), (7,)),
        (nn.Conv2d(2, 3, 3, padding=1), (2, 5, 5)),
        (nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2), (4, 6, 6)),
    ],
    ids=["linear", "conv", "grouped"],
)
def test_power_iteration_finds_the_norm(module: nn.Linear | nn.Conv2d, shape: tuple[int, ...], scaled: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.rand(module.weight.shape[0], generator=generator) + 0.5 if scaled else None
    with torch.no_grad():
        module.weight.copy_(torch.randn(module.weight.shape, generator=generator))

    def run(flat: torch.Tensor) -> torch.Tensor:
        out = module(flat.view(1, *shape)) - module(torch.zeros(1, *shape))
        return (out if scale is None else out * scale.view(-1, *[1] * (out.ndim - 2))).flatten()

    dense = torch.autograd.functional.jacobian(run, torch.zeros(math.prod(shape)))
    truth = float(torch.linalg.matrix_norm(dense, 2))
    power = Power()
    for _ in range(6):
        found = float(power.norm(Matrix("m", module, shape), scale))
        assert found <= truth * (1 + 1e-5)
    assert found == pytest.approx(truth, rel=1e-3)


def test_power_iteration_of_a_layer_that_has_shrunk_to_nothing() -> None:
    """Squares of such entries underflow in float32."""
    draw = torch.Generator().manual_seed(0)
    module = nn.Linear(6, 5, bias=False)
    nn.init.normal_(module.weight, generator=draw)
    matrix, power, scale = Matrix("m", module, (6,)), Power(), torch.rand(5, generator=draw) + 0.5
    weight = module.weight.detach().clone()
    wanted = float(torch.linalg.matrix_norm(weight, 2))
    folded = float(torch.linalg.matrix_norm(scale[:, None] * weight, 2))
    for size in (1.0, 1e-12, 1e-25):
        with torch.no_grad():
            module.weight.copy_(size * weight)
        assert float(power.norm(matrix)) == pytest.approx(wanted * size, rel=1e-2, abs=0)
        assert float(power.norm(matrix, scale)) == pytest.approx(folded * size, rel=1e-2, abs=0)
    with torch.no_grad():
        module.weight.zero_()
    assert float(power.norm(matrix)) == 0 and float(power.norm(matrix, scale)) == 0
    with torch.no_grad():
        module.weight[0, 0] = math.nan
    assert math.isnan(power.norm(matrix))


def test_a_few_steps_are_enough_after_an_epoch() -> None:
    """Weights that have moved far, channels apart by decades, a map of low rank: within 2 % and never above."""
    draw = torch.Generator().manual_seed(0)
    cases = [
        Matrix("depthwise", nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), (24, 6, 6)),
        Matrix("conv", nn.Conv2d(16, 32, 3, padding=1, bias=False), (16, 6, 6)),
        Matrix("low", nn.Linear(64, 4, bias=False), (64,)),
    ]
    power = Power()
    for _ in range(4):
        for matrix in cases:
            weight = matrix.module.weight
            with torch.no_grad():
                weight.mul_(torch.randn(len(weight), *[1] * (weight.ndim - 1), generator=draw).exp())
                weight.add_(0.5 * weight.std() * torch.randn(weight.shape, generator=draw))
            identity = torch.eye(math.prod(matrix.shape)).view(-1, *matrix.shape)
            truth = float(torch.linalg.matrix_norm(matrix.module(identity).detach().flatten(1).double(), 2))
            assert 0.98 * truth < float(power.norm(matrix)) < (1 + 1e-5) * truth, matrix.name


def test_power_iteration_leaves_a_channel_that_has_died() -> None:
    module = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False)
    with torch.no_grad():
        module.weight.zero_()
        module.weight[:, 0, 1, 1] = torch.tensor([9.0, 1.0, 2.0, 1.0])
    matrix, power = Matrix("m", module, (4, 5, 5)), Power()
    assert float(power.norm(matrix)) == pytest.approx(9, rel=1e-3)
    with torch.no_grad():
        module.weight[0] = 1e-20
    assert float(power.norm(matrix)) == pytest.approx(2, rel=1e-2)


@pytest.mark.parametrize("norm", ["batch", "layer", "rms", "none"])
def test_a_record_agrees_with_the_instrument(specs: dict[str, plan.Spec], digits: data.Data, norm: str) -> None:
    model = nets.build(replace(specs["nets/mlp-adam"], norm=norm), digits.shape)
    with torch.no_grad():
        model(digits.real(digits.train[:256]))  # statistics that are not 0 and 1
    few = replace(digits, test=digits.test[:32], test_labels=digits.test_labels[:32])
    gauge = Gauge(model, few)
    for _ in range(8):
        record = gauge.record()
    model.eval()
    reading = ng.gauge(model, gauge.probe, scope="point", search=False)
    totals = record["totals"]
    assert totals["log10_P_w"] == pytest.approx(reading.published["log10_P_w"], abs=5e-3)
    assert totals["log10_P_w_frobenius"] == pytest.approx(reading.published["log10_P_w_frobenius"], abs=1e-4)
    assert math.log10(totals["jacobian_max"]) == pytest.approx(reading.log10_lower, abs=1e-3)
    assert totals["below_one"] == sum(s[1] < 1 for s in record["columns"]["running"]) * (norm != "none")
    if norm == "batch":  # the same statistics everywhere
        for how in ("min", "rms", "max"):
            wanted = reading.published["log10_prod_inv_sigma"][how]
            assert totals[f"log10_prod_inv_sigma_{how}"] == pytest.approx(wanted, abs=1e-4)
        assert totals["log10_prod_l2"] == pytest.approx(reading.published["log10_prod_l2"], abs=1e-4)
        assert totals["log10_folded"] == pytest.approx(reading.log10_folded, abs=5e-3)
    if norm == "none":
        assert totals["log10_folded"] == totals["log10_P_w"]
        assert totals["log10_prod_inv_sigma_rms"] == 0


def test_scores_are_those_of_eval_mode(specs: dict[str, plan.Spec], digits: data.Data) -> None:
    model = nets.build(specs["mlp-norms/mlp-batch"], digits.shape)
    loss, accuracy = Gauge(model, digits).scores(digits.test, digits.test_labels)
    logits = model.eval()(digits.real(digits.test)).detach()
    assert accuracy == pytest.approx(float((logits.argmax(-1) == digits.test_labels).float().mean()))
    assert loss == pytest.approx(float(nn.functional.cross_entropy(logits, digits.test_labels)), rel=1e-5)


def test_slopes_that_are_no_numbers_are_infinite(specs: dict[str, plan.Spec], digits: data.Data) -> None:
    model = nets.build(specs["nets/mlp-adam"], digits.shape)
    gauge = Gauge(model, digits)
    with torch.no_grad():
        model.head.weight.fill_(math.inf)
    assert math.isinf(float(gauge.slopes().max()))


def test_no_image_is_longer_than_one(digits: data.Data) -> None:
    assert float(digits.real(digits.train).flatten(1).norm(dim=1).max()) <= 1
    white = torch.full((1, *digits.shape), 255, dtype=torch.uint8)
    assert float(digits.real(white).norm()) == pytest.approx(1)
    with pytest.raises(plan.PlanError, match="not images"):
        data.load("tinyshakespeare", torch.device("cpu"))
