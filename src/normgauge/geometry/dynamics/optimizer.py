"""Descent on the sphere: SGD with momentum that is carried along, Adam with one second moment a vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.geometry.dynamics.sphere import WALKS, Walk, tangent, unit_weights, walk
from normgauge.geometry.symmetry.groups import ScaleFree, check_groups, spread_vectors, vectors

Group = dict[str, Any]
State = dict[str, Any]


class SphereOptimizer(torch.optim.Optimizer):
    """Moves scale-free vectors on spheres and all other parameters as usual; `SphereSGD`, `SphereAdam` say how.

    Each scale-free group is a parameter group of its own, the rest is the last. A vector w keeps the norm it has at its
    first step, so nothing jumps; its step is that of û = w/‖w‖ on the unit sphere, where the gradient of a scale-free
    loss is ‖w‖∇L(w), tangent but for ε. The path of directions does not depend on ‖w‖.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        groups: Sequence[ScaleFree],
        *,
        sphere_lr: float | None,
        walk: Walk,
        **defaults: Any,
    ) -> None:
        named = dict(named_parameters)
        check_groups(groups, named)
        if walk not in WALKS:
            raise InputError(f"walk={walk!r} is not known; use {' or '.join(map(repr, WALKS))}.")
        rate = defaults["lr"] if sphere_lr is None else sphere_lr
        for option, value in {
            "lr": defaults["lr"],
            "sphere_lr": rate,
            "weight_decay": defaults["weight_decay"],
        }.items():
            if not value >= 0:
                raise InputError(f"expected {option} >= 0; got {value!r}.")
        listed = [_sphere_group(group, named) | {"lr": rate} for group in groups]
        taken = {name for group in groups for name in group.parameters}
        others = {name: p for name, p in named.items() if name not in taken}
        if others:
            listed.append({"params": [*others.values()], "names": [*others]})
        super().__init__(listed, defaults | {"walk": walk, "names": [], "rows": 0, "dim": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step on every parameter that has a gradient.

        Args:
            closure: computes the loss again and returns it.

        Returns:
            The loss of the closure, if one was given.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            if group["rows"] and given:
                self._step_on_sphere(group)
            elif given:
                for p in given:
                    self._plain(group, p, p.grad, self.state[p])
        return loss

    def _step_on_sphere(self, group: Group) -> None:
        cut = ScaleFree(tuple(group["names"]), group["rows"], group["dim"])
        named = dict(zip(cut.parameters, group["params"], strict=True))
        w = vectors(cut, named)
        g = vectors(cut, {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in named.items()})
        state, norm = self.state[group["params"][0]], w.norm(dim=1, keepdim=True)
        radius = state.setdefault("radius", norm)
        # lr may hold one rate a row: an effective learning rate is a property of the row
        rate = torch.as_tensor(group["lr"], dtype=w.dtype, device=w.device).reshape(-1, 1)
        moved = self._turn(group, unit_weights(w), norm * g, rate, state)
        for name, value in spread_vectors(cut, radius * moved, named).items():
            named[name].copy_(value)

    def _turn(self, group: Group, u: Tensor, g: Tensor, rate: Tensor, state: State) -> Tensor:
        """Where the unit rows ``u`` go, given the gradient there."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it moves on the sphere: define _turn.")

    def _plain(self, group: Group, p: Tensor, g: Tensor, state: State) -> None:
        """Moves a parameter that is not scale-free."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it moves other parameters: define _plain.")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a stored state, as ``torch.optim.Optimizer`` does.

        Args:
            state_dict: what ``state_dict()`` gave.

        Raises:
            InputError: if it belongs to other scale-free groups.
        """
        own, stored = _layout(self.param_groups), _layout(state_dict["param_groups"])
        if own != stored:
            raise InputError(f"the stored state is of other scale-free groups: expected {own}, got {stored}.")
        super().load_state_dict(state_dict)


def _sphere_group(group: ScaleFree, named: Mapping[str, nn.Parameter]) -> Group:
    params = [named[name] for name in group.parameters]
    frozen = [name for name in group.parameters if not named[name].requires_grad]
    if 0 < len(frozen) < len(params):
        raise InputError(
            f"{', '.join(frozen)} is frozen, the rest of its scale-free group {group.parameters} is not; on a sphere "
            "they move together. Freeze all of them or none."
        )
    unit_weights(vectors(group, {name: named[name].detach() for name in group.parameters}))
    return {"params": params, "names": [*group.parameters], "rows": group.rows, "dim": group.dim}


def _layout(groups: Sequence[Group]) -> list[tuple[Any, ...]]:
    return [tuple(group.get(key) for key in ("names", "rows", "dim")) for group in groups]


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
        walk: "exponential" or "projection", as `normgauge.geometry.dynamics.sphere.walk` describes them.

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
        walk: "exponential" or "projection", as `normgauge.geometry.dynamics.sphere.walk` describes them.

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
