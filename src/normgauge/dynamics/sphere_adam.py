"""Adam on the sphere: one second moment a vector, so that no coordinate is special."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from normgauge.dynamics.optimizer import Group, SphereOptimizer, State
from normgauge.dynamics.sphere import Walk, tangent, walk
from normgauge.errors import InputError
from normgauge.symmetry.groups import ScaleFree


class SphereAdam(SphereOptimizer):
    """Adam on the unit sphere for scale-free vectors, ``torch.optim.AdamW`` for the rest.

    g = (I − ûûᵀ)‖w‖∇L(w),  m ← β₁·(m carried along) + (1−β₁)g,  v ← β₂v + (1−β₂)‖g‖²,
    û ← walk(û, −lr·m̂/(√v̂ + eps)),  m̂ and v̂ corrected for their start at 0

    v is one number a vector: dividing coordinate by coordinate would leave the tangent space and depend on the axes.
    A step turns a vector by about ``sphere_lr`` radians.

    Holds:  for vectors the loss does not see the norm of.
    Source: G. Bécigneul & O. Ganea, "Riemannian adaptive optimization methods" 2019, with each vector a factor.

    Args:
        named_parameters: ``model.named_parameters()``.
        groups: the scale-free groups.
        lr: learning rate of the other parameters.
        sphere_lr: that of the scale-free ones, in radians; ``lr`` if None.
        betas: decay rates of the two averages.
        eps: added to √v̂.
        weight_decay: decoupled, for the other parameters.
        walk: "exponential" or "projection", as `normgauge.dynamics.sphere.walk` describes them.

    Raises:
        InputError: for a name that is unknown, in two groups or partly frozen, a vector of norm zero, an option out of
            range.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        groups: Sequence[ScaleFree],
        lr: float = 1e-3,
        *,
        sphere_lr: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        walk: Walk = "exponential",
    ) -> None:
        if not (all(0 <= beta < 1 for beta in betas) and eps >= 0):
            raise InputError(f"expected betas in [0, 1) and eps >= 0; got betas={betas!r}, eps={eps!r}.")
        super().__init__(
            named_parameters, groups, sphere_lr=sphere_lr, walk=walk,
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
        )  # fmt: skip

    def _turn(self, group: Group, u: Tensor, g: Tensor, rate: Tensor, state: State) -> Tensor:
        g = tangent(u, g)
        heading = self._heading(group, g, g.square().sum(1, keepdim=True), state)
        moved, state["exp_avg"] = walk(u, -rate * heading, state["exp_avg"], group["walk"])
        return moved

    def _plain(self, group: Group, p: Tensor, g: Tensor, state: State) -> None:
        heading = self._heading(group, g, g.square(), state)
        p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(heading, alpha=group["lr"])

    def _heading(self, group: Group, g: Tensor, squared: Tensor, state: State) -> Tensor:
        first, second = group["betas"]
        for name, value, beta in (("exp_avg", g, first), ("exp_avg_sq", squared, second)):
            state[name] = state.get(name, torch.zeros_like(value)).lerp(value, 1 - beta)
        state["step"] = state.get("step", 0) + 1
        mean = state["exp_avg"] / (1 - first ** state["step"])
        return mean / ((state["exp_avg_sq"] / (1 - second ** state["step"])).sqrt() + group["eps"])
