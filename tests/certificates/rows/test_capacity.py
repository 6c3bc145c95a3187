from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.bounds.margin import round_up
from normgauge.certificates.case import Case
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.rows.capacity import capacity_rows, data_norms
from normgauge.core.certificate import Row, RowKind
from normgauge.lab.zoo import mlp

KEYS = [
    "capacity.vc",
    "capacity.neyshabur2015",
    "capacity.golowich",
    "capacity.bartlett2017",
    "capacity.neyshabur2018",
    "capacity.cisneros2025",
]


def case_of(net: nn.Module, inputs: Tensor, labels: Tensor, delta: float = 0.05) -> Case:
    sample = DataSample(inputs, labels)
    return Case(net.eval(), sample, model_outputs(net, sample), delta)


def computed(case: Case) -> dict[str, Row]:
    return {row.key: row for row in capacity_rows(case)}


def two_points(m: int, seed: int = 0) -> tuple[nn.Linear, Tensor, Tensor]:
    """A line that separates two clouds on the unit circle."""
    torch.manual_seed(seed)
    labels = torch.randint(0, 2, (m,))
    angle = torch.randn(m) * 0.1 + labels * math.pi
    net = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    return net, torch.stack([angle.cos(), angle.sin()], 1), labels


def test_a_separated_problem_gets_bounds() -> None:
    net, inputs, labels = two_points(4000)
    found = computed(case_of(net, inputs, labels))
    assert list(found) == KEYS
    for key in ("capacity.vc", "capacity.golowich", "capacity.neyshabur2015"):
        row = found[key]
        assert row.kind is RowKind.BOUND and row.reason == "" and row.needed is None
        assert sum(term for _, term in row.terms) == pytest.approx(row.value)
        assert row.confidence == 0.95


def test_frobenius_row_recomputed() -> None:
    m, delta = 4000, 0.05
    net, inputs, labels = two_points(m)
    row = computed(case_of(net, inputs, labels, delta))["capacity.golowich"]
    gamma = float(row.formula.rsplit("= ", 1)[1])
    margins = (2 * inputs[:, 0] * (1 - 2 * labels)).double()
    value = []
    for g in sorted(margins.tolist())[: m // 2]:
        log_point, price = round_up(math.log(1.0 / g))
        rad = (math.sqrt(2 * math.log(2)) + 1) * float(inputs.double().norm()) / m * math.exp(log_point)
        error = float((margins < g).double().mean())
        value.append(error + 8 * rad + 3 * math.sqrt((math.log(2 / delta) + price) / (2 * m)))
    assert 0 < gamma < 2
    assert min(value) <= row.value * (1 + 1e-9)  # type: ignore[operator]
    assert row.value == pytest.approx(min(value), rel=0.02)


def test_vc_row_recomputed() -> None:
    net, inputs, labels = two_points(4000)
    row = computed(case_of(net, inputs, labels))["capacity.vc"]
    vc = 1 + 4 * math.log2(4 * math.e * math.log2(2 * math.e))
    assert row.value == pytest.approx(math.sqrt((2 * vc * math.log(8000 * math.e / vc) + math.log(40)) / 4000))


def test_spectral_rows_recomputed() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2)).eval()
    inputs = torch.randn(200, 6)
    found = computed(case_of(net, inputs, net(inputs).argmax(1)))
    unit = torch.cat([torch.zeros(1, 6), torch.ones(1, 1)], 1)
    first = torch.cat([torch.cat([net[0].weight, net[0].bias[:, None]], 1), unit]).double().detach()
    last = torch.cat([net[2].weight, net[2].bias[:, None]], 1).double().detach()
    spectral = [float(torch.linalg.matrix_norm(a, 2)) for a in (first, last)]
    ratios = [float(a.norm(dim=1).sum()) / s for a, s in zip((first, last), spectral, strict=True)]
    data = math.sqrt(float(inputs.double().square().sum()) + 200)
    row = found["capacity.bartlett2017"]
    gamma = float(row.formula.rsplit("= ", 1)[1])
    plain = 72 * math.sqrt(2) * data * math.sqrt(math.log(2 * 10**2)) * math.log(200) / (gamma * 200)
    plain *= math.prod(spectral) * sum(r ** (2 / 3) for r in ratios) ** 1.5
    assert plain <= dict(row.terms)["capacity"] <= 2 ** (2 / 8) * plain * 1.01  # two roundings by 2^(1/8) at most

    row = found["capacity.neyshabur2018"]
    gamma = float(row.formula.rsplit("= ", 1)[1])
    squares = sum(float(a.norm()) ** 2 / s**2 for a, s in zip((first, last), spectral, strict=True))
    ball = math.sqrt(float(inputs.double().square().sum(1).max()) + 1)
    kl = (42 * math.e * 2 * ball * math.prod(spectral) / gamma) ** 2 * 10 * math.log(80) * squares / 2
    assert 0.99 <= dict(row.terms)["divergence"] / (4 * math.sqrt(kl / 199)) <= 2 ** (1 / 8) * 1.01


