"""One network in three gauges: SGD trains three networks, SphereSGD one. And where weight decay settles the norm."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.geometry.dynamics import ScaleFree, SphereSGD, gradients, sgd_equilibrium, snapshot, vectors

GROUP = ScaleFree(("0.weight",), rows=32)  # BatchNorm makes each of the 32 rows before it scale-free


def network(scale: float) -> nn.Sequential:
    """The same function for every scale, up to ε."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).double()
    with torch.no_grad():
        net[0].weight *= scale
    return net


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Inputs, and labels a fixed random map gives them, one in five of them wrong."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(64, 16, generator=generator, dtype=torch.float64)
    y = (x[:, :4] * x[:, 4:8]).argmax(1)
    wrong = torch.rand(64, generator=generator) < 0.2
    return x, torch.where(wrong, torch.randint(4, (64,), generator=generator), y)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> tuple[float, Tensor, Tensor]:
    """Means over the second half: the loss, ‖w‖² and (‖w‖‖∇L‖)² of each row of the first layer."""
    loss, squared, scale_free = 0.0, torch.zeros(32), torch.zeros(32)
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        value = F.cross_entropy(net(x), y)
        value.backward()
        if step >= steps // 2:
            w, g = (vectors(GROUP, named).square().sum(1) for named in (snapshot(net), gradients(net)))
            loss, squared, scale_free = loss + value.item(), squared + w, scale_free + w * g
        optimizer.step()
    return 2 * loss / steps, 2 * squared / steps, 2 * scale_free / steps


def main() -> None:
    """Two tables."""
    print("weights times       0.1       1      10   loss after 300 steps")
    for name, make in {
        "SGD": lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
        "SphereSGD": lambda net: SphereSGD(net.named_parameters(), [GROUP], lr=0.1, sphere_lr=0.3),
    }.items():
        nets = [network(scale) for scale in (0.1, 1.0, 10.0)]
        print(f"{name:14}" + "".join(f"{train(net, make(net), 300)[0]:8.4f}" for net in nets))
    lr, decay = 0.2, 0.02
    net = network(1.0)
    _, squared, scale_free = train(net, torch.optim.SGD(net.parameters(), lr=lr, weight_decay=decay), 1200)
    settled = [sgd_equilibrium(lr, decay, math.sqrt(g)) for g in scale_free.tolist()]
    off = [math.sqrt(found) / e.norm - 1 for found, e in zip(squared.tolist(), settled, strict=True)]
    print(
        f"with weight decay, ‖w‖ of the rows: {min(e.norm for e in settled):.2f} to {max(e.norm for e in settled):.2f}"
    )
    print(f"predicted within {100 * max(map(abs, off)):.1f} %; {math.degrees(settled[0].angle):.1f} degrees a step")


if __name__ == "__main__":
    main()
