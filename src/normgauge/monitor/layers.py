"""What a monitor watches: one layer for each weight of the model, found by type and never by name; later ones too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from normgauge.instrument.rules.normalizer import Normalizer
from normgauge.instrument.rules.tried import of_module
from normgauge.monitor.shards import Block
from normgauge.render.numbers import shortened_names

Role = Literal["matrix", "conv", "embedding", "norm", "vector"]

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
# Names, besides those with "weight" in them, of matrices that multiply; others may be added, as positions are
WEIGHTS = ("W", "w", "kernel")

SHOWN = 4  # most layers named in a sentence

WRAPPERS = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before every name


@dataclass(slots=True, eq=False)
class WatchedLayer:
    """One weight, with the module that owns it.

    Attributes:
        name: the module's name in the model, with the parameter's where it is not ``weight``.
        module: the owner.
        attribute: the weight's name in its owner; None for a normalizer without gain.
        role: how it is measured.
        tied: name of the layer that has the same weight and is measured instead, or None.
        normalizer: index of the normalizer its output goes into directly, once that was seen.
        held: weight and gradient of a sharded layer for one reading: its part here, or all of it where it is small.
        held_bias: the same for the gradient of the bias that goes with it.
        block: where the part held here lies in the whole; None where weights are not sharded.
        whole_size: Frobenius norm of the whole weight where only a part is held, as it was at first.
        parent: the module that its module is a part of; None for the whole model.
        path: its name in the model, where it is listed under another, as one of that name was there before.
        gone: whether it is no part of the model any more: nothing is measured then.
    """

    name: str
    module: nn.Module
    attribute: str | None
    role: Role
    tied: str | None = None
    normalizer: int | None = None
    held: tuple[Tensor, Tensor | None] | None = None
    held_bias: Tensor | None = None
    block: Block | None = None
    whole_size: float | None = None
    parent: nn.Module | None = None
    path: str = ""
    gone: bool = False

    @property
    def parameter(self) -> nn.Parameter | None:
        """The parameter itself, perhaps sharded; None where there is none or the weight is computed from others."""
        if self.attribute is None or self.gone:
            return None
        return self.module._parameters.get(self.attribute)  # quick: for every layer

    @property
    def weight(self) -> Tensor | None:
        """The weight as it is now, without a graph; whole where it is sharded."""
        if self.held is not None:
            return self.held[0]
        if self.attribute is None or self.gone:
            return None
        return whole_tensor(looked_up(self.module, self.attribute).detach())

    @property
    def form(self) -> Normalizer:
        """What kind of normalizer the module is, with its ε and statistics; only where the role is ``norm``."""
        found = of_module(self.module)
        assert found is not None  # its role says so
        return found

    def gain_of(self, form: Normalizer, weight: Tensor | None) -> Tensor | None:
        """γ of a normalizer of this form: its weight, or what it computes from that (1 + weight, for example).

        Args:
            form: what kind of normalizer it is now.
            weight: its weight, where that was looked up already.
        """
        gamma = form.gamma
        if gamma is None or self.held is not None or gamma is self.parameter:
            return self.weight if weight is None else weight
        return whole_tensor(gamma.detach())

    @property
    def gradient(self) -> Tensor | None:
        """The gradient the last backward pass left, or None."""
        if self.held is not None:
            return self.held[1]
        parameter = self.parameter
        gradient = None if parameter is None else parameter.grad
        if gradient is None or (type(gradient) is Tensor and not gradient.is_sparse and not gradient.requires_grad):
            return gradient
        return gradient.detach().to_dense() if gradient.is_sparse else whole_tensor(gradient.detach())

    @property
    def bias_gradient(self) -> Tensor | None:
        """The gradient of the bias that goes with the weight, or None."""
        if self.held is not None:
            return self.held_bias
        bias = self.module._parameters.get("bias") if self.attribute == "weight" and not self.gone else None
        return None if bias is None or bias.grad is None or is_sharded(bias) else bias.grad.detach()

    @property
    def reparametrized(self) -> bool:
        """Whether the weight is computed from other parameters (weight norm, spectral norm)."""
        return self.attribute is not None and parametrize.is_parametrized(self.module, self.attribute)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight; empty where there is none."""
        if self.attribute is None:
            return ()
        return tuple(looked_up(self.module, self.attribute).shape)  # sharded ones say their whole shape

    def size(self) -> float:
        """Frobenius norm of the weight, 0 where it cannot be read; waits for its device."""
        if self.whole_size is not None:
            return self.whole_size
        try:
            weight = self.weight
        except Exception:  # said at the first reading
            return 0.0
        return 0.0 if weight is None or not weight.numel() else float(torch.linalg.vector_norm(weight.float()))

    def described(self) -> dict[str, Any]:
        """The layer as the header of a run file describes it."""
        return {
            "name": self.name,
            "type": class_name(self.module),
            "role": self.role,
            "shape": list(self.shape),
            "parameters": count_numbers(self.module.parameters(recurse=False)),
            "tied": self.tied,
        }


