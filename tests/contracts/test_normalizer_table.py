"""A normalizer, however it is written: every part that should know it does, asked through what it tells users."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.cli import main
from normgauge.geometry.dynamics import RadialIdentity

pytestmark = pytest.mark.usefixtures("brief_search")
EPS = 1e-5


class Own(nn.Module):
    """Gain and shift that a normalizer written by somebody holds."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))


class Kept(Own):
    """And statistics, under names of its own."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("middle", torch.zeros(width))
        self.register_buffer("square", torch.ones(width))


class BatchByFunction(Kept):
    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.middle, self.square, self.weight, self.bias, self.training)


class BatchSubclass(nn.BatchNorm1d):
    pass


class BatchInForward(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class BatchByHand(Kept):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x - self.middle) / torch.sqrt(self.square + EPS) + self.bias


class FrozenBatch(nn.Module):
    """As torchvision and DETR write it: nothing is trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("weight", "running_var"):
            self.register_buffer(name, torch.ones(width))
        for name in ("bias", "running_mean"):
            self.register_buffer(name, torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        w, b, mean, var = (
            t.reshape(1, -1, 1, 1) for t in (self.weight, self.bias, self.running_mean, self.running_var)
        )
        scale = w * (var + EPS).rsqrt()
        return x * scale + (b - mean * scale)


class LayerSubclass(nn.LayerNorm):
    pass


class LayerPermuted(nn.LayerNorm):
    """As ConvNeXt has it, over the channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class LayerByFunction(Own):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


class LayerByHand(Own):
    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - mean) / torch.sqrt(variance + EPS)) + self.bias


class RootByHand(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))


class ScaleNorm(nn.Module):
    """Nguyen & Salazar 2019; nothing in the library names it, and what it computes is enough."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(float(width)).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / x.norm(dim=-1, keepdim=True).clamp(min=EPS)


class Unit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


def llama(width: int) -> nn.Module:
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    made: nn.Module = modeling.LlamaRMSNorm(width, eps=EPS)
    return made


class Network(nn.Module):
    """A linear map or convolution, the normalizer, ReLU and a head."""

    def __init__(self, norm: nn.Module, images: bool) -> None:
        super().__init__()
        self.first: nn.Module = nn.Conv2d(4, 4, 3, padding=1) if images else nn.Linear(8, 8)
        self.norm, self.relu, self.flat = norm, nn.ReLU(), nn.Flatten()
        self.head = nn.Linear(100 if images else 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flat(self.relu(self.norm(self.first(x)))))


class CallInNetwork(Network):
    """The function is called in the network's own forward; the normalizer only holds its tensors."""

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm
        h = F.batch_norm(self.first(x), n.middle, n.square, n.weight, n.bias, self.training)
        return self.head(self.relu(h))


class Way(NamedTuple):
    """One way to write a normalizer, and what each part must say of it.

    Attributes:
        make: from a width.
        images: whether it stands behind a convolution.
        row: its row in a reading; ``like`` the module of torch's whose σ, γ and bound it must have, None for itself.
        sigma: whether that row has σ.
        advice: what is found when γ is next to nothing, the map before it too, and its statistics are not the data's.
        leaves: whether what-if can take it out.
        followed: whether a run file follows its σ.
        radial: whether the radial gradient behind it is predicted, in train mode.
        scales: scale-free rows in front of it, in train mode.
        corollary: which row of Corollary 22 is about it.
        chain: whether the norm bounds take it as part of the maps.
        asked: what what-if calls it, where that is not its row: the module around a single function.
    """

    make: Callable[[int], nn.Module]
    images: bool
    row: str
    like: Callable[[int], nn.Module] | None
    sigma: bool
    advice: set[str]
    leaves: bool
    followed: bool
    radial: bool
    scales: int
    corollary: str
    chain: bool
    asked: str = ""


DEAD, TINY, STALE = "dead normalizer", "epsilon decides", "stale statistics"
STORED, SPREAD = {DEAD, STALE}, {DEAD, TINY}


def batch(make: Callable[[int], nn.Module], row: str, images: bool = False, **other: bool | int) -> Way:
    torchs = nn.BatchNorm2d if images else nn.BatchNorm1d
    scales = 4 if images else 8
    plain = Way(make, images, row, torchs, True, STORED, True, True, True, scales, "batch", True)
    return plain._replace(**other)


def own(
    make: Callable[[int], nn.Module], row: str, like: Callable[[int], nn.Module], scales: int = 1, images: bool = False
) -> Way:
    return Way(make, images, row, like, True, SPREAD, True, True, True, scales, "global", False)


def root(width: int) -> nn.Module:
    return nn.RMSNorm(width, eps=EPS)


def groups(width: int) -> nn.Module:
    return nn.GroupNorm(2, width)


def instances(width: int) -> nn.Module:
    return nn.InstanceNorm2d(width, affine=True)


# Stored statistics are an affine map: no ε decides and nothing is scale-free in front of them, but for a normalizer
# that has the batch's own in train mode. A local response and a length have no σ to follow and no gain to die.
WAYS = {
    "BatchNorm1d": batch(nn.BatchNorm1d, "norm"),
    "BatchNorm2d": batch(nn.BatchNorm2d, "norm", images=True),
    "BatchNorm subclass": batch(BatchSubclass, "norm"),
    "BatchNorm with a forward of its own": batch(BatchInForward, "norm.batch_norm"),
    "F.batch_norm in a module": batch(BatchByFunction, "norm.batch_norm"),
    "F.batch_norm in the network": batch(BatchByFunction, "batch_norm", leaves=False, radial=False, scales=8),
    "BatchNorm by hand": batch(BatchByHand, "norm.batch_norm", radial=False, scales=0),
    "frozen BatchNorm": batch(FrozenBatch, "norm.batch_norm", images=True, radial=False, scales=0),
    "LayerNorm": own(nn.LayerNorm, "norm", nn.LayerNorm),
    "LayerNorm subclass": own(LayerSubclass, "norm", nn.LayerNorm),
    "LayerNorm of channels": own(LayerPermuted, "norm.layer_norm", LayerPermuted, images=True),
    "F.layer_norm": own(LayerByFunction, "norm.layer_norm", nn.LayerNorm),
    "LayerNorm by hand": own(LayerByHand, "norm.standardize", nn.LayerNorm),
    "RMSNorm": own(root, "norm", root),
    "RMSNorm by hand": own(RootByHand, "norm.root_mean_square", root),
    "RMSNorm of Hugging Face": own(llama, "norm.root_mean_square", root),
    "GroupNorm": own(groups, "norm", groups, 2),
    "InstanceNorm": own(instances, "norm", instances, 4, images=True),
    "ScaleNorm": Way(
        ScaleNorm, False, "norm.root_mean_square", None, False, SPREAD, True, False, False, 1, "", False, asked="norm"
    ),
    "LocalResponseNorm": Way(
        lambda _: nn.LocalResponseNorm(2), True, "norm", None, False, set(), True, False, False, 0, "", False
    ),
    "F.normalize": Way(
        lambda _: Unit(), False, "norm.normalize", None, False, set(), True, False, False, 1, "", False, asked="norm"
    ),
}


def network(name: str) -> Network:
    """The network with one way to normalize, its tensors set alike."""
    way = WAYS[name]
    torch.manual_seed(0)
    net = (CallInNetwork if name.endswith("in the network") else Network)(way.make(4 if way.images else 8), way.images)
    fill(net.norm)
    return net.eval()


def fill(norm: nn.Module) -> None:
    """Gains, shifts and statistics that are not those it is made with."""
    ends = {"weight": (0.5, 2.0), "bias": (-1.0, 1.0), "running_mean": (-0.2, 0.2), "running_var": (0.2, 0.9)}
    ends |= {"middle": ends["running_mean"], "square": ends["running_var"]}
    with torch.no_grad():
        for key, tensor in norm.state_dict().items():
            if key in ends:
                tensor.copy_(torch.linspace(*ends[key], tensor.numel()).reshape(tensor.shape))


def inputs(name: str) -> Tensor:
    shape = (8, 4, 5, 5) if WAYS[name].images else (8, 8)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("scope", ["point", "global"])
def test_a_reading_has_the_numbers_of_torchs_own(name, scope):
    way, net = WAYS[name], network(name)
    options = {"scope": scope, "search": False, "effort": "quick"}
    reading = ng.gauge(net, inputs(name), **options)
    (row,) = [layer for layer in reading.layers if layer.name.startswith(("norm", "batch_norm"))]
    assert row.name == way.row and (row.sigma is not None) is way.sigma
    if way.like is None:
        return
    net.norm = way.like(4 if way.images else 8)
    fill(net.norm)
    other = ng.gauge(_plain(net), inputs(name), **options)
    (same,) = [layer for layer in other.layers if layer.sigma is not None]
    assert row.sigma == pytest.approx(same.sigma, rel=1e-6)
    assert reading.log10_upper == pytest.approx(other.log10_upper, abs=1e-6)
    assert reading.log10_folded == pytest.approx(other.log10_folded, abs=1e-6)
    assert row.gain.hi == pytest.approx(same.gain.hi, abs=1e-6)
    assert reading.published["log10_theorem9"] == pytest.approx(other.published["log10_theorem9"], abs=1e-6)


def _plain(net: Network) -> Network:
    """The network with its normalizer as a module that runs."""
    twin = Network(net.norm, isinstance(net.first, nn.Conv2d))
    twin.load_state_dict(net.state_dict())
    return twin.eval()


@pytest.mark.parametrize("name", WAYS)
def test_advice_sees_what_was_planted(name):
    found = set()
    for planted in ("weight", "first", "square"):
        net, x = network(name), inputs(name)
        with torch.no_grad():
            for key, tensor in net.state_dict().items():
                if key.startswith("first.") and planted == "first":
                    tensor.mul_(1e-6)
                elif key.replace("running_var", "square") == f"norm.{planted}":
                    tensor.mul_(1e-6 if planted == "weight" else 1e4)
        remarks = ng.advise(net, x, facts=False, mode="eval").remarks
        found |= {r.kind for r in remarks if r.layer == WAYS[name].row}
    assert found - {"tiny sigma"} == WAYS[name].advice


@pytest.mark.parametrize("name", WAYS)
def test_what_if_takes_it_out_where_it_is_a_module_and_advice_recommends_nothing_else(name):
    way, net, x = WAYS[name], network(name), inputs(name)
    asked = ng.what_if(net, x, scope="point", search=False, balance=False)
    if not way.leaves:
        with pytest.raises(ng.NormgaugeError, match="call of the function"):
            asked.without(way.row)
    else:
        # a module without a tensor as wide as its values is tried on those, and goes by its own name
        bare = asked.without(way.asked or way.row).reading
        assert "norm (" in bare.notes[0] and {layer.sigma for layer in bare.layers} == {None}
    said = " ".join(remark.sentence for remark in ng.advise(net, x) if remark.kind == "control")
    assert ("without(" in said) is (way.leaves and way.sigma)


@pytest.mark.parametrize("name", WAYS)
def test_a_run_file_follows_it(name, tmp_path):
    way, net, x = WAYS[name], network(name).train(), inputs(name)
    with ng.Monitor(net, tmp_path / "run") as monitor:
        for _ in range(2):
            loss = net(x).square().mean()
            net.zero_grad()
            loss.backward()
            monitor.step(loss=loss)
    (file,) = (tmp_path / "run").rglob("*.jsonl")
    header, *lines = map(json.loads, file.read_text().splitlines())
    places = [k for k, layer in enumerate(header["layers"]) if layer["name"] == "norm" and layer["role"] == "norm"]
    assert len(places) == way.followed
    for place in places:
        columns = [line["columns"] for line in lines if "columns" in line][-1]
        assert columns["sigma_min"][place] > 0 and columns["gamma_max"][place] == 2


@pytest.mark.parametrize("name", WAYS)
def test_the_radial_gradient_is_predicted_where_something_is_scale_free(name):
    way, net, x = WAYS[name], network(name).train().double(), inputs(name).double()
    if name.endswith("Hugging Face"):
        net, x = net.float(), x.float()  # it computes in single precision whatever it is given
    if not way.radial:
        if name.endswith("in the network"):
            return  # no module runs there that could be listened to
        with pytest.raises(ng.NormgaugeError, match=r"normalizer|affine"), RadialIdentity(net, ["norm"]):
            net(x).square().sum().backward()
        return
    with RadialIdentity(net, ["norm"]) as identity:
        net(x).square().sum().backward()
    found = sum((t * t.grad).sum() for t in net.first.parameters())
    near = {"rtol": 1e-6, "atol": 1e-12} if x.dtype == torch.float64 else {"rtol": 0.0, "atol": 1e-2}
    torch.testing.assert_close(identity.predicted["norm"].sum(), found, **near)


@pytest.mark.parametrize("name", WAYS)
def test_symmetries_find_the_scales_in_front_of_it(name):
    found = ng.symmetries(network(name), inputs(name), mode="train").groups
    scales = [group.count for group in found if group.kind == "scale" and "first.weight" in group.parameters]
    assert sum(scales) == WAYS[name].scales


@pytest.mark.parametrize("name", WAYS)
def test_canonical_scales_leave_what_it_computes_alone(name):
    net, x = network(name), inputs(name)
    twin = ng.canonical(net, x).model.eval()
    with torch.no_grad():
        torch.testing.assert_close(twin(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WAYS)
def test_a_certificate_says_which_rows_are_about_it(name):
    way, net, x = WAYS[name], network(name), inputs(name)
    with torch.no_grad():
        labels = net(x).argmax(1)
    rows = {row.key: row for row in ng.certify(net, (x, labels), epochs=0).rows}
    apart = {
        key for key, row in rows.items() if row.reason.startswith(("there is no", "its normal", "the network has"))
    }
    about = {"batch", "global", "none"} - {key.removeprefix("corollary22.") for key in apart}
    assert about == ({way.corollary} if way.corollary else set())
    assert (rows["capacity.bartlett2017"].value is not None) is way.chain


@pytest.mark.parametrize("name", WAYS)
def test_the_command_line_tells_the_same(name, tmp_path, capsys):
    code = f"from tests.contracts.test_normalizer_table import inputs, network\nNAME = {name!r}\n"
    code += "def build(): return network(NAME)\ndef batch(): return inputs(NAME)\n"
    Path(tmp_path / "net.py").write_text(code)
    file = f"{tmp_path / 'net.py'}"
    main(["gauge", f"{file}:build", "--batch", f"{file}:batch", "--scope", "point", "--json", "-"])
    told = json.loads(capsys.readouterr().out)
    rows = [layer["name"] for layer in told["layers"] if layer["sigma"] is not None]
    assert rows == [WAYS[name].row] * WAYS[name].sigma
