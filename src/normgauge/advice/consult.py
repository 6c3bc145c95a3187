"""`advise`: trace a network once, let every check look at it, and keep causes apart from what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from normgauge.advice.drift import outlier_weights, trunk_drift
from normgauge.advice.facts import control, gap_remarks
from normgauge.advice.normalizers import count_of, of_normalizers
from normgauge.advice.remark import Advice, Remark
from normgauge.advice.residuals import dead_branch, growing_stream
from normgauge.advice.values import dead_units, diverged_values, unbounded_parts
from normgauge.advice.view import TraceView
from normgauge.core.bound import Scope
from normgauge.instrument.measure import read_scope
from normgauge.instrument.rules import Registry
from normgauge.instrument.rules.tried import in_training
from normgauge.instrument.session import Options, Progress, Session, opened
from normgauge.instrument.trace import unwrap
from normgauge.instrument.trace.inputs import check_initialized, named_tensors
from normgauge.render.numbers import plural, shortened_names

Check = Callable[[TraceView], Iterator[Remark]]
CHECKS: tuple[Check, ...] = (
    diverged_values,
    of_normalizers,
    dead_units,
    outlier_weights,
    trunk_drift,
    growing_stream,
    dead_branch,
    unbounded_parts,
)
CAUSES = {"diverged", "one element", "dead normalizer", "epsilon decides", "stale statistics", "dead activations"}
CAUSES |= {"outlier weight", "vanishes", "explodes"}
FOLLOWS = {
    "epsilon decides",
    "stale statistics",
    "dead activations",
    "tiny sigma",
}  # behind a cause, these only follow from it
LOOSE = 0.1  # width of the norms' enclosures: advice speaks of decades


def advise(
    model: nn.Module,
    batch: Any,
    *,
    facts: bool = True,
    mode: str | None = None,
    input: str | None = None,
    output: str | None = None,
    rules: Registry | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Say in plain words what is wrong with a network, and which facts are worth knowing.

    The model is untouched. Statistics of BatchNorm layers that were never updated mean nothing yet; such a network is
    looked at in train mode, as its first training step would run, unless ``mode`` says otherwise.

    Args:
        model: any network.
        batch: as for `gauge`; a dozen samples or more, as different as they will be in use.
        facts: also say which normalizers hold the slope down and which layer owns the gap, which takes longer.
        mode: ``eval`` or ``train``; the one that fits the statistics without it.
        input: as for `gauge`, like the rest.
        output: the measured output.
        rules: a registry.
        progress: called with a stage and the fraction of it done.

    Returns:
        Remarks: problems in the order of execution, then facts.

    Raises:
        InputError: for a model or batch that cannot be run.
    """
    inner = unwrap(model)
    check_initialized(inner)
    broken = poisoned(inner)
    if broken:
        return Advice(type(inner).__name__, mode or "eval", tuple(broken))
    notes = []
    if not mode:
        alone = all(tensor.shape[:1] == (1,) for _, tensor in named_tensors(batch))  # no statistics over one sample
        untrained = never_updated(inner) and not alone
        mode = "train" if untrained else "eval"
        if untrained:
            notes.append("no BatchNorm statistics were ever set: looked at in train mode, with those of the batch")
    options = Options(mode, False, False, False, LOOSE, input, output, rules, progress, pictures=False)
    with opened(model, batch, options) as session:
        return _advice(session, facts, tuple(notes))


def _advice(session: Session, with_facts: bool, notes: tuple[str, ...]) -> Advice:
    view = TraceView.of(session)
    problems = causes_first([remark for check in CHECKS for remark in check(view)])
    told: tuple[Remark, ...] = ()
    if with_facts:
        reading = read_scope(session, Scope.parse("point"))
        told = (*control(session.model, reading), *gap_remarks(reading))
    if view.samples < 8:
        notes = (*notes, f"the batch has {plural(view.samples, 'sample')}; statistics over so few say little")
    return Advice(type(session.model).__name__, session.options.mode, (*problems, *told), notes)


def causes_first(found: list[Remark]) -> list[Remark]:
    """The remarks in the order of execution, without those that only follow from an earlier problem."""
    kept: list[Remark] = []
    for remark in sorted(found, key=lambda r: r.depth):
        echo = remark.kind in FOLLOWS and any(r.kind in CAUSES and r.depth < remark.depth for r in kept)
        if not echo:
            kept.append(remark)
    blocked = min((r.depth for r in kept if r.kind in CAUSES - {"vanishes", "explodes"}), default=math.inf)
    return [r for r in kept if r.kind not in ("vanishes", "explodes") or r.depth < blocked]


def never_updated(model: nn.Module) -> bool:
    """Whether the model has BatchNorm statistics, and none of them was ever set."""
    forms = {module: in_training(module) for module in model.modules()}
    kept = {m: form.running for m, form in forms.items() if form is not None and form.kind == "batch" and form.own}
    # a count of 0 alone does not tell: loaded statistics may come without one
    return any(kept.values()) and all(
        not count_of(module) and bool((pair[0] == 0).all()) and bool((pair[1] == 1).all())
        for module, pair in kept.items()
        if pair is not None
    )


def poisoned(model: nn.Module) -> list[Remark]:
    """A remark about the parameters that hold NaN or infinity; nothing else can be said of such a network."""
    found: dict[str, int] = {}
    for name, tensor in model.named_parameters():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.detach()).all()):
            found[name] = int((~torch.isfinite(tensor.detach())).sum())
    if not found:
        return []
    count, first = sum(found.values()), next(iter(found))
    alone = len(found) == 1
    who = f"{first} holds" if alone else f"{len(found)} parameters ({shortened_names(list(found), 3)}) hold"
    sentence = (
        f"{who} {plural(count, 'value')} that {'is no number' if count == 1 else 'are no numbers'}: the training "
        "broke, and such weights no longer tell why. Go back to a checkpoint before; a run file (ng.Monitor) tells "
        "what came first."
    )
    layer = (first.rpartition(".")[0] or first) if alone else ""
    return [Remark("diverged", layer, sentence, {"values": count, "parameters": len(found)})]
