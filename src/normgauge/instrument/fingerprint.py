"""A digest of a model's weights, so that a stored reading can be tied to the network it was made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over name, type, shape and bytes of every parameter and buffer, in the order of their names.

    A tensor with two names counts under both. Buffers that are not persistent count; tensors a model hides in plain
    attributes do not. Bytes are those of the tensor made contiguous, in the machine's order, wherever it lives.

    Returns:
        ``sha256:`` and 64 hexadecimal digits; empty where a tensor has no bytes to read (it is sparse, or on "meta").
    """
    return _digest(named_tensors_of(model))


def batch_digest(batch: Tensor) -> str:
    """The same over one tensor, whose precision is that of its place and no matter: real numbers as float64."""
    return _digest([("batch", batch.double() if batch.is_floating_point() else batch)])


def named_tensors_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return every parameter and buffer of a model, in the order of their names."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return sorted(named, key=lambda item: item[0])


def _digest(named: Iterable[tuple[str, Tensor]]) -> str:
    found = hashlib.sha256()
    try:
        for name, tensor in named:
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            found.update(contents(tensor).numpy().data)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return ""
    return f"sha256:{found.hexdigest()}"


@contextmanager
def digest_beside(model: nn.Module) -> Iterator[Callable[[], str]]:
    """Inside, the `weights_digest` of a model on a GPU is made beside other work; yields a function that returns it.

    For a model in main memory there is nothing to gain, and its digest is made when it is asked for.
    """
    gpu = next((t.device for t in model.parameters() if t.is_cuda), None)
    if gpu is None:
        yield lambda: weights_digest(model)
        return
    named = named_tensors_of(model)  # now: others may stand in their place meanwhile

    def made() -> str:
        with torch.cuda.stream(torch.cuda.Stream(gpu)):
            return _digest(named)

    torch.cuda.synchronize(gpu)  # another stream does not wait for what the weights are still being written by
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(made).result


def tensor_digests(named: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Return a digest of type, shape and bytes by name; where there are no bytes to read, of identity and version."""
    found = {}
    for name, tensor in named:
        try:
            content = hashlib.sha256(contents(tensor).numpy().data).hexdigest()
        except (RuntimeError, NotImplementedError, TypeError, ValueError):  # sparse, quantized, on "meta"
            content = f"{id(tensor)} {0 if tensor.is_inference() else tensor._version}"
        found[name] = f"{tensor.dtype} {tuple(tensor.shape)} {content}"
    return found


def contents(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, in main memory."""
    return bits(tensor.detach().cpu())


def bits(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor, where it is."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1).view(torch.uint8)
