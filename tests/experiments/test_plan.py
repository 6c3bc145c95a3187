"""The plan: names that stay, settings that reach the run, mistakes that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.than2025 import figures, nets, plan, table
from experiments.than2025.layers import survey
from experiments.than2025.run import comparable


def test_the_papers_settings() -> None:
    specs = {spec.name: spec for spec in plan.load()}
    run = specs["nets/resnet18-adam"]
    assert (run.optimizer, run.lr, run.decay, run.batch, run.epochs) == ("adam", 1e-3, 1e-4, 128, 100)
    assert (run.norm, run.init, run.gain, run.data) == ("batch", "he", 1.0, "cifar10")
    assert specs["nets/mlp-adam"].norm == "none"
    assert (specs["optimizers/resnet18-sgd"].optimizer, specs["optimizers/resnet18-sgd"].lr) == ("sgd", 0.1)
    assert specs["optimizers/mlp-adam-none"].decay == 0.0
    assert specs["decay/mlp-adamw-strong"].decay == 0.1
    assert specs["efficientnet/efficientnet_b3-adam"].scopes == ("point",)
    assert len({s.slug for s in specs.values()}) == len(specs)
    assert [s.order for s in specs.values()] == list(range(len(specs)))


def test_everything_the_issue_asks_for_is_planned() -> None:
    specs = plan.load()
    of = {group: [s for s in specs if s.group == group] for group in {s.group for s in specs}}
    assert {s.normalizers for s in of["count"]} == {0, 1, 2, 3, 5, 9}
    assert len({s.seed for s in of["count"]}) >= 5
    assert {s.norm for s in of["resnet20-norms"]} == {"batch", "layer", "group", "instance", "rms", "none"}
    assert {s.width for s in of["widths"]} == {4, 16, 64, 256, 1024}
    assert {s.data for s in of["data"]} == {"mnist", "fashion_mnist"}
    assert min(s.epochs for s in of["efficientnet"]) >= 20
    assert {s.net for s in of["stem"]} == {"resnet18_cifar"} and {s.decay for s in of["stem"]} == {1e-4, 0.0}
    assert {s.norm for s in of["cnn"]} == {"none", "batch"}
    assert {(s.norm, s.normalizers) for s in of["count-layer"]} == {("layer", n) for n in (1, 2, 3, 5, 9)}
    drawn = {name.split("/")[0] for needed in figures.NEEDS.values() for name in needed}
    assert set(of) - drawn == {"stem", "cnn", "count-layer", "efficientnet-seeds", "resnet18-seeds"}


@pytest.mark.parametrize(("first", "others"), table.SEEDS.items())
def test_other_seeds_change_nothing_else(first: str, others: str) -> None:
    """A row of the table of seeds has runs that differ in the seed alone; count-layer in the kind of normalizer."""
    specs = plan.load()
    [base] = [s for s in specs if s.name == first]
    again = [s for s in specs if s.name.startswith(others)]
    assert {s.seed for s in again} == {1, 2}
    for s in again:
        assert replace(comparable(s), name=base.name, group=base.group, seed=0) == comparable(base)
        assert s.epochs == base.epochs


def test_scale_and_choice(config: Path) -> None:
    small = plan.load(config, scale="digits")
    assert {s.width for s in small} == {8}
    chosen = plan.select(small, ["nets", "count/normalizers2-seed1"], epochs=1)
    assert [s.name for s in chosen] == ["nets/mlp-adam", "count/normalizers2-seed1"]
    assert {s.epochs for s in chosen} == {1}
    turned = plan.select(small, ["count/normalizers2-seed1", "nets", "nets/mlp-adam"])
    assert [s.name for s in turned] == ["count/normalizers2-seed1", "nets/mlp-adam"]
    assert plan.Spec.from_json(chosen[0].to_json()) == chosen[0]


def test_a_scale_leaves_what_is_swept(config: Path) -> None:
    full, small = plan.load(), plan.load(scale="digits")
    assert [s.name for s in full] == [s.name for s in small]
    assert {s.width for s in small if s.group == "widths"} == {4, 16, 64, 256, 1024}
    assert {s.data for s in small if s.group == "nets"} == {"digits"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("momentum = 0.9", "momentun = 0.9"), "momentun"),
        (('net = ["mlp"], optimizer = ["adam"]', 'net = ["cnn"], optimizer = ["adam"]'), "cnn"),
        (('optimizer = ["sgd"', 'optimizer = ["lion"'), "lion"),
    ],
)
def test_a_config_with_a_mistake(config: Path, tmp_path: Path, change: tuple[str, str], words: str) -> None:
    path = tmp_path / "wrong.toml"
    text = config.read_text(encoding="utf-8")
    assert change[0] in text
    path.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(plan.PlanError, match=words):
        plan.load(path)


def test_unknown_names(config: Path) -> None:
    with pytest.raises(plan.PlanError, match="no scale 'big'"):
        plan.load(config, scale="big")
    with pytest.raises(plan.PlanError, match="no group or run called nest"):
        plan.select(plan.load(config), ["nest"])


def test_networks_are_he_normal_and_reproducible(specs: dict[str, plan.Spec]) -> None:
    spec = replace(specs["nets/mlp-adam"], width=512, gain=2.0)
    one, two = nets.build(spec, (3, 8, 8)), nets.build(spec, (3, 8, 8))
    weight = one.layers[1].linear.weight.detach()
    assert float(weight.std()) == pytest.approx(2 * (2 / 512) ** 0.5, rel=0.01)
    assert not one.layers[1].linear.bias.detach().any()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    other = nets.build(replace(spec, seed=1), (3, 8, 8))
    assert not torch.equal(other.layers[1].linear.weight, weight)
    default = nets.build(replace(spec, init="default"), (3, 8, 8))
    assert default.layers[1].linear.bias.detach().any()
    with pytest.raises(plan.PlanError, match="init='orthogonal'"):
        nets.build(replace(spec, init="orthogonal"), (3, 8, 8))


def test_normalizers_are_spread(specs: dict[str, plan.Spec]) -> None:
    spec = replace(specs["count/normalizers2-seed0"], depth=10, normalizers=3)
    model = nets.build(spec, (3, 8, 8))
    assert [k for k, layer in enumerate(model.layers) if "norm" in dict(layer.named_children())] == [1, 4, 7]


def test_the_plain_cnn_and_the_small_stem(specs: dict[str, plan.Spec]) -> None:
    spec = replace(specs["nets/mlp-adam"], net="cnn")
    images = torch.rand(2, 3, 32, 32)
    for norm in ("none", "batch"):
        model = nets.build(replace(spec, norm=norm), (3, 32, 32))
        matrices, sites = survey(model, images)
        assert [m.shape[-1] for m in matrices[:9]] == [32] * 4 + [16] * 3 + [8] * 2 and len(matrices) == 10
        assert [site.source for site in sites] == list(range(9))
        assert {site.normalizes for site in sites} == {norm == "batch"}
    with pytest.raises(plan.PlanError, match="norm='layer'"):
        nets.build(replace(spec, norm="layer"), (3, 32, 32))
    stem = nets.build(replace(spec, net="resnet18_cifar", norm="batch"), (3, 32, 32))
    matrices, sites = survey(stem, images)
    assert [m.shape[-1] for m in matrices[:3]] == [32, 32, 32] and matrices[0].module.kernel_size == (3, 3)
    assert sum(site.normalizes for site in sites) == 20
