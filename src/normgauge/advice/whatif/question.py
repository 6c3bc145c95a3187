"""`what_if`: a network asked what it would be with a normalizer taken out, exchanged or put in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.advice.whatif.exchange import (
    ModuleChange,
    at_path,
    hooked_like,
    known_normalizers,
    normalized_twin,
    swapped_modules,
)
from normgauge.advice.whatif.fresh import describe_normalizer, fresh_normalizer
from normgauge.core.answers import MEASURE, answered
from normgauge.core.bound import Scope
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.reading import Reading
from normgauge.instrument.fingerprint import tensor_digests
from normgauge.instrument.measure import measured
from normgauge.instrument.rules import Registry
from normgauge.instrument.rules.tried import of_module
from normgauge.instrument.session import Options, Progress
from normgauge.instrument.trace import unwrap
from normgauge.instrument.trace.inputs import make_call, named_tensors
from normgauge.instrument.trace.untouched import cast_tree, compiled_inside, untouched


@answered(MEASURE)
def what_if(
    model: nn.Module,
    batch: Any,
    scope: str | Scope = "point",
    *,
    mode: str = "eval",
    balance: bool = True,
    search: bool = True,
    width: float = 1e-3,
    input: str | None = None,
    output: str | None = None,
    rules: Registry | None = None,
    progress: Progress | None = None,
    pictures: bool = True,
) -> WhatIf:
    """Measure a network, and be ready to measure it with other normalizers, all weights as they are.

    ``what_if(model, batch).without("norm").reading`` is the reading without one; all options are those
    of `gauge`. The model and the batch must stay as they are between the questions, and are untouched by them.
    """
    options = Options(mode, False, balance, search, width, input, output, rules, progress, pictures)
    model, where = unwrap(model), Scope.parse(scope)
    return WhatIf(model, batch, options, measured(model, batch, (where,), options)[0], digests(model, batch))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A network, what was read of it, and the questions that may be asked about its normalizers.

    Attributes:
        model: the network, without wrappers.
        batch: what it was measured on.
        options: how.
        reading: what came out, with the changes in place.
        tensors: digests of every weight, buffer and input at the first measurement.
        changes: what stands in another module's place.
    """

    model: nn.Module
    batch: Any
    options: Options
    reading: Reading
    tensors: Mapping[str, str]
    changes: tuple[ModuleChange, ...] = ()

    def __str__(self) -> str:
        return str(self.reading)

    def without(self, name: str) -> WhatIf:
        """The network with the normalizer ``name`` replaced by the identity.

        Raises:
            ReadingError: when the model has changed, or there is no such normalizer.
        """
        self.check_unchanged()
        with swapped_modules(self.model, self.changes):
            name, module = find_module(self.model, self.reading, name)
            visits = self.visits(module)
            if of_module(module, visits[0][0] if visits else None) is None:
                raise ReadingError(
                    f"{name} is a {type(module).__name__} and no normalizer; {known_normalizers(self.model)}"
                )
        return self.changed((identity_for(name, module),), len(visits))

    def with_norm(self, name: str, kind: str, *, groups: int | None = None) -> WhatIf:
        """The network with a fresh normalizer behind the layer ``name``.

        Args:
            name: a layer; where it is a normalizer itself, it is replaced.
            kind: ``batch`` (with the statistics of the measured batch), ``layer``, ``group``, ``instance`` or ``rms``.
            groups: of a group normalizer, 8 or the nearest divisor below where it is not given.

        Raises:
            ReadingError: when the model has changed, there is no such layer, or the normalizer does not fit there.
        """
        self.check_unchanged()
        with swapped_modules(self.model, self.changes):
            name, module = find_module(self.model, self.reading, name)
            visits = self.visits(module)
        if not visits:
            raise ReadingError(f"{name} does not run in this call, or takes and returns more than one tensor")
        exchanged = of_module(module, visits[0][0]) is not None
        try:
            norm = fresh_normalizer(kind, visits[0][0 if exchanged else 1], groups, module)
        except InputError as error:
            raise ReadingError(f"{name}: {error}") from None
        where = f"in the place of {name} ({type(module).__name__})" if exchanged else f"behind {name}"
        said = f"what if: a fresh {describe_normalizer(norm)} {where}, all weights as they are"
        replacement = hooked_like(norm, module) if exchanged else normalized_twin(module, norm)
        return self.changed((ModuleChange(name, replacement, said),), len(visits))

    def changed(self, changes: tuple[ModuleChange, ...], runs: int = 1) -> WhatIf:
        """Measure with the changes, the last of which has ``runs`` runs, and note what was changed.

        Raises:
            ReadingError: when the network reaches the module by another way than its path.
        """
        *others, last = (*self.changes, *changes)
        with swapped_modules(self.model, (*others, last)):
            exchanged = self.exchanged_runs(last)
            found = measured(self.model, self.batch, (self.reading.scope,), self.options)[0]
        if runs > 1:
            last = dataclasses.replace(last, said=f"{last.said} (in {exchanged} of its {runs} runs)")
        both = (*others, last)
        found = dataclasses.replace(found, notes=(*(change.said for change in both), *found.notes))
        return dataclasses.replace(self, reading=found, changes=both)

    def exchanged_runs(self, change: ModuleChange) -> int:
        """How often the module of a change runs, now that it is in place.

        Raises:
            ReadingError: when it never does, or the network cannot run with it.
        """
        why = ""
        try:
            runs = len(self.visits(change.module))
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            runs, why = 0, f" ({type(error).__name__}: {error})"
        if not runs:
            raise ReadingError(
                f"nothing can be put in the place of {change.path}: the network does not run it, or not with another "
                f"module there, or reaches it by another way than its path, such as a plain list{why}"
            )
        return runs

    def visits(self, module: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Input and output of every run of a module, on the measured batch."""
        call = make_call(self.model, self.batch, self.options.input)
        exact = self.reading.precision == "float64"  # as it was measured: on copies, or as the model itself runs
        dtype, device = (torch.float64, torch.device("cpu")) if exact else (None, None)
        args, kwargs = cast_tree((call.args, call.kwargs), dtype, device)
        seen: list[tuple[Tensor, Tensor]] = []

        def note(_: nn.Module, given: tuple[Any, ...], out: Any) -> None:
            if given and isinstance(given[0], Tensor) and isinstance(out, Tensor):
                seen.append((given[0].detach().clone(), out.detach().clone()))

        with untouched(self.model, dtype, device, self.options.mode == "train", call.native), torch.no_grad():
            compiled_inside(module).register_forward_hook(note)  # goes with everything else when the model is put back
            self.model(*args, **kwargs)
        return seen

    def check_unchanged(self) -> None:
        """Refuse to answer about a network that is no longer the one that was read.

        Raises:
            ReadingError: naming the first difference.
        """
        now = digests(self.model, self.batch)
        for name in [*self.tensors, *now]:
            if self.tensors.get(name) != now.get(name):
                raise ReadingError(
                    f"the model has changed since this reading was made ({name}); measure it again and ask that one"
                )


def digests(model: nn.Module, batch: Any) -> dict[str, str]:
    """The digest of every weight, buffer and input, by name."""
    owned = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return tensor_digests([*owned, *((f"batch {name}", tensor) for name, tensor in named_tensors(batch))])


def identity_for(path: str, module: nn.Module) -> ModuleChange:
    """The identity in the place of a normalizer."""
    said = f"what if: {path} ({type(module).__name__}) is replaced by the identity, all weights as they are"
    return ModuleChange(path, hooked_like(nn.Identity(), module), said)


def can_leave(model: nn.Module, reading: Reading, name: str) -> bool:
    """Whether a normalizer can be taken out: it is a module, and the only run of it that goes by this name."""
    try:
        return of_module(find_module(model, reading, name)[1]) is not None
    except ReadingError:
        return False


def find_module(model: nn.Module, reading: Reading, name: str) -> tuple[str, nn.Module]:
    """Path and module that a layer's name stands for; for a call inside a normalizer, that normalizer.

    Raises:
        ReadingError: for a name that stands for no module; it says what it stands for.
    """
    base, _, run = name.partition("#")
    try:
        module = at_path(model, name) if name else None
    except KeyError:
        module = None
    if module is not None and isinstance(at_path(model, name.rpartition(".")[0]), torch.jit.ScriptModule):
        raise ReadingError(f"{name} is part of a scripted module, which is fixed; ask about the network it was made of")
    if module is not None:
        return name, module
    record = next((layer for layer in reading.layers if layer.name == name), None)
    if record is None:
        raise ReadingError(f"no layer {name!r} in this network; {known_normalizers(model)}")
    if run and any(base == path for path, _ in model.named_modules()):
        raise ReadingError(f"{name} is another run of {base}: a module is exchanged in all its runs, ask about {base}")
    if not any(name == path for path, _ in model.named_modules()) and record.kind == type(model).__name__:
        raise ReadingError(f"{name} is the whole network: nothing is left without it")
    owner = name.rpartition(".")[0]
    if owner and of_module(at_path(model, owner)) is not None:
        return owner, at_path(model, owner)
    raise ReadingError(
        f"{name} is a call of the function {record.kind} and no module, so nothing can be put in its place; "
        "write it as a module to ask"
    )
