"""Configs and networks for the tests of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normgauge.lab.sweep.config import Config, read_config
from normgauge.lab.sweep.drive import Folder
from normgauge.lab.sweep.space import expand_trials
from normgauge.render.sweep import TrialOutcome

HEAD = """
[data]
limit = 48
test_limit = 24
[network]
build = "mlp"
[network.options]
sizes = [64, 8, 10]
[training]
epochs = 2
batch_size = 16
[measure]
samples = 4
"""

CODE = """
import os, time
from torch import nn
from normgauge.lab.zoo import mlp

class Slow(nn.Module):
    def forward(self, x):
        if self.training:
            time.sleep(0.05)
        return x

def slow(norm=None):
    return nn.Sequential(Slow(), mlp((64, 8, 10), norm=norm))

def build(how="well", seconds=0.0):
    if how == "raise":
        raise ValueError("no such network today")
    if how == "exit":
        print("about to leave")
        os._exit(7)
    if how == "number":
        return 3
    if how == "once" and not os.path.exists("been here"):
        open("been here", "w").close()
        raise RuntimeError("the first time only")
    time.sleep(seconds)
    return mlp((64, 8, 10))
"""


def written(folder: Path, *parts: str, head: str = HEAD, top: str = "", name: str = "a.toml") -> Path:
    """A config file, and the networks beside it."""
    (folder / "nets.py").write_text(CODE)
    path = folder / name
    path.write_text("\n".join([top, head, *parts]))
    return path


def config(folder: Path, *parts: str, **options: Any) -> Config:
    return read_config(written(folder, *parts, **options))


def begun(folder: Path, *values: str, key: str = "how") -> list[Path]:
    """Trials of the function ``build`` of nets.py, one for each value of one of its options; each has begun."""
    head = HEAD.replace('build = "mlp"', 'build = "nets.py:build"').replace("sizes = [64, 8, 10]", "")
    read = config(folder, f'[grid]\n"network.options.{key}" = [{", ".join(values)}]', head=head, top="monitor = false")
    places = Folder(folder / "out", read.folder, {})
    return [places.begin(trial) for trial in expand_trials(read)]


def outcome(seed: int = 0, status: str = "done", point: dict[str, Any] | None = None, **values: float) -> TrialOutcome:
    return TrialOutcome(f"id{seed}", point or {}, seed, status, values)
