"""`torch.func.hessian` is silently wrong on normalization layers: a reproduction in plain torch.

A Hessian must be symmetric, and a wrong one is not: that shows the defect without a reference.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev, jvp

NORMS = {
    "BatchNorm1d (train)": (nn.BatchNorm1d(4), (8, 4)),
    "LayerNorm": (nn.LayerNorm(4), (8, 4)),
    "InstanceNorm1d": (nn.InstanceNorm1d(4, affine=True), (3, 4, 6)),
    "GroupNorm": (nn.GroupNorm(2, 4), (3, 4, 6)),
    "RMSNorm": (nn.RMSNorm(4), (8, 4)),
}
Function = Callable[[Tensor], Tensor]


def loss_of(norm: nn.Module, shape: tuple[int, ...]) -> Function:
    """Mean square error of tanh(norm(W x)) as a function of W's 16 entries and then the gain's 4."""
    x, target = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))

    def loss(p: Tensor) -> Tensor:
        frozen = {name: value.detach().clone() for name, value in norm.state_dict().items()}
        mixed = torch.einsum("ij,nj...->ni...", p[:16].reshape(4, 4), x)
        return (functional_call(norm, {**frozen, "weight": p[16:]}, (mixed,)).tanh() - target).square().mean()

    return loss


def five_ways(f: Function, p: Tensor) -> tuple[Tensor, ...]:
    """The Hessian by func.hessian, jvp(jacrev), jvp(grad), double backward and central differences of the gradient."""
    units, slope, h = torch.eye(len(p)), grad(f), 1e-5
    forward = [torch.stack([jvp(g, (p,), (u,))[1] for u in units], 1) for g in (jacrev(f), slope)]
    differences = torch.stack([(slope(p + h * u) - slope(p - h * u)) / (2 * h) for u in units], 1)
    return hessian(f)(p), *forward, torch.autograd.functional.hessian(f, p), differences


def main() -> None:
    """One line a normalizer: relative errors against central differences, and the asymmetry of the first."""
    torch.set_default_dtype(torch.float64)
    p = torch.cat([torch.randn(16, generator=torch.Generator().manual_seed(0)), torch.linspace(0.6, 1.4, 4)])
    print(f"torch {torch.__version__:15}func.hessian  jvp(jacrev)  jvp(grad)  double backward  hessian - its transpose")
    worst = 0.0
    for name, (norm, shape) in NORMS.items():
        *found, wanted = five_ways(loss_of(norm.double(), shape), p)
        off = [*(h - wanted for h in found), found[0] - found[0].T]
        a, b, c, d, e = (float(difference.norm() / wanted.norm()) for difference in off)
        print(f"{name:21}{a:12.1e} {b:12.1e} {c:10.1e} {d:16.1e} {e:24.1e}")
        worst = max(worst, a, b)
    print("silently wrong: take double backward or jvp(grad)" if worst > 1e-6 else "fixed in this version of torch")


if __name__ == "__main__":
    main()