class Inventory:
    """Remembers which modules and parameters a model has, so that a look for new ones costs microseconds.

    Attributes:
        exchanged: layers found at the last look to have another module than before.
        gone: layers found at the last look to be no part of the model any more.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.exchanged: list[WatchedLayer] = []
        self.gone: list[WatchedLayer] = []
        self._take()

    def fresh(self, known: Sequence[WatchedLayer]) -> list[WatchedLayer]:
        """Layers that are new since the last look, under any name.

        Args:
            known: the layers watched so far; one whose module was exchanged for another of the same shape goes on with
                the new one, and one whose module is another or nowhere is marked as gone.
        """
        self.exchanged.clear()
        self.gone.clear()
        if self._now() == self._seen and all(map(is_lazy, self._lazy)):
            return []
        self._take()
        by_name = {layer.path or layer.name: layer for layer in known if not layer.gone}
        found = []
        for layer in find_layers(self._model):
            old = by_name.get(layer.name)
            if old is None or not (old.module is layer.module or _is_alike(old, layer)):
                found.append(layer)
                continue
            del by_name[layer.name]
            self.exchanged += [old] if old.module is not layer.module else []
            old.module, old.tied = layer.module, layer.tied
        self.gone += by_name.values()
        for layer in self.gone:
            layer.gone = True
        return found

    def _take(self) -> None:
        self._tables = [table for m in self._model.modules() for table in (m._parameters, m._modules)]
        self._seen = self._now()
        self._lazy = [p for p in self._model.parameters() if is_lazy(p)]

    def _now(self) -> list[int]:
        return list(map(id, chain.from_iterable(table.values() for table in self._tables)))


def _is_alike(old: WatchedLayer, new: WatchedLayer) -> bool:
    return (old.attribute, old.role, old.shape) == (new.attribute, new.role, new.shape)


def looked_up(module: nn.Module, name: str) -> Tensor:
    """A parameter of a module, or a weight it computes from others, so that looking changes nothing."""
    parameter = module._parameters.get(name)
    if parameter is not None or not parametrize.is_parametrized(module, name):
        return getattr(module, name) if parameter is None else parameter
    parametrizations: Any = module.parametrizations
    return _computed(parametrizations[name])


def _computed(parametrization: nn.Module) -> Tensor:
    """The weight that a parametrization makes, in eval mode, past torch's cache, with everything put back.

    In train mode, spectral normalization updates its vectors at every access; others may draw random numbers.
    """
    parts = list(parametrization.modules())
    tables = [table for part in parts for table in (part.__dict__, part._buffers)]
    before = [(table, dict(table)) for table in tables]
    buffers = [(buffer, buffer.detach().clone()) for buffer in parametrization.buffers()]
    try:
        for part in parts:
            part.training = False
        with torch.no_grad(), kept_random(parametrization):
            made: Tensor = parametrization()
            return made
    finally:
        for table, old in before:
            table.clear()
            table.update(old)
        for buffer, value in buffers:
            buffer.data.copy_(value)


def count_numbers(parameters: Iterable[Tensor]) -> int:
    """How many numbers parameters hold; those of lazy modules are not counted before they are made."""
    return sum(p.numel() for p in parameters if not is_lazy(p))


def part_here(tensor: Tensor | None) -> Any:
    """A tensor, or the part of it that is here where several processes share it."""
    return getattr(tensor, "_local_tensor", tensor)


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is spread over processes."""
    return getattr(tensor, "full_tensor", None) is not None


def whole_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor put together from all processes; any other as it is."""
    if type(tensor) is Tensor:
        return tensor
    gather = getattr(tensor, "full_tensor", None)
    gathered: Tensor = tensor if gather is None else gather()
    return gathered


def find_layers(model: nn.Module) -> list[WatchedLayer]:
    """Every weight of the model in the order of its modules; a weight met again is marked as tied."""
    layers: list[WatchedLayer] = []
    seen: dict[int, str] = {}
    parents = {child: module for module in model.modules() for child in module.children()}
    with kept_random(model):  # a copy of a module that may be a normalizer is run, which may draw
        for path, module in model.named_modules():
            layers += _of_module(plain_name(path), module)
    for layer in layers:
        layer.parent = parents.get(layer.module)
        if layer.attribute is not None and not layer.reparametrized:
            key = id(looked_up(layer.module, layer.attribute))
            layer.tied = seen.get(key)
            seen.setdefault(key, layer.name)
    return layers


def kept_random(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, random numbers may be drawn on the devices of a model: afterwards none was."""
    return torch.random.fork_rng(devices={p.device.index for p in model.parameters() if p.device.type == "cuda"})


