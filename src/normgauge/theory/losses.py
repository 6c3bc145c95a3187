"""Small losses behind a normalizer, with gradients, dense Hessians and flows in float64: instances for many checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from normgauge.geometry.dynamics.sphere import angle
from normgauge.theory.draw import Draw
from normgauge.theory.jacobians import jacobian

Loss = Callable[[Tensor], Tensor]


def standardized(z: Tensor, eps: float = 0.0, dim: int = 0) -> Tensor:
    """``z`` less its mean over √(biased variance + ε), along ``dim``: 0 a batch (BN), 1 the units of a layer (LN)."""
    centred = z - z.mean(dim, keepdim=True)
    return centred / (centred.square().mean(dim, keepdim=True) + eps).sqrt()


def probed(tensor: Tensor, probe: Tensor) -> float:
    """All entries of ``tensor`` at once: their product with ``probe``, a random tensor of the same shape."""
    return float((tensor * probe).sum())


def extent(tensor: Tensor) -> float:
    """The Euclidean length of all entries."""
    return float(tensor.detach().reshape(-1).norm())


def vector_angle(a: Tensor, b: Tensor) -> float:
    """The angle between two vectors, exact for small ones too."""
    return float(angle(a.detach(), b.detach()))


def flattened(*tensors: Tensor) -> Tensor:
    """Several tensors as one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def split_vector(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A vector as tensors of the shapes of ``like``; undoes `flattened`."""
    pieces = flat.split([tensor.numel() for tensor in like])
    return [piece.reshape(tensor.shape) for piece, tensor in zip(pieces, like, strict=True)]


def grad_of(loss: Loss, at: Tensor) -> Tensor:
    """The gradient of ``loss`` by autograd."""
    point = at.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(point), point, materialize_grads=True)[0]


def hessian_of(loss: Loss, at: Tensor) -> Tensor:
    """The dense Hessian of ``loss`` at a vector by double backward, which is right on every normalizer."""
    point = at.detach().clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(point), point, create_graph=True)
    rows = [torch.autograd.grad(g, point, retain_graph=True, materialize_grads=True)[0] for g in first]
    return torch.stack(rows)


def gradient_flow(loss: Loss, start: Tensor, time: float, steps: int) -> Tensor:
    """Where gradient flow from ``start`` is after ``time``: Runge-Kutta of order four."""
    w, h = start.detach().clone(), time / steps
    for _ in range(steps):
        a = grad_of(loss, w)
        b = grad_of(loss, w - h / 2 * a)
        c = grad_of(loss, w - h / 2 * b)
        w = w - h / 6 * (a + 2 * b + 2 * c + grad_of(loss, w - h * c))
    return w


def gradient_descent(loss: Loss, start: Tensor, rate: float, steps: int) -> Tensor:
    """All points of plain gradient descent, (steps + 1, n)."""
    path = [start.detach().clone()]
    for _ in range(steps):
        path.append(path[-1] - rate * grad_of(loss, path[-1]))
    return torch.stack(path)


def noise_walk(
    draw: Draw, start: Tensor, strength: float, steps: int, *, rate: float, decay: float = 0.0, momentum: float = 0.0
) -> Tensor:
    """All points of a scale-invariant weight driven by noise: gradients of length strength/‖w‖ orthogonal to it.

    Plain descent with weight decay λ, and momentum where it is not 0: b ← αb + g + λw, w ← w − ηb.
    """
    path, buffer = [start], torch.zeros_like(start)
    for _ in range(steps):
        w, noise = path[-1], draw.normal(len(start))
        noise = noise - w * ((w @ noise) / (w @ w))
        buffer = momentum * buffer + noise * (strength / (w.norm() * noise.norm())) + decay * w
        path.append(w - rate * buffer)
    return torch.stack(path)


def nullity(function: Callable[[Tensor], Tensor], at: Tensor) -> int:
    """How many independent directions of ``at`` leave the outputs alone, to first order: columns less rank."""
    matrix = jacobian(function, at)
    return at.numel() - int(torch.linalg.matrix_rank(matrix, rtol=1e-10))


def weight_norm(flat: Tensor) -> Tensor:
    """The weight g·v/‖v‖ of (v, g)."""
    return flat[-1] * flat[:-1] / flat[:-1].norm()


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit under batch norm, a = γ·standardize(x w), and the mean of ½(a − t)²."""

    x: Tensor  # (samples, inputs)
    target: Tensor  # (samples,)
    gamma: float = 1.0
    eps: float = 0.0

    @property
    def covariance(self) -> Tensor:
        """The biased covariance of the inputs over the batch."""
        centred = self.x - self.x.mean(0)
        return centred.T @ centred / len(self.x)

    def outputs(self, w: Tensor) -> Tensor:
        """The output of the unit for each sample."""
        return self.gamma * standardized(self.x @ w, self.eps)

    def loss(self, w: Tensor) -> Tensor:
        """Half the mean squared error."""
        return 0.5 * (self.outputs(w) - self.target).square().mean()

    def decayed(self, decay: float) -> Loss:
        """The loss with weight decay."""
        return lambda w: self.loss(w) + decay / 2 * w.square().sum()

    def bend(self, u: Tensor, e: Tensor, r: float = 1.0) -> float:
        """The second derivative of the loss at r·u along the great circle towards r·e, by the angle."""
        return float(hessian_of(lambda t: self.loss(r * (t.cos() * u + t.sin() * e)), torch.zeros_like(u[:1])))

    def solved(self, w: Tensor) -> Unit:
        """The same unit with targets that ``w`` meets exactly."""
        return replace(self, target=self.outputs(w))


def random_unit(draw: Draw, *, n: int = 0, eps: float = 0.0) -> tuple[Unit, Tensor]:
    """A unit on correlated inputs, and weights for it."""
    n = n or draw.integer(3, 7)
    m = draw.integer(3 * n, 5 * n)
    x = draw.normal(m, n) @ (torch.eye(n, dtype=torch.float64) + 0.3 * draw.normal(n, n)) + draw.normal(n)
    gamma = draw.number(0.6, 1.8)
    return Unit(x, draw.normal(m), gamma, eps), draw.normal(n)


@dataclass(frozen=True, slots=True)
class NormalizedLayer:
    """One hidden layer: tanh(γ·standardize(x Wᵀ + b) + β), a linear head, and half the mean squared error."""

    x: Tensor  # (samples, inputs)
    weight: Tensor  # (units, inputs)
    bias: Tensor
    gamma: Tensor
    beta: Tensor
    head: Tensor  # (outputs, units)
    target: Tensor  # (samples, outputs)
    eps: float = 0.0
    dim: int = 0

    def using(self, **changes: Any) -> NormalizedLayer:
        """The same layer with other tensors."""
        return replace(self, **changes)

    def scaled(self, factor: Tensor | float) -> NormalizedLayer:
        """The same layer with the weights and bias of each unit multiplied."""
        factor = factor * torch.ones_like(self.bias)
        return self.using(weight=factor[:, None] * self.weight, bias=factor * self.bias)

    def twinned(self) -> NormalizedLayer:
        """The same layer with a copy of the first unit in place of the second."""
        twin = torch.tensor([0, 0, *range(2, len(self.bias))])
        rows = {name: getattr(self, name)[twin] for name in ("weight", "bias", "gamma", "beta")}
        return self.using(**rows, head=self.head[:, twin])

    def batch(self, rows: Tensor) -> NormalizedLayer:
        """The same layer on some of its samples."""
        return self.using(x=self.x[rows], target=self.target[rows])

    def normalized(self) -> Tensor:
        """The normalized values, (samples, units)."""
        return standardized(self.x @ self.weight.T + self.bias, self.eps, self.dim)

    def outputs(self) -> Tensor:
        """The outputs, (samples, outputs)."""
        return torch.tanh(self.gamma * self.normalized() + self.beta) @ self.head.T

    def loss(self) -> Tensor:
        """Half the mean squared error."""
        return 0.5 * (self.outputs() - self.target).square().sum(1).mean()

    def gradients(self, *names: str) -> list[Tensor]:
        """Gradients of the loss with respect to the tensors of these names, by autograd."""
        points = {name: getattr(self, name).detach().clone().requires_grad_() for name in names}
        return list(torch.autograd.grad(self.using(**points).loss(), list(points.values())))

    def vary(self, flat: Tensor) -> NormalizedLayer:
        """The same layer with weight and bias taken from one vector, rows first."""
        weight, bias = split_vector(flat, (self.weight, self.bias))
        return self.using(weight=weight, bias=bias)


def random_layer(draw: Draw, *, dim: int = 0, eps: float = 0.0) -> NormalizedLayer:
    """A random layer; ``dim`` 0 is batch norm, 1 layer norm."""
    d, h, k = draw.integer(2, 5), draw.integer(3, 6), draw.integer(1, 4)
    m, rows = draw.integer(12, 20), draw.normal(h, d)
    return NormalizedLayer(
        x=draw.normal(m, d) + draw.normal(d),
        # rows of moderate length: the gradient of a short one is stiff
        weight=rows / rows.norm(dim=1, keepdim=True) * draw.uniform(h, 1, low=0.8, high=2.0),
        bias=draw.normal(h),
        gamma=draw.uniform(h, low=0.5, high=1.5),
        beta=draw.normal(h) / 2,
        head=draw.normal(k, h) / math.sqrt(h),
        target=draw.normal(m, k),
        eps=eps,
        dim=dim,
    )


def idle_count(net: NormalizedLayer) -> int:
    """Directions of (W, b) that leave the normalized values alone."""
    return nullity(lambda flat: net.vary(flat).using(eps=0.0).normalized(), flattened(net.weight, net.bias))
