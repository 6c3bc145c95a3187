"""A digest of a model's weights, so that a stored reading can be tied to the network it was made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over name, type, shape and bytes of every parameter and buffer, in the order of their names.

    A tensor with two names counts under both. Buffers that are not persistent count; tensors a model hides in plain
    attributes do not. Bytes are those of the tensor made contiguous, in the machine's order, wherever it lives.

    Returns:
        ``sha256:`` and 64 hexadecimal digits; empty where a tensor has no bytes to read (it is sparse, or on "meta").
    """
    found = hashlib.sha256()
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    try:
        for name, tensor in sorted(named, key=lambda item: item[0]):
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            found.update(contents(tensor).numpy().data)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return ""
    return f"sha256:{found.hexdigest()}"


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
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1).view(torch.uint8)
