"""A slice of benchmarks/dynamics.py: a BatchNorm network that trains is where the predictions put it."""

import pytest
import torch
import torch.nn.functional as F

from normgauge.geometry.dynamics import RadialIdentity, ScaleFree, angle, gradients, sgd_equilibrium, snapshot, vectors
from normgauge.lab.zoo import mlp

LR, DECAY, STEPS = 0.2, 0.02, 900  # a time constant of 63 steps
GROUP = ScaleFree(("layers.0.linear.weight",), 16)


@pytest.fixture(scope="module")
def means():
    """Means over the second half of a training on noisy labels, one number a channel."""
    torch.manual_seed(0)
    net, teacher = mlp((8, 16, 4), "batch", eps=0.03).double(), torch.randn(8, 4, dtype=torch.float64)
    optimizer, generator = (
        torch.optim.SGD(net.parameters(), lr=LR, weight_decay=DECAY),
        torch.Generator().manual_seed(0),
    )
    sums = {name: torch.zeros(16, dtype=torch.float64) for name in ("squared", "turned", "scale_free", "radial")}
    for step in range(STEPS):
        x = torch.randn(24, 8, generator=generator, dtype=torch.float64)
        y = (x @ teacher + 2 * torch.randn(24, 4, generator=generator, dtype=torch.float64)).argmax(1)
        optimizer.zero_grad()
        with RadialIdentity(net, ["layers.0.norm"]) as identity:
            F.cross_entropy(net(x), y).backward()
        w, g = vectors(GROUP, snapshot(net)), vectors(GROUP, gradients(net)).clone()
        optimizer.step()
        if step >= STEPS // 2:
            sums["squared"] += w.square().sum(1)
            sums["turned"] += angle(w, vectors(GROUP, snapshot(net))).square()
            sums["scale_free"] += w.square().sum(1) * g.square().sum(1)
            sums["radial"] += identity.predicted["layers.0.norm"]
    return {name: total / (STEPS - STEPS // 2) for name, total in sums.items()}


def predicted(means, radial: bool) -> tuple[torch.Tensor, torch.Tensor]:
    settled = [
        sgd_equilibrium(LR, DECAY, float(g) ** 0.5, radial=float(r) if radial else 0.0)
        for g, r in zip(means["scale_free"], means["radial"], strict=True)
    ]
    return tuple(torch.tensor([getattr(e, key) for e in settled], dtype=torch.float64) for key in ("norm", "angle"))


def test_norm_and_angle_are_within_five_percent(means):
    norm, turn = predicted(means, radial=True)
    off = means["squared"].sqrt() / norm - 1, means["turned"].sqrt() / turn - 1
    for error in off:
        assert float(error.abs().median()) < 0.02 and float(error.abs().max()) < 0.05
    assert float(norm.max() / norm.min()) > 1.1  # channels differ, and each is predicted


def test_the_radial_part_is_needed_where_eps_is_large(means):
    norm, _ = predicted(means, radial=False)
    with_it, _ = predicted(means, radial=True)
    found = means["squared"].sqrt()
    assert float((found / norm - 1).median()) > 4 * float((found / with_it - 1).abs().median())
