"""Claims of Than 2025 on the cost of training: Corollaries 18 and 19."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normgauge.core.claim import Curve, Finding, Verdict
from normgauge.ledger.claim import Family, below, equal, moves, refutes
from normgauge.ledger.draw import Draw
from normgauge.ledger.jacobians import jacobian, norm
from normgauge.ledger.than_training import goldstein_rate, goldstein_steps

claims = Family("T", "Than 2025")


def _net(weights: list[Tensor], x: Tensor) -> Tensor:
    for w in weights:
        x = torch.relu(w @ x)
    return x


@claims.add(
    "C18",
    "Corollary 18",
    Verdict.WRONG,
    "Any generalized-gradient method needs at least s_{i+1}…s_K/α steps to make W_i α-stationary in an "
    "unnormalized net.",
    "A worst case over a class says nothing of one loss: with dead ReLUs the start is stationary, 0 steps.",
)
def c18(draw: Draw) -> Iterator[Finding | Curve]:
    """A net of any s whose first layer is dead at every sample; and one that a single step solves."""
    k, n, alpha = draw.integer(3, 6), draw.integer(3, 7), 1e-3
    x = draw.normal(n).abs()
    weights = [draw.normal(n, n) for _ in range(k)]
    weights[0] = -weights[0].abs()
    tensors = [w.clone().requires_grad_() for w in weights]
    grads = torch.autograd.grad((_net(tensors, x) - 1).abs().sum(), tensors)
    size = math.sqrt(sum(float(g.square().sum()) for g in grads))
    product = math.prod(norm(w) for w in weights[1:])
    yield equal("gradient at a dead start", size, predicted=0.0, scale=1.0)
    yield refutes(
        "steps taken: the start is α-stationary for every layer", float(size > alpha), published=product / alpha
    )
    yield from _one_step([w.abs() for w in weights[:-1]], draw.normal(n), x)


def _one_step(features: list[Tensor], target: Tensor, x: Tensor) -> Iterator[Finding]:
    """½‖V h − t‖² with h from layers of any norm: one gradient step in V of size 1/‖h‖² ends training."""
    h = _net(features, x)
    tensors = [torch.zeros(len(target), len(h), dtype=torch.float64).requires_grad_()]
    (grad,) = torch.autograd.grad(0.5 * (tensors[0] @ h - target).square().sum(), tensors)
    head = (tensors[0] - grad / (h @ h)).detach().requires_grad_()
    layers = [w.clone().requires_grad_() for w in features]
    after = torch.autograd.grad(0.5 * (head @ _net(layers, x) - target).square().sum(), [head, *layers])
    left = max(float(g.abs().max()) for g in after)
    yield equal("gradient of all layers after one step in the head", left, predicted=0.0, scale=float(grad.norm()))


@claims.add(
    "C18.depth",
    "text after Corollary 18",
    Verdict.WRONG,
    "Since s_{i+1}…s_K shrinks with i, deeper layers need fewer iterations.",
    "The size of the layer's input was dropped; it is s_1…s_{i−1}‖x‖ at worst, so that every layer has "
    "‖x‖·Π_{j≠i} s_j.",
)
def c18_depth(draw: Draw) -> Iterator[Finding | Curve]:
    """W_k = s_k·I at a positive input: the derivative in W_i, by autograd, layer by layer."""
    k, n = draw.integer(3, 6), draw.integer(2, 5)
    s, x = draw.uniform(k, low=1.5, high=3.0), draw.uniform(n, low=0.5, high=2.0)
    weights = [float(a) * torch.eye(n, dtype=torch.float64) for a in s]
    found = []
    for i in range(k):

        def in_layer(w: Tensor, i: int = i) -> Tensor:
            return _net([*weights[:i], w, *weights[i + 1 :]], x)

        found.append(norm(jacobian(in_layer, weights[i])))
        predicted = float(x.norm()) * math.prod(float(a) for j, a in enumerate(s) if j != i)
        yield equal(f"constant in W_{i + 1}", found[-1], predicted=predicted)
    yield refutes(
        "constant in the first layer over that in the last", found[0] / found[-1], published=float(s[1:].prod())
    )
    tail = [float(s[i + 1 :].prod()) for i in range(k)]
    yield Curve(
        "Constant of the output in each layer's weights",
        "layer",
        "constant",
        tuple(range(1, k + 1)),
        (("measured", tuple(found)), ("s_{i+1}…s_K", tuple(tail))),
        log_y=True,
    )


def _scale_free_loss(w: Tensor, x: Tensor, target: Tensor) -> Tensor:
    z = x @ w
    return ((z - z.mean()) / z.var(correction=0).sqrt() - target).square().mean()


@claims.add(
    "C18.gauge",
    "Corollary 18, α-stationarity",
    Verdict.GAUGE,
    "How long training takes is measured by when ‖∇L‖ falls below α.",
    "Where a normalizer follows, ∇L(cw) = ∇L(w)/c: any α is reached by growing w. ‖w‖·‖∇L‖ does not move.",
    backs=("normgauge.core.ratios.ratios",),
)
def c18_gauge(draw: Draw) -> Iterator[Finding | Curve]:
    """One batch-normalized unit, its weights multiplied by c."""
    m, n = draw.integer(8, 20), draw.integer(3, 7)
    x, w, target = draw.normal(m, n), draw.normal(n), draw.normal(m)
    c = float(draw.uniform(1, low=3.0, high=100.0))
    loss, after = (_scale_free_loss(v, x, target) for v in (w, c * w))
    grad, scaled = (jacobian(lambda v: _scale_free_loss(v, x, target), v) for v in (w, c * w))
    yield equal("loss after w → c·w", float(after), predicted=float(loss))
    yield moves("‖∇L‖ after w → c·w", float(grad.norm()), float(scaled.norm()))
    yield equal("the same, times c", c * float(scaled.norm()), predicted=float(grad.norm()))
    yield equal("‖w‖·‖∇L‖", float((c * w).norm() * scaled.norm()), predicted=float(w.norm() * grad.norm()))


def _normalized(weights: list[Tensor], sigmas: list[Tensor], y: Tensor) -> Tensor:
    """From y_i to the output: eval-mode normalizers with the σ given, then the layers behind."""
    y = torch.relu(y / sigmas[0])
    for w, sigma in zip(weights, sigmas[1:], strict=True):
        y = torch.relu(w @ y / sigma)
    return y


@claims.add(
    "C19.exponent",
    "Corollary 19",
    Verdict.HOLDS,
    "Normalizers of common constant 1/σ shrink the constant in layer i by σ^(−K+i−1).",
    "There are K−i+1 normalizers from layer i on, and the ratio is attained; for σ < 1 it is an increase.",
    backs=("normgauge.core.ratios.ratios",),
)
def c19_exponent(draw: Draw) -> Iterator[Finding | Curve]:
    """Jacobians of W_k = s_k·I nets behind y_i, with σ and without."""
    k, n = draw.integer(3, 7), draw.integer(2, 5)
    i, sigma = draw.integer(1, k), float(draw.uniform(1, low=0.3, high=3.0))
    weights = [float(a) * torch.eye(n, dtype=torch.float64) for a in draw.uniform(k - i, low=0.5, high=2.0)]
    y, ones = draw.uniform(n, low=0.5, high=2.0), torch.ones(n, dtype=torch.float64)
    plain = norm(jacobian(lambda v: _normalized(weights, [ones] * (k - i + 1), v), y))
    found = norm(jacobian(lambda v: _normalized(weights, [sigma * ones] * (k - i + 1), v), y))
    yield equal("constant behind y_i, with over without normalizers", found / plain, predicted=sigma ** (-k + i - 1))


@claims.add(
    "C19.sigma",
    "Corollary 19 with the σ of Corollary 10",
    Verdict.LOOSE,
    "σ = min_k 1/‖1/σ_k‖₂, the Euclidean norm over channels, gives the factor σ^(−K+i−1).",
    "max_c 1/σ_{k,c} in its place: with n equal channels the printed factor is n^((K−i+1)/2) too large.",
)
def c19_sigma(draw: Draw) -> Iterator[Finding | Curve]:
    """The same nets with one σ a channel; the true factor against the printed one."""
    k, n = draw.integer(3, 6), draw.integer(3, 7)
    i = draw.integer(1, k)
    count = k - i + 1
    y = draw.uniform(n, low=0.5, high=2.0)
    weights = [torch.eye(n, dtype=torch.float64)] * (count - 1)
    sigmas = [draw.uniform(n, low=0.5, high=2.0) for _ in range(count)]
    found = norm(jacobian(lambda v: _normalized(weights, sigmas, v), y))
    printed = max(float((1 / s).norm()) for s in sigmas) ** count
    yield below("constant behind y_i", found, predicted=max(float((1 / s).max()) for s in sigmas) ** count)
    yield below("the same, against the printed factor", found, predicted=printed, published=printed)
    even = [torch.full((n,), float(sigmas[0][0]), dtype=torch.float64)] * count
    tight = norm(jacobian(lambda v: _normalized(weights, even, v), y))
    loose = float((1 / even[0]).norm()) ** count
    yield equal("printed over true, equal channels", loose / tight, predicted=n ** (count / 2))


@claims.add(
    "C19",
    "Corollary 19",
    Verdict.WRONG,
    "Stationary points of W_i cost s_{i+1}…s_K/α² evaluations without normalizers, σ^(−K+i−1) times that with them.",
    "Only the ratio of the two constants to the power 1 or 2 can be said, for a class of functions and the "
    "same Δ, δ, α.",
    backs=("normgauge.core.ratios.ratios",),
)
def c19(draw: Draw) -> Iterator[Finding | Curve]:
    """Plain and normalized slope with the same Δ and δ: steps counted, α the constant of each."""
    slope, sigma = float(draw.uniform(1, low=0.5, high=2.0)), float(draw.uniform(1, low=1.3, high=2.0))
    count, delta = draw.integer(2, 4), float(draw.uniform(1, low=0.001, high=0.002))
    other = slope * sigma**-count
    alpha = other / 2
    plain, flat = (goldstein_steps(a, 1 / a, delta) for a in (slope, other))
    yield refutes("steps down the same Δ to the same α, with over without", flat / plain, published=other / slope)
    yield equal("the same: the flatter slope takes more steps", flat / plain, predicted=slope / other, rel=0.02)
    law, flat_law = (goldstein_rate(a, 1.0, delta, alpha) for a in (slope, other))
    yield below("steps, against the law of the class", plain, predicted=law)
    yield below("steps with normalizers, against the law of the class", flat, predicted=flat_law)
    yield equal(
        "worst cases, with over without: the ratio to the power 2", flat_law / law, predicted=sigma ** (-2 * count)
    )
