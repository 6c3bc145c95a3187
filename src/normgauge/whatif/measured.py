"""`Measured`: the network behind a reading, asked what it would be otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.reading import Reading
from normgauge.errors import InputError, ReadingError
from normgauge.rules.tried import of_module
from normgauge.trace.inputs import make_call, named_tensors
from normgauge.trace.untouched import cast_tree, compiled_inside, untouched
from normgauge.whatif.exchange import Change, at_path, followed, hooked_like, known, swapped
from normgauge.whatif.fresh import describe, fresh

Readings = Callable[..., list[Reading]]
Mark = tuple[Tensor, int, int, float]  # the tensor itself, its version counter, its address, its sum


@dataclass(frozen=True, slots=True)
class Measured:
    """The network, batch and options behind a reading; a `Source` for what-if questions.

    Attributes:
        model: the network, without wrappers.
        batch: what it was measured on.
        asked: the options of the measurement.
        place: precision and device it was traced in.
        readings: measures a model; handed in, since the pipeline stands above this file.
        marks: what every weight, buffer and input was like when the reading was made.
        changes: what stands in another module's place, for a question about the answer to a question.
    """

    model: nn.Module
    batch: Any
    asked: Mapping[str, Any]
    place: tuple[torch.dtype, torch.device]
    readings: Readings
    marks: Mapping[str, Mark]
    changes: tuple[Change, ...] = ()

    @classmethod
    def now(
        cls,
        model: nn.Module,
        batch: Any,
        asked: Mapping[str, Any],
        place: tuple[torch.dtype, torch.device],
        readings: Readings,
    ) -> Measured:
        """The source of readings made just now."""
        return cls(model, batch, dict(asked), place, readings, marks(model, batch))

    def without(self, reading: Reading, name: str) -> Reading:
        """The reading with one normalizer replaced by the identity.

        Raises:
            ReadingError: when the model has changed, or there is no such normalizer.
        """
        self.check_unchanged()
        with swapped(self.model, self.changes):
            name, module = find(self.model, reading, name)
            visits = self.visits(module)
            if of_module(module, visits[0][0] if visits else None) is None:
                raise ReadingError(f"{name} is a {type(module).__name__} and no normalizer; {known(self.model)}")
            runs = len(visits)
        said = f"what if: {name} ({type(module).__name__}) is replaced by the identity, all weights as they are"
        return self.answer(reading, Change(name, hooked_like(nn.Identity(), module), said), runs)

    def with_norm(self, reading: Reading, name: str, kind: str, groups: int | None) -> Reading:
        """The reading with a fresh normalizer behind a layer, or in the place of another normalizer.

        Raises:
            ReadingError: when the model has changed, the layer is none, or the normalizer does not fit there.
        """
        self.check_unchanged()
        with swapped(self.model, self.changes):
            name, module = find(self.model, reading, name)
            visits = self.visits(module)
        if not visits:
            raise ReadingError(f"{name} does not run in this call, or takes and returns more than one tensor")
        exchanged = of_module(module, visits[0][0]) is not None
        try:
            norm = fresh(kind, visits[0][0 if exchanged else 1], groups, module)
        except InputError as error:
            raise ReadingError(f"{name}: {error}") from None
        where = f"in the place of {name} ({type(module).__name__})" if exchanged else f"behind {name}"
        said = f"what if: a fresh {describe(norm)} {where}, all weights as they are"
        replacement = hooked_like(norm, module) if exchanged else followed(module, norm)
        return self.answer(reading, Change(name, replacement, said), len(visits))

    def answer(self, reading: Reading, change: Change, runs: int) -> Reading:
        """Measure with the change, and say what was changed.

        Raises:
            ReadingError: when the network reaches the module by another way than its path.
        """
        with swapped(self.model, (*self.changes, change)):
            changed = self.exchanged_runs(change)
            found = self.readings(self.model, self.batch, (reading.scope,), **self.asked)[0]
        if runs > 1:
            change = dataclasses.replace(change, said=f"{change.said} (in {changed} of its {runs} runs)")
        changes = (*self.changes, change)
        source = dataclasses.replace(self, changes=changes)
        return dataclasses.replace(found, notes=(*(c.said for c in changes), *found.notes), source=source)

    def exchanged_runs(self, change: Change) -> int:
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
        call = make_call(self.model, self.batch, self.asked.get("input"))
        args, kwargs = cast_tree((call.args, call.kwargs), *self.place)
        seen: list[tuple[Tensor, Tensor]] = []

        def note(_: nn.Module, given: tuple[Any, ...], out: Any) -> None:
            if given and isinstance(given[0], Tensor) and isinstance(out, Tensor):
                seen.append((given[0].detach().clone(), out.detach().clone()))

        with untouched(self.model, *self.place, self.asked.get("mode") == "train", call.native), torch.no_grad():
            compiled_inside(module).register_forward_hook(note)  # goes with everything else when the model is put back
            self.model(*args, **kwargs)
        return seen

    def check_unchanged(self) -> None:
        """Refuse to answer about a network that is no longer the one that was read.

        Raises:
            ReadingError: naming the first difference.
        """
        now = marks(self.model, self.batch)
        for name in [*self.marks, *(n for n in now if n not in self.marks)]:
            was, has = self.marks.get(name), now.get(name)
            if was is None or has is None or was[0] is not has[0] or was[1:] != has[1:]:
                raise ReadingError(
                    f"the model has changed since this reading was made ({name}); measure it again and ask that reading"
                )


def marks(model: nn.Module, batch: Any) -> dict[str, Mark]:
    """What tells whether a weight, buffer or input was exchanged or written to since."""
    owned = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    given = [(f"batch {name}", tensor) for name, tensor in named_tensors(batch)]
    return {name: mark(tensor) for name, tensor in (*owned, *given)}


def mark(tensor: Tensor) -> Mark:
    """The sum sees what a write through ``.data`` hides from the version counter."""
    data = tensor.detach()
    version = 0 if data.is_inference() else tensor._version
    try:
        plain = data.abs() if data.is_complex() else data.double().abs()  # a mask has no absolute value of its own
        return tensor, version, data.data_ptr(), float(plain.sum())
    except (RuntimeError, NotImplementedError):  # sparse, quantized and other tensors without plain memory
        return tensor, version, 0, 0.0


def find(model: nn.Module, reading: Reading, name: str) -> tuple[str, nn.Module]:
    """The module a layer's name stands for, and its path: of a function, the module that is this normalizer.

    Raises:
        ReadingError: saying what the name stands for instead.
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
        raise ReadingError(f"no layer {name!r} in this network; {known(model)}")
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
