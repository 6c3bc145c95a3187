"""A copy of a network in which BatchNorm is part of the maps before it."""

from __future__ import annotations

import copy
from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normgauge.generalization.facts.sample import device_of
from normgauge.rules.normalizer import of_torch
from normgauge.session import Options
from normgauge.session import traced as recorded
from normgauge.trace.step import Step, Trace
from normgauge.trace.untouched import unwrap

MAPS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def folded(model: nn.Module, inputs: Tensor) -> nn.Module:
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
    twin = copy.deepcopy(unwrap(model)).eval()
    for module in list(twin.modules()):
        if parametrize.is_parametrized(module):
            _write_out(module)
    for first, norm in _pairs(twin, traced(twin, inputs)):
        _absorb(first, norm)
        parent, _, name = next(n for n, m in twin.named_modules() if m is norm).rpartition(".")
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


def traced(model: nn.Module, inputs: Tensor) -> Trace:
    """The steps of the model on this batch."""
    x = inputs.detach().clone().to(device_of(model))
    with torch.no_grad():
        return recorded(model, (x,), {}, x, Options(), x.dtype)


def _pairs(model: nn.Module, trace: Trace) -> list[tuple[nn.Module, nn.Module]]:
    """Each linear map with the BatchNorm that alone reads its output."""
    uses = Counter(step.path for step in trace.steps if step.module is not None)
    found = []
    for step in trace.steps:
        before = step.inputs[0].step if step.module is not None and step.inputs else None
        if before is None or not _foldable(step, before) or len(trace.consumers[step.inputs[0].index]) != 1:
            continue
        if uses[step.path] == uses[before.path] == 1:
            found.append((model.get_submodule(before.path), model.get_submodule(step.path)))
    return found


def _foldable(step: Step, before: Step) -> bool:
    form = of_torch(step.module)
    fixed = form is not None and form.kind == "batch" and form.stored is not None
    return fixed and type(before.module) in MAPS and not step.trouble


@torch.no_grad()
def _absorb(first: nn.Module, norm: nn.Module) -> None:
    form = of_torch(norm)
    assert isinstance(first, MAPS) and form is not None
    scale, shift = form.affine()
    shift = shift if first.bias is None else first.bias.double() * scale + shift
    weight = first.weight.double() * scale.view(-1, *[1] * (first.weight.ndim - 1))
    dtype = first.weight.dtype
    first.weight = nn.Parameter(weight.to(dtype))
    first.bias = nn.Parameter(shift.to(dtype))
