import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.geometry.symmetry.groups import ScaleFree, check_groups, spread_vectors, vectors


@pytest.fixture
def named():
    torch.manual_seed(0)
    return {
        "conv.weight": torch.randn(6, 2, 3, 3), "conv.bias": torch.randn(6), "up.weight": torch.randn(2, 6, 3, 3),
        "up.bias": torch.randn(6), "scalar": torch.tensor(1.0),
    }  # fmt: skip


def test_a_batch_norm_group_has_one_vector_a_channel(named):
    rows = vectors(ScaleFree(("conv.weight",), 6), named)
    assert torch.equal(rows, named["conv.weight"].flatten(1))


def test_a_layer_norm_group_is_weight_and_bias(named):
    row = vectors(ScaleFree(("conv.weight", "conv.bias"), 1), named)
    assert torch.equal(row, torch.cat([named["conv.weight"].flatten(), named["conv.bias"]])[None])


def test_a_group_norm_group_takes_neighbouring_channels(named):
    rows = vectors(ScaleFree(("conv.weight", "conv.bias"), 3), named)
    assert torch.equal(rows[1], torch.cat([named["conv.weight"][2:4].flatten(), named["conv.bias"][2:4]]))


def test_a_transposed_convolution_is_cut_along_its_second_dimension_and_its_bias_along_its_only_one(named):
    rows = vectors(ScaleFree(("up.weight", "up.bias"), 6, dim=1), named)
    assert torch.equal(rows[4], torch.cat([named["up.weight"][:, 4].flatten(), named["up.bias"][4:5]]))


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
@pytest.mark.parametrize(("prefix", "dim"), [("conv", 0), ("up", 1)], ids=["conv", "up"])
def test_spread_is_the_way_back(named, prefix, dim, rows):
    group = ScaleFree((f"{prefix}.weight", f"{prefix}.bias"), rows, dim)
    back = spread_vectors(group, vectors(group, named), named)
    assert all(torch.equal(back[name], named[name]) for name in group.parameters)


def test_the_function_does_not_change_when_a_row_is_scaled():
    net = nn.Sequential(nn.ConvTranspose2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, eps=1e-30)).double()
    x, named = torch.randn(5, 3, 4, 4, dtype=torch.float64), dict(net.named_parameters())
    group, before = ScaleFree(("0.weight",), 4, dim=1), net(x)
    factors = torch.tensor([[0.1], [3.0], [7.0], [100.0]], dtype=torch.float64)
    scaled = spread_vectors(group, factors * vectors(group, named).detach(), named)
    net[0].weight.data.copy_(scaled["0.weight"])
    assert torch.allclose(net(x), before, rtol=1e-12)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (ScaleFree(("conv.wieght",), 6), "near: conv.weight"),
        (ScaleFree(("zzz",), 6), "there are 5 names"),
        (ScaleFree(("conv.weight",), 4), "cannot be cut into 4 equal chunks along dimension 0"),
        (ScaleFree(("conv.weight",), 1, dim=7), "along dimension 7"),
        (ScaleFree(("scalar",), 1), "cannot be cut"),
    ],
    ids=["typo", "far", "rows", "dim", "scalar"],
)
def test_what_does_not_fit_is_refused(named, group, words):
    with pytest.raises(InputError, match=words):
        vectors(group, named)


@pytest.mark.parametrize(
    "arguments",
    [{"parameters": (), "rows": 1}, {"parameters": ("a", "a"), "rows": 1}, {"parameters": ("a",), "rows": 0},
     {"parameters": ("a",), "rows": 1, "dim": -1}],
    ids=["none", "twice", "rows", "dim"],
)  # fmt: skip
def test_a_group_that_is_none_is_refused(arguments):
    with pytest.raises(InputError):
        ScaleFree(**arguments)


def test_a_parameter_belongs_to_one_group(named):
    with pytest.raises(InputError, match=r"conv\.weight is in two scale-free groups"):
        check_groups([ScaleFree(("conv.weight",), 6), ScaleFree(("conv.weight", "conv.bias"), 1)], named)


def test_vectors_of_another_size_are_refused(named):
    with pytest.raises(InputError, match="expected vectors of shape"):
        spread_vectors(ScaleFree(("conv.weight",), 6), torch.zeros(6, 3), named)
