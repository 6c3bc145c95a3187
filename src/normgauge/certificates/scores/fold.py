"""A copy of a network in which BatchNorm is part of the maps before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normgauge.certificates.facts.sample import device_of
from normgauge.instrument.rules.normalizer import Normalizer, fed_normalizers
from normgauge.instrument.rules.tried import of_module
from normgauge.instrument.session import Options, trace_call
from normgauge.instrument.trace.copied import copied
from normgauge.instrument.trace.step import Trace
from normgauge.instrument.trace.untouched import unwrap

MAPS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def folded_model(model: nn.Module, inputs: Tensor) -> nn.Module:
    """The same function in eval mode, with its BatchNorm layers multiplied into the linear maps they follow.

    γ (Wx + b − μ)/√(v+ε) + β = (DW) x + D(b − μ) + β,  D = diag(γ/√(v+ε))

    Weights made by a parametrization are written out. A BatchNorm that does not directly follow one linear map or
    convolution used once, or that has no running statistics, stays where it is.

    Args:
        model: left as it is.
        inputs: a batch it takes, to see what follows what.

    Returns:
        A deep copy in eval mode whose parameters all ask for gradients.
    """
    twin = copied(unwrap(model)).eval()
    for module in list(twin.modules()):
        if parametrize.is_parametrized(module):
            _write_out(module)
    for first, path, form in _pairs(twin, model_trace(twin, inputs)):
        _absorb(first, form)
        parent, _, name = path.rpartition(".")
        setattr(twin.get_submodule(parent), name, nn.Identity())
    return twin.requires_grad_(True)


def _write_out(module: nn.Module) -> None:
    """Replace parametrized tensors by what they are now.

    Not by torch's own removal: a copy shares its class with the original, which would lose its weights too.
    """
    boxes = module.get_submodule("parametrizations")
    values = {name: getattr(module, name).detach().clone() for name in dict(boxes.named_children())}
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, value in values.items():
        module.register_parameter(name, nn.Parameter(value))


def model_trace(model: nn.Module, inputs: Tensor) -> Trace:
    """The steps of the model on this batch."""
    x = inputs.detach().clone().to(device_of(model))
    with torch.no_grad():
        return trace_call(model, (x,), {}, x, Options(), x.dtype)


def _pairs(model: nn.Module, trace: Trace) -> Iterator[tuple[nn.Module, str, Normalizer]]:
    """Each linear map with the path of the module that is nothing but the BatchNorm behind it, and what that is."""
    uses = Counter(step.path for step in trace.steps)
    for before, step, form in fed_normalizers(trace, torch.float32, lambda step: type(step.module) in MAPS):
        alone = uses[step.path] == uses[before.path] == 1 and of_module(model.get_submodule(step.path)) is not None
        if form.kind == "batch" and form.stored is not None and alone:
            yield model.get_submodule(before.path), step.path, form


@torch.no_grad()
def _absorb(first: nn.Module, form: Normalizer) -> None:
    assert isinstance(first, MAPS)
    scale, shift = form.affine()
    shift = shift if first.bias is None else first.bias.double() * scale + shift
    weight = first.weight.double() * scale.view(-1, *[1] * (first.weight.ndim - 1))
    dtype = first.weight.dtype
    first.weight = nn.Parameter(weight.to(dtype))
    first.bias = nn.Parameter(shift.to(dtype))
