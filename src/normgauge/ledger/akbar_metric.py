"""Claims of Akbar on metric, natural gradient and curvature of the quotient: section 4."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family, equal, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian
from normgauge.ledger.losses import (
    Found,
    Layer,
    Unit,
    flatten,
    flow,
    gradient,
    hessian,
    layer,
    project,
    size,
    standardize,
    unit,
)

claims = Family("A", "Akbar")


@claims.add(
    "metric",
    "section 4.1",
    Verdict.HOLDS,
    "The metric aᵀb/‖w‖² of Cho and Lee does not change when weights and steps are scaled together",
    "Exact. Its gradient is ‖w‖²∇L, which scales like w.",
    backs=["normgauge.dynamics.metric.inner", "normgauge.dynamics.metric.riemannian_gradient"],
)
def cho_lee(draw: Draw) -> Found:
    """The metric at scaled points; its gradient by solving M·G = ∇L with the metric's own matrix."""
    neuron, w = unit(draw)
    n, c = len(w), float(draw.uniform(1, low=0.1, high=10.0))
    a, b, probe = draw.normal(n), draw.normal(n), draw.normal(n)

    def metric(w: Tensor) -> Tensor:
        return torch.eye(n, dtype=torch.float64) / (w @ w)

    yield equal(
        "metric at c·w of c·a and c·b", (c * a) @ metric(c * w) @ (c * b), predicted=float(a @ b) / size(w) ** 2
    )
    steepest = torch.linalg.solve(metric(c * w), gradient(neuron.loss, c * w))
    right = size(w) ** 2 * gradient(neuron.loss, w)
    yield equal("its gradient at c·w", project(steepest, probe), predicted=c * project(right, probe))


@claims.add(
    "4.zero",
    "section 4.1",
    Verdict.WRONG,
    "The scale-free metric gives the radial direction length 0 and so removes it",
    "Cho and Lee's metric gives w itself length 1: a cylinder in (log ‖w‖, direction), not a sphere.",
    backs=["normgauge.dynamics.metric.distance"],
)
def radial_length(draw: Draw) -> Found:
    """Lengths of a ray and of a spiral, as polygons of many sides, against √(turn² + (growth of log ‖w‖)²)."""
    growth, turn = (float(v) for v in draw.uniform(2, low=0.3, high=1.5))
    t = torch.linspace(0, 1, 20_001, dtype=torch.float64)

    def length(turn: float) -> float:
        path = (growth * t).exp()[:, None] * torch.stack([(turn * t).cos(), (turn * t).sin()], 1)
        middle = (path[1:] + path[:-1]) / 2
        return float(((path[1:] - path[:-1]).norm(dim=1) / middle.norm(dim=1)).sum())

    yield refutes("length of a ray from w to e^a·w", length(0.0), published=0.0)
    yield equal("length of a ray from w to e^a·w", length(0.0), predicted=growth, rel=1e-7)
    yield equal("length of a spiral", length(turn), predicted=math.sqrt(growth**2 + turn**2), rel=1e-7)


@claims.add(
    "4.riemannian",
    "section 4.1",
    Verdict.HOLDS,
    "Descent on the sphere takes the gradient without its radial part, and batch norm has removed that part already",
    "At ε = 0 and ‖w‖ = 1 the gradient on the sphere is ∇L itself. A step along it still leaves the sphere.",
)
def sphere_gradient(draw: Draw) -> Found:
    """Slopes along great circles in an orthonormal basis of the tangent space."""
    neuron, w = unit(draw)
    u, probe = w / w.norm(), draw.normal(len(w))
    basis = torch.linalg.qr(torch.cat([u[:, None], draw.normal(len(w), len(w) - 1)], 1))[0].T[1:]

    def slope(e: Tensor) -> Tensor:
        return gradient(lambda t: neuron.loss(t.cos() * u + t.sin() * e), torch.zeros((), dtype=torch.float64))

    on_sphere = torch.stack([slope(e) * e for e in basis]).sum(0)
    yield equal("gradient on the sphere", project(on_sphere, probe), predicted=project(gradient(neuron.loss, u), probe))


def _fisher(net: Layer) -> tuple[Tensor, Tensor]:
    """Fisher matrix in (W, b) of the softmax of the outputs, mean over the batch, and a cross-entropy gradient."""

    def logits(flat: Tensor) -> Tensor:
        return net.vary(flat).outputs()

    flat = flatten(net.weight, net.bias)
    p = logits(flat).softmax(1)
    rows = jacobian(logits, flat).reshape(*p.shape, -1)
    fisher = torch.einsum("nip,nij,njq->pq", rows, torch.diag_embed(p) - p[:, :, None] * p[:, None, :], rows) / len(p)
    labels = net.target.argmax(1)
    return fisher, gradient(lambda f: torch.nn.functional.cross_entropy(logits(f), labels), flat)


