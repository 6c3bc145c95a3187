"""A network trained on scikit-learn's digits, with the data a certificate is made from.

    normgauge certify certified.py:build --train certified.py:train --holdout certified.py:holdout

or run this file for the table of a few rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.training import train as fit
from normgauge.lab.zoo import Split
from normgauge.lab.zoo.data import digits


def build() -> nn.Module:
    """A network with BatchNorm, trained for a few seconds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    fit(model, train(), epochs=15, lr=3e-3)
    return model


def train() -> Split:
    """The samples it was trained on, as they were drawn."""
    return digits("train")


def holdout() -> tuple[Tensor, Tensor]:
    """Labelled samples it never saw."""
    test = digits("test")
    return test.inputs[:200], test.labels[:200]


def unlabeled() -> Tensor:
    """More inputs it never saw, without labels."""
    return digits("test").inputs[200:]


if __name__ == "__main__":
    found = ng.certify(build(), train(), holdout(), unlabeled(), epochs=0)
    for row in found.rows:
        if row.family in ("hold-out", "cells"):
            shown = "" if row.value is None else f"{row.value:.3g}"
            print(f"{row.name:50} {row.kind:15} {shown:>9}  {row.reason}")
