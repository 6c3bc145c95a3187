"""Two processes measure what one does; what breaks in one of them stops nobody."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

import normgauge as ng
from normgauge.core import store
from normgauge.core.errors import StoreError
from normgauge.monitor.distributed import FIRST_GAP, LONGEST, Team
from normgauge.monitor.layers import WatchedLayer, find_layers
from normgauge.monitor.listener import inverse_sigma
from normgauge.monitor.sheet import Exchanged, Sheet, fetch_numbers
from normgauge.monitor.turning import FIRST_TURNS
from tests.monitor.workers import STEPS, network, train

ROOT = Path(__file__).parents[2]
TIMED = ("seconds", "share")
pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The folder in which two processes left every kind of training."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.monitor.workers", str(folder)]
    logs = [(folder / f"log{rank}").open("w") for rank in range(2)]
    running = [
        subprocess.Popen([*command, str(rank), port], env=environment, cwd=ROOT, stdout=log, stderr=log)
        for rank, log in enumerate(logs)
    ]
    try:
        codes = [process.wait(240) for process in running]
    finally:
        for process, log in zip(running, logs, strict=True):
            process.kill()
            log.close()
    assert codes[1] == -signal.SIGKILL, (folder / "log1").read_text()
    assert codes[0] != 0, "the training of process 0 cannot go on alone"
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The records of one process with the whole batch."""
    records = []
    model = network()
    monitor = ng.Monitor(model, tmp_path_factory.mktemp("one"), 0.3, every=1, sinks=[lambda r: records.append(dict(r))])
    train(model, monitor, 0, 1)
    monitor.close()
    return [record for record in records if record["kind"] == "step"]


def told(folder: Path, kind: str, rank: int = 0) -> dict:
    return json.loads((folder / f"{kind}-{rank}.json").read_text())


def steps_of(folder: Path, kind: str) -> list[dict]:
    return [record for record in told(folder, kind)["records"] if record["kind"] == "step"]


def close(a: object, b: object, tolerance: float) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12)


@pytest.mark.parametrize(("kind", "tolerance"), [("ddp", 1e-9), ("fsdp", 1e-6), ("tensor", 1e-6)])
def test_two_processes_write_what_one_does(two, one, kind, tolerance):
    lines = steps_of(two, kind)
    assert [line["step"] for line in lines] == [line["step"] for line in one] == list(range(1, STEPS + 1))
    assert {"log10_P_w", "log10_folded", "gradient"} <= set(one[0]["totals"]) and "norm_upper" in one[0]["columns"]
    for mine, theirs in zip(lines, one, strict=True):
        for name in ("loss", "loss_mean", "loss_max", "lr"):
            assert close(mine[name], theirs[name], tolerance), (mine["step"], name)
        for name in set(theirs["totals"]) - set(TIMED):
            assert close(mine["totals"][name], theirs["totals"][name], tolerance), (mine["step"], name)
        left_out = set(theirs["columns"]) - set(mine["columns"])
        assert left_out <= (set() if kind == "ddp" else {"spectral_update"})
        for name, cells in theirs["columns"].items():
            if name not in left_out:
                assert close(mine["columns"][name], cells, tolerance), (mine["step"], name)
    assert all(line["columns"]["sigma_min"][1] > 0 and line["columns"]["folded"][0] > 0 for line in one)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_one_process_writes_and_the_header_says_how_many_there_are(two, kind):
    run = store.read(two / kind)
    assert run.header["world"] == 2 and run.header["model"]["name"] == "Sequential"
    assert run.layers == ["0", "1", "3", "4", "5"]
    assert [path.name for path in (two / kind).iterdir()] == ["run.jsonl"]
    assert told(two, kind, 1)["records"] == []


