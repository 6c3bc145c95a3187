"""Gradient descent on the sphere, with momentum that is carried along."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from normgauge.dynamics.optimizer import Group, SphereOptimizer, State
from normgauge.dynamics.sphere import Walk, tangent, walk
from normgauge.errors import InputError
from normgauge.symmetry.groups import ScaleFree


class SphereSGD(SphereOptimizer):
    """SGD on the unit sphere for scale-free vectors, ``torch.optim.SGD`` for the rest.

    û ← walk(û, −lr·m),  m ← momentum·(m carried along) + (I − ûûᵀ)‖w‖∇L(w)

    ``sphere_lr`` is an effective learning rate: SGD with rate η and no decay moves ŵ as this does with η/‖w‖² (exactly
    with walk="projection", to third order in the angle otherwise). ``param_groups[i]["lr"]`` may hold one rate a
    row, as a tensor. Decay does nothing to a direction and applies to the other parameters alone.

    Holds:  for vectors the loss does not see the norm of; with momentum 0, at ε = 0.
    Source: S. Bonnabel, "Stochastic gradient descent on Riemannian manifolds" 2013; M. Cho & J. Lee, "Riemannian
            approach to batch normalization" 2017.

    Args:
        named_parameters: ``model.named_parameters()``.
        groups: the scale-free groups.
        lr: learning rate of the other parameters.
        sphere_lr: that of the scale-free ones, in radians over ‖w‖‖∇L‖; ``lr`` if None.
        momentum: for both.
        weight_decay: for the other parameters.
        walk: "exponential" or "projection", as `normgauge.dynamics.sphere.walk` describes them.

    Raises:
        InputError: for a name that is unknown, in two groups or partly frozen, a vector of norm zero, an option out of
            range.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        groups: Sequence[ScaleFree],
        lr: float = 1e-2,
        *,
        sphere_lr: float | None = None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        walk: Walk = "exponential",
    ) -> None:
        if not 0 <= momentum < 1:
            raise InputError(f"expected momentum in [0, 1); got {momentum!r}.")
        super().__init__(
            named_parameters, groups, sphere_lr=sphere_lr, walk=walk,
            lr=lr, momentum=momentum, weight_decay=weight_decay,
        )  # fmt: skip

    def _turn(self, group: Group, u: Tensor, g: Tensor, rate: Tensor, state: State) -> Tensor:
        heading = self._averaged(group, tangent(u, g), state)
        moved, carried = walk(u, -rate * heading, heading, group["walk"])
        if group["momentum"]:
            state["momentum_buffer"] = carried
        return moved

    def _plain(self, group: Group, p: Tensor, g: Tensor, state: State) -> None:
        heading = self._averaged(group, g + group["weight_decay"] * p, state)
        if group["momentum"]:
            state["momentum_buffer"] = heading
        p.sub_(heading, alpha=group["lr"])

    def _averaged(self, group: Group, g: Tensor, state: State) -> Tensor:
        return group["momentum"] * state["momentum_buffer"] + g if "momentum_buffer" in state else g
