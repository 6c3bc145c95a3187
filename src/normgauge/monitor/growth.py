"""Parameters that come later, and normalizers that are not heard: what changed since the monitor was made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from normgauge.monitor.layers import Layer, find_layers

SHOWN = 4
"""Most layers named in a sentence."""


class Inventory:
    """Remembers which modules and parameters a model has, so that a look for new ones costs microseconds.

    Attributes:
        exchanged: layers found at the last look to have another module than before.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.exchanged: list[Layer] = []
        self._take()

    def fresh(self, known: Sequence[Layer]) -> list[Layer]:
        """Layers that were not there at the last look, nor under another name.

        Args:
            known: the layers watched so far; one whose module was exchanged for another of the same shape goes on with
                the new one.
        """
        self.exchanged.clear()
        if self._now() == self._seen:
            return []
        self._take()
        by_name = {layer.name: layer for layer in known}
        found = []
        for layer in find_layers(self._model):
            old = by_name.get(layer.name)
            if old is None:
                found.append(layer)
            elif old.module is not layer.module and _fits(old, layer):
                old.module = layer.module
                self.exchanged.append(old)
        return found

    def _take(self) -> None:
        self._tables = [table for m in self._model.modules() for table in (m._parameters, m._modules)]
        self._seen = self._now()

    def _now(self) -> list[int]:
        return list(map(id, chain.from_iterable(table.values() for table in self._tables)))


def unheard_sentence(model: nn.Module, silent: Sequence[Layer]) -> str:
    """Which σ are not those of the step, which operator norms are not known, and why."""
    norms = [layer for layer in silent if layer.role == "norm"]
    kept = [layer.name for layer in norms if _runs(layer.module)]
    lacking = [layer.name for layer in norms if not _runs(layer.module)]
    convs = [layer.name for layer in silent if layer.role == "conv"]
    parts = [f"no σ of {_listed(lacking)}"] if lacking else []
    parts += [f"no operator norm of {_listed(convs)}, whose input was not seen"] if convs else []
    parts += [f"σ of {_listed(kept)} from running statistics"] if kept else []
    why = "the model is compiled, and its layers do not run as modules" if _compiled(model) else "they did not run"
    return f"{' and '.join(parts)}: {why} in the steps that are read."


def _fits(old: Layer, new: Layer) -> bool:
    return old.attribute == new.attribute and old.role == new.role and old.shape == new.shape


def _runs(module: nn.Module) -> bool:
    return isinstance(module, _NormBase) and module.running_var is not None


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest


def _compiled(model: nn.Module) -> bool:
    return any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules())