def _classifier(draw: Draw) -> Layer:
    """A batch-norm layer with three outputs and enough samples."""
    net = layer(draw)
    return net.using(x=draw.normal(30, net.x.shape[1]), head=draw.normal(3, len(net.bias)), target=draw.normal(30, 3))


@claims.add(
    "4.fisher",
    "section 4, natural gradient",
    Verdict.HOLDS,
    "The Fisher matrix of a batch-norm network likely has a null space along the scale directions",
    "Surely: 0 along each unit's scale and bias shift, at ε = 0; two null directions a unit.",
    backs=["normgauge.dynamics.information.fisher"],
)
def fisher_null_space(draw: Draw) -> Found:
    """Fisher matrix times a scale direction; number of zero eigenvalues."""
    net = _classifier(draw)
    fisher, _ = _fisher(net)
    factor = draw.normal(len(net.bias))
    along = flatten(factor[:, None] * net.weight, factor * net.bias)
    yield equal("Fisher matrix along a scale", size(fisher @ along), predicted=0.0, scale=size(fisher) * size(along))
    zeros = int((torch.linalg.eigvalsh(fisher) < 1e-10 * size(fisher)).sum())
    yield equal("zero eigenvalues", zeros, predicted=2 * len(net.bias))


@claims.add(
    "4.natural",
    "section 4, natural gradient",
    Verdict.HOLDS,
    "The natural gradient drops the scale component by itself",
    "The Fisher matrix has no inverse there; with the pseudo-inverse, or any damping, the component is exactly 0.",
)
def natural_gradient(draw: Draw) -> Found:
    """Component along the scales of the pseudo-inverse and of a damped step."""
    net = _classifier(draw)
    fisher, grad = _fisher(net)
    along = flatten(net.weight, net.bias)
    steps = {
        "pseudo-inverse": torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True) @ grad,
        "damped": torch.linalg.solve(fisher + 0.1 * torch.eye(len(grad), dtype=torch.float64), grad),
    }
    for name, step in steps.items():
        yield equal(f"{name}: part along the scale", step @ along, predicted=0.0, scale=size(step) * size(along))
    values = torch.linalg.eigvalsh(fisher)
    yield shown("the Fisher matrix itself has no inverse", float(values[0].abs() / values[-1]) < 1e-12)


@claims.add(
    "4.natural.metric",
    "section 4, natural gradient",
    Verdict.WRONG,
    "Cho and Lee's Riemannian gradient is in effect a natural gradient",
    "It points elsewhere. For one unit and Gaussian noise the Fisher metric is (γ²/q)(Σ − Σwwᵀ Σ/q), not the identity.",
)
def not_natural(draw: Draw) -> Found:
    """Angle between the two gradients of one unit; the Fisher matrix by its Jacobian."""
    n = draw.integer(4, 7)
    neuron, w = unit(draw, n=n)
    neuron = Unit(neuron.x * torch.logspace(-0.5, 0.5, n, dtype=torch.float64), neuron.target, neuron.gamma)
    slope, grad, probe = jacobian(neuron.outputs, w), gradient(neuron.loss, w), draw.normal(n, n)
    fisher = slope.T @ slope / len(neuron.x)
    natural = torch.linalg.pinv(fisher, rtol=1e-10, hermitian=True) @ grad
    yield refutes("cosine of both gradients", float(natural @ grad) / size(natural) / size(grad), published=1.0)
    s, q = neuron.covariance, float(w @ neuron.covariance @ w)
    right = neuron.gamma**2 / q * (s - torch.outer(s @ w, s @ w) / q)
    yield equal("Fisher matrix", project(fisher, probe), predicted=project(right, probe))


def _wave(draw: Draw) -> tuple[Tensor, Tensor]:
    """Coefficients of a random loss of the angle, f(θ) = Σ a_k cos kθ + b_k sin kθ."""
    return draw.normal(3), draw.normal(3)


def _of_angle(wave: tuple[Tensor, Tensor], theta: Tensor) -> Tensor:
    k = torch.arange(1, 4, dtype=torch.float64)
    return (wave[0] * (k * theta).cos() + wave[1] * (k * theta).sin()).sum()


def _second(wave: tuple[Tensor, Tensor], theta: float) -> float:
    """f″(θ) in closed form."""
    return -sum(
        k * k * float(wave[0][k - 1] * math.cos(k * theta) + wave[1][k - 1] * math.sin(k * theta)) for k in (1, 2, 3)
    )