def test_nothing_is_exchanged_at_steps_that_are_not_read(two):
    for kind in ("ddp", "budget"):
        assert told(two, kind)["gathered"] == told(two, kind, 1)["gathered"] == len(steps_of(two, kind))
    read = [line["step"] for line in steps_of(two, "budget")]
    assert read[:2] == [1, 1 + FIRST_GAP] and 3 <= len(read) < 60


def test_sharded_weights_are_read_at_the_steps_that_were_agreed(two):
    lines = steps_of(two, "fsdp-budget")
    read = [line["step"] for line in lines]
    assert read[:2] == [1, 1 + FIRST_GAP] and 3 <= len(read) < 60
    ends = [(line["columns"]["norm_lower"][0], line["columns"]["norm_upper"][0]) for line in lines]
    proved = [(lower, upper) for lower, upper in ends if upper is not None]
    assert proved and all(0 < lower <= upper < math.inf for lower, upper in proved) and all(ends)


@pytest.mark.parametrize("kind", ["fsdp", "tensor"])
def test_no_weight_is_put_together_and_little_is_exchanged(two, kind):
    for rank in range(2):
        said = told(two, kind, rank)
        assert said["whole"] == 0 and said["said"] == ""
        # six directions a layer and turn and the numbers, not the weights; the first steps take four turns each
        assert 0 < said["bytes"][0] < 5_000 * FIRST_TURNS * STEPS


def test_one_process_takes_the_full_readings(two):
    run = store.read(two / "readings")
    assert [reading["step"] for reading in run.readings] == [4] and len(run.steps) == STEPS
    assert run.readings[0]["reading"]["scope"] == "point"


def test_the_losses_of_all_steps_are_those_of_both_processes(two, one):
    lines = steps_of(two, "budget")
    assert lines[0]["loss"] == pytest.approx(one[0]["loss"], rel=1e-9)
    assert lines[1]["loss_max"] >= max(line["loss"] for line in one) - 1e-9


def test_a_process_that_cannot_measure_stops_nobody_and_all_stop_together(two):
    lines = steps_of(two, "deaf")
    run = store.read(two / "deaf")
    assert [line["step"] for line in lines] == [1, 2, 4, 6]  # then process 1 had failed four times
    assert told(two, "deaf")["gathered"] == told(two, "deaf", 1)["gathered"] == 4
    assert any("measuring failed on process 1" in note["sentence"] for note in run.notes)
    assert all(line["columns"]["sigma_min"][1] > 0 for line in lines)
    assert "no numbers here" in (two / "log1").read_text()


def test_all_processes_are_told_that_the_file_cannot_be_written(two):
    said = [told(two, "unwritable", rank)["said"] for rank in range(2)]
    assert said[0] == said[1] and said[0].startswith("StoreError: cannot write")


def test_a_resumed_run_goes_on_at_the_same_step_everywhere(two):
    run = store.read(two / "ddp")
    assert [line["step"] for line in run.steps] == list(range(1, 2 * STEPS + 1))
    assert len(run.resumes) == 1


def test_the_file_is_readable_after_the_other_process_was_killed(two):
    run = store.read(two / "killed")
    assert [line["step"] for line in run.steps] == [1, 2, 3]
    assert run.header["world"] == 2 and run.end is None and not run.problems


def test_a_team_of_one_is_silent():
    team = Team(network())
    assert (team.alone, team.rank, team.world, team.sharded) == (True, 0, 1, False)
    sheet = Sheet()
    team.exchange(sheet, [], {}, 1, 1.0, 0)
    assert not sheet.tensors and team.settle(sheet, [], 3) == []


def test_distributed_needs_a_process_group(tmp_path):
    with pytest.raises(ng.NormgaugeError, match="init_process_group"):
        ng.Monitor(network(), tmp_path, distributed=True)


