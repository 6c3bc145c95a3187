"""A plan of small networks on digits, and its results, made once."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from experiments.than2025 import data, plan
from experiments.than2025.run import Run

TINY = """
[defaults]
data = "digits"
optimizer = "adam"
lr = 1e-3
decay = 1e-4
momentum = 0.9
batch = 128
epochs = 2
seed = 0
init = "he"
gain = 1.0
affine = "both"
groups = 4
width = 16
depth = 4
normalizers = -1
readings = [0, 2]
scopes = ["point", "global"]
[net.mlp]
norm = "none"
[net.resnet20]
norm = "batch"
scopes = ["point"]
[optimizer.adam]
kind = "adam"
[optimizer.adam-none]
kind = "adam"
decay = 0.0
[optimizer.sgd]
kind = "sgd"
lr = 0.1
[group.nets]
grid = { net = ["mlp"], optimizer = ["adam"] }
[group.optimizers]
grid = { net = ["mlp"], optimizer = ["sgd", "adam-none"] }
set = { norm = "batch" }
[group.mlp-norms]
grid = { net = ["mlp"], norm = ["batch", "layer", "group", "rms"] }
[group.count]
grid = { normalizers = [0, 2], seed = [0, 1] }
set = { norm = "batch", readings = [2] }
[scale.digits]
width = 8
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices gain nothing from more, and runs are compared bit for bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan as a file."""
    path = tmp_path_factory.mktemp("plan") / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def digits() -> data.Data:
    """The data on the CPU."""
    pytest.importorskip("sklearn")
    return data.load("digits", torch.device("cpu"))


@pytest.fixture(scope="session")
def specs(config: Path) -> dict[str, plan.Spec]:
    """The runs by name."""
    return {spec.name: spec for spec in plan.load(config)}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, specs: dict[str, plan.Spec], digits: data.Data) -> Path:
    """A folder of results of every run of the plan, readings of some of them included."""
    from experiments.than2025 import collect, worker

    state, out = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("out")
    for spec in specs.values():
        drive(Run(spec, state, digits))
    for path in (state / "spool").glob("*"):
        if "normalizers2-seed0" not in path.name and "mlp-adam" not in path.name:
            path.unlink()
    assert worker.main([str(state), "--once"]) == 0
    collect.collect(state, out)
    with tarfile.open(out / "results.tar.gz") as archive:
        archive.extractall(out, filter="data")
    return out / "results"


def drive(run: Run) -> bool:
    """A run to its end."""
    work = run.work()
    try:
        while True:
            stepper = next(work)
            stepper.advance(stepper.steps)
    except StopIteration as stop:
        return bool(stop.value)
