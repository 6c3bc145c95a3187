"""Models from local Hugging Face folders: weights from safetensors only, code never, nothing fetched."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normgauge.core.errors import LoadError
from normgauge.core.user_code import one_line

if TYPE_CHECKING:
    from torch import nn

CONFIG, GGUF = "config.json", ".gguf"
LOCAL = {"local_files_only": True, "trust_remote_code": False}


def model_folder(spec: str) -> Path | None:
    """The folder of a model that is named by itself, by weights beside a config.json, or as GGUF; None elsewhere."""
    path = Path(spec)
    if path.is_dir():
        return path
    beside = path.suffix == ".safetensors" and path.name.startswith("model") and (path.parent / CONFIG).is_file()
    return path.parent if path.is_file() and (beside or path.suffix == GGUF or path.name == CONFIG) else None


def load_gguf(path: Path) -> nn.Module:
    """The model of a GGUF file, its weights unpacked to plain numbers; nothing in the file is executed.

    Raises:
        LoadError: without the packages, or when transformers knows no such model.
    """
    if find_spec("gguf") is None or find_spec("transformers") is None:
        raise LoadError(f"{path}: a GGUF file needs gguf and transformers: pip install 'normgauge[llm]'")
    import transformers

    from normgauge.loading.counted_output import count_output
    from normgauge.loading.stored_weights import ASKED, stored_model

    try:
        loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype="float32", **LOCAL, **ASKED
        )
    except Exception as error:
        raise LoadError(f"{path}: transformers could not build it: {one_line(error)}") from error
    return count_output(stored_model(path, loaded, info).eval(), None)


def load_folder(folder: Path) -> nn.Module:
    """The model of a folder with a config.json and all its weights; padding is no part of its output.

    Raises:
        LoadError: when it cannot be built, or only by running code that came with it, or weights of it are not there.
    """
    packed = sorted(folder.glob(f"*{GGUF}"))
    if packed and not (folder / CONFIG).is_file():
        if len(packed) > 1:
            raise LoadError(f"{folder}: holds {len(packed)} GGUF files; name one of them")
        return load_gguf(packed[0])
    described = _read_config(folder / CONFIG)
    if "auto_map" in described:
        raise LoadError(f"{folder}: its model comes with its own code, which is never run; give it as file.py:function")
    _check_weights(folder)
    try:
        import transformers
    except ImportError:
        raise LoadError(f"{folder}: a Hugging Face folder needs transformers: pip install 'normgauge[llm]'") from None
    from normgauge.loading.counted_output import count_output, folder_pooling
    from normgauge.loading.stored_weights import stored_model

    pooling, _ = folder_pooling(folder)
    try:
        loaded, info = _build(transformers, folder, described, pooling is not None)
    except Exception as error:
        raise LoadError(f"{folder}: transformers could not build it: {one_line(error)}") from error
    return count_output(stored_model(folder, loaded, info), pooling)


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise LoadError(f"{path.parent}: expected a Hugging Face folder with a config.json, got none")
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(described, dict):
        raise LoadError(f"{path}: expected a JSON object, got {type(described).__name__}")
    return described


def _check_weights(folder: Path) -> None:
    if any(folder.glob("*.safetensors")):
        return
    if any(folder.glob("*.bin")):
        convert = "convert them where you trust them with save_pretrained(folder, safe_serialization=True)"
        raise LoadError(f"{folder}: refused, its weights are pickled (*.bin); {convert}")
    raise LoadError(
        f"{folder}: expected weights (*.safetensors) beside its config.json, got none; they would be random. For "
        "a model that has none give a file.py:function that builds it"
    )


def _build(transformers: Any, folder: Path, described: dict[str, Any], encodes: bool) -> tuple[nn.Module, Any]:
    """The model, and what transformers says of how it was loaded."""
    from normgauge.loading.stored_weights import ASKED

    listed = [] if encodes else described.get("architectures") or []  # a head for training is no part of an encoder
    named = [getattr(transformers, name, None) for name in listed]
    kind: Any = next((found for found in named if found is not None), transformers.AutoModel)
    words = transformers.utils.logging
    shown = words.is_progress_bar_enabled()
    words.disable_progress_bar()
    try:
        loaded: tuple[nn.Module, Any] = kind.from_pretrained(folder, use_safetensors=True, **LOCAL, **ASKED)
    finally:
        if shown:
            words.enable_progress_bar()
    return loaded
