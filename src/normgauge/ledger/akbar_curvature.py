"""Claims of Akbar on the Hessian behind batch norm: sections 1.4, 3.2, 6 and appendix A.1.2."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Verdict
from normgauge.ledger.claim import Family, below, equal, moves, refutes, shown
from normgauge.ledger.draw import Draw
from normgauge.ledger.losses import Found, Unit, flatten, gradient, hessian, project, size, split, standardize, unit

claims = Family("A", "Akbar")


def _inner(draw: Draw) -> tuple[Unit, Tensor, Tensor, Tensor]:
    """A unit away from its optimum: weights, gradient and Hessian there."""
    neuron, w = unit(draw)
    return neuron, w, gradient(neuron.loss, w), hessian(neuron.loss, w)


@claims.add(
    "Hzero",
    "sections 1.4, 3.2, 4 and 6",
    Verdict.WRONG,
    "Along a direction of invariance the Hessian has the eigenvalue 0",
    "Only at critical points. Elsewhere Hw = −∇L: wᵀHw = 0, but w is no eigenvector and H has eigenvalues of "
    "both signs.",
)
def radial_eigenvalue(draw: Draw) -> Found:
    """H·w against 0 and −∇L; eigenvalues of a loss of the angle in two dimensions against their closed form."""
    _, w, grad, H = _inner(draw)
    probe = draw.normal(len(w))
    yield refutes("size of H·w", size(H @ w), published=0.0)
    yield equal("H·w", project(H @ w, probe), predicted=-project(grad, probe))
    yield equal("wᵀHw", w @ H @ w, predicted=0.0, scale=size(H) * size(w) ** 2)
    a, b = (float(v) for v in draw.uniform(2, low=0.3, high=1.0))
    r, theta = float(draw.uniform(1, low=0.5, high=2.0)), float(draw.uniform(1, low=0.3, high=1.2))

    def eigenvalues(theta: float) -> Tensor:
        point = r * torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)
        return torch.linalg.eigvalsh(hessian(lambda w: a * _tilt(w).cos() + b * (2 * _tilt(w)).cos(), point))

    slope, bend = -a * math.sin(theta) - 2 * b * math.sin(2 * theta), -a * math.cos(theta) - 4 * b * math.cos(2 * theta)
    low = (bend - math.sqrt(bend**2 + 4 * slope**2)) / (2 * r**2)
    yield equal("smaller eigenvalue in two dimensions", eigenvalues(theta)[0], predicted=low)
    turns = tuple(2 * math.pi * k / 36 for k in range(37))
    both = [eigenvalues(t) for t in turns]
    yield Curve(
        "Hessian eigenvalues of a loss that depends on the angle alone",
        "angle",
        "eigenvalue",
        turns,
        (
            ("smaller", tuple(float(v[0]) for v in both)),
            ("larger", tuple(float(v[1]) for v in both)),
            ("published for the radius", (0.0,) * len(turns)),
        ),
    )


def _tilt(w: Tensor) -> Tensor:
    return torch.atan2(w[1], w[0])


@claims.add(
    "Hcross",
    "section 3.2",
    Verdict.WRONG,
    "The Hessian does not couple an invariant direction with the others",
    "uᵀHw = −u·∇L for every u: the coupling is the gradient itself.",
)
def cross_terms(draw: Draw) -> Found:
    """uᵀHw for u along the gradient."""
    _, w, grad, H = _inner(draw)
    u = grad / size(grad)
    yield refutes("uᵀHw, u along the gradient", u @ H @ w, published=0.0)
    yield equal("uᵀHw, u along the gradient", u @ H @ w, predicted=-size(grad))


@claims.add(
    "6.negative",
    "section 6.1, stability",
    Verdict.HOLDS,
    "Normalization does not remove negative eigenvalues",
    "Away from critical points it forces one: λ_min ≤ (h − √(h² + 4‖g‖²/‖w‖²))/2 < 0 with h = ĝᵀHĝ.",
)
def forced_negative(draw: Draw) -> Found:
    """Smallest eigenvalue against the bound; in two dimensions it is equality."""
    for n, name in ((0, "any dimension"), (2, "two dimensions")):
        neuron, w = unit(draw, n=n)
        grad, H = gradient(neuron.loss, w), hessian(neuron.loss, w)
        u = grad / size(grad)
        h, pull = float(u @ H @ u), size(grad) / size(w)
        bound, lowest = (h - math.sqrt(h**2 + 4 * pull**2)) / 2, float(torch.linalg.eigvalsh(H)[0])
        if n == 2:
            yield equal(f"smallest eigenvalue, {name}", lowest, predicted=bound)
        else:
            yield below(f"smallest eigenvalue, {name}", lowest, predicted=bound)
    yield shown("it is negative", bound < 0)


@claims.add(
    "H6.1",
    "section 6.1",
    Verdict.WRONG,
    "With mean and variance held fixed, the Hessian of one batch-norm unit is the covariance of its inputs over σ²",
    "(γ²/q)(Σ − Σwwᵀ Σ/q), q = wᵀΣw, at an interpolating minimum: the statistics take out the direction Σw.",
)
def unit_hessian(draw: Draw) -> Found:
    """The dense Hessian against both forms."""
    neuron, w = unit(draw)
    H, probe = hessian(neuron.solved(w).loss, w), draw.normal(len(w), len(w))
    s, q = neuron.covariance, float(w @ neuron.covariance @ w)
    frozen = neuron.gamma**2 / q * s
    yield refutes("curvature along w", w @ H @ w / size(w) ** 2, published=float(w @ frozen @ w) / size(w) ** 2)
    right = neuron.gamma**2 / q * (s - torch.outer(s @ w, s @ w) / q)
    yield equal("Hessian against a random matrix", project(H, probe), predicted=project(right, probe), rel=1e-8)


@claims.add(
    "H6.1.rank",
    "section 6.1",
    Verdict.WRONG,
    "Near the optimum the Hessian of one unit is about of rank 1",
    "That is one sample. Over a batch its rank is rank(Σ) − 1.",
)
def unit_rank(draw: Draw) -> Found:
    """Number of nonzero eigenvalues."""
    neuron, w = unit(draw, n=draw.integer(3, 7))
    values = torch.linalg.eigvalsh(hessian(neuron.solved(w).loss, w))
    rank = int((values.abs() > 1e-9 * values[-1]).sum())
    yield refutes("rank of the Hessian", rank, published=1)
    yield equal("rank of the Hessian", rank, predicted=len(w) - 1)


@claims.add(
    "6.kappa",
    "sections 1.4 and 6",
    Verdict.LOOSE,
    "Away from its zeros, batch norm narrows the Hessian's spectrum and so improves the condition number",
    "For one unit at an interpolating minimum it cannot widen it: eigenvalues interlace. For w along an inner "
    "axis of Σ nothing is gained.",
)
def interlacing(draw: Draw) -> Found:
    """Eigenvalues with batch norm between those without; w along an inner axis keeps both ends."""
    neuron, w = unit(draw, n=draw.integer(3, 7))

    def spectra(w: Tensor) -> tuple[Tensor, Tensor]:
        scale = neuron.gamma**2 / float(w @ neuron.covariance @ w)
        return torch.linalg.eigvalsh(hessian(neuron.solved(w).loss, w))[1:], scale * torch.linalg.eigvalsh(
            neuron.covariance
        )

    after, before = spectra(w)
    yield below("condition number with batch norm", after[-1] / after[0], predicted=float(before[-1] / before[0]))
    yield below("largest shortfall below the next eigenvalue without", (before[:-1] - after).max(), predicted=0.0)
    yield below("largest excess over the same eigenvalue without", (after - before[1:]).max(), predicted=0.0)
    after, before = spectra(torch.linalg.eigh(neuron.covariance)[1][:, 1])
    yield equal(
        "condition number, w along an inner axis",
        after[-1] / after[0],
        predicted=float(before[-1] / before[0]),
        rel=1e-7,
    )


@claims.add(
    "6.max",
    "section 6",
    Verdict.GAUGE,
    "Normalization lowers the largest eigenvalue of the Hessian",
    "That number is a choice of scale: 1/c² at c·w with the same function. ‖w‖²λ_max is not.",
    backs=["normgauge.hessian.scale_free.scale_free"],
)
def largest_eigenvalue(draw: Draw) -> Found:
    """λ_max at two lengths of the same function, raw and times ‖w‖²."""
    neuron, w = unit(draw)
    c = float(draw.uniform(1, low=3.0, high=10.0))
    here, there = (float(torch.linalg.eigvalsh(hessian(neuron.loss, k * w))[-1]) for k in (1.0, c))
    yield moves("largest eigenvalue", here, there)
    yield equal("outputs at c·w", size(neuron.outputs(c * w)), predicted=size(neuron.outputs(w)))
    yield equal("‖w‖² times the largest eigenvalue", size(c * w) ** 2 * there, predicted=size(w) ** 2 * here)


@claims.add(
    "6.flat",
    "section 6.1, Hessian and generalization",
    Verdict.GAUGE,
    "Batch norm biases training to flat minima, seen in a smaller trace of the Hessian",
    "The trace moves by 1/c² with the function unchanged; a flat or a sharp minimum is the same network.",
)
def trace_moves(draw: Draw) -> Found:
    """Trace of the Hessian at the same minimum at two lengths."""
    neuron, w = unit(draw)
    neuron, c = neuron.solved(w), float(draw.uniform(1, low=3.0, high=10.0))
    here, there = (float(hessian(neuron.loss, k * w).trace()) for k in (1.0, c))
    yield moves("trace at the minimum", here, there)
    yield equal("loss there", neuron.loss(c * w), predicted=0.0, scale=1.0)
    yield equal("trace at c·w", there, predicted=here / c**2, rel=1e-8)


@claims.add(
    "6.decay",
    "section 6",
    Verdict.HOLDS,
    "With weight decay the flat directions get a small eigenvalue in place of 0",
    "λ, at a minimum of the loss. But loss and penalty together have no minimum: they fall along the ray to w = 0.",
)
def decay_eigenvalue(draw: Draw) -> Found:
    """Smallest eigenvalue with a penalty, and the objective along the ray."""
    neuron, w = unit(draw)
    neuron, decay = neuron.solved(w), 1e-4 * float(draw.uniform(1, low=0.5, high=2.0))

    def objective(w: Tensor) -> Tensor:
        return neuron.loss(w) + decay / 2 * w.square().sum()

    H = hessian(objective, w)
    yield equal("curvature along w", w @ H @ w / size(w) ** 2, predicted=decay, rel=1e-6)
    short = float(draw.uniform(1, low=0.05, high=0.5))
    yield equal("objective at a shorter w", objective(short * w), predicted=decay / 2 * short**2 * size(w) ** 2)


@claims.add(
    "6.sphere",
    "section 6.1",
    Verdict.LOOSE,
    "The Hessian on the sphere has the eigenvalues of the Hessian in space, without the radial one",
    "At critical points. Everywhere it is PHP with P = I − ŵŵᵀ, whose eigenvalues are others where ∇L ≠ 0.",
)
def sphere_hessian(draw: Draw) -> Found:
    """Second derivatives along great circles against PHP; spectra at a minimum and away from it."""
    neuron, w, _, H = _inner(draw)
    u, e = w / size(w), draw.normal(len(w))
    e = (e - u * (u @ e)) / size(e - u * (u @ e))
    turn = torch.zeros(1, dtype=torch.float64)
    bend = hessian(lambda t: neuron.loss(t.cos() * u + t.sin() * e), turn)
    yield equal(
        "second derivative along a great circle", float(bend), predicted=size(w) ** 2 * float(e @ H @ e), rel=1e-8
    )
    P = torch.eye(len(w), dtype=torch.float64) - torch.outer(u, u)
    solved = hessian(neuron.solved(w).loss, w)
    inside, space = torch.linalg.eigvalsh(P @ solved @ P), torch.linalg.eigvalsh(solved)
    yield equal("spectrum at a minimum", size(inside - space), predicted=0.0, scale=size(space))
    yield shown(
        "another spectrum elsewhere", size(torch.linalg.eigvalsh(P @ H @ P) - torch.linalg.eigvalsh(H)) > 1e-6 * size(H)
    )


@claims.add(
    "6.origin",
    "section 6.1, stability",
    Verdict.WRONG,
    "Batch norm removes the saddle of a two-layer linear network at zero weights",
    "With ε > 0 the gradient there is still 0; the saddle is only steeper, by 1/√ε: λ_min = −‖cov(x, y)‖/√ε.",
)
def saddle_at_zero(draw: Draw) -> Found:
    """Gradient and smallest eigenvalue of a one-unit batch-norm linear network at the origin."""
    n, k, m, eps = draw.integer(2, 5), draw.integer(1, 4), 12, float(draw.uniform(1, low=1e-4, high=1e-1))
    x, y = draw.normal(m, n), draw.normal(m, k)
    zero = torch.zeros(n + k, dtype=torch.float64)

    def loss(flat: Tensor) -> Tensor:
        w, head = split(flat, (x[0], y[0]))
        return 0.5 * (standardize(x @ w, eps)[:, None] * head - y).square().sum(1).mean()

    lowest = float(torch.linalg.eigvalsh(hessian(loss, zero))[0])
    cross = (x - x.mean(0)).T @ y / m
    yield refutes("smallest eigenvalue at zero weights", lowest, published=0.0)
    yield equal("gradient at zero weights", size(gradient(loss, zero)), predicted=0.0, scale=1.0)
    yield equal("smallest eigenvalue", lowest, predicted=-float(torch.linalg.matrix_norm(cross, 2)) / math.sqrt(eps))


@claims.add(
    "6.zero",
    "section 6",
    Verdict.HOLDS,
    "Invariances make the Hessian singular at a minimum: the solution is not unique along them",
    "One zero a unit at a minimum, in w; moving along it changes no output.",
)
def singular(draw: Draw) -> Found:
    """Zero eigenvalues of two units at their common minimum."""
    n = draw.integer(2, 4)
    x, start = draw.normal(40, 2 * n), draw.normal(2 * n)

    def outputs(flat: Tensor) -> Tensor:
        return standardize(x[:, :n] @ flat[:n]) + standardize(x[:, n:] @ flat[n:])

    target = outputs(start)
    values = torch.linalg.eigvalsh(hessian(lambda p: (outputs(p) - target).square().mean(), start))
    yield equal("zero eigenvalues", int((values.abs() < 1e-9 * values[-1]).sum()), predicted=2)
    moved = flatten(3 * start[:n], start[n:] / 5)
    yield equal("outputs along them", size(outputs(moved)), predicted=size(target))
