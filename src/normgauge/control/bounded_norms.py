"""Normalizers with a global Lipschitz constant of choice: σ softly floored, gains capped.

    y = γ̂ (x − μ)/√(σ² + φ²) + β,   γ̂ = γ·min(1, Lφ/max|γ|):   ‖J(x)‖ ≤ max|γ̂|/φ ≤ L for every x

LayerNorm is the case φ = √ε without a cap, so each converts from and to the standard one by its numbers alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.instrument.rules.normalizer import Normalizer
from normgauge.instrument.trace.copied import copied

FLOOR = 0.5


class BoundedNorm(nn.Module):
    """What the bounded normalizers share: a floor under the spread and a constant that no weight exceeds.

    Attributes:
        weight, bias: as in the standard normalizer; None where it has none.
        constant: the largest global Lipschitz constant that the gains may give.
        floor: φ, softly under the spread: √(σ² + φ²).
        plain: ε of the standard normalizer it was made of, for the way back.
    """

    weight: Tensor | None
    bias: Tensor | None
    eps = math.nan  # equal to none: torch's fused encoder layer, which would take the gains as stored, stays away

    def settle(self, constant: float, floor: float, plain: float) -> None:
        """Take the constants over.

        Raises:
            InputError: for a constant or a floor that is not positive and finite.
        """
        if not (0 < constant < math.inf and 0 < floor < math.inf):
            raise InputError(f"expected a positive constant and floor, got constant={constant}, floor={floor}")
        self.constant, self.floor, self.plain = float(constant), float(floor), plain

    def gains(self) -> Tensor | None:
        """Return γ̂: the gains, all of them smaller by one factor where the largest would exceed Lφ."""
        room = self.constant * self.floor
        if self.weight is None:
            return None
        return self.weight * (room / self.weight.abs().amax().clamp_min(room))

    @property
    def spread(self) -> float:
        """φ², or more where there are no gains to cap and 1/φ alone would exceed the constant."""
        return self.floor**2 if self.weight is not None else max(self.floor, 1 / self.constant) ** 2

    def extra_repr(self) -> str:
        """Name the two constants."""
        return f"constant={self.constant:g}, floor={self.floor:g}"

    def normalizer(self) -> Normalizer:
        """The normalizer that this is now.

        Raises:
            NotImplementedError: here; each kind has its own.
        """
        raise NotImplementedError

    def standard(self) -> nn.Module:
        """The standard normalizer with the gains in use.

        Raises:
            NotImplementedError: here; each kind has its own.
        """
        raise NotImplementedError


class BoundedLayerNorm(BoundedNorm):
    """LayerNorm over the last axes with a global constant of at most ``constant``."""

    def __init__(self, like: nn.LayerNorm, constant: float = 2.0, floor: float = FLOOR) -> None:
        super().__init__()
        self.shape = tuple(like.normalized_shape)
        self.weight, self.bias = like.weight, like.bias
        self.settle(constant, floor, like.eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last axes."""
        return F.layer_norm(x, self.shape, self.gains(), self.bias, self.spread)

    def normalizer(self) -> Normalizer:
        """The normalizer that this is now."""
        return Normalizer("layer", self.gains(), self.bias, self.spread, dims=tuple(range(-len(self.shape), 0)))

    def standard(self) -> nn.LayerNorm:
        """The LayerNorm with the gains in use."""
        made = nn.LayerNorm(self.shape, self.plain, self.weight is not None, bias=self.bias is not None)
        return _given(made, self)


