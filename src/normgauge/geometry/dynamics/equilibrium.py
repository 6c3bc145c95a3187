"""Where weight decay and turning balance: norm, angle a step and effective learning rate of a scale-free vector.

Decay shrinks w; a step across w lengthens it. Where the two cancel, ‖w‖ stays and the angle a step takes follows from
the optimizer's settings alone. Each prediction is a balance of second moments E‖w‖², E w·m, E‖m‖² (m the momentum) in
the stationary state; ``benchmarks/dynamics.py`` holds them against trained networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normgauge.core.errors import InputError

NEWTON_STEPS = 100  # far more than the quadratic convergence needs
DOUBLINGS = 500  # most doublings or halvings in search of a bracket: 150 decades either way


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


@dataclass(frozen=True, slots=True)
class CoupledEquilibrium(Equilibrium):
    """An `Equilibrium` that also says where each coordinate settles.

    Attributes:
        coordinates: root mean square of each w_i.
    """

    coordinates: tuple[float, ...]


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
    check_settings(lr, decay, beta1, size=size, update=1.0 if update is None else update)
    update = math.sqrt((1 - beta1) / (1 + beta1)) if update is None else update
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


def adam_equilibrium(lr: float, decay: float, gradients: Sequence[float], *, beta1: float = 0.9) -> CoupledEquilibrium:
    """Equilibrium under ``torch.optim.Adam(weight_decay=λ)``: m, v average g + λw and its square, w ← w − ηm̂/√v̂.

    With G_i = ‖w‖·rms(g_i), s_i = √v_i, κ = (1−β₁)/(1+β₁), for every coordinate
    s_i² = G_i²/‖w‖² + λ²a_i,  a_i = E w_i² = (G_i²/‖w‖²) / (2λs_i/η − κλ²),  Σa_i = ‖w‖²
    While the decay is the smaller part of the gradient (ηλ‖w‖ ≪ G_i): a_i = ηG_i/(2λ‖w‖), ‖w‖³ = ηΣG_i/2λ.
    cos θ = 1 − ηλκ·Σ(a_i/s_i)/‖w‖²,  so θ ≈ η√(κn)/‖w‖;  η_eff = η/‖w‖

    What it means. A coordinate decays at the rate ηλ/s_i: slowest where gradients are large. So w_i² ∝ G_i, against
    w_i² ∝ G_i² under SGD and all alike under AdamW. As G falls in the course of a training, AdamW holds ‖w‖ = √(ηn/2λ);
    here ‖w‖ falls as G^(1/3) and the angle a step grows: the norms go the other way. Where the decay outweighs the
    gradient (λ|w_i| ≫ G_i/‖w‖) its size cancels: w_i moves to zero by η a step, whatever λ is.

    Holds:  if each g_i has mean zero given w and the past (noise larger than the slope), v is slow, √v ≫ eps. Scale
            freedom alone gives Σg_iw_i = 0, not Σg_iw_i/s_i = 0.
    Time:   1/(3ηλ·⟨1/s⟩) steps with ⟨1/s⟩ = Σ(a_i/s_i)/Σa_i; exact for equal G_i.
    Source: the momentum balance of `sgd_equilibrium` with the rate η(1−β₁)/s_i and E‖g‖² per coordinate; coupling as
            such: I. Loshchilov & F. Hutter, "Decoupled weight decay regularization" 2019.

    Args:
        lr: learning rate η.
        decay: weight decay λ in the gradient.
        gradients: G_i, the scale-free gradient of each coordinate, root mean square over steps; zeros are coordinates
            that decay to zero.
        beta1: decay rate of the first average.

    Returns:
        The equilibrium.

    Raises:
        InputError: if an argument is out of range or no equilibrium exists.
    """
    check_settings(lr, decay, beta1)
    if not gradients or not all(0 <= g < math.inf for g in gradients) or max(gradients) == 0:
        raise InputError(
            "expected one gradient >= 0 a coordinate, finite and not all zero; without any, w decays to zero."
        )
    kappa = (1 - beta1) / (1 + beta1)

    def excess(norm: float) -> float:  # Σa_i falls as ‖w‖ grows
        return norm**2 - sum(a for a, _ in _coordinates(lr, decay, gradients, kappa, norm))

    norm = increasing_root(excess, 0.0, (lr * sum(gradients) / (2 * decay)) ** (1 / 3))
    pairs = _coordinates(lr, decay, gradients, kappa, norm)
    pull = sum(a / s for a, s in pairs if a) / sum(a for a, _ in pairs)  # ⟨1/s⟩
    turned = min(2.0, lr * decay * kappa * pull)
    sizes = tuple(math.sqrt(a) for a, _ in pairs)
    return CoupledEquilibrium(norm, math.acos(1 - turned), lr / norm, 1 / (3 * lr * decay * pull), sizes)


def _coordinates(
    lr: float, decay: float, gradients: Sequence[float], kappa: float, norm: float
) -> list[tuple[float, float]]:
    """(a_i, s_i) of every coordinate for a given norm."""
    return [_settled(lr, decay, (g / norm) ** 2, kappa) for g in gradients]


def _settled(lr: float, decay: float, kicks: float, kappa: float) -> tuple[float, float]:
    """The root s of s² = N(1 + λ²/(2λs/η − κλ²)) and a = N/(2λs/η − κλ²), by Newton from above."""
    if kicks == 0:
        return 0.0, 0.0
    half = lr * decay / 2
    s = math.sqrt(kicks) + 2 * half
    for _ in range(NEWTON_STEPS):
        room = s - half * kappa
        value, slope = s * s - kicks * (1 + half / room), 2 * s + kicks * half / room**2
        s, before = s - value / slope, s
        if abs(s - before) <= 1e-15 * s:
            break
    return kicks * lr / (2 * decay * (s - half * kappa)), s


def check_settings(lr: float, decay: float, beta1: float = 0.0, **positive: float) -> None:
    """Refuse settings that have no equilibrium.

    Args:
        lr: learning rate.
        decay: weight decay.
        beta1: decay rate of an average.
        **positive: other numbers that must be positive.

    Raises:
        InputError: if a number is not positive and finite, or no rate.
    """
    if not 0 <= beta1 < 1:
        raise InputError(f"expected beta1 in [0, 1); got {beta1!r}.")
    if decay == 0:
        raise InputError("decay=0: without weight decay the norm of a scale-free vector only grows; no equilibrium.")
    wrong = {name: value for name, value in {"lr": lr, "decay": decay, **positive}.items() if not 0 < value < math.inf}
    if wrong:
        raise InputError(f"expected positive finite numbers; got {', '.join(f'{k}={v!r}' for k, v in wrong.items())}.")


def increasing_root(function: Callable[[float], float], low: float, guess: float) -> float:
    """The x > ``low`` with function(x) = 0, by doubling and halving.

    >>> round(increasing_root(lambda x: x**3 - 2, 0.0, 1.0), 12)
    1.259921049895

    Args:
        function: negative just above ``low``, positive from its one root on.
        low: where the search begins; not itself evaluated.
        guess: how far above ``low`` the root may be; the nearer, the faster.

    Returns:
        The root, to rounding.

    Raises:
        InputError: if no change of sign is found.
    """
    width = guess
    factor = 0.5 if function(low + width) >= 0 else 2.0
    for _ in range(DOUBLINGS):
        width *= factor
        if (function(low + width) >= 0) is (factor > 1):
            break
    else:
        raise InputError("no equilibrium: nothing balances the growth of the norm for these settings.")
    low, high = low + min(width, width / factor), low + max(width, width / factor)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return high
