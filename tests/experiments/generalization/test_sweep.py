"""A slice of the sweep: the plan, one network of each kind on made-up images, the file it leaves."""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter

import pytest
import torch

from experiments.generalization import sweep, sweep_net
from experiments.generalization.sweep_net import Images
from experiments.generalization.sweep_plan import GRIDS, Net, plan
from normgauge.certificates.scores import DataSample, cells_of

NETS = (
    Net("mlp", "batch", 2, 16, 0.05, 32, 0.0, 0, "made"),
    Net("cnn", "group", 3, 4, 0.05, 32, 1e-3, 0, "made"),
    Net("cnn", "none", 2, 4, 0.05, 32, 0.0, 1, "made"),
)


def made(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 8x8 in ten classes: a bright spot whose place is the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    x = 0.7 * torch.randn(count, 1, 8, 8, generator=generator)
    for k in range(10):
        x[labels == k, 0, k % 5 + 1, 3 * (k // 5) + 2] += 4.0
    return x, labels


@pytest.fixture(scope="module")
def shown() -> Images:
    train, fresh, test = made(200, 0), made(200, 1), made(200, 2)
    return Images(*train, fresh[0], *test, cells_of(DataSample(fresh[0], None)))


def test_the_plan_has_more_than_300_networks_each_once_and_covers_both_kinds():
    nets = plan()
    assert len(nets) == len({net.key for net in nets}) >= 300
    kinds = Counter(net.kind for net in nets)
    assert min(kinds.values()) >= 150
    assert nets == plan() and {net.seed for net in nets[: len(nets) // 2]} == {0}
    assert {net.norm for net in nets if net.kind == "cnn"} == set(GRIDS["cnn"]["norm"])


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.key)
def test_one_network_is_trained_to_the_target_scored_and_tested(net, shown):
    told = sweep_net.run(net, shown, steps=600)
    assert told["reached"] and told["train_loss"] <= sweep_net.TARGET
    assert told["gap"] == pytest.approx(told["test_error"] - told["train_error"])
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    scores = told["scores"]
    assert {"params", "fro-dist", "cell-sensitivity", "balanced-capacity-margin", "mag-flatness"} <= set(scores)
    assert ("path-norm" in scores) is (net.norm != "group")
    assert all(map(math.isfinite, scores.values()))


def test_a_network_is_the_same_each_time(shown):
    one, other = (sweep_net.run(NETS[0], shown, steps=14) for _ in range(2))
    assert one["scores"] == other["scores"] and one["test_loss"] == other["test_loss"]


def test_a_network_out_of_steps_is_counted_as_not_reached(shown):
    told = sweep_net.run(NETS[0], shown, steps=1)
    assert not told["reached"] and told["epochs"] == 1 and told["scores"]


def test_a_network_that_diverges_has_no_scores(shown):
    told = sweep_net.run(Net("mlp", "none", 2, 16, 1e9, 32, 0.0, 0, "made"), shown, steps=20)
    assert told["diverged"] and told["scores"] == {} and not told["reached"]
    json.dumps(told, allow_nan=False)


@pytest.fixture
def small(monkeypatch, shown):
    monkeypatch.setattr(sweep_net, "images", lambda data: shown)
    monkeypatch.setattr(sweep, "plan", lambda data, seeds: list(NETS[:2]))


def test_the_file_is_gone_on_with_and_a_cut_line_is_done_again(small, tmp_path, capsys):
    path = tmp_path / "deep" / "sweep.jsonl"
    arguments = ["--out", str(path), "--workers", "0", "--steps", "7"]
    assert sweep.main([*arguments, "--limit", "1"]) == 0
    first = path.read_text(encoding="utf-8")
    path.write_text(first + '{"key": "half a li', encoding="utf-8")
    assert sweep.main(arguments) == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] + "\n" == first
    assert [json.loads(line)["key"] for line in lines] == [net.key for net in NETS[:2]]
    assert "1 networks to do" in capsys.readouterr().out
    assert sweep.main(arguments) == 0
    assert path.read_text(encoding="utf-8").splitlines() == lines


def test_a_failure_is_written_down_and_costs_no_other_network(small, tmp_path, monkeypatch):
    run = sweep_net.run

    def broken(net, *, steps):
        if net.kind == "mlp":
            raise ValueError("made up")
        return run(net, steps=steps)

    monkeypatch.setattr(sweep_net, "run", broken)
    path = tmp_path / "sweep.jsonl"
    sweep.main(["--out", str(path), "--workers", "0", "--steps", "7"])
    one, other = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert one["failed"] == "ValueError: made up" and "scores" in other


def test_nothing_is_begun_when_the_time_is_up(small, tmp_path):
    path = tmp_path / "sweep.jsonl"
    sweep.main(["--out", str(path), "--workers", "0", "--minutes", "0"])
    assert path.read_text(encoding="utf-8") == ""


def test_workers_that_are_busy_at_the_end_are_ended():
    begun = time.time()
    assert list(sweep.records(NETS, 1, time.time() + 0.2)) == []
    assert time.time() - begun < 30


@pytest.mark.data
@pytest.mark.skipif("NORMGAUGE_DATA" not in os.environ, reason="NORMGAUGE_DATA names no folder of data")
def test_the_real_images_are_disjoint_and_scaled():
    here = sweep_net.images("fashion_mnist", 300, 200, 100)
    assert len(here.train) == 300 and len(here.fresh) == 200 and len(here.test) == 100
    assert float(here.train.mean()) == pytest.approx(0.0, abs=1e-4)
    assert here.cells.cells == 20


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)], ids=["fashion", "cifar"])
@pytest.mark.parametrize("norm", GRIDS["cnn"]["norm"])
def test_a_cnn_fits_its_images_and_has_one_normalizer_a_convolution(norm, shape):
    net = sweep_net.build(Net("cnn", norm, 3, 8, 0.1, 32, 0.0, 0), shape)
    assert net.eval()(torch.zeros(2, *shape)).shape == (2, 10)
    normalizers = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d | torch.nn.GroupNorm)]
    assert len(normalizers) == (0 if norm == "none" else 3)
