"""Whether a module is a normalizer, by what it computes: a copy is run on a few values and its steps are read."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.expand import expansion_of
from normgauge.instrument.rules.normalizer import Normalizer, of_step, of_torch
from normgauge.instrument.rules.recognise import CLOSE, recognise
from normgauge.instrument.trace.again import run_step
from normgauge.instrument.trace.step import Step, Trace, backward_slice
from normgauge.instrument.trace.tape import record_trace

MOVES = ("permute", "transpose", "movedim", "view", "reshape", "flatten", "unflatten", "contiguous", "unsqueeze")
CASTS = ("to", "float", "double", "half", "bfloat16", "type_as", "type", "clone", "squeeze")
BESIDE = {*MOVES, *CASTS, "mul", "rmul", "imul", "add", "radd", "iadd"}  # in a module that is a normalizer
LEAST = 1e-8  # ε of stored statistics; of a smaller one too few digits come out
SURE = 1e-14  # what such an ε may be off by
DIVIDES = {"div", "truediv", "itruediv"}
AFFINE = {"mul", "rmul", "imul", "add", "radd", "iadd", "sub", "rsub", "isub", *DIVIDES}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A normalizer written by hand.

    Attributes:
        form: what it is, with the tensors of a trial.
        names: of ``gamma``, ``beta``, ``mean`` and ``variance``: a tensor of the module, and what is added to it;
            None where they are made of its tensors in another way.
    """

    form: Normalizer
    names: Mapping[str, tuple[str, float]] | None

    def filled(self, module: nn.Module) -> Normalizer:
        """The normalizer with the tensors that the module has now."""
        form, own = self.form, {}
        mean, variance = form.running or (None, None)
        tried = {"gamma": form.gamma, "beta": form.beta, "mean": mean, "variance": variance}
        for part, (name, more) in (self.names or {}).items():
            tensor, like = getattr(module, name), tried[part]
            tensor = tensor if like is None or tensor.shape == like.shape else tensor.reshape(like.shape)
            own[part] = tensor + more if more else tensor
        running = (own["mean"], own["variance"]) if self.form.running is not None else None
        return replace(self.form, gamma=own.get("gamma"), beta=own.get("beta"), running=running)


LOOKED_AT: dict[Any, Recipe | None] = {}  # modules written by hand, by class and settings


def of_module(module: nn.Module, example: Tensor | None = None) -> Normalizer | None:
    """The normalizer that a module is: one of torch's, or one written by hand; None where it computes anything else.

    Args:
        module: torch's own or anybody's; a copy of it is run.
        example: what it is given; without it, random values of usual shapes around its channels are tried.
    """
    own = _own(module)
    given = example if example is not None else next(iter(own.values()), None)
    found = of_torch(module, torch.float32 if given is None else given.dtype)
    if found is not None or type(module).__module__.startswith("torch.") or any(module.children()):
        return found
    if any(t.numel() != max(t.shape, default=1) for t in own.values()) or (example is None and not own):
        return None
    settings = tuple((k, v) for k, v in vars(module).items() if not k.startswith("_"))
    shape = None if example is None else example.shape
    key = (type(module), tuple((name, t.shape) for name, t in own.items()), settings, shape)
    kept = all(_is_fixed(value) for _, value in settings)  # what can change unseen is looked at each time
    if not kept or key not in LOOKED_AT:
        values = _usual(max(t.numel() for t in own.values())) if example is None else iter((example,))
        recipe = next((made for x in values if (made := _alone(module, x)) is not None), None)
        if kept:
            LOOKED_AT[key] = recipe
    else:
        recipe = LOOKED_AT[key]
    if recipe is not None and recipe.names is None:  # what it makes of its tensors may depend on what it is given
        recipe = None if example is None else _alone(module, example, drawn=False)
        return None if recipe is None else recipe.form
    return None if recipe is None else recipe.filled(module)


def _is_fixed(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_fixed, value))
    return value is None or isinstance(value, int | float | str | type | FunctionType | torch.dtype | torch.device)


def in_training(module: nn.Module) -> Normalizer | None:
    """The normalizer that a module is in train mode."""
    twin = object.__new__(type(module))
    twin.__dict__ = {**vars(module), "training": True}
    return of_module(twin)


