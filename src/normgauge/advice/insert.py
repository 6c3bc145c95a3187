"""`insert_norm`: follow the advice to put a normalizer behind a layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from normgauge.advice.whatif.exchange import ModuleChange, append_normalizer, at_path, swap_in
from normgauge.advice.whatif.fresh import fresh_normalizer
from normgauge.core.errors import InputError
from normgauge.instrument.rules.tried import of_module
from normgauge.instrument.trace.copied import copied

WIDTHS = ("out_features", "out_channels", "num_features", "num_channels", "embedding_dim")


def insert_norm(model: nn.Module, places: str | Sequence[str], kind: str, *, groups: int | None = None) -> nn.Module:
    """A copy of the model with fresh normalizers behind the layers named; all other weights keep names and values.

    A normalizer becomes the child ``norm`` of its layer: ``fc1.norm.weight`` beside ``fc1.weight``. Where the layer is
    a normalizer itself, it is exchanged.

    Args:
        model: the network; it is left as it is.
        places: one module path or several, such as ``remark.fix.places``.
        kind: ``batch``, ``layer``, ``group``, ``instance`` or ``rms``.
        groups: of a group normalizer.

    Returns:
        The copy, in the same mode, on the same device.

    Raises:
        InputError: for a path that leads nowhere, or a layer whose width is not known.
    """
    twin = copied(model)
    for place in [places] if isinstance(places, str) else places:
        try:
            layer = at_path(twin, place)
        except KeyError:
            raise InputError(
                f"no module {place!r} in this {type(model).__name__}; name one as a reading does"
            ) from None
        norm = _fitting(layer, place, kind, groups)
        weight = next((p for p in layer.parameters() if p.is_floating_point()), None)
        if weight is not None:
            norm = norm.to(weight.device, weight.dtype)
        if of_module(layer) is not None:
            swap_in(twin, ModuleChange(place, norm.train(layer.training), ""))
        else:
            append_normalizer(layer, norm)
    return twin


def _fitting(layer: nn.Module, place: str, kind: str, groups: int | None) -> nn.Module:
    width = next((getattr(layer, name) for name in WIDTHS if name in layer.__dict__), None)
    form = of_module(layer)
    if width is None and form is not None and form.gamma is not None:
        width = form.gamma.shape[-1]
    elif width is None and isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        width = layer.normalized_shape[-1]
    if width is None:
        raise InputError(
            f"{place}: the width of a {type(layer).__name__} is not known; name a linear, convolution or normalizer"
        )
    spatial = next((d for d in (1, 2, 3) if f"{d}d" in type(layer).__name__), 0)
    if type(layer).__name__ == "BatchNorm1d":
        spatial = 0
    shape = torch.ones(2, int(width), *[2] * spatial)
    norm = fresh_normalizer(kind, shape, groups, layer)
    if kind == "batch":
        norm.reset_running_stats()  # type: ignore[operator]
    return norm
