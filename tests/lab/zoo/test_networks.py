"""The networks: shapes, sizes, names, and every normalization option."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.lab.zoo import ZOO, build_network, cifar_resnet, efficientnet_b3, gpt, mlp, resnet18, vit
from normgauge.lab.zoo.efficientnet import StochasticDepth

IMAGE_NORMS = ("batch", "layer", "group", "instance", "rms", None)


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def train_steps(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, steps: int = 3) -> None:
    """A few steps change every parameter that has a gradient and leave all of them finite."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(inputs)
        nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
    changed = [bool((now != old).any()) for now, old in zip(model.parameters(), before, strict=True)]
    assert sum(changed) > 0.5 * len(changed)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("norm", IMAGE_NORMS)
@pytest.mark.parametrize("affine", [True, False])
def test_mlp_norms(norm: str | None, affine: bool) -> None:
    model = mlp((12, 16, 24, 5), norm=norm, affine=affine, eps=1e-3)
    train_steps(model, torch.randn(6, 12), torch.arange(6) % 5)
    names = dict(model.named_modules())
    assert ("layers.1.norm" in names) == (norm is not None)
    assert isinstance(names["layers.0.linear"], nn.Linear)
    assert isinstance(names["layers.0.act"], nn.ReLU)
    gains = [name for name, _ in model.named_parameters() if ".norm" in name]
    assert bool(gains) == (affine and norm is not None)


def test_mlp_options_reach_the_layers() -> None:
    model = mlp((4, 8, 2), norm="group", activation="tanh", eps=0.25, groups=2)
    norm = model.layers[0].norm
    assert isinstance(norm, nn.GroupNorm)
    assert (norm.num_groups, norm.eps) == (2, 0.25)
    assert isinstance(model.layers[0].act, nn.Tanh)
    assert mlp()(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    assert size(mlp((3, 2))) == 8


def test_instance_norm_of_vectors_normalizes_each_group() -> None:
    norm = mlp((4, 16, 2), norm="instance", groups=4).layers[0].norm
    out = norm(5 * torch.randn(3, 16, generator=torch.Generator().manual_seed(0)) + 2).view(3, 4, 4)
    torch.testing.assert_close(out.mean(-1), torch.zeros(3, 4), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(-1, correction=0), torch.ones(3, 4), atol=1e-3, rtol=0)


@pytest.mark.parametrize("norm", ["batch", "layer", "group", "instance", "rms"])
@pytest.mark.parametrize("net", ["mlp", "resnet20"])
def test_a_gain_without_a_bias(net: str, norm: str) -> None:
    model = build_network(net, norm=norm, affine="gamma", groups=4)
    image = torch.randn(6, *((64,) if net == "mlp" else (3, 32, 32)), generator=torch.Generator().manual_seed(0))
    train_steps(model, image, torch.arange(6) % 5)
    names = [name.rpartition(".")[2] for name, _ in model.named_parameters() if "norm" in name or "bn" in name]
    assert set(names) == {"weight"}


def test_mlp_with_some_layers_normalized() -> None:
    model = mlp((4, 8, 8, 8, 2), norm="batch", normalized=(0, 2))
    assert ["norm" in dict(layer.named_children()) for layer in model.layers] == [True, False, True]
    assert not any("norm" in name for name, _ in mlp((4, 8, 2), norm="batch", normalized=()).named_modules())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"norm": "batch", "normalized": (0, 2)}, r"\[2\] are no hidden layers; there are 2"),
        ({"norm": "batch", "affine": "beta"}, "affine='beta'"),
        ({"norm": "weight"}, "batch, layer"),
        ({"activation": "swish"}, "relu"),
        ({"norm": "group", "groups": 7}, "groups=7"),
        ({"sizes": (3,)}, "sizes"),
    ],
)
def test_mlp_refuses(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_network("mlp", **options)


def test_resnet18_is_torchvisions() -> None:
    model = resnet18()
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert size(model) == 11_181_642
    assert len(state) == 122
    assert list(state)[:6] == [
        "conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked",
    ]  # fmt: skip
    assert state["conv1.weight"] == (64, 3, 7, 7)
    assert state["layer1.1.conv2.weight"] == (64, 64, 3, 3)
    assert state["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert state["layer2.0.downsample.1.running_var"] == (128,)
    assert state["layer4.1.bn2.bias"] == (512,)
    assert state["fc.weight"] == (10, 512)
    assert "layer1.0.downsample.0.weight" not in state


def test_efficientnet_is_torchvisions() -> None:
    model = efficientnet_b3()
    state = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert size(model) == 10_711_602
    assert state["features.0.0.weight"] == (40, 3, 3, 3)
    assert state["features.0.1.running_mean"] == (40,)
    assert state["features.1.0.block.0.0.weight"] == (40, 1, 3, 3)  # depthwise: the first stage does not expand
    assert state["features.1.0.block.1.fc1.weight"] == (10, 40, 1, 1)
    assert state["features.1.0.block.2.0.weight"] == (24, 40, 1, 1)
    assert state["features.2.0.block.0.0.weight"] == (144, 24, 1, 1)
    assert state["features.2.0.block.2.fc1.weight"] == (6, 144, 1, 1)
    assert state["features.3.1.block.1.0.weight"] == (288, 1, 5, 5)
    assert state["features.7.1.block.3.1.bias"] == (384,)
    assert state["features.8.0.weight"] == (1536, 384, 1, 1)
    assert state["classifier.1.weight"] == (10, 1536)
    assert [len(stage) for stage in list(model.features)[1:-1]] == [2, 3, 3, 5, 5, 6, 2]
    drops = [module.p for module in model.modules() if isinstance(module, StochasticDepth)]
    assert drops == pytest.approx([0.2 * k / 26 for k in range(26)])


def test_stochastic_depth_drops_rows_in_training_only() -> None:
    layer, x = StochasticDepth(0.5), torch.ones(64, 2, 3, 3)
    kept = layer(x)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(kept, kept[:, :1, :1, :1].expand_as(kept))
    assert layer.eval()(x) is x


def test_efficientnet_runs_and_trains() -> None:
    train_steps(efficientnet_b3(), torch.randn(4, 3, 32, 32), torch.arange(4), steps=1)


@pytest.mark.parametrize("norm", ["group", None])
def test_efficientnet_norms(norm: str | None) -> None:
    with torch.no_grad():
        assert efficientnet_b3(7, norm=norm).eval()(torch.randn(1, 3, 32, 32)).shape == (1, 7)


@pytest.mark.parametrize("norm", IMAGE_NORMS)
def test_resnet_norms(norm: str | None) -> None:
    train_steps(cifar_resnet(20, norm=norm), torch.randn(4, 3, 16, 16), torch.arange(4))
    with torch.no_grad():
        assert resnet18(4, stem="cifar", norm=norm).eval()(torch.randn(1, 3, 16, 16)).shape == (1, 4)


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)])
def test_cifar_resnet_sizes(depth: int, parameters: int) -> None:
    assert size(cifar_resnet(depth)) == parameters


