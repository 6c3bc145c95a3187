"""What the decoder of an encoder-decoder is given beside the encoder: it decides the number, so it is told."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

TOKENS, LABELS = "decoder_input_ids", "labels"
NAMES = (TOKENS, "decoder_inputs_embeds", LABELS)  # any of them gives a decoder its input
BLAMED = ("input_ids", "inputs_embeds", "decoder")  # in what a model says that has no input for its decoder
FIRST = 4  # tokens shown


def has_decoder(model: nn.Module) -> bool:
    """Whether the model's configuration says that a decoder stands behind its encoder."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def decoder_note(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """What the decoder was given, for the notes of a reading; empty where the model has none."""
    if not has_decoder(model):
        return []
    given = _by_name(model, args, kwargs)
    name = next((name for name in NAMES if name in given), None)
    if name is None:
        return [f"no {TOKENS} were given: the model makes its decoder's input of what its encoder is given"]
    made = ", of which the model makes its decoder's input" * (name == LABELS)
    return [f"the decoder was given {name} ({_shown(given[name])}){made}: with others the numbers are others"]


def decoder_cure(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], said: str) -> str:
    """What to do about an error of a model whose decoder was given nothing; empty for any other error."""
    given = _by_name(model, args, kwargs) if has_decoder(model) else {}
    if not given or any(name in given for name in NAMES) or not any(word in said for word in BLAMED):
        return ""
    start = getattr(getattr(model, "config", None), "decoder_start_token_id", None)
    first = f"; its output starts behind token {start}: torch.full((samples, 1), {start})" if start is not None else ""
    return f"batch: expected {TOKENS} for the model's decoder too, got {' and '.join(given)} alone{first}"


def _by_name(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call that are given, by their names."""
    try:
        bound = inspect.signature(model.forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = dict(kwargs)
    return {name: value for name, value in bound.items() if value is not None}


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    shape = "x".join(map(str, value.shape))
    if value.is_floating_point() or value.ndim != 2:
        return shape
    tokens = value[0].tolist()
    return f"{shape}, the first {', '.join(map(str, tokens[:FIRST]))}{', …' * (len(tokens) > FIRST)}"
