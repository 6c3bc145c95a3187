"""A compiled model runs no modules: a few samples of what it was given run through them again, where a step is read."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from normgauge.instrument.trace.untouched import compiled_inside, is_compiled
from normgauge.monitor.layers import kept_random

SAMPLES = 2  # of a batch that run again


class Replay:
    """Notes what the compiled part of a model is called with, where torch keeps the compiled call.

    Torch leaves that out of copies and saved files, and so they have nothing of this.

    Args:
        part: a module that torch.compile wrapped, or that was compiled in place.

    Attributes:
        listening: whether the coming calls are noted.
    """

    def __init__(self, part: nn.Module) -> None:
        self.listening = False
        self._part = part
        self._given: tuple[Any, Any, torch.autocast] | None = None
        self._place = "forward" if is_compiled(part) else "_compiled_call_impl"
        self._inner = part.__dict__[self._place]
        part.__dict__[self._place] = _noting(weakref.ref(self), self._inner)

    def note(self, args: Any, kwargs: Any) -> None:
        """Keep a few samples of a call in which gradients are taken."""
        if self.listening and torch.is_grad_enabled():
            kind = next((t.device.type for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)), "cpu")
            enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
            self._given = *few_samples(args, kwargs), torch.autocast(kind, dtype, enabled=enabled)

    def again(self) -> bool:
        """Run what was kept through the modules, and leave everything as it was; False where nothing was kept."""
        if self._given is None:
            return False
        (args, kwargs, precision), self._given = self._given, None
        whole = compiled_inside(self._part)
        with _kept(whole), torch.enable_grad(), precision:
            whole._call_impl(*args, **kwargs)
        return True

    def close(self) -> None:
        """Put the compiled call back."""
        self._part.__dict__[self._place] = self._inner


def compiled_part(model: nn.Module) -> nn.Module | None:
    """The outermost part of a model that is compiled; None where none is."""
    return next((m for m in model.modules() if is_compiled(m) or m._compiled_call_impl is not None), None)


def few_samples(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The first samples of all tensors that have as many as the first of them; others as they are."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.ndim]
    count = tensors[0].shape[0] if tensors else 0

    def first(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.detach()[:SAMPLES] if leaf.ndim and leaf.shape[0] == count else leaf.detach()

    taken: tuple[Any, Any] = tree_map(first, (args, kwargs))
    return taken


def _noting(replay: weakref.ref[Replay], inner: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        known = replay()
        if known is not None and known.listening and not torch.compiler.is_compiling():
            known.note(args, kwargs)
        return inner(*args, **kwargs)

    return called


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Bring buffers and random numbers back to what they were."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        with kept_random(model):
            yield
    finally:
        for buffer, value in buffers:  # whatever its version says: batch norm changes statistics without a word
            buffer.data.copy_(value)