class BoundedRMSNorm(BoundedNorm):
    """RMSNorm over the last axes with a global constant of at most ``constant``."""

    def __init__(self, like: nn.RMSNorm, constant: float = 2.0, floor: float = FLOOR) -> None:
        super().__init__()
        self.shape = tuple(like.normalized_shape)
        self.weight, self.bias = like.weight, None
        self.given_eps = like.eps
        self.settle(constant, floor, 0.0 if like.eps is None else like.eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last axes."""
        return F.rms_norm(x, self.shape, self.gains(), self.spread)

    def normalizer(self) -> Normalizer:
        """The normalizer that this is now."""
        return Normalizer("rms", self.gains(), None, self.spread, dims=tuple(range(-len(self.shape), 0)))

    def standard(self) -> nn.RMSNorm:
        """The RMSNorm with the gains in use."""
        return _given(nn.RMSNorm(self.shape, self.given_eps, self.weight is not None), self)


class BoundedGroupNorm(BoundedNorm):
    """GroupNorm with a global constant of at most ``constant``."""

    def __init__(self, like: nn.GroupNorm, constant: float = 2.0, floor: float = FLOOR) -> None:
        super().__init__()
        self.num_groups, self.num_channels = like.num_groups, like.num_channels
        self.weight, self.bias = like.weight, like.bias
        self.settle(constant, floor, like.eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize groups of channels."""
        return F.group_norm(x, self.num_groups, self.gains(), self.bias, self.spread)

    def normalizer(self) -> Normalizer:
        """The normalizer that this is now."""
        return Normalizer("group", self.gains(), self.bias, self.spread, count=self.num_groups)

    def standard(self) -> nn.GroupNorm:
        """The GroupNorm with the gains in use."""
        made = nn.GroupNorm(self.num_groups, self.num_channels, self.plain, self.weight is not None)
        return _given(made, self)


STANDARD: dict[type[nn.Module], Any] = {
    nn.LayerNorm: BoundedLayerNorm,
    nn.RMSNorm: BoundedRMSNorm,
    nn.GroupNorm: BoundedGroupNorm,
}


def _bounded_kind(module: nn.Module) -> Any:
    """The bounded kind of a standard normalizer, or of a subclass that computes the same; None for any other."""
    return next((STANDARD[base] for base in STANDARD if getattr(type(module), "forward", None) is base.forward), None)


def _given(made: Any, bounded: BoundedNorm) -> Any:
    """A standard normalizer with the tensors of a bounded one, its capped gains as its weight."""
    gains = bounded.gains()
    if gains is not None:
        assert bounded.weight is not None
        made.weight = nn.Parameter(gains.detach().clone(), bounded.weight.requires_grad)
    made.bias = bounded.bias
    return made.train(bounded.training)


def bounded(model: nn.Module, constant: float = 2.0, floor: float = FLOOR) -> nn.Module:
    """Return a copy of a model whose LayerNorms, RMSNorms and GroupNorms have a global constant of choice.

    Args:
        model: left as it is.
        constant: the largest Lipschitz constant a normalizer may have, over all inputs.
        floor: softly under each spread, √(σ² + floor²): what is far below it is no longer blown up.

    Raises:
        InputError: for constants that are not positive, and a model without such a normalizer.
    """
    return _exchanged(
        copied(model),
        lambda module: None if (kind := _bounded_kind(module)) is None else kind(module, constant, floor),
        "LayerNorm, RMSNorm or GroupNorm",
    )


def unbounded(model: nn.Module) -> nn.Module:
    """Return a copy of a model with standard normalizers in place of bounded ones: their ε, the gains in use.

    Raises:
        InputError: for a model without a bounded normalizer.
    """
    return _exchanged(
        copied(model),
        lambda module: module.standard() if isinstance(module, BoundedNorm) else None,
        "bounded normalizer",
    )


def _exchanged(model: nn.Module, exchange: Any, what: str) -> nn.Module:
    """The model with every module that ``exchange`` has another for replaced by it; shared ones stay shared.

    Raises:
        InputError: where there is none.
    """
    whole = exchange(model)
    if whole is not None:
        return whole
    made: dict[int, nn.Module] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # a child that is used twice is there twice
            found = None if child is None else made.get(id(child)) or exchange(child)
            if found is not None:
                made[id(child)] = found
                setattr(parent, name, found)
    if not made:
        raise InputError(f"the model has no {what}")
    return model
