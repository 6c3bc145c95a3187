"""canonical(): the same function in canonical scales.

Of all rescalings exp(t) that leave the function alone, the one is taken that minimises

    φ(t) = ½ Σ (θ' entries)² − Σ_f n_f t_f,

with n_f the number of rows a free scale belongs to. φ is convex, so two networks that differ by a rescaling get the
same weights: rows under a BatchNorm have norm 1, and what a pair hands from one side to the other has the same size on
both (one point of the balance of THEORY section 5 (c)). Before that, shifts that a normalizer takes off again are
removed: biases under BatchNorm become 0, rows under LayerNorm get mean zero.

A scale under a normalizer that keeps no running statistics stays as it is: its ε would make the change visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.geometry.symmetry.find import Analysis, analysed
from normgauge.geometry.symmetry.generators import Generator, State
from normgauge.geometry.symmetry.normed import with_computed, write_back
from normgauge.geometry.symmetry.rescaling import Exponents, both_ways
from normgauge.geometry.symmetry.verify import EXACT, random_move, relative
from normgauge.instrument.trace.copied import copied
from normgauge.instrument.trace.untouched import unwrap

SAME = 1e-3  # of the output: rounding in half precision, and running variances that ran out of room, stay below


@dataclass(frozen=True, slots=True)
class Canonical:
    """A copy of a network in canonical scales.

    Attributes:
        model: the copy; the original is untouched.
        eval_defect: relative change of its output in eval mode, in the model's own precision.
        train_defect: the same in train mode, in float64: the effect of ε.
        notes: what was left as it is.
    """

    model: nn.Module
    eval_defect: float
    train_defect: float
    notes: tuple[str, ...]


def canonical(model: nn.Module, batch: Any, *, output: str | None = None) -> Canonical:
    """A new model that computes the same function in canonical scales.

    Args:
        model: the network; untouched.
        batch: as for `gauge`; only used to run the model and to check the result.
        output: name of the output, where there are several.

    Returns:
        The copy, with what it changed.

    Raises:
        InputError: for a batch the model cannot run on, and where the copy would compute something else.
    """
    model = unwrap(model)
    precision = {n: t.dtype for n, t in (*model.named_parameters(), *model.named_buffers())}
    with analysed(model, batch, "train", output, strict=True) as found:
        kept = [g for g in found.generators if found.trial.defect(random_move(g, found.trial.state, 0), False) <= EXACT]
        state, notes = settled(found, kept)
        train = relative(found.trial.output(), found.trial.output(state))
        evaluated = found.evaluated or found.trial
        before = evaluated.output()
        rounded = {name: t.to(precision[name]).double() for name, t in state.items()}
        after = evaluated.output(rounded)
    defect = relative(before, after)
    if not defect <= SAME:
        raise InputError(
            f"canonical scales would change what {type(model).__name__} computes in eval mode, by {defect:.1g} of its "
            "output: something other than a normalizer in training reads its running statistics, or two places share "
            "them; the network is left as it is"
        )
    twin = copied(model)
    named = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
    with torch.no_grad():
        for name, tensor in state.items():
            named[name].copy_(tensor)
    return Canonical(twin, defect, train, tuple(notes))


def settled(found: Analysis, kept: list[Generator]) -> tuple[dict[str, Tensor], list[str]]:
    """Weights and running statistics after removing shifts and settling scales."""
    state: dict[str, Tensor] = dict(found.trial.state)
    for generator in kept:
        if generator.kind == "shift" and not generator.what.startswith("multiples"):
            state.update(least_shift(generator, state))
    notes = []
    left = [g.what for g in kept if not (g.kind == "scale" or "scale" in g.what or g.kind == "shift")]
    if left:
        notes.append("left as they are: " + "; ".join(dict.fromkeys(left)))
    normed = found.labels.normed
    moved, negative = rescaled_state(found, with_computed(state, normed))
    state.update({name: t for name, t in moved.items() if name not in normed})
    for name, tensor in moved.items():
        if name in normed:
            state.update(write_back(state, normed[name], tensor, unit=True))
    if negative:
        notes.append(f"running variances below ε cannot be scaled down; kept at 0: {', '.join(negative)}")
    return state, notes


def least_shift(generator: Generator, state: State) -> dict[str, Tensor]:
    """The move that makes a shifted weight smallest; its directions do not overlap, so one step is exact."""
    name = generator.parameters[0]

    def slope(at: float) -> Tensor:
        numbers = torch.full((generator.count,), at, dtype=torch.float64, requires_grad=True)
        half = 0.5 * generator.move(state, numbers)[name].square().sum()
        return torch.autograd.grad(half, numbers)[0]

    with torch.enable_grad():
        zero, one = slope(0.0), slope(1.0)
    return {n: t.detach() for n, t in generator.move(state, -zero / (one - zero)).items()}


def rescaled_state(found: Analysis, state: State) -> tuple[dict[str, Tensor], list[str]]:
    """The weights at the minimum of φ, and running variances that ran out of room."""
    exponents = Exponents(found.labels, found.solution, found.eps)
    free = found.solution.free
    if not free:
        return {}, []
    names = tuple(n for n in exponents.names if n not in found.trial.statistics)
    rows = row_counts(exponents, names)
    powers = {n: state[n].square().reshape(-1) for n in names}
    t = torch.zeros(len(free), dtype=torch.float64, requires_grad=True)
    descent = torch.optim.LBFGS(
        [t], max_iter=300, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        descent.zero_grad()
        values = found.solution.values(t)
        value = sum((powers[n] * (2 * exponents.of(n, values)).exp()).sum() for n in names) / 2 - (rows * t).sum()
        assert isinstance(value, Tensor)
        value.backward()
        return value

    with torch.enable_grad(), torch._C.DisableTorchFunction():  # plain arithmetic: modes that watch the model only cost
        descent.step(objective)
    values = found.solution.values(t.detach())
    after = exponents.apply(state, values, tuple(exponents.names))
    negative = [n for n, v in after.items() if n in found.eps and bool((v < 0).any())]
    return {n: v.clamp_min(0) if n in negative else v for n, v in after.items()}, negative


def row_counts(exponents: Exponents, names: tuple[str, ...]) -> Tensor:
    """n_f, the number of weight rows that each free scale multiplies; 0 for a scale that another weight undoes."""
    zeros = torch.zeros(len(exponents.solution.free), dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        values = exponents.solution.values(zeros)
        total = 0.0 * zeros.sum()
        for name in names:
            shape = exponents.labels.graph.state[name].shape
            if len(shape) > 1:
                total = total + exponents.of(name, values).sum() / shape[1:].numel()
        (sums,) = torch.autograd.grad(total, zeros)
    one_way = [bool(touched) and not both_ways(touched) for touched in exponents.every()]
    return torch.where(torch.tensor(one_way), sums, torch.zeros(()))
