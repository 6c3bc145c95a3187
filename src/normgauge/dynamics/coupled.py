"""Adam with the decay inside the gradient: the adaptive denominator divides the decay too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from normgauge.dynamics.equilibrium import Equilibrium, check_settings
from normgauge.dynamics.roots import increasing_root
from normgauge.errors import InputError

NEWTON_STEPS = 100
"""Far more than the quadratic convergence needs."""


@dataclass(frozen=True, slots=True)
class CoupledEquilibrium(Equilibrium):
    """As `Equilibrium`, with what each coordinate settles at.

    Attributes:
        coordinates: root mean square of each w_i.
    """

    coordinates: tuple[float, ...]


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
    _check(lr, decay, gradients, beta1)
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


def _check(lr: float, decay: float, gradients: Sequence[float], beta1: float) -> None:
    check_settings(lr, decay)
    if not 0 <= beta1 < 1:
        raise InputError(f"expected beta1 in [0, 1); got {beta1!r}.")
    if not gradients or not all(0 <= g < math.inf for g in gradients) or max(gradients) == 0:
        raise InputError(
            "expected one gradient >= 0 a coordinate, finite and not all zero; without any, w decays to zero."
        )
