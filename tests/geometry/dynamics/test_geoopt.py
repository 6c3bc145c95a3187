"""The sphere optimizers beside geoopt's, where their conventions agree."""

import pytest
import torch
from torch import nn

from normgauge.geometry.dynamics import ScaleFree, SphereAdam, SphereSGD

geoopt = pytest.importorskip("geoopt", reason="the cross-check needs geoopt: pip install geoopt")

STEPS = 50


class Ours(nn.Module):
    def __init__(self, w: torch.Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w.clone())


def paths(make_ours, make_theirs, manifold) -> tuple[torch.Tensor, torch.Tensor]:
    """Both after the same losses, from the same unit rows."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(6, 9, generator=generator, dtype=torch.float64)
    w /= w.norm(dim=1, keepdim=True)
    targets = torch.randn(STEPS, 6, 9, generator=generator, dtype=torch.float64)
    ours, theirs = Ours(w), geoopt.ManifoldParameter(w.clone(), manifold=manifold)
    optimizers = make_ours(ours), make_theirs([theirs])
    for target in targets:
        for optimizer, p in zip(optimizers, (ours.w, theirs), strict=True):
            optimizer.zero_grad()
            unit = p / p.norm(dim=1, keepdim=True)
            ((unit - target) ** 3).sum().backward()
            optimizer.step()
    return ours.w.detach(), theirs.detach()


def sphere_sgd(walk, momentum=0.0):
    groups = [ScaleFree(("w",), 6)]
    return lambda net: SphereSGD(net.named_parameters(), groups, lr=0.01, momentum=momentum, walk=walk)


def their_sgd(momentum=0.0):
    def make(parameters):
        optimizer = geoopt.optim.RiemannianSGD(parameters, lr=0.01, momentum=momentum)
        if momentum:  # theirs begins with the first gradient counted again; ours, as torch, with the gradient alone
            optimizer.state[parameters[0]]["momentum_buffer"] = torch.zeros_like(parameters[0])
        return optimizer

    return make


@pytest.mark.parametrize(
    ("walk", "manifold"), [("projection", "Sphere"), ("exponential", "SphereExact")], ids=["projection", "exponential"]
)
def test_sgd(walk, manifold):
    ours, theirs = paths(sphere_sgd(walk), their_sgd(), getattr(geoopt, manifold)())
    assert torch.allclose(ours, theirs, atol=1e-12)


def test_momentum_carried_by_projection():
    ours, theirs = paths(sphere_sgd("projection", 0.9), their_sgd(0.9), geoopt.Sphere())
    assert torch.allclose(ours, theirs, atol=1e-11)


def test_momentum_carried_in_parallel_is_not_projected():
    """geoopt projects even on SphereExact; parallel transport keeps lengths, so the paths part."""
    ours, theirs = paths(sphere_sgd("exponential", 0.9), their_sgd(0.9), geoopt.SphereExact())
    assert float((ours - theirs).norm(dim=1).max()) > 1e-3
    assert torch.allclose(ours.norm(dim=1), theirs.norm(dim=1), rtol=1e-12)


def test_adam():
    groups = [ScaleFree(("w",), 6)]
    ours, theirs = paths(
        lambda net: SphereAdam(net.named_parameters(), groups, lr=0.01, walk="projection"),
        lambda parameters: geoopt.optim.RiemannianAdam(parameters, lr=0.01),
        geoopt.Sphere(),
    )
    assert torch.allclose(ours, theirs, atol=1e-11)
