"""What the server of forks loads once, so that no trial has to: torch, and what torch loads at first use."""

from __future__ import annotations

import contextlib

import torch

import normgauge.lab.sweep.child  # noqa: F401 (loaded for those to come)

# The first optimizer makes torch load its compiler, which takes as long as torch itself.
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
with contextlib.suppress(ImportError):
    import sklearn.datasets  # noqa: F401 (where the digits come from)
