"""A batch for a model that came without one, from what its folder says: sentences for its tokenizer, or noise."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from normgauge.core.errors import LoadError
from normgauge.core.user_code import one_line
from normgauge.instrument.trace.decoder import has_decoder
from normgauge.loading.hugging_face import model_folder

if TYPE_CHECKING:
    from torch import Tensor, nn

SENTENCES = ("A small change of the input may grow on its way.", "Every number here says how well it is known.")
TOKENS, IMAGES, SEED = 16, 2, 0
SIZE, CHANNELS = 224, 3  # of an image where nothing says it


def made_batch(spec: str, model: nn.Module) -> tuple[dict[str, Tensor], str]:
    """A small batch for a model of a folder, and a sentence on where it comes from.

    Args:
        spec: the folder, or the file of weights in it.
        model: what was loaded from there.

    Returns:
        The input by its name, and what to say of it.

    Raises:
        LoadError: when nothing tells what the model takes.
    """
    folder, config = model_folder(spec), getattr(model, "config", None)
    name = str(getattr(model, "main_input_name", "input_ids"))
    if folder is None or config is None:
        raise LoadError(f"{spec}: a batch is needed, since only a folder of weights says what it takes: give --batch")
    if name == "input_ids":
        masks = "attention_mask" in inspect.signature(model.forward).parameters
        batch, source = _tokens(folder, config, masks)
        if has_decoder(model):
            more, told = _decoded(config, batch)
            batch, source = batch | more, source + told
    elif name == "pixel_values":
        batch, source = {name: _images(folder, config)}, f"from the configuration: {IMAGES} images of random numbers"
    else:
        raise LoadError(f"{spec}: no batch can be made for the input {name!r}: give one with --batch")
    shape = "x".join(map(str, batch[name].shape))
    return batch, f"No batch was given. One was made {source} ({name}, {shape}, seed {SEED}); --batch takes your own."


def _tokens(folder: Path, config: Any, masks: bool) -> tuple[dict[str, Tensor], str]:
    text = config.get_text_config()
    known = int(text.vocab_size)
    most = min(TOKENS, int(getattr(text, "max_position_embeddings", 0) or TOKENS))
    batch = _sentences(folder / "tokenizer.json", known, most, masks)
    if batch is not None:
        return batch, "by its tokenizer from two sentences, " + " and ".join(f"{one!r}" for one in SENTENCES)
    drawn = torch.randint(known, (2, most), generator=torch.Generator().manual_seed(SEED))
    return {"input_ids": drawn}, f"from the configuration: random tokens out of {known:,}"


def _decoded(config: Any, batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """What a decoder gets that writes what its encoder reads, and what to say of it."""
    start = getattr(config, "decoder_start_token_id", None)
    if start is None:
        return {f"decoder_{key}": value.clone() for key, value in batch.items()}, ", the same for the decoder"
    moved = {f"decoder_{key}": value.roll(1, 1) for key, value in batch.items()}
    for key, value in moved.items():
        value[:, 0] = start if key.endswith("ids") else 1
    return moved, f", the same for the decoder behind its start token {start}"


def _sentences(path: Path, known: int, most: int, masks: bool) -> dict[str, Tensor] | None:
    """The sentences as tokens, padded as the tokenizer does, with its mask; None with one of other words, or without.

    Where it does not pad, or the model takes no mask, both are cut to the shorter.

    Raises:
        LoadError: when there is one that cannot be read.
    """
    if not path.is_file():
        return None
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
        pad = (tokenizer.padding or {}).get("pad_id")
        tokenizer.no_padding()  # to some length of its own, perhaps of hundreds
        rows = [tokens.ids for tokens in tokenizer.encode_batch(list(SENTENCES))]
    except Exception as error:  # of whatever kind the parser raises
        raise LoadError(f"{path}: its tokenizer cannot be read ({one_line(error)}); give --batch") from error
    pads = masks and pad is not None
    size = min(most, (max if pads else min)(map(len, rows)))
    real = [row[:size] for row in rows]
    ids = torch.tensor([row + [pad] * (size - len(row)) for row in real])
    if not size or int(ids.max()) >= known:
        return None
    mask = torch.tensor([[1] * len(row) + [0] * (size - len(row)) for row in real])
    return {"input_ids": ids} if bool(mask.all()) else {"input_ids": ids, "attention_mask": mask}


def _images(folder: Path, config: Any) -> Tensor:
    size = getattr(config, "image_size", None) or _processed_size(folder / "preprocessor_config.json") or SIZE
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = int(getattr(config, "num_channels", CHANNELS))
    return torch.randn(IMAGES, channels, height, width, generator=torch.Generator().manual_seed(SEED))


def _processed_size(path: Path) -> int | None:
    """The side of an image as a folder's preprocessing makes it, where it says so."""
    try:
        said = json.loads(path.read_text(encoding="utf-8")).get("crop_size", {})
        return int(said["height"] if isinstance(said, dict) else said)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
