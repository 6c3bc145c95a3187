"""Which layers a model has, and by what name."""

from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import normgauge as ng
from normgauge.core import store
from normgauge.monitor.layers import find_layers, is_norm, plain_name


class LlamaRMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.token = nn.Parameter(torch.zeros(4))


def roles(model: nn.Module) -> dict[str, str]:
    return {layer.name: layer.role for layer in find_layers(model)}


def test_roles_follow_types() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 4), nn.RMSNorm(4), nn.LayerNorm(4)
    )
    assert roles(model) == {"0": "conv", "1": "norm", "3": "matrix", "4": "norm", "5": "norm"}


def test_weights_beside_a_modules_own_get_their_name() -> None:
    found = roles(nn.MultiheadAttention(4, 2))
    assert found == {"in_proj_weight": "matrix", "in_proj_bias": "vector", "out_proj": "matrix"}


def test_a_tied_weight_is_measured_once() -> None:
    layers = {layer.name: layer for layer in find_layers(Tied())}
    assert layers["head"].tied == "embed" and layers["embed"].tied is None
    assert layers["token"].role == "vector"


def test_a_reparametrized_weight_is_read_through_its_owner() -> None:
    module = weight_norm(nn.Linear(3, 2))
    (layer,) = find_layers(nn.Sequential(module))
    assert layer.role == "matrix" and layer.reparametrized
    assert torch.equal(layer.weight, module.weight.detach()) and not layer.weight.requires_grad
    assert layer.gradient is None


def test_normalizers_without_gain_and_of_other_makers() -> None:
    (bare,) = find_layers(nn.Sequential(nn.LayerNorm(4, elementwise_affine=False)))
    assert bare.attribute is None and bare.weight is None and bare.gradient is None
    assert is_norm(LlamaRMSNorm())


def test_wrappers_leave_no_trace_in_names() -> None:
    assert plain_name("module.layers.0.module.norm") == "layers.0.norm"
    assert plain_name("_orig_mod.head") == "head"
    assert plain_name("module") == "module"


def test_the_header_describes_a_layer() -> None:
    (layer,) = find_layers(nn.Sequential(nn.Linear(3, 2)))
    assert layer.described() == {
        "name": "0", "type": "Linear", "role": "matrix", "shape": [2, 3], "parameters": 8, "tied": None
    }  # fmt: skip


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.zeros(5, 4))
        self.W = nn.Parameter(torch.zeros(5, 4))


def test_a_parameter_that_may_be_added_has_no_operator_norm() -> None:
    assert roles(Positions()) == {"p": "vector", "W": "matrix"}


class Imaginary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(1j * torch.randn(6, 8)), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head((x.to(torch.cfloat) @ self.weight.T).abs())


def test_the_monitor_does_not_watch_complex_weights_and_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Imaginary()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    monitor = ng.Monitor(model, tmp_path, every=1, optimizer=optimizer)
    for _ in range(2):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.step(loss=loss)
    monitor.close()
    run = store.read(monitor.path)
    assert [layer for layer in run.layers if "weight" in layer] == []
    assert run.series("norm_upper", "head")
    assert "not watched: weight (complex)" in (tmp_path / "run.jsonl").read_text(encoding="utf-8")
