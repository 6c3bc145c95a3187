"""Whether a module is a normalizer, by what it computes: a copy is run on a few values and its steps are read."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.rules import REGISTRY
from normgauge.rules.expand import expansion_of
from normgauge.rules.normalizer import Normalizer, of_step, of_torch
from normgauge.rules.recognise import recognise
from normgauge.trace.tape import record

MOVES = ("permute", "transpose", "movedim", "view", "reshape", "flatten", "unflatten", "contiguous", "unsqueeze")
CASTS = ("to", "float", "double", "half", "bfloat16", "type_as", "type", "clone", "squeeze")
BESIDE = {*MOVES, *CASTS, "mul", "rmul", "imul", "add", "radd", "iadd"}  # in a module that is a normalizer
LOOKED_AT: dict[Any, Normalizer | None] = {}  # modules written by hand, by class and settings


def of_module(module: nn.Module, example: Tensor | None = None) -> Normalizer | None:
    """The normalizer that a module is: one of torch's, or one that computes nothing else.

    Args:
        module: torch's own or anybody's; a copy of it is run.
        example: what it is given; without it, random values of usual shapes around its channels are tried.
    """
    found = of_torch(module, torch.float32 if example is None else example.dtype)
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if found is not None or type(module).__module__.startswith("torch.") or any(module.children()):
        return found
    wide = max((t.numel() for t in own), default=0)
    if any(t.ndim > 1 for t in own) or (example is None and not own):
        return None
    if example is not None:
        return _alone(module, example)
    settings = tuple(sorted((k, v) for k, v in vars(module).items() if isinstance(v, int | float | str)))
    key = (type(module), tuple(t.shape for t in own), settings)
    if key not in LOOKED_AT:
        shapes = ((4, wide), (4, 3, wide), (3, wide, 5), (3, wide, 4, 4))
        values = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in shapes)
        LOOKED_AT[key] = next((form for x in values if (form := _alone(module, x)) is not None), None)
    kept = LOOKED_AT[key]
    return kept if kept is None else replace(kept, gamma=getattr(module, "weight", kept.gamma))


def _alone(module: nn.Module, x: Tensor) -> Normalizer | None:
    """The only normalizer among the steps of a module, the others moving entries or multiplying by its own weights."""
    own = (*module.parameters(), *module.buffers())
    try:
        given = x.detach().double().to(next((t.device for t in own), x.device))
        with torch.random.fork_rng():
            first = record(_twin(module), (given,), {}, given, lambda out: (out, []), REGISTRY.is_leaf, expansion_of)
        steps = recognise(first).steps
    except Exception:  # whatever it is, it is no normalizer of such values
        return None
    forms = {step.index: of_step(step, x.dtype) for step in steps}
    found = [step for step in steps if forms[step.index] is not None]
    others = [step for step in steps if forms[step.index] is None]
    if len(found) != 1 or not all(step.kind.strip("_") in BESIDE and len(step.inputs) == 1 for step in others):
        return None
    return _seen_from(given, found[0].inputs[0].tensor, forms[found[0].index])


def _twin(module: nn.Module) -> nn.Module:
    """A copy in float64 without the hooks, which would run and are somebody's."""
    bare = object.__new__(type(module))
    bare.__dict__ = {k: type(v)() if "_hooks" in k and isinstance(v, dict) else v for k, v in vars(module).items()}
    return copy.deepcopy(bare).double()


def _seen_from(given: Tensor, moved: Tensor, form: Normalizer | None) -> Normalizer | None:
    """The normalizer of values that were given with their axes in another order; None where they moved otherwise."""
    orders = itertools.permutations(range(given.ndim))
    order = next((o for o in orders if given.permute(o).shape == moved.shape and given.permute(o).equal(moved)), None)
    if form is None or order is None or (order != tuple(range(given.ndim)) and not form.dims):
        return None
    return replace(form, dims=tuple(order[d] - given.ndim for d in form.dims))
