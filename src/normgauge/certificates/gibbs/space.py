"""A copy of a network whose prediction depends on listed tensors only, in scales that no rescaling can move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from normgauge.certificates.facts.reads import lies_under, refuse_unpaid
from normgauge.certificates.facts.sample import device_of
from normgauge.certificates.surrogate import eval_copy
from normgauge.core.errors import InputError, NormgaugeError
from normgauge.geometry.symmetry import canonical
from normgauge.instrument.rules.tried import of_module

PROBES = 8  # random inputs the copy is compared on
AGREE = 1e-3  # relative change of the output that rounding may make
TROUBLE = (NormgaugeError, RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError)


@dataclass(frozen=True, slots=True, eq=False)
class WeightSpace:
    """A network as a function of tensors.

    Running statistics were computed from D and no prior covers them, so each BatchNorm of the copy is the map
    y = ax + c it is in eval mode, a = γ/√(v+ε), c = β − μa, with a and c among the tensors.

    Attributes:
        model: the copy, in eval mode.
        mean: the tensors its prediction depends on, by name; detached.
        notes: what a reader must know.
    """

    model: nn.Module
    mean: Mapping[str, Tensor]
    notes: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many numbers the tensors hold in all."""
        return sum(tensor.numel() for tensor in self.mean.values())

    @property
    def device(self) -> torch.device:
        """The device the tensors are on."""
        return next(iter(self.mean.values())).device

    def __call__(self, tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """What the network says with these tensors; differentiable."""
        return functional_call(self.model, dict(tensors), (inputs.to(self.device),))


def weight_space(
    model: nn.Module, inputs: Tensor, *, settle: bool = True, data_free: Sequence[str] = ()
) -> WeightSpace:
    """The space of a network: parameters and float buffers, saved with it or not.

    Args:
        model: untouched.
        inputs: a batch; the tensors do not depend on it, only whether the forward reads others is looked at on it.
        settle: put weights that a normalizer or a neighbour rescales on canonical scales first.
        data_free: names of tensors fixed without D.

    Raises:
        InputError: for a network that cannot be copied, does not answer input by input, has no weights, or reads
            tensors that are not among them.
    """
    probe = random_inputs(inputs)
    twin, notes = _settled(model, probe) if settle else (eval_copy(model), ())
    before = _say(eval_copy(model), probe)
    twin = _absorb(twin)
    mean = {name: t.detach() for name, t in twin.named_parameters()}
    for name, tensor in twin.named_buffers():
        if perturbed(name, tensor, data_free):
            mean[name] = tensor.detach()
    if not mean:
        raise InputError(f"{type(model).__name__} has no weights to put noise on")
    for batch in (probe, inputs):
        refuse_unpaid(twin, batch, [*twin.parameters(), *mean.values()], data_free)
    moved = float((_say(twin, probe) - before).abs().max() / before.abs().max().clamp(min=1e-30))
    if not moved <= AGREE:
        raise InputError(f"taking the normalizers' statistics into the weights changes the output by {moved:.2g}")
    return WeightSpace(twin, mean, notes)


def perturbed(name: str, buffer: Tensor, data_free: Sequence[str]) -> bool:
    """Whether noise goes on a buffer: float and finite, and not declared to be fixed without D."""
    usable = buffer.is_floating_point() and bool(buffer.isfinite().all())
    return usable and not any(lies_under(name, one) for one in data_free)


def random_inputs(like: Tensor) -> Tensor:
    """Random inputs of this shape; they depend on no data."""
    shape = (PROBES, *like.shape[1:])
    if not like.is_floating_point():
        return torch.zeros(shape, dtype=like.dtype)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=like.dtype)


def _settled(model: nn.Module, probe: Tensor) -> tuple[nn.Module, tuple[str, ...]]:
    try:
        return canonical(model, probe.to(device_of(model))).model.eval(), ()
    except TROUBLE as error:
        return eval_copy(model), (f"weights are on the scales they came with, since no canonical ones exist: {error}",)


def _say(model: nn.Module, probe: Tensor) -> Tensor:
    with torch.no_grad():
        said: Tensor = model(probe.to(device_of(model)))
    return said.double()


def _absorb(model: nn.Module) -> nn.Module:
    """The same function with a gain and an offset in the place of every normalizer with stored statistics.

    Raises:
        InputError: for a BatchNorm that looks at its batch in eval mode too.
    """
    for name, module in list(model.named_modules(remove_duplicate=False)):
        form = of_module(module)
        if form is None or not form.by_channel:
            continue
        if form.stored is None:
            raise InputError(f"{name} normalizes by its batch in eval mode too: no function of a single input")
        kind = form.stored[0].dtype
        scaled = _Scaled(*(part.to(kind) for part in form.affine()))
        if not name:
            return scaled
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, scaled)
    return model


class _Scaled(nn.Module):
    """y = ax + c, channel by channel."""

    def __init__(self, gain: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(gain), nn.Parameter(offset)

    def forward(self, x: Tensor) -> Tensor:
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        return x * self.weight.view(shape) + self.bias.view(shape)