def test_option_a_shortcut() -> None:
    shortcut = cifar_resnet(20).layer2[0].downsample
    assert shortcut is not None
    x = torch.randn(2, 16, 8, 8)
    out = shortcut(x)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


@pytest.mark.parametrize("norm", ["layer", "rms", None])
@pytest.mark.parametrize("position", ["pre", "post"])
def test_transformers(norm: str | None, position: str) -> None:
    tokens = torch.randint(11, (3, 9))
    language = build_network("gpt", vocab=11, width=16, context=10, norm=norm, position=position, dropout=0.1)
    assert language(tokens[:, :8]).shape == (3, 8, 11)
    train_steps(language, tokens[:, :8], tokens[:, 1:])
    vision = build_network("vit", image=8, patch=2, channels=1, width=16, norm=norm, position=position)
    assert vision(torch.randn(2, 1, 8, 8)).shape == (2, 10)
    train_steps(vision, torch.randn(4, 1, 8, 8), torch.arange(4))


def test_gpt_is_causal_and_sees_its_past() -> None:
    model = gpt(width=32).double().eval()
    tokens = torch.randint(65, (1, 20))
    other = tokens.clone()
    other[0, 12] = (other[0, 12] + 1) % 65
    with torch.no_grad():
        moved = (model(tokens) - model(other)).abs().amax(-1)[0]
    assert not moved[:12].any()
    assert (moved[12:] > 0).all()


def test_attention_is_the_textbook_formula() -> None:
    attn = vit(width=8, heads=2).double().blocks[0].attn
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    heads = []
    for h in range(2):
        rows = slice(4 * h, 4 * h + 4)
        q, k, v = (part(x)[0, :, rows] for part in (attn.query, attn.key, attn.value))
        heads.append(torch.softmax(q @ k.T / 2.0, dim=-1) @ v)
    torch.testing.assert_close(attn(x)[0], attn.out(torch.cat(heads, dim=-1)))


def test_post_norm_is_the_last_thing_before_the_head() -> None:
    model = vit(width=16, position="post").eval()
    out = model.norm(model.blocks(3 * torch.randn(2, 5, 16)))
    torch.testing.assert_close(out.var(-1, correction=0), torch.ones(2, 5), atol=1e-2, rtol=0)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpt", {"norm": "batch"}, "layer, rms"),
        ("gpt", {"heads": 5}, "heads=5"),
        ("gpt", {"position": "middle"}, "'pre' or 'post'"),
        ("vit", {"patch": 5}, "patches of 5"),
        ("resnet18", {"stem": "tiny"}, "cifar"),
        ("resnet20", {"depht": 20}, "no option depht; known: "),
        ("resnet19", {}, "known: mlp, resnet18"),
    ],
)
def test_build_refuses(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_network(name, **options)


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(InputError, match="20, 32, 44, 56"):
        cifar_resnet(21)
    with pytest.raises(InputError, match="context of 64"):
        gpt()(torch.zeros(1, 65, dtype=torch.int64))
    with pytest.raises(InputError, match="32 x 32"):
        vit()(torch.zeros(1, 3, 28, 28))


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_name_builds(name: str) -> None:
    assert isinstance(build_network(name), nn.Module)
