"""A small training with a monitor, for the sinks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

import normgauge as ng
from normgauge.core import store
from normgauge.monitor.adapters.scalars import COLUMNS


def trained(folder: Any, sinks: list[Any], steps: int = 4, last_loss: float | None = None) -> str:
    """Train and give the run file; ``last_loss`` replaces the loss of the last step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ng.Monitor(model, folder, every=1, sinks=sinks) as monitor:
        for number in range(steps):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 4)).square().mean()
            loss.backward()
            optimizer.step()
            monitor.step(loss=last_loss if number == steps - 1 and last_loss is not None else loss, lr=0.1)
    return monitor.path


LAYERS = ("0", "1", "3")


def expected(path: str) -> dict[str, list[tuple[int, float]]]:
    """Every curve a sink should hold, from the run file."""
    run = store.read(path)
    curves = {name: run.total(name) for name in (*run.header["totals"], "loss", "loss_mean", "loss_max", "lr")}
    curves |= {f"{column}/{layer}": run.series(column, layer) for column in COLUMNS for layer in LAYERS}
    return {f"normgauge/{name}": points for name, points in curves.items() if points}


def check(path: str, found: dict[str, list[tuple[int, float]]]) -> None:
    wanted = expected(path)
    assert {"normgauge/log10_P_w", "normgauge/norm_lower/0", "normgauge/sigma_min/1"} <= set(wanted)
    assert set(wanted) <= set(found)
    for name, points in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        for (_, mine), (_, theirs) in zip(found[name], points, strict=True):
            assert math.isclose(mine, theirs, rel_tol=1e-5) or (math.isnan(mine) and math.isnan(theirs)), name
