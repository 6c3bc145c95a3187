"""Models and batches by name.

A model is `file.py:function`, `package.module:callable`, a Hugging Face folder, or `zoo:NAME[@weights]`; a batch is
a function or a file of tensors. The two code forms run the user's own Python; every other form executes nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pickle
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from normgauge.errors import InputError, LoadError, NormgaugeError

if TYPE_CHECKING:
    from torch import nn

WEIGHT_FILES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
MODEL_FORMS = "file.py:function, package.module:callable, a Hugging Face folder or zoo:NAME[@weights.safetensors]"
BATCH_FORMS = (
    "file.py:function, package.module:callable, a .safetensors, .pt or .npy file of tensors, or zoo:digits (the first "
    "100 test images of a data set of the zoo)"
)
ZOO_SAMPLES = 100


def load_model(spec: str) -> nn.Module:
    """The model that ``spec`` names.

    Args:
        spec: one of `MODEL_FORMS`.

    Returns:
        The module, as its maker left it.

    Raises:
        LoadError: when there is no such model, or it cannot be loaded without running foreign code.
    """
    from torch import nn

    if spec.startswith("zoo:"):
        return _zoo(spec.removeprefix("zoo:"))
    if Path(spec).is_dir():
        return _hugging_face(Path(spec))
    if Path(spec).suffix in WEIGHT_FILES:
        raise LoadError(
            f"{spec}: weights alone have no architecture; name it too: zoo:NAME@{spec}, or a file.py:function that "
            "builds the model and loads them"
        )
    model = _resolve(spec, "model", MODEL_FORMS, nn.Module)
    if not isinstance(model, nn.Module):
        raise LoadError(f"{spec}: expected a torch.nn.Module, got {type(model).__name__}; return the model itself")
    return model


def load_batch(spec: str | None) -> Any:
    """The batch that ``spec`` names: a tensor, or whatever the model takes.

    Args:
        spec: one of `BATCH_FORMS`; a loader or data set gives its first batch.

    Returns:
        The batch.

    Raises:
        LoadError: when there is none.
    """
    if spec is None:
        raise LoadError(f"a batch is needed: --batch with {BATCH_FORMS}")
    if spec.startswith("zoo:"):
        return _zoo_batch(spec.removeprefix("zoo:"))
    if Path(spec).suffix in (*WEIGHT_FILES, ".npy"):
        return read_tensors(Path(spec))
    return _first_batch(_resolve(spec, "batch", BATCH_FORMS, object))


def read_tensors(path: Path) -> Any:
    """The tensors of a file, read without executing anything in it.

    Raises:
        LoadError: for a missing or damaged file, and for pickled Python objects.
    """
    import numpy as np
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise LoadError(f"{path}: expected a file of tensors, got no such file")
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False))
        if path.suffix == ".safetensors":
            tensors = load_file(path)
            return next(iter(tensors.values())) if len(tensors) == 1 else tensors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; the refusal below says what matters
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise LoadError(_convert(path)) from None
    except (SafetensorError, ValueError, RuntimeError, EOFError) as error:
        raise LoadError(f"{path}: expected a file of tensors, got one that cannot be read ({_line(error)})") from None


def _convert(path: Path) -> str:
    return (
        f"{path}: refused, it holds pickled Python objects and loading those can run any code; nothing was executed. "
        "Where you trust it, convert it once: safetensors.torch.save_file(torch.load(path, weights_only=False)"
        '.state_dict(), "weights.safetensors")'
    )


def _resolve(spec: str, what: str, forms: str, ready: type) -> Any:
    """The object at ``place:name``, called if it is a function; ``ready`` is the type that needs no call.

    Raises:
        LoadError: when there is no such object.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise LoadError(f"{what} {spec!r}: expected {forms}")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_package(place)
    try:
        found = getattr(module, name)
    except AttributeError:
        offered = ", ".join(
            n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__
        )
        raise LoadError(f"{spec}: {place} has no {name!r}; its functions: {offered or 'none'}") from None
    if not callable(found) or (ready is not object and isinstance(found, ready)):
        return found
    return _call(found, spec)


def _call(function: Any, spec: str) -> Any:
    try:
        required = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):  # builtins may have no signature; the call itself will tell
        required = []
    if required:
        raise LoadError(f"{spec}: expected a function without arguments, got one that needs {', '.join(required)}")
    try:
        return function()
    except NormgaugeError:
        raise
    except Exception as error:
        raise LoadError(f"{spec} raised {_line(error)}") from error


def _from_file(path: Path) -> ModuleType:
    """Run a Python file once as a module, with its folder importable as it is for a script.

    Raises:
        LoadError: when it is missing or fails.
    """
    if not path.is_file():
        raise LoadError(f"{path}: expected a Python file, got no such file")
    resolved = path.resolve()
    name = f"_normgauge_user_{resolved.stem}_{abs(hash(str(resolved))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: expected a Python file that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise LoadError(f"{path}: importing it raised {_line(error)}") from error
    return module


def _from_package(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise LoadError(f"{name}: importing it raised {_line(error)}; is it a module, or was file.py meant?") from error


def _zoo(spec: str) -> nn.Module:
    from normgauge import zoo

    name, _, weights = spec.partition("@")
    try:
        model: nn.Module = zoo.build(name)
        if weights:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # as in read_tensors
                zoo.load_state(model, Path(weights))
    except InputError as error:
        raise LoadError(str(error)) from None
    return model


def _zoo_batch(name: str) -> Any:
    from normgauge.zoo import DATASETS

    if name not in DATASETS:
        raise LoadError(f"no data set called {name!r} in the zoo; known: {', '.join(DATASETS)}")
    return DATASETS[name]("test", limit=ZOO_SAMPLES).inputs


def _hugging_face(folder: Path) -> nn.Module:
    """A model from a local folder; its weights only from safetensors, its code never.

    Raises:
        LoadError: when it cannot be built that way.
    """
    config = folder / "config.json"
    if not config.is_file():
        raise LoadError(f"{folder}: expected a Hugging Face folder with a config.json, got none")
    try:
        described = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{config}: expected JSON, got {error}") from None
    if "auto_map" in described:
        raise LoadError(f"{folder}: its model comes with its own code, which is never run; give it as file.py:function")
    if not any(folder.glob("*.safetensors")) and any(folder.glob("*.bin")):
        raise LoadError(
            f"{folder}: only pickled weights (*.bin); convert them with save_pretrained(safe_serialization=True)"
        )
    try:
        import transformers
    except ImportError:
        raise LoadError(f"{folder}: a Hugging Face folder needs transformers: pip install 'normgauge[llm]'") from None
    try:
        return _build_hugging_face(transformers, folder, described)
    except Exception as error:
        raise LoadError(f"{folder}: transformers could not build it: {_line(error)}") from error


def _build_hugging_face(transformers: ModuleType, folder: Path, described: dict[str, Any]) -> nn.Module:
    named = [getattr(transformers, name, None) for name in described.get("architectures") or []]
    kind: Any = next((found for found in named if found is not None), transformers.AutoModel)
    if any(folder.glob("*.safetensors")):
        return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, use_safetensors=True)
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return kind.from_config(config) if kind is transformers.AutoModel else kind(config)


def _first_batch(value: Any) -> Any:
    from torch.utils.data import DataLoader, Dataset, default_collate

    if isinstance(value, DataLoader):
        return next(iter(value))
    if isinstance(value, Dataset):
        return default_collate([value[i] for i in range(min(len(value), 64))])  # type: ignore[arg-type]
    return value


def _line(error: BaseException) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