def with_stored(trace: Trace, model: nn.Module) -> Trace:
    """The trace with stored statistics that are used by hand replaced by one call of torch's function.

    Only where what was recorded of the module multiplies by constants and adds them, one after the other: then it is
    a·x + b whatever x is, and a and b are those of the function.
    """
    forms = {}
    for path, module in model.named_modules(remove_duplicate=False):
        form = None if any(module.children()) else of_module(module)
        if form is not None and form.stored is not None:
            forms[path] = form
    changed = False
    for step in trace.steps if forms and trace.output is not None else ():
        readers = [reader.path for reader in trace.consumers.get(step.outputs[0].index, ())]
        if step.path in forms and is_affine(step) and step.path not in readers:
            changed |= _as_one(step, forms[step.path], trace)
    if not changed or trace.output is None:
        return trace
    return replace(trace, steps=backward_slice(trace.output), consumers={})


def is_affine(step: Step) -> bool:
    """Whether a step multiplies its one input by constants or adds them to it, entry by entry."""
    value, kind = step.inputs[0] if len(step.inputs) == 1 else None, step.kind.strip("_")
    under = kind in DIVIDES and not (step.args and step.args[0] is value)
    plain = value is not None and not (step.trouble or step.kwargs or step.random is not None or under)
    same = value is not None and len(step.outputs) == 1 and step.outputs[0].tensor.shape == value.tensor.shape
    return plain and same and step.module is None and kind in AFFINE and len(step.args) == 2


def _as_one(last: Step, form: Normalizer, trace: Trace) -> bool:
    """Replace the last of a module's steps by torch's function, if that is what they compute; True if it did."""
    chain, value = [last], last.inputs[0]
    while value.step is not None and value.step.path == last.path:
        if not is_affine(value.step) or len(trace.consumers[value.index]) != 1:
            return False
        chain.append(value.step)
        value = value.step.inputs[0]
    x, (mean, variance) = value.tensor.detach(), form.stored or (None, None)
    if x.dtype != torch.float64 or x.ndim < 2 or mean is None or mean.numel() != x.shape[1]:
        return False

    def run(data: Tensor) -> Tensor:
        for step in reversed(chain):
            (data,) = run_step(step, lambda value, data=data: data)  # type: ignore[misc]
        return data

    given = (mean, variance, form.gamma, form.beta, False, 0.0, form.eps)
    with torch.enable_grad():
        zero = torch.zeros_like(x, requires_grad=True)
        mine, torchs = run(zero), F.batch_norm(zero, *given)
        slope, other = (torch.autograd.grad(out.sum(), zero)[0] for out in (mine, torchs))
    near = CLOSE * float(torchs.detach().abs().max())
    if not (torch.allclose(slope, other, rtol=CLOSE, atol=0.0) and torch.allclose(mine, torchs, rtol=CLOSE, atol=near)):
        return False
    output = last.outputs[0]
    output.step = Step(last.index, F.batch_norm, None, last.path, (value, *given), {}, (value,), last.outputs)
    return True


def _usual(wide: int) -> Iterator[Tensor]:
    wide = wide if wide > 1 else 5  # one number for all entries: over a single one, sums and means are alike
    for shape in ((4, wide), (4, 3, wide), (3, wide, 5), (3, wide, 4, 4)):
        yield torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)


def _alone(module: nn.Module, x: Tensor, drawn: bool = True) -> Recipe | None:
    """The only normalizer among the steps of a module, the others moving entries or multiplying by its own weights."""
    given = x.detach().double().cpu()
    try:
        twin = _twin(module, drawn)
        own = {name: tensor.detach() for name, tensor in _own(twin).items()}
        with torch.random.fork_rng():
            first = record_trace(twin, (given,), {}, given, lambda out: (out, []), REGISTRY.is_leaf, expansion_of)
        same = first.output is not None and first.output.tensor.shape == given.shape and not first.path_dependent
        steps = recognise(first).steps if same else ()
        forms = {step.index: of_step(step, x.dtype) for step in steps}
        affine = bool(steps) and all(map(is_affine, first.steps))  # and so it is at every input
        stored = _stored(twin, own, given) if affine else None
    except Exception:  # whatever it is, it is no normalizer of such values
        return None
    if stored is not None:
        return _named(stored, own)
    found = [step for step in steps if forms[step.index] is not None]
    others = [step for step in steps if forms[step.index] is None]
    if len(found) != 1 or not all(step.kind.strip("_") in BESIDE and len(step.inputs) == 1 for step in others):
        return None
    form = _seen_from(given, found[0].inputs[0].tensor, forms[found[0].index])
    return None if form is None else _named(_with_gains(form, others), own)


