"""`certify`: check the data, gather the facts, ask every row; the whole pipeline on one screen."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normgauge.certificates.case import Case, Progress, ignore_progress
from normgauge.certificates.checks import error_runs, grouping, records, refuse_options, refuse_unsteady, warnings_of
from normgauge.certificates.conditions import STEADY, joined_conditions
from normgauge.certificates.copies import refuse_leak, refuse_near_copies
from normgauge.certificates.facts.cells import Partition
from normgauge.certificates.facts.reads import unpaid_reads
from normgauge.certificates.facts.sample import DataSample, device_of, model_outputs
from normgauge.certificates.facts.slopes import MarginSlopes, slopes_of
from normgauge.certificates.rows import capacity, compression, disagreement, gibbs, robust
from normgauge.certificates.rows.cells import TERM
from normgauge.certificates.rows.holdout import holdout_rows, per_class
from normgauge.certificates.scores import score_rows
from normgauge.certificates.spaces import Loss, as_written, cell_rows, local_curve, measure_nearby
from normgauge.certificates.surrogate import affordable_case, train_half
from normgauge.core.certificate import GROUPS, GUESSING, Certificate, Row
from normgauge.core.errors import InputError
from normgauge.instrument.trace.untouched import unwrap
from normgauge.lab.training.loop import in_mode

PROBES = 16  # samples the gauge is shown
AGAIN = 500  # samples the network is asked about a second time: one answer in a hundred that moves is met


def certify(
    model: nn.Module,
    train: Any,
    holdout: Any = None,
    unlabeled: Any = None,
    encoder: nn.Module | str | None = None,
    delta: float = 0.05,
    *,
    partition: Partition | None = None,
    cells: int = 1,
    loss: Literal["ramp", "cross-entropy"] = "ramp",
    clip: float | None = None,
    epochs: int | None = None,
    seed: int = 0,
    initial: Mapping[str, Tensor] | None = None,
    coreset: Sequence[int] | None = None,
    picked: int | None = None,
    surrogate: tuple[nn.Module, Any] | None = None,
    tries: int = 1,
    groups: Any = None,
    data_free: Sequence[str] = (),
    radius: float | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """What can be promised about unseen data: every bound and score for this network, each saying what it is.

    Every row holds on its own with probability 1 − δ over the draw of the samples; the smallest of several rows is not
    a bound unless it was named beforehand. The network is measured in eval mode and left as it was.

    Args:
        model: a classifier: one number a class.
        train: the sample it was trained on, as it was drawn, not augmented: two tensors, a data set or a loader.
        holdout: labelled samples the training never saw.
        unlabeled: inputs neither training nor hold-out contains; labels in it are not read.
        encoder: the part of the network that never saw ``train`` (its first module, or that module's name), for the
            rows in feature space; the rest is the head.
        delta: the share of failure of each row.
        partition: cells fixed without ``train``; by default made from ``unlabeled`` or the hold-out inputs.
        cells: how many cells to make, fixed in advance; 1: only the labels tell cells apart.
        loss: what the cell rows bound: the ramp, which bounds the error, or cross-entropy with ``clip``.
        clip: the range given to cross-entropy, which has none of its own.
        epochs: passes over the data that rows which train may take; 0 leaves them out. By default 5 where they take
            seconds, else none.
        seed: of all random draws.
        initial: the weights training began with, for the rows that measure the distance from them.
        coreset: indices of ``train`` the network was trained on, where it saw no others.
        picked: how many samples pick-to-learn picked, where the network was trained that way.
        surrogate: another network and labelled samples it never saw, for the disagreement row.
        tries: how many networks or settings were compared on these samples; δ is divided by it.
        groups: for each hold-out sample, in the order of its data set, which group it belongs to, where several come
            from one scene, person or series; rows other than the hold-out's then take one sample of each group.
        data_free: names of tensors the prediction depends on that were fixed without ``train``.
        radius: bound the error under changes of an input up to this ℓ2 length too.
        progress: called with a stage and the share of it done.

    Returns:
        The certificate; print it, or write it with ``save``.

    Raises:
        InputError: for data that cannot be read, or samples shared between train and hold-out.
    """
    refuse_options(
        delta=delta,
        tries=tries,
        radius=radius,
        epochs=epochs,
        seed=seed,
        cells=cells,
        loss=loss,
        clip=clip,
        partition=partition,
        surrogate=surrogate,
    )
    model, told = unwrap(model), progress or ignore_progress
    with evaluated(model) as notes, torch.random.fork_rng(devices=[]):
        data_free = (data_free,) if isinstance(data_free, str) else tuple(data_free)
        options = {"epochs": epochs or 0, "seed": seed, "data_free": data_free, "radius": radius, "progress": told}
        data = (train, holdout, unlabeled)
        whole, warnings = gather(model, data, encoder, groups, {"delta": delta / tries, **options})
        case = whole.single() if epochs is not None else affordable_case(whole.single())
        if data_free:
            unpaid_reads(
                model, case.few().clone().to(device_of(model)), (), data_free
            )  # refuses names it does not have
        told("measuring slopes", 0.0)
        slopes = slopes_of(model, case.train.take(range(min(PROBES, case.m))))
        near = measure_nearby(case, slopes)
        found = list(cell_rows(case, slopes, Loss(loss, 1.0 if loss == "ramp" else clip), partition, cells, near))
        held = list(holdout_rows(whole))
        trained = functools.cache(lambda: train_half(case))  # two rows want a network trained on half of D
        made: dict[str, Iterable[Row]] = {
            "counting mistakes on the hold-out": [*held, per_class(case, held[0])],
            "proving which predictions cannot be changed": robust.robust_rows(case, slopes, held[0]),
            "cells": found,
            "capacity, from norms and parameters": capacity.capacity_rows(case),
            "noise on the weights": gibbs.gibbs_rows(case, initial=initial, prepared=trained),
            "compression": compression.compression_rows(case, coreset=coreset, picked=picked),
            "training a second network to compare with": disagreement.disagreement_rows(
                case, surrogate=_surrogate(surrogate), prepared=trained
            ),
            "scores": score_rows(
                case, reading=slopes.reading, local=slopes.point, initial=initial, lipschitz_term=_term(found)
            ),
        }
        curves = local_curve(slopes, near)
        rows = tuple(paid_for(row, delta, tries) for row in asked(made, told, notes))
    return Certificate(
        type(model).__name__,
        delta,
        case.m,
        0 if whole.holdout is None else len(whole.holdout),
        0 if case.unlabeled is None else len(case.unlabeled),
        case.classes,
        rows,
        measured_facts(whole, slopes),
        tuple(warnings),
        tuple(notes),
        curves,
        tries=tries,
    )


def asked(families: Mapping[str, Iterable[Row]], told: Progress, notes: list[str]) -> Iterator[Row]:
    """Yield the rows of every family and tell the progress; a family that fails is noted and stops no other.

    Raises:
        InputError: for what the caller gave.
    """
    for index, (name, rows) in enumerate(families.items()):
        told(name, index / len(families))
        try:
            yield from rows
        except InputError:
            raise
        except Exception as error:
            notes.append(f"Stopped while {name}: {type(error).__name__}: {error}")
    told("done", 1.0)


def paid_for(row: Row, delta: float, tries: int) -> Row:
    """The row with the confidence and the conditions that hold after a choice among ``tries`` networks."""
    if row.confidence is None or not row.condition:
        return row
    chosen = f"at most {tries} networks or settings were compared on these samples" if tries > 1 else ""
    return dataclasses.replace(row, confidence=1 - delta, condition=joined_conditions(row.condition, STEADY, chosen))


def gather(
    model: nn.Module,
    data: tuple[Any, Any, Any],
    encoder: nn.Module | str | None,
    groups: Any,
    options: Mapping[str, Any],
) -> tuple[Case, list[str]]:
    """Read the data, refuse what is shared, run the network over it twice and compare the answers.

    Args:
        model: in eval mode.
        data: what was given as train, holdout and unlabeled.
        encoder: its first part, or the name of it.
        groups: of the hold-out.
        options: further fields of the case.

    Returns:
        The case, and warnings.

    Raises:
        InputError: for data that cannot be read or is shared, for answers that depend on more than one input.
    """
    told, (train, holdout, unlabeled) = options["progress"], data
    told("reading data", 0.0)
    sample = DataSample.of(train, "train")
    fresh = None if holdout is None else DataSample.of(holdout, "holdout")
    extra = None if unlabeled is None else DataSample.of(unlabeled, "unlabeled", labelled=False)
    if len(sample) < 2:
        raise InputError("train: expected the samples the network was trained on, at least two, got 1")
    belonging = grouping(groups, fresh)
    told("running the network", 0.0)
    logits = model_outputs(model, sample)
    if logits.shape[1] < 2:
        raise InputError("expected a model with one number a class, got one number z: let it give two, such as (0, z)")
    for name, labels in (("train", sample.labels), ("holdout", None if fresh is None else fresh.labels)):
        if labels is not None and int(labels.max()) >= logits.shape[1]:
            raise InputError(
                f"{name}: expected class numbers below {logits.shape[1]}, which is how many numbers the model gives, "
                f"got {int(labels.max())}; do they start at 1?"
            )
    refuse_unsteady(model, sample, logits, "train", AGAIN)
    said = None if fresh is None else model_outputs(model, fresh)
    if fresh is not None and said is not None:
        refuse_unsteady(model, fresh, said, "holdout", AGAIN)
    case = Case(
        model,
        sample,
        logits,
        holdout=fresh,
        holdout_logits=said,
        unlabeled=extra,
        encoder=encoder_module(model, encoder),
        groups=belonging,
        **options,
    )
    told("comparing samples", 0.0)
    warnings = warnings_of(sample, case.single().holdout)
    for name, other, apart in (("holdout", fresh, belonging is None), ("unlabeled", extra, True)):
        if other is not None:
            ours, theirs = (records(one, other.labels is not None) for one in (sample, other))
            warnings += refuse_leak(ours, theirs, name, independent=apart)
            warnings += refuse_near_copies(sample, other, name)
    if fresh is not None and case.held is not None and belonging is None:
        warnings += error_runs(case.held <= 0, fresh.truth)
    return case, warnings


def encoder_module(model: nn.Module, encoder: nn.Module | str | None) -> nn.Module | None:
    """The encoder as a module; None without one.

    Raises:
        InputError: where the network is not a sequence that begins with it.
    """
    if encoder is None:
        return None
    if type(model) is not nn.Sequential or len(model) < 2 or not as_written(model):
        raise InputError(
            f"encoder: expected a model of the form nn.Sequential(encoder, head) without hooks, got "
            f"{type(model).__name__}; the rows in feature space must know the head: give nn.Sequential(model.encoder, "
            "model.head)"
        )
    first = model[0]
    name = next(iter(dict(model.named_children())))
    if encoder is not first and encoder != name:
        raise InputError(f"encoder: expected the first module of the sequence ({name!r}), got {encoder!r}")
    return first


@contextlib.contextmanager
def evaluated(model: nn.Module) -> Iterator[list[str]]:
    """Put the network in eval mode for a while; yields notes on what was changed."""
    trained = any(module.training for module in model.modules())
    notes = ["The network was in train mode; it is measured in eval mode."] if trained else []
    grads = [p for p in model.parameters() if p.requires_grad]
    with in_mode(model, training=False):
        try:
            yield notes
        finally:
            for parameter in grads:
                parameter.requires_grad_(True)


def measured_facts(case: Case, slopes: MarginSlopes) -> dict[str, float | int | str]:
    """Numbers measured on the way, by the name the report gives them."""
    margins = case.margins
    found: dict[str, float | int | str] = {
        "training error": float((margins <= 0).double().mean()),
        "margin, 10 %": float(margins.quantile(0.1)),
        "margin, median": float(margins.quantile(0.5)),
        "slope of the margin, proved": slopes.balanced,
        "parameters": sum(p.numel() for p in case.model.parameters()),
        GUESSING: 1 - float(torch.bincount(case.train.truth).max()) / case.m,
    }
    if slopes.point is not None and not slopes.gap:
        found["slope of the margin at samples, largest found"] = math.sqrt(2) * 10**slopes.point.log10_lower
    if case.held is not None:
        found["hold-out error"] = float((case.held <= 0).double().mean())
    if case.groups is not None:
        found[GROUPS] = int(case.groups.max()) + 1
    if slopes.gap:
        found["no slope"] = slopes.gap
    return found


def _term(rows: Sequence[Row]) -> float | None:
    """The Lipschitz term of Theorem 20 on inputs, for the scores."""
    terms = [dict(row.terms).get(TERM) for row in rows if row.key == "theorem20.variation"]
    return next((term for term in terms if term is not None and math.isfinite(term)), None)


def _surrogate(given: tuple[nn.Module, Any] | None) -> tuple[nn.Module, DataSample] | None:
    if given is None:
        return None
    model, sample = given[0], DataSample.of(given[1], "surrogate")
    refuse_unsteady(model, sample, model_outputs(model, sample), "surrogate", AGAIN)
    return model, sample