@pytest.mark.parametrize(
    ("cost", "debt", "earned", "steps"),
    [
        (1.0, 1.0, 0.0, FIRST_GAP),
        (1.0, 1.0, 0.1, 10),
        (1.0, 3.0, 0.1, 30),
        (0.1, -5.0, 0.1, 1),
        (1e9, 0.0, 1e-9, LONGEST),
    ],
)
def test_the_wish_makes_the_account_even(cost, debt, earned, steps):
    """The coming gap of ten steps is fixed already: what it leaves of the debt, and the next reading, are earned."""
    assert Team(network()).wish(cost, debt, earned) == steps


def test_a_silent_writer_writes_nothing(tmp_path):
    writer = store.Writer(tmp_path / "run.jsonl", {})
    writer.append({"kind": "note"})
    writer.close()
    assert not list(tmp_path.iterdir())


def test_the_sigma_of_synchronized_batch_normalization_is_that_of_all_processes():
    class SyncBatchNorm(torch.autograd.Function):  # the node has the name of torch's own, which needs a GPU
        @staticmethod
        def forward(ctx, given):
            ctx.save_for_backward(given, None, given.mean(0), torch.full((3,), 7.0), given.mean(0))
            return given.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    given = torch.randn(4, 3, requires_grad=True)
    found = inverse_sigma(nn.BatchNorm1d(3), given, SyncBatchNorm.apply(given))
    assert found.tolist() == [7.0] * 3


def test_a_normalizer_nobody_heard_has_no_sigma():
    layer = WatchedLayer("norm", nn.LayerNorm(2), "weight", "norm")
    sheet = Sheet(told=Exchanged(wishes={0: 3.0}, failures={0: 0.0}))
    sheet.layers[0] = {"present": 0.0, "inverse_here": 0.0, "inverse_min": math.inf, "inverse_max": -math.inf}
    Team(network()).settle(sheet, [layer], 3)
    assert sheet.layers == {0: {}}


class Sharded(nn.Parameter):
    """Half of a weight, which puts itself together and counts how often."""

    asked = 0

    def full_tensor(self):
        Sharded.asked += 1
        return torch.cat([self.detach(), self.detach()]).as_subclass(torch.Tensor)

    def detach(self):
        return self.data.as_subclass(Sharded)


def halved(module):
    module.weight = Sharded(module.weight.data)
    return module


def test_sharded_weights_are_put_together_once_each_and_let_go():
    first, norm, last = halved(nn.Linear(2, 2)), halved(nn.LayerNorm(2)), nn.Linear(2, 2)
    last.weight = first.weight
    layers = find_layers(nn.Sequential(first, norm, last))
    team = Team(nn.Sequential(first, norm, last))
    assert team.sharded and not team.can_prove
    Sharded.asked = 0
    team.hold(layers)
    assert Sharded.asked == 2 and team.can_prove
    assert [layer.held is not None for layer in layers] == [True, True, False]  # the last is tied to the first
    assert layers[0].weight.shape == (4, 2) and layers[0].gradient is None
    team.release(layers)
    assert not any(layer.held for layer in layers)


@pytest.fixture
def pair(monkeypatch):
    """A process of two, of which the other always says the same."""
    team = Team(network())
    team.world = 2

    def gather(out, mine, group=None):
        other = pair.other(mine) if pair.other else mine
        out[0].copy_(mine)
        out[1].copy_(other)

    pair.other = None
    monkeypatch.setattr(dist, "all_gather", gather)
    return team, pair


def norm_sheet(values=(4.0, 2.0, 0.1, 5.0)):
    sheet = Sheet()
    for column, value in zip(("inverse_max", "inverse_min", "square", "gain"), values, strict=True):
        sheet.put_column([1], column, torch.tensor([value]))
    sheet.put(sheet.layers[0], "folded", torch.tensor(8.0))
    return sheet


def layers_of_two():
    linear, norm = (
        WatchedLayer("0", nn.Linear(2, 2), "weight", "matrix"),
        WatchedLayer("1", nn.LayerNorm(2), "weight", "norm"),
    )
    linear.normalizer = 1
    return [linear, norm]