def _own(module: nn.Module) -> dict[str, Tensor]:
    """The floating tensors that a module holds itself, by name."""
    tables = (*module._parameters.items(), *module._buffers.items())
    return {name: tensor for name, tensor in tables if tensor is not None and tensor.is_floating_point()}


def _twin(module: nn.Module, drawn: bool) -> nn.Module:
    """A copy in float64 without hooks, which are not ours to run; its tensors are its own or ``drawn`` at random."""
    bare = object.__new__(type(module))
    bare.__dict__ = {k: type(v)() if "_hooks" in k and isinstance(v, dict) else v for k, v in vars(module).items()}
    draw = torch.Generator().manual_seed(1)
    for table, kind in (("_parameters", nn.Parameter), ("_buffers", Tensor.detach)):
        bare.__dict__[table] = dict(vars(module)[table])
        for name, tensor in bare.__dict__[table].items():
            if tensor is not None and tensor.is_floating_point():
                made = 0.5 + torch.rand(tensor.shape, generator=draw, dtype=torch.float64)
                bare.__dict__[table][name] = kind(made if drawn else tensor.detach().double().cpu())
    return copy.deepcopy(bare)


def _seen_from(given: Tensor, moved: Tensor, form: Normalizer | None) -> Normalizer | None:
    """The normalizer of values that were given with their axes in another order; None where they moved otherwise."""
    orders = itertools.permutations(range(given.ndim))
    order = next((o for o in orders if given.permute(o).shape == moved.shape and given.permute(o).equal(moved)), None)
    if order == tuple(range(given.ndim)):
        return form
    if form is None or order is None or form.kind == "batch" or not form.dims:
        return None
    return replace(form, dims=tuple(order[d] - given.ndim for d in form.dims))


def _with_gains(form: Normalizer, others: list[Step]) -> Normalizer:
    """The normalizer with the constants behind it as its gain and shift."""
    for step in others:
        constant = next((g for g in step.args if isinstance(g, Tensor) and g.is_floating_point()), None)
        if constant is not None and "mul" in step.kind:
            form = replace(form, gamma=constant if form.gamma is None else form.gamma * constant)
        elif constant is not None and "add" in step.kind:
            form = replace(form, beta=constant)
    return form


def _named(form: Normalizer, own: Mapping[str, Tensor]) -> Recipe:
    """The recipe that names the module's tensor behind each part of its normalizer, where every part is one of them."""
    mean, variance = form.running or (None, None)
    names: dict[str, tuple[str, float]] = {}
    for part, tensor in {"gamma": form.gamma, "beta": form.beta, "mean": mean, "variance": variance}.items():
        if tensor is None:
            continue
        same = [name for name, other in own.items() if other.numel() == tensor.numel()]
        apart = {name: tensor.detach().reshape(-1) - own[name].reshape(-1) for name in same}
        near = [name for name in same if float(apart[name].max() - apart[name].min()) < CLOSE]
        if not near:
            return Recipe(form, None)
        nearest = min(near, key=lambda name: abs(float(apart[name].mean())))  # a single entry is a shift from any other
        names[part] = nearest, round(float(apart[nearest].mean()), 9)
    return Recipe(form, names)


@torch.no_grad()
def _stored(twin: nn.Module, own: Mapping[str, Tensor], x: Tensor) -> Normalizer | None:
    """γ(x − mean)/√(var + ε) + β with tensors of the module, where it computes just that."""
    offset = twin(torch.zeros_like(x))
    scale = twin(torch.ones_like(x)) - offset
    vectors = [tensor.reshape(-1) for tensor in own.values() if tensor.numel() == x.shape[1] > 1]
    if x.ndim < 2 or len(vectors) < 2 or not torch.allclose(twin(x), scale * x + offset, rtol=CLOSE, atol=CLOSE):
        return None
    slope = scale.movedim(1, 0).flatten(1)[:, 0]
    for gamma, beta, mean, variance in itertools.permutations((*vectors, None, None), 4):
        if mean is None or variance is None:
            continue
        exact = float(((1.0 if gamma is None else gamma) / slope).square().sub(variance).mean())
        eps = float(f"{exact:.3g}")
        form = Normalizer("batch", gamma, beta, eps, (mean, variance), own=False)
        # an ε that is not sure to its last digit would make a bound that is none
        if LEAST <= eps < 1 and abs(exact - eps) < SURE and torch.allclose(form(x), twin(x), rtol=CLOSE, atol=CLOSE):
            return form
    return None