def test_vacuous_rows_say_why_and_how_many_samples() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(300, 8)
    net = mlp((8, 16, 16, 3), "batch").eval()
    found = computed(case_of(net, inputs, net(inputs).argmax(1)))
    for key in KEYS[:-1]:
        row = found[key]
        assert row.kind is RowKind.VACUOUS
        assert row.needed is not None and row.needed > 300
        assert "layers multiply" in row.reason or "VC dimension" in row.reason
    assert found["capacity.cisneros2025"].kind is RowKind.NOT_APPLICABLE


def test_the_size_that_is_named_suffices() -> None:
    net, inputs, labels = two_points(60)
    short = computed(case_of(net, inputs, labels))["capacity.golowich"]
    assert short.kind is RowKind.VACUOUS and short.needed is not None
    net, inputs, labels = two_points(int(1.3 * short.needed))
    assert computed(case_of(net, inputs, labels))["capacity.golowich"].kind is RowKind.BOUND


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_other_normalizers_do_not_apply(norm: str) -> None:
    torch.manual_seed(0)
    net = mlp((8, 16, 3), norm).eval()
    found = computed(case_of(net, torch.randn(50, 8), torch.zeros(50, dtype=torch.long)))
    assert list(found) == KEYS
    for row in found.values():
        assert row.kind is RowKind.NOT_APPLICABLE
    assert "layers.0.norm" in found["capacity.golowich"].reason


def test_max_pooling_keeps_all_but_the_frobenius_rows() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)).eval()
    inputs = torch.randn(60, 1, 6, 6)
    found = computed(case_of(net, inputs, net(inputs).argmax(1)))
    assert found["capacity.neyshabur2015"].kind is found["capacity.golowich"].kind is RowKind.NOT_APPLICABLE
    assert "max pooling" in found["capacity.golowich"].reason
    assert found["capacity.bartlett2017"].kind is found["capacity.vc"].kind is RowKind.VACUOUS


def test_no_margin_no_row() -> None:
    net, inputs, labels = two_points(100)
    found = computed(case_of(net, inputs, 1 - labels))
    assert "no margin" in found["capacity.bartlett2017"].reason
    assert found["capacity.vc"].kind is RowKind.VACUOUS
    assert dict(found["capacity.vc"].terms)["training error"] == 1.0


def test_rescaling_across_a_relu_changes_nothing() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 9, bias=False), nn.ReLU(), nn.Linear(9, 2, bias=False)).eval()
    inputs = torch.randn(200, 6)
    labels = net(inputs).argmax(1)
    before = computed(case_of(net, inputs, labels))
    with torch.no_grad():
        net[0].weight.mul_(1024.0)
        net[2].weight.div_(1024.0)
    after = computed(case_of(net, inputs, labels))
    for key in KEYS[:-1]:
        assert after[key].value == pytest.approx(before[key].value, rel=1e-6)


def test_scaling_the_outputs_changes_nothing() -> None:
    net, inputs, labels = two_points(4000)
    before = computed(case_of(net, inputs, labels))
    with torch.no_grad():
        net.weight.mul_(64.0)
    after = computed(case_of(net, inputs, labels))
    for key in KEYS[:-1]:
        assert after[key].value == pytest.approx(before[key].value, rel=1e-6)


def test_data_norms_with_the_constant() -> None:
    inputs = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    log_data, log_norm = data_norms(DataSample(inputs, None), constant=True)
    assert math.exp(2 * log_data) == pytest.approx(27)
    assert math.exp(2 * log_norm) == pytest.approx(26)
    assert data_norms(DataSample(torch.zeros(2, 2), None), constant=False) == (-math.inf, -math.inf)
