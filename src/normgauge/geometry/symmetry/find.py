"""symmetries(): everything that can be done to the weights without changing what the network computes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from normgauge.core.answers import MEASURE, answered
from normgauge.core.errors import InputError
from normgauge.core.symmetry import Symmetries, Symmetry
from normgauge.geometry.symmetry import centred, mixing, rescaling, rotating, shifting
from normgauge.geometry.symmetry.generators import Generator, dimension
from normgauge.geometry.symmetry.graph import OperationGraph, record_graph
from normgauge.geometry.symmetry.groups import ScaleFree
from normgauge.geometry.symmetry.labels import Labels, Solution
from normgauge.geometry.symmetry.normed import length_scales, with_held, with_normed
from normgauge.geometry.symmetry.operations import MOVING, guards_denominator, normalization
from normgauge.geometry.symmetry.scales import label_graph
from normgauge.geometry.symmetry.sites import used_again
from normgauge.geometry.symmetry.verify import EXACT, WeightTrial, random_move, runner, write_out
from normgauge.instrument.rules.tried import of_module
from normgauge.instrument.trace.inputs import check_finite, make_call, named_tensors
from normgauge.instrument.trace.untouched import cast_tree, untouched, unwrap

MOST_SAMPLES = 8  # enough to check a symmetry; more would only take time
Progress = Callable[[str, float], None]


def silent_progress(stage: str, fraction: float) -> None:
    """Report no progress."""


@dataclass(slots=True)
class Analysis:
    """A model in float64 for as long as it is analysed, its graph, and the families found in it."""

    trial: WeightTrial
    evaluated: WeightTrial | None
    labels: Labels
    solution: Solution
    generators: list[Generator]
    eps: dict[str, float]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@answered(MEASURE)
def symmetries(
    model: nn.Module,
    batch: Any,
    *,
    mode: str = "eval",
    input: str | None = None,
    output: str | None = None,
    progress: Progress | None = None,
) -> Symmetries:
    """Find the scale, shift and pair invariances of any model, and try each on it.

    The model is run once and every operation, down to ATen, is written down; scales are unknowns with one linear
    equation for each entry and operation, shifts are followed until something takes them off or back. Every family
    found is then applied to a float64 copy, with random factors, and kept only if the output stays.

    Args:
        model: the network; it comes back bit for bit as it was.
        batch: as for `gauge`; eight samples of it are used.
        mode: ``eval``, where running statistics count as weights, or ``train``, with the statistics of the batch (a
            normalizer frozen in eval mode inside a model in train mode stays frozen).
        input: name of the input that counts as the sample, where there are several; all stay as they are.
        output: name of the output, where there are several.
        progress: called with a stage and the fraction of it done.

    Returns:
        The families, with their defects.

    Raises:
        InputError: for an unknown mode, or a batch the model cannot run on.
    """
    with analysed(model, batch, mode, output, progress or silent_progress, wanted=input) as found:
        return report_symmetries(found, mode, progress or silent_progress)


def scale_free(model: nn.Module, batch: Any) -> list[ScaleFree]:
    """The groups of weights whose scale a normalizer takes off, as `normgauge.geometry.dynamics` wants them.

    Args:
        model: the network; untouched.
        batch: as for `gauge`.

    Returns:
        One group for every family of whole rows; streams that several layers write to are left out.
    """
    found = symmetries(model, batch, mode="train")
    return [ScaleFree(g.parameters, *g.rows) for g in found.of("scale") if g.rows is not None]


@contextmanager
def analysed(
    model: nn.Module,
    batch: Any,
    mode: str,
    output: str | None = None,
    progress: Progress = silent_progress,
    strict: bool = False,
    wanted: str | None = None,
) -> Iterator[Analysis]:
    """Run a float64 copy of the weights once and derive all families from the graph; ``strict`` as for `label_graph`.

    Raises:
        InputError: for an unknown mode, or a batch the model cannot run on.
    """
    if mode not in ("train", "eval"):
        raise InputError(f"mode: expected train or eval, got {mode!r}")
    model = unwrap(model)
    call = make_call(model, first_samples(batch), wanted)
    check_finite(model, call)
    check_memory(model)
    frozen = {m for m in model.modules() if model.training and not m.training}
    device = torch.device("cpu")  # wherever the model lives: float64 and whole numbers are at home here
    progress("run", 0.0)
    with untouched(model, torch.float64, device, False, call.native):
        write_out(model)
        args, kwargs = cast_tree((call.args, call.kwargs), torch.float64, device)
        call = replace(call, args=args, kwargs=kwargs)
        notes: list[str] = []
        runs = {m: runner(model, call, output, m, frozen, notes) for m in ("train", "eval")}
        live = moving(model)
        state = {name: tensor.detach().clone() for name, tensor in live.items()}
        given = [t for _, t in named_tensors((call.args, call.kwargs))]
        graph = record_graph(runs[mode], live, given)
        trial = WeightTrial(
            runs[mode], live, state, frozenset(n.call for n in graph.nodes if guards_denominator(graph, n))
        )
        trial.fill(state)
        progress("equations", 0.3)
        labels = label_graph(graph, strict)
        solution = labels.torus.solve()
        own = {id(variance): eps for _, variance, eps in running_moments(model)}
        eps = {name: own[id(tensor)] for name, tensor in live.items() if id(tensor) in own}
        generators = [
            *rescaling.rescalings(labels, solution, eps),
            *shifting.bias_shifts(labels),
            *shifting.bias_pairs(model, live),
            *shifting.weight_shifts(labels),
            *centred.reader_shifts(labels, state),
            *shifting.kernel_shifts(labels),
            *shifting.mean_shifts(labels, eps),
            *mixing.mixings(labels),
            *rotating.stream_rotations(labels),
            *rotating.rotary_rotations(labels),
        ]
        generators = [*(with_normed(g, labels.normed) for g in generators), *length_scales(labels.normed, state)]
        generators, left_out = with_held(generators, labels.held, state)
        evaluated = WeightTrial(runs["eval"], live, state) if mode == "train" and trial.statistics else None
        yield Analysis(trial, evaluated, labels, solution, generators, eps, tuple(notes), tuple(left_out))


def report_symmetries(found: Analysis, mode: str, progress: Progress = silent_progress) -> Symmetries:
    """Try every family on the model and report those that leave the output alone."""
    kept, rejected = [], []
    for number, generator in enumerate(found.generators):
        progress("try", number / len(found.generators))
        tried = try_move(found, generator, number)
        if tried is None:
            rejected.append(f"{generator.what}: {', '.join(generator.parameters[:4])}")
        else:
            kept.append((generator, tried))
    progress("count", 0.9)
    used = {v.name for node in found.labels.graph.nodes for v in node.inputs if v.role == "state"}
    counted = [
        n for n in found.trial.state if mode == "eval" or n not in found.trial.statistics or n in found.labels.base
    ]
    total = dimension([g for g, _ in kept], found.trial.state)
    notes = (
        ["Dropout is off."] if found.labels.graph.output is not None else ["The output does not depend on the weights."]
    )
    if total is None:
        notes.append(
            "Families may overlap in a few directions; they were not counted together, the model is too large."
        )
    trials = found.trial.runs + (found.evaluated.runs if found.evaluated else 0)
    return Symmetries(
        mode,
        tuple(s for _, s in kept),
        total,
        sum(found.trial.state[n].numel() for n in counted),
        looked_at=tuple(looked_at(found.labels.graph)),
        unknown=tuple(found.labels.unknown),
        unused=tuple(n for n in counted if n not in used),
        rejected=tuple(rejected),
        not_looked_for=tuple(unsought(found)),
        notes=(*found.notes, *notes),
        forwards=trials + 1,
    )


def unsought(found: Analysis) -> Iterator[str]:
    """Which moves were not looked for."""
    again = [name for name in used_again(found.labels) if name not in found.trial.statistics]
    if again:
        yield (
            "shifts and mixings of weights that are used more than once; what suits all their uses was looked for "
            f"among plain scales and the two biases of a gate only: {', '.join(again)}"
        )
    if found.left_out:
        yield f"moves that hold a spectral norm, of which there are too many: {', '.join(found.left_out)}"


def try_move(found: Analysis, generator: Generator, seed: int) -> Symmetry | None:
    """Apply one random move of a family; None where the output changes."""
    trial = found.trial
    moved = random_move(generator, trial.state, seed)
    exact = trial.defect(moved, eps=False)
    if not exact <= EXACT:
        return None
    defect = trial.defect(moved)
    along = alone = None
    if found.evaluated is not None:
        weights = {n: t for n, t in moved.items() if n not in trial.statistics}
        along = found.evaluated.defect(moved)
        alone = found.evaluated.defect(weights) if len(weights) < len(moved) else along
    return Symmetry(
        generator.kind,
        generator.what,
        generator.parameters,
        generator.count,
        exact,
        defect,
        along,
        alone,
        generator.rows,
    )


def looked_at(graph: OperationGraph) -> list[tuple[str, int]]:
    """How many normalizers, matrix products and other operations there were; copies and views are not counted."""
    normals = [(node, normalization(node)) for node in graph.nodes]
    counted = [(node, normal) for node, normal in normals if normal or node.op not in MOVING]
    return Counter(f"{normal.kind} normalizations" if normal else node.op for node, normal in counted).most_common()


def first_samples(batch: Any) -> Any:
    """The first samples of a batch, if all its tensors have the same number of them."""
    tensors = [t for _, t in named_tensors(batch)]
    if not tensors or any(t.ndim == 0 for t in tensors) or len({t.shape[0] for t in tensors}) > 1:
        return batch
    return tree_map(lambda leaf: leaf[:MOST_SAMPLES] if isinstance(leaf, Tensor) else leaf, batch)


def moving(model: nn.Module) -> dict[str, Tensor]:
    """Weights and running statistics, by name."""
    named = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
    kept = {id(tensor) for mean, variance, _ in running_moments(model) for tensor in (mean, variance)}
    usual = (".running_mean", ".running_var")  # of a module that is more than a normalizer
    return named | {n: b for n, b in model.named_buffers() if id(b) in kept or f".{n}".endswith(usual)}


def running_moments(model: nn.Module) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Running mean and variance of every normalizer that keeps them, and its ε."""
    for form in map(of_module, model.modules()):
        if form is not None and form.running is not None:
            yield *form.running, form.eps


def check_memory(model: nn.Module) -> None:
    """Refuse two weights in one place: what moves one would move the other.

    Raises:
        InputError: naming both.
    """
    ranges = []
    for name, p in model.named_parameters():
        if p.numel():
            reach = sum((n - 1) * s for n, s in zip(p.shape, p.stride(), strict=True))
            ranges.append((p.data_ptr(), p.data_ptr() + reach * p.element_size(), name))
    ranges.sort()
    for (_, end, one), (start, _, other) in itertools.pairwise(ranges):
        if start <= end:
            first, second = sorted((one, other))
            raise InputError(
                f"{first} and {second} share memory; give one of them a copy, or tie them as one parameter"
            )