def unwatched_sentence(model: nn.Module) -> str:
    """A sentence that names the weights that are not watched, and why; empty where all are."""
    whys = (
        ("complex", lambda p: p.is_complex()),
        ("whole numbers, not what they stand for", lambda p: not (p.is_complex() or p.is_floating_point())),
        ("not made before the first pass, and watched from then on", is_lazy),
    )
    named = list(model.named_parameters())
    told = []
    for why, applies in whys:
        names = [plain_name(name) for name, parameter in named if applies(parameter)]
        told += [f"{shortened_names(names, SHOWN)} ({why})"] if names else []
    return f"not watched: {'; '.join(told)}." if told else ""


def class_name(module: nn.Module) -> str:
    """The class of a module, or of the network inside DistributedDataParallel and torch.compile; FSDP2 makes one."""
    wrapped = isinstance(module, DistributedDataParallel)
    inner = module._modules.get("module") if wrapped else module._modules.get("_orig_mod")
    if inner is not None:
        return class_name(inner)
    kind = type(module)
    sharded = len(kind.__mro__) > 1 and kind.__mro__[1].__name__ == "FSDPModule"
    return kind.__name__.removeprefix("FSDP") if sharded else kind.__name__


def plain_name(path: str) -> str:
    """A module's name without what wrappers put before it."""
    parts = path.split(".")
    return ".".join(part for part in parts if f"{part}." not in WRAPPERS or len(parts) == 1)


def _of_module(path: str, module: nn.Module) -> Iterator[WatchedLayer]:
    if is_norm(module):
        gamma = of_module(module).gamma  # type: ignore[union-attr]
        gains = [name for name, parameter in module.named_parameters(recurse=False) if parameter is gamma]
        named = "weight" if isinstance(getattr(module, "weight", None), Tensor) else next(iter(gains), None)
        yield WatchedLayer(path, module, named, "norm")
        return
    if isinstance(module, parametrize.ParametrizationList):
        return  # its parameters are those of the owner's weight
    names = [name for name, _ in module.named_parameters(recurse=False)]
    if parametrize.is_parametrized(module, "weight"):
        names.insert(0, "weight")
    for name in names:
        weight = looked_up(module, name)
        if is_lazy(weight) or not weight.is_floating_point():
            continue  # `unwatched_sentence` names it
        role = _role(module, name, weight)
        if role == "vector" and name == "bias" and "weight" in names:
            continue  # goes with its weight
        yield WatchedLayer(path if name == "weight" else f"{path}.{name}".lstrip("."), module, name, role)


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalizer with a spread to follow."""
    form = of_module(module)
    return form is not None and form.has_spread and form.kind != "length"


def is_transposed(module: nn.Module) -> bool:
    """Whether a layer multiplies with its weight as it is, (inputs, outputs), as the linear layer of GPT-2 does."""
    weight = None if isinstance(module, nn.Linear) else module._parameters.get("weight")
    return weight is not None and weight.ndim == 2 and getattr(module, "nf", None) == weight.shape[1]  # its outputs


def by_channel(module: nn.Module) -> bool:
    """Whether a module is a batch normalization."""
    form = of_module(module)
    return form is not None and form.kind == "batch"


def _role(module: nn.Module, name: str, weight: Tensor) -> Role:
    if isinstance(module, CONVS) and weight.ndim > 2:
        return "conv"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    return "matrix" if weight.ndim == 2 and (name in WEIGHTS or "weight" in name) else "vector"


def unheard_sentence(silent: Sequence[WatchedLayer], compiled: bool) -> str:
    """A sentence that says which σ and which operator norms could not be measured, and why."""
    norms = [layer for layer in silent if layer.role == "norm"]
    kept = [layer.name for layer in norms if layer.form.running is not None]
    lacking = [layer.name for layer in norms if layer.form.running is None]
    convs = [layer.name for layer in silent if layer.role == "conv"]
    parts = [f"no σ of {shortened_names(lacking, SHOWN)}"] if lacking else []
    parts += [f"no operator norm of {shortened_names(convs, SHOWN)}, whose input was not seen"] if convs else []
    parts += [f"σ of {shortened_names(kept, SHOWN)} from running statistics"] if kept else []
    why = "the model is compiled, and its layers do not run as modules" if compiled else "they did not run"
    return f"{' and '.join(parts)}: {why} in the steps that are read."
