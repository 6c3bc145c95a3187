"""Lend a model out and give it back bit for bit as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from normgauge.errors import InputError
from normgauge.trace.inputs import mapped


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside compiled and distributed wrappers.

    Raises:
        InputError: for something that is not a module.
    """
    while True:
        if not isinstance(model, nn.Module):
            raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
        if is_compiled(model):
            model = compiled_inside(model)
        elif isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        else:
            return model


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile wrapped this module; its class is known by name, since importing it loads the compiler."""
    return type(module).__name__ == "OptimizedModule"


def compiled_inside(module: Any) -> nn.Module:
    """The module as it was before torch.compile."""
    while is_compiled(module):
        module = module._orig_mod
    return module


@contextmanager
def rms_norm_as_in(own: torch.dtype, copy: torch.dtype) -> Iterator[None]:
    """RMSNorm without an ε takes that of its input's precision: here, of the model's own and not of the copy's."""
    plain = torch.rms_norm

    def with_own_eps(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: Any = None) -> Tensor:
        if eps is None and input.dtype == copy:
            eps = torch.finfo(own).eps
        return plain(input, normalized_shape, weight, eps)

    torch.rms_norm = with_own_eps
    try:
        yield
    finally:
        torch.rms_norm = plain


@contextmanager
def untouched(
    model: nn.Module, dtype: torch.dtype, device: torch.device, training: bool, native: torch.dtype
) -> Iterator[None]:
    """Inside, the model holds copies of its tensors in ``dtype``; afterwards it is what it was.

    Every module's ``__dict__`` is put aside whole, so parameters, buffers, gradients, flags, hooks and whatever
    attributes the forward sets come back as the same objects, also when the body raises. The random state is
    restored too. What depends on precision by default goes by ``native``, the model's own. Spectral normalization is
    held at its last estimate: in train mode every call would move the weights.
    """
    modules = list(dict.fromkeys(model.modules()))
    saved = [(module, dict(module.__dict__)) for module in modules]
    contents = [(box, box.copy()) for _, state in saved for box in state.values() if isinstance(box, list | dict | set)]
    cpu_state = torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    copies: dict[int, Tensor] = {}
    try:
        for module, state in saved:
            if isinstance(module, torch.jit.ScriptModule):  # keeps its tensors in compiled code, out of reach
                continue
            module.__dict__["_modules"] = {k: compiled_inside(m) for k, m in state["_modules"].items()}
            module.__dict__["_parameters"] = {
                k: _copy(p, copies, dtype, device) for k, p in state["_parameters"].items()
            }
            module.__dict__["_buffers"] = {k: _copy(b, copies, dtype, device) for k, b in state["_buffers"].items()}
            for key, value in state.items():
                if isinstance(value, Tensor):
                    module.__dict__[key] = _copy(value, copies, dtype, device)
            module.__dict__["training"] = training and not iterates(module)
        with rms_norm_as_in(native, dtype):
            yield
    finally:
        for module, state in saved:
            module.__dict__.clear()
            module.__dict__.update(state)
        for box, before in contents:  # what the forward appended to a list or registered in a table goes too
            if isinstance(box, list):
                box[:] = before
            else:
                box.clear()
                box.update(before)
        torch.set_rng_state(cpu_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)


def iterates(module: nn.Module) -> bool:
    """Whether train mode makes the module's own weights move at every call (spectral normalization, new and old)."""
    hooks = module.__dict__.get("_forward_pre_hooks", {}).values()
    return type(module).__name__ == "_SpectralNorm" or any(type(h).__name__ == "SpectralNorm" for h in hooks)


def _copy(tensor: Tensor | None, copies: dict[int, Tensor], dtype: torch.dtype, device: torch.device) -> Tensor | None:
    if tensor is None:
        return None
    if id(tensor) not in copies:  # tied weights stay tied
        copies[id(tensor)] = _cast(tensor, dtype, device)
    return copies[id(tensor)]


def _cast(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    data = tensor.detach().to(device=device, dtype=dtype if tensor.is_floating_point() else None, copy=True)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, requires_grad=tensor.requires_grad and data.is_floating_point())
    return data


def cast_tree(tree: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Copies of all tensors of a nested structure, floating ones in ``dtype``."""
    return mapped(lambda leaf: _cast(leaf, dtype, device), tree)
