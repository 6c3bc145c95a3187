"""Where weight decay and turning balance: norm, angle a step and effective learning rate of a scale-free vector.

Decay shrinks w; a step across w lengthens it. Where the two cancel, ‖w‖ stays and the angle a step takes follows from
the optimizer's settings alone. Each prediction is a balance of second moments E‖w‖², E w·m, E‖m‖² (m the momentum) in
the stationary state; ``benchmarks/dynamics.py`` holds them against trained networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from normgauge.dynamics.roots import increasing_root
from normgauge.errors import InputError


@dataclass(frozen=True, slots=True)
class Equilibrium:
    """What a scale-free vector settles at.

    Attributes:
        norm: root mean square of ‖w‖.
        angle: radians a step, root mean square; arccos of E w·w'/E‖w‖².
        effective_lr: how far ŵ moves in all, in radians, for one unit of what drives it: of scale-free gradient
            ‖w‖‖∇L‖ for SGD, of the normalized gradient for Adam and AdamW.
        time_constant: steps in which a small deviation of ‖w‖² falls to 1/e.
    """

    norm: float
    angle: float
    effective_lr: float
    time_constant: float


def sgd_equilibrium(
    lr: float,
    decay: float,
    gradient: float,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    radial: float = 0.0,
) -> Equilibrium:
    """Equilibrium under ``torch.optim.SGD``: v ← αv + (1−d)(g + λw), w ← w − ηv.

    With η' = η(1−d), x = η'λ, ‖g‖ = G/‖w‖:
    ‖w‖⁴ = η'G² / ((1−α)(2λ − xλ/(1+α))),  cos θ = 1 − x/(1+α),  so θ ≈ √(2ηλ/(1+α)),  η_eff = η'/((1−α)‖w‖²)
    Nesterov (w ← w − η(g + λw + αv), d = 0), D = 1 + α + αx(1+2α):
    ‖w‖⁴ = ηG²D / (λ(1−α+αx)(2+2α−x(1+2α))),  1 − cos θ = x(1 + 2α − 2α³ + αx(1+α)(1+2α))/D
    ε leaves a radial gradient R = E w·g that acts as decay: λ + R/‖w‖² for λ and G² − R² for G² above.

    >>> settled = sgd_equilibrium(lr=0.1, decay=0.05, gradient=1.0)
    >>> round(settled.norm, 6), round(settled.angle, 6)
    (1.000626, 0.100042)

    Holds:  R = 0 for a scale-free loss at ε = 0. α = 0: nothing more is assumed; E‖w‖⁴ follows the mean of G². α > 0:
            the angle needs nothing more either; the norm needs new gradients uncorrelated with the momentum, E g·v = 0
            (mini-batch noise larger than the slope). Otherwise put G²(1 + 2αc) for G², c = E g·v/E‖g‖².
    Time:   (1−α)/(4η'λ) steps near the equilibrium where that is many times 1/(1−α); twice that for ‖w‖² while it falls
            from far above.
    Source: THEORY 12; R. Wan et al., "Spherical motion dynamics" arXiv 2006.08419 for θ with momentum. The rest is the
            fixed point of A = E‖w‖², B = E w·v, C = E‖v‖²: B = −λA/(1+α), C = 2λA/(η'(1+α)) and
            C(1−α²) = E‖g‖² + λ²A(1−α)/(1+α).

    Args:
        lr: learning rate η.
        decay: weight decay λ.
        gradient: scale-free gradient G = ‖w‖‖∇L‖, root mean square over steps.
        momentum: α.
        dampening: d, 0 as is usual in torch.
        nesterov: whether the step looks ahead.
        radial: R, mean of w·∇L over steps, as `RadialIdentity` predicts it; 0 for ε = 0.

    Returns:
        The equilibrium.

    Raises:
        InputError: if an argument is out of range or no equilibrium exists.
    """
    check_settings(lr, decay, gradient=gradient)
    if not (0 <= momentum < 1 and 0 <= dampening < 1) or (nesterov and dampening):
        raise InputError(
            f"expected momentum and dampening in [0, 1), no dampening with nesterov; got {momentum!r}, {dampening!r}."
        )
    if not abs(radial) < gradient:
        raise InputError(f"expected |radial| < gradient, a part of the whole; got {radial!r} and {gradient!r}.")
    lr *= 1 - dampening

    def excess(squared: float) -> float:
        x = lr * (decay + radial / squared)
        kicks, _ = _balance(x, momentum, nesterov)
        return x * kicks * squared**2 - lr**2 * (gradient**2 - radial**2)

    squared = increasing_root(
        excess, max(0.0, -radial / decay), gradient * math.sqrt(lr / (2 * decay * (1 - momentum)))
    )
    x = lr * (decay + radial / squared)
    _, turned = _balance(x, momentum, nesterov)
    rate = lr / (1 - momentum)
    time = 1 / (2 * rate * decay + 2 * x / (1 - momentum))
    return Equilibrium(math.sqrt(squared), math.acos(1 - turned), rate / squared, time)


def _balance(x: float, a: float, nesterov: bool) -> tuple[float, float]:
    """η²‖g‖²/(x‖w‖²) and 1 − cos θ in the stationary state; x = ηλ, a the momentum."""
    if nesterov:
        shared = 1 + a + a * x * (1 + 2 * a)
        kicks = (1 - a + a * x) * (2 + 2 * a - x * (1 + 2 * a)) / shared
        return kicks, x * (1 + 2 * a - 2 * a**3 + a * x * (1 + a) * (1 + 2 * a)) / shared
    return (1 - a) * (2 - x / (1 + a)), x / (1 + a)


def adamw_equilibrium(
    lr: float, decay: float, size: int, *, beta1: float = 0.9, update: float | None = None, radial: float = 0.0
) -> Equilibrium:
    """Equilibrium under ``torch.optim.AdamW``: w ← kw − ηu, k = 1−ηλ, u = m̂/√v̂.

    ‖w‖² = (η²nU²(1+β₁k) − 2ηk(1−β₁)R) / ((1−k²)(1−β₁k)),  U the root mean square of a coordinate of u
    U² = (1−β₁)/(1+β₁) for gradients that are noise. With R = 0:
    ‖w‖² ≈ ηn/2λ, free of the gradient;  cos θ = (k+β₁)/(1+kβ₁), so θ ≈ √(2ηλ(1−β₁)/(1+β₁));  η_eff = η/‖w‖

    >>> settled = adamw_equilibrium(lr=0.001, decay=0.1, size=1000)
    >>> round(settled.norm, 3), round(settled.angle, 6)
    (2.235, 0.003245)

    Holds:  if normalized gradients g/√v̂ are uncorrelated in time, √v̂ ≫ eps and v̂ slow. R = E w·(g/√v̂) is 0 if they have
            mean zero given w, or all v̂_i are alike. Scale freedom alone gives w·g = 0, and dividing by √v̂_i breaks it:
            leaving R out cost 17 % of the norm on a network with noisy labels (benchmarks/dynamics.py).
    Time:   1/(2ηλ) steps; the decay does not notice the gradient.
    Source: A. Kosson, B. Messmer & M. Jaggi, "Rotational equilibrium" arXiv 2305.17212 for the leading order; here the
            fixed point of C = E‖u‖², E w·u, E‖w‖² is kept to all orders in ηλ:
            E w·u = (β₁(−ηC + k(1−β₁)R)/(1−β₁k)) + (1−β₁)R.

    Args:
        lr: learning rate η.
        decay: weight decay λ.
        size: number n of coordinates that get a gradient.
        beta1: decay rate of the first average.
        update: measured root mean square U; None for that of noise.
        radial: R, measured mean of w·(g/√v̂).

    Returns:
        The equilibrium.

    Raises:
        InputError: if an argument is out of range or no equilibrium exists.
    """
    if not 0 <= beta1 < 1:
        raise InputError(f"expected beta1 in [0, 1); got {beta1!r}.")
    update = math.sqrt((1 - beta1) / (1 + beta1)) if update is None else update
    check_settings(lr, decay, size=size, update=update)
    if lr * decay >= 1:
        raise InputError(f"expected lr·decay < 1; got {lr * decay:g}: the decay alone would turn the vector round.")
    k = 1 - lr * decay
    kicks = size * update**2
    along = beta1 * (k * (1 - beta1) * radial - lr * kicks) / (1 - beta1 * k) + (1 - beta1) * radial  # E w·u
    squared = (lr**2 * kicks - 2 * lr * k * along) / (1 - k * k)
    if not squared > 0:
        raise InputError(f"no equilibrium: radial={radial!r} pulls inwards more than the updates push outwards.")
    norm, cosine = math.sqrt(squared), k - lr * along / squared
    return Equilibrium(norm, math.acos(min(1.0, max(-1.0, cosine))), lr / norm, 1 / (2 * lr * decay))


def check_settings(lr: float, decay: float, **positive: float) -> None:
    """Refuses settings without an equilibrium.

    Args:
        lr: learning rate.
        decay: weight decay.
        **positive: other numbers that must be positive.

    Raises:
        InputError: if a number is not positive and finite.
    """
    if decay == 0:
        raise InputError("decay=0: without weight decay the norm of a scale-free vector only grows; no equilibrium.")
    wrong = {name: value for name, value in {"lr": lr, "decay": decay, **positive}.items() if not 0 < value < math.inf}
    if wrong:
        raise InputError(f"expected positive finite numbers; got {', '.join(f'{k}={v!r}' for k, v in wrong.items())}.")
