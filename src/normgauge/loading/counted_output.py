"""What of a Hugging Face model's output counts: nothing behind the mask, and of a sentence encoder the embedding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from normgauge.instrument.trace.decoder import has_decoder
from normgauge.instrument.trace.inputs import map_tensors

EMBEDDING, HIDDEN = "sentence_embedding", "last_hidden_state"
MODULES = "modules.json"
KINDS = (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize"))
POOLED = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


@dataclass(frozen=True, slots=True)
class Pooling:
    """How a sentence-transformers folder makes one vector of a sentence: mean or first token, of length 1 or not."""

    mode: str
    normalized: bool

    def __call__(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """The vectors of token vectors (samples, positions, width), those behind the mask being zero."""
        if self.mode == "cls":
            pooled = hidden[:, 0]
        elif mask is None:
            pooled = hidden.mean(1)
        else:
            pooled = hidden.sum(1) / mask.sum(1, keepdim=True).clamp(min=1).to(hidden)
        return functional.normalize(pooled, dim=-1) if self.normalized else pooled


@dataclass(frozen=True, slots=True)
class CountedOutput:
    """A forward hook: outputs with a vector for each position are zero behind the mask, so that padding is no output.

    Attributes:
        mask: the name of the argument that says which positions are real.
        pooling: where given, the embedding goes before the model's own outputs.
    """

    mask: str
    pooling: Pooling | None

    def __call__(self, model: nn.Module, args: Any, kwargs: dict[str, Any], returned: Any) -> Any:
        """The outputs in place of what the model returned."""
        mask = kwargs.get(self.mask)
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            mask = None
        if mask is not None and not bool(mask.all()):
            returned = _masked(returned, mask)
        if self.pooling is None or not isinstance(returned, Mapping) or HIDDEN not in returned:
            return returned
        return {EMBEDDING: self.pooling(returned[HIDDEN], mask), **returned}


def _masked(returned: Any, mask: Tensor) -> Any:
    def change(tensor: Tensor) -> Tensor:
        alike = tensor.ndim == 3 and tensor.shape[:2] == mask.shape and tensor.is_floating_point()
        return tensor * mask.unsqueeze(-1).to(tensor) if alike else tensor

    if not isinstance(returned, Mapping):
        return map_tensors(change, returned)
    own = {name: value for name, value in returned.items() if not name.startswith("encoder")}  # its mask is another
    return {**returned, **{name: map_tensors(change, value) for name, value in own.items()}}


def count_output(model: nn.Module, pooling: Pooling | None) -> nn.Module:
    """The same model, of whose output only what counts is left."""
    hook = CountedOutput("decoder_attention_mask" if has_decoder(model) else "attention_mask", pooling)
    model.register_forward_hook(hook, with_kwargs=True)
    return model


def folder_pooling(folder: Path) -> tuple[Pooling | None, str]:
    """How a sentence-transformers folder pools, and what to say where it does so in a way that is not applied here."""
    if not (folder / MODULES).is_file():
        return None, ""
    kinds: tuple[str, ...] = ()
    try:
        parts = json.loads((folder / MODULES).read_text(encoding="utf-8"))
        kinds = tuple(str(part["type"]).rpartition(".")[2] for part in parts)
        if kinds in KINDS:
            said = json.loads((folder / parts[1]["path"] / "config.json").read_text(encoding="utf-8"))
            modes = [said["pooling_mode"]] if "pooling_mode" in said else _old_modes(said)
            if len(modes) == 1 and modes[0] in POOLED.values():
                return Pooling(modes[0], "Normalize" in kinds), ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # a file of another form is as good as none
    return None, (
        f"{folder}: its {MODULES} ({', '.join(kinds) or 'unreadable'}) makes the sentence embedding in a way that is "
        "not applied: the model's own output is measured; for the embedding give a file.py:function that has it"
    )


def _old_modes(said: dict[str, Any]) -> list[str]:
    """The modes of a configuration with a switch for each; an unknown one by its own name."""
    return [POOLED.get(key, key) for key, on in said.items() if key.startswith("pooling_mode_") and on is True]


def padding_warning(model: nn.Module, batch: Any) -> str:
    """What to say of tokens that are the model's padding where no mask goes with them; empty elsewhere."""
    config = getattr(model, "config", None)
    pad, end = (getattr(config, name, None) for name in ("pad_token_id", "eos_token_id"))
    given = dict(batch) if isinstance(batch, Mapping) else {"input_ids": batch}
    ids = given.get("input_ids")
    if not isinstance(ids, Tensor) or ids.is_floating_point() or "attention_mask" in given:
        return ""
    found = int((ids == pad).sum()) if isinstance(pad, int) and pad != end else 0
    if not found:
        return ""
    return (
        f"{found} of {ids.numel()} tokens are the padding token {pad} and no attention_mask was given: the model reads "
        "them as words; give all that the tokenizer returns"
    )