@claims.add(
    "4.curv",
    "section 4, curvature",
    Verdict.HOLDS,
    "In two dimensions the curvature along the angle is f″(θ)/r²: weights twice as long, a quarter of the curvature",
    "At critical points, where the other eigenvalue is 0; elsewhere see A.Hzero.",
)
def polar_curvature(draw: Draw) -> Found:
    """Eigenvalues of the dense Hessian in (x, y) at the lowest angle."""
    wave, r = _wave(draw), float(draw.uniform(1, low=0.5, high=3.0))
    grid = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    theta = grid[torch.stack([_of_angle(wave, t) for t in grid]).argmin()]
    for _ in range(20):
        theta = theta - gradient(lambda t: _of_angle(wave, t), theta) / _second(wave, float(theta))
    w = r * torch.stack([theta.cos(), theta.sin()])
    values = torch.linalg.eigvalsh(hessian(lambda w: _of_angle(wave, torch.atan2(w[1], w[0])), w))
    yield equal("curvature along the angle", values[1], predicted=_second(wave, float(theta)) / r**2)
    yield equal("curvature along the radius", values[0], predicted=0.0, scale=float(values[1]))


@claims.add(
    "4.geodesic",
    "section 4, curvature",
    Verdict.HOLDS,
    "With the scale-free metric, or at ‖w‖ = 1, curvature no longer depends on the length of the weights",
    "Second derivatives along great circles, per radian, are the same at every length.",
)
def geodesic_curvature(draw: Draw) -> Found:
    """Second derivative along a great circle at two radii, and uᵀHu·‖w‖²."""
    neuron, w = unit(draw)
    u, c = w / w.norm(), float(draw.uniform(1, low=2.0, high=20.0))
    e = draw.normal(len(w))
    e = (e - u * (u @ e)) / (e - u * (u @ e)).norm()

    def bend(r: float) -> float:
        turn = torch.zeros(1, dtype=torch.float64)
        return float(hessian(lambda t: neuron.loss(r * (t.cos() * u + t.sin() * e)), turn))

    yield equal("curvature per radian at length c", bend(c), predicted=bend(1.0))
    yield equal(
        "curvature per radian at length c", bend(c), predicted=float(e @ hessian(neuron.loss, c * u) @ e) * c**2
    )


@claims.add(
    "4.kappa",
    "section 4, curvature",
    Verdict.GAUGE,
    "The condition number of the Hessian may rise when the length of the weights changes",
    "A free choice of scale moves it: two units, one of them scaled. For one unit alone it does not move at all.",
)
def condition_number(draw: Draw) -> Found:
    """Nonzero eigenvalues at a minimum of one and of two units, before and after scaling one of them by ten."""
    n, c = draw.integer(3, 5), 10.0
    x = draw.normal(40, 2 * n) + 1
    start = draw.normal(2 * n)

    def outputs(flat: Tensor) -> Tensor:
        return standardize(x[:, :n] @ flat[:n]) + standardize(x[:, n:] @ flat[n:])

    def kappa(flat: Tensor, units: int) -> float:
        target = outputs(flat)
        values = torch.linalg.eigvalsh(
            hessian(lambda p: (outputs(p) - target).square().mean(), flat)[: units * n, : units * n]
        )
        kept = values[units:]  # one zero a unit
        return float(kept[-1] / kept[0])

    scaled = flatten(c * start[:n], start[n:])
    yield moves("condition number, two units", kappa(start, 2), kappa(scaled, 2))
    yield equal("size of the outputs", size(outputs(scaled)), predicted=size(outputs(start)))
    yield equal("condition number, one unit", kappa(scaled, 1), predicted=kappa(start, 1), rel=1e-7)


@claims.add(
    "4.slow",
    "section 4, curvature",
    Verdict.HOLDS,
    "Longer weights turn more slowly",
    "Weights c times as long follow the same path of directions c² times as slowly under gradient flow.",
)
def slow_turn(draw: Draw) -> Found:
    """Flow from c·w for c²·T against flow from w for T."""
    neuron, w = unit(draw)
    w = w / w.norm()
    c, probe = float(draw.uniform(1, low=0.3, high=4.0)), draw.normal(len(w))
    near, far = flow(neuron.loss, w, 0.6, 40), flow(neuron.loss, c * w, 0.6 * c**2, 40)
    yield equal("where flow from c·w is after c²·T", project(far, probe), predicted=c * project(near, probe))
    yield shown("the direction did turn", size(near - w) > 1e-3)