def delivered(sheet):
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    return sheet


def test_two_processes_put_their_numbers_together(pair):
    team, other = pair
    # wish, failures, loss given at steps 1 and 2, present; losses; inverse_max, inverse_min, gain, square, mean_square
    said = [7.0, 0.0, 1.0, 0.0, 1.0, 0.5, 0.0, 16.0, 1.0, 9.0, 0.3, 0.0]
    other.other = lambda mine: torch.tensor(said, dtype=torch.float64)
    sheet, layers = norm_sheet(), layers_of_two()
    team.begin(0)
    team.exchange(sheet, layers, {1: 1.5, 2: torch.tensor(2.0)}, 2, 3.0, 0)
    assert team.settle(delivered(sheet), layers, 3) == [] and not team.stopped
    assert sheet.losses == {1: 1.0, 2: 2.0}
    row = {"inverse_max": 16.0, "inverse_min": 1.0, "gain": 9.0, "square": pytest.approx(0.2)}
    assert sheet.layers[1] == row and sheet.layers[0]["folded"] == 32.0
    assert team.due(2 + FIRST_GAP) and not team.due(3)
    other.other = None
    team.exchange(norm_sheet(), layers, {}, 2 + FIRST_GAP, 1.0, 0)
    assert team.due(2 + FIRST_GAP + 7)  # what was wished one reading before


def test_numbers_that_cannot_be_packed_do_not_keep_the_others_waiting(pair):
    team, _ = pair
    sheet = norm_sheet()
    sheet.tensors[0] = "no tensor"
    with pytest.raises(AttributeError):
        team.exchange(sheet, layers_of_two(), {}, 1, 1.0, 4)
    told = delivered(sheet)  # what was agreed has come all the same
    assert team.settle(told, layers_of_two(), 3) == [0, 1] and team.stopped
    assert not any(sheet.layers.values())


def test_a_process_that_is_gone_ends_the_measuring_and_not_the_training(tmp_path, pair, caplog):
    team, other = pair

    def gone(mine):
        raise RuntimeError("connection closed by peer")

    other.other = gone
    model = network()
    monitor = ng.Monitor(model, tmp_path, every=1)
    monitor._team = team
    train(model, monitor, 0, 1, steps=3)
    monitor.close()
    run = store.read(tmp_path)
    assert team.stopped and run.end["step"] == 3
    assert "connection closed by peer" in run.notes[0]["sentence"]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_file_is_opened_by_the_first_process(rank, tmp_path, monkeypatch):
    team = Team(network())
    team.world, team.rank = 2, rank
    writer = store.Writer(tmp_path / "run.jsonl", {})
    writer.resumed_from, writer.elapsed = 4, 2.0

    def broadcast(said, src, group):
        said[0] = said[0] if rank == 0 else ("", str(writer.path), 4, 2.0)

    monkeypatch.setattr(dist, "broadcast_object_list", broadcast)
    monkeypatch.setattr(dist, "get_global_rank", lambda group, rank: 0)
    opened = team.opened(lambda: writer)
    assert (opened is writer) == (rank == 0)
    assert (opened.path, opened.resumed_from, opened.elapsed) == (writer.path, 4, 2.0)

    def full():
        raise StoreError("cannot write")

    def broadcast_error(said, src, group):
        said[0] = ("cannot write", "", None, 0.0)

    monkeypatch.setattr(dist, "broadcast_object_list", broadcast_error)
    with pytest.raises(StoreError, match="cannot write"):
        team.opened(full)


def test_processes_that_train_models_of_their_own_stay_apart(monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=object()))
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(dist, "get_rank", lambda group=None: 1)
    assert Team(network()).alone and Team(network(), False).alone
    together = Team(network(), True)
    assert (together.rank, together.world) == (1, 2)
    assert [layer.role for layer in together.measured(find_layers(network()))] == ["norm", "norm"]
