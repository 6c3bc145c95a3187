"""A budget below what the data need: training goes on, and the monitor says which layers are at their cap."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgauge as ng
from normgauge.control.capacity_budget import Cap
from normgauge.core import store
from normgauge.lab.zoo import mlp


def trained(folder: Path, log10: float, **options: float) -> tuple[store.Run, Cap, list[float]]:
    """A short training under a budget, with its monitor: the run file, the cap and the losses."""
    torch.manual_seed(0)
    model = mlp((6, 12, 12, 2), norm="batch")
    x = torch.randn(64, 6)
    y = (x[:, 0] * x[:, 1] > 0).long()
    cap = ng.cap(model.eval(), x[:4], log10=log10)
    training = torch.optim.AdamW(model.train().parameters(), lr=0.01)
    losses = []
    with ng.Monitor(model, folder, optimizer=training, cap=cap, **options) as monitor:
        for _ in range(20):
            training.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            training.step()
            cap()
            monitor.step(loss=loss)
            losses.append(float(loss.detach()))
    return store.read(monitor.path), cap, losses


def said(run: store.Run) -> list[str]:
    return [note["sentence"] for note in run.notes]


def test_layers_at_their_cap_are_named_once_and_what_was_taken_is_written(tmp_path: Path) -> None:
    run, cap, losses = trained(tmp_path, -0.5, every=1)
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0]
    held = [sentence for sentence in said(run) if "at its cap" in sentence]
    assert sorted(sentence.split()[0] for sentence in held) == sorted(cap.taken)
    assert all("10^-0.5" in sentence for sentence in held)
    for name, decades in cap.taken.items():
        assert run.series("capped", name)[-1] == (20, pytest.approx(decades, rel=1e-5))


def test_a_budget_that_is_never_met_is_silent(tmp_path: Path) -> None:
    run, cap, _ = trained(tmp_path, 9.0, every=1)
    assert not cap.taken and not any("cap" in sentence for sentence in said(run))
    assert all("capped" not in line["columns"] for line in run.steps)


def test_what_was_taken_between_two_readings_is_said_at_the_second(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    cap = ng.cap(model, torch.randn(2, 4), log10=1.0)
    with ng.Monitor(model, tmp_path, every=2, cap=cap) as monitor:
        for scale in (100.0, 1.0):  # the cap is met at the step that is not read
            with torch.no_grad():
                model[0].weight.mul_(scale)
            cap()
            model(torch.randn(8, 4)).sum().backward()
            monitor.step()
    assert not cap.last and any(s.startswith("0 is at its cap") for s in said(store.read(monitor.path)))


def test_a_budget_out_of_reach_is_said(tmp_path: Path) -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.inner(x)

    model = Skip()
    cap = ng.cap(model, torch.randn(2, 4), log10=-1.0)
    cap()
    with ng.Monitor(model, tmp_path, every=1, cap=cap) as monitor:
        model(torch.randn(8, 4)).sum().backward()
        monitor.step()
    assert any("out of reach" in sentence for sentence in said(store.read(monitor.path)))
