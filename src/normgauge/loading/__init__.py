"""Models and batches by name.

A model is `file.py:function`, `package.module:callable`, a Hugging Face folder, a GGUF file, or `zoo:NAME[@weights]`; a
batch is
a function, a file of tensors or a data set of the zoo. The two code forms run the user's own Python; every other form
executes nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normgauge.core.errors import InputError, LoadError
from normgauge.core.user_code import find_object

if TYPE_CHECKING:
    from torch import nn

WEIGHT_FILES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
MODEL_FORMS = (
    "file.py:function, package.module:callable, a Hugging Face folder or its model.safetensors, a .gguf file, or "
    "zoo:NAME[@weights.safetensors]"
)
BATCH_FORMS = (
    "file.py:function, package.module:callable, a .safetensors, .pt or .npy file of tensors, or zoo:digits (the first "
    "100 test images of a data set of the zoo)"
)
ZOO_SAMPLES = 100


def load_model(spec: str | Path) -> nn.Module:
    """Build or load the model that ``spec`` names, as the commands do: ``ng.gauge(ng.load_model("./bert"), batch)``.

    Args:
        spec: ``file.py:function``, ``package.module:callable``, a Hugging Face folder or its ``model.safetensors``, a
            ``.gguf`` file, or ``zoo:NAME[@weights.safetensors]``. The first two run that code; the others execute none.

    Returns:
        The module, as its maker left it; of a Hugging Face folder padding is no part of the output, and of a
        sentence-transformers folder the sentence embedding comes first.

    Raises:
        LoadError: when there is no such model, or it cannot be loaded without running foreign code.
    """
    from torch import nn

    from normgauge.loading.hugging_face import GGUF, load_folder, load_gguf, model_folder
    from normgauge.loading.tensors import read_tensors

    spec = str(spec)
    if spec.startswith("zoo:"):
        return _zoo_model(spec.removeprefix("zoo:"))
    folder = model_folder(spec)
    if folder is not None:
        return load_gguf(Path(spec)) if spec.endswith(GGUF) else load_folder(folder)
    if spec.endswith(GGUF):
        raise LoadError(f"{spec}: expected a GGUF file, got no such file")
    if Path(spec).suffix in WEIGHT_FILES:
        read_tensors(Path(spec))  # a file that is missing or holds a pickled model says so itself
        raise LoadError(
            f"{spec}: weights alone have no architecture; name it too: zoo:NAME@{spec}, or a file.py:function that "
            "builds the model and loads them"
        )
    model = find_object(spec, f"model {spec!r}: expected {MODEL_FORMS}", nn.Module)()
    if not isinstance(model, nn.Module):
        raise LoadError(f"{spec}: expected a torch.nn.Module, got {type(model).__name__}; return the model itself")
    return model


def is_folder(spec: str) -> bool:
    """Whether a model is named by a folder of weights, or by such a file."""
    from normgauge.loading.hugging_face import model_folder

    return model_folder(spec) is not None


def load_batch(spec: str | None) -> Any:
    """Return the batch that ``spec`` names: a tensor, or whatever the model takes.

    Args:
        spec: one of `BATCH_FORMS`. A loader or data set gives its first batch, without the labels: a second part of
            integers, one a sample.

    Returns:
        The batch.
    """
    return find_batch(spec)()


def find_batch(spec: str | None) -> Callable[[], Any]:
    """What will give the batch that ``spec`` names, without labels.

    Args:
        spec: as for `load_batch`.

    Returns:
        A function without arguments.
    """
    labelled = find_labelled(spec)
    return lambda: labelled()[0]


def find_labelled(spec: str | None) -> Callable[[], tuple[Any, Any]]:
    """What will give the batch that ``spec`` names and its labels, None where it has none of its own.

    Files are read now, a function is found now and called later. So a mistake in its name is told before a model is
    built, and the model is built before the batch is drawn.

    Args:
        spec: as for `load_batch`.

    Returns:
        A function without arguments.

    Raises:
        LoadError: when there is none.
    """
    from normgauge.loading.tensors import first_batch, read_tensors

    if spec is None:
        raise LoadError(f"a batch is needed: --batch with {BATCH_FORMS}")
    if spec.startswith("zoo:"):
        return _zoo_batch(spec.removeprefix("zoo:"))
    if Path(spec).suffix in (*WEIGHT_FILES, ".npy"):
        tensors = read_tensors(Path(spec))
        return lambda: (tensors, None)
    make = find_object(spec, f"batch {spec!r}: expected {BATCH_FORMS}")
    return lambda: first_batch(make())


def _zoo_model(spec: str) -> nn.Module:
    from normgauge.lab import zoo

    name, _, weights = spec.partition("@")
    try:
        model = zoo.build_network(name)
    except InputError as error:
        raise LoadError(str(error)) from None
    if weights:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; a refusal says what matters
            zoo.load_state(model, weights)
    return model


def _zoo_batch(name: str) -> Callable[[], tuple[Any, Any]]:
    from normgauge.lab.zoo import DATASETS

    if name not in DATASETS:
        raise LoadError(f"no data set called {name!r} in the zoo; known: {', '.join(DATASETS)}")

    def draw() -> tuple[Any, Any]:
        split = DATASETS[name]("test", limit=ZOO_SAMPLES)
        return split.inputs, split.labels

    return draw
