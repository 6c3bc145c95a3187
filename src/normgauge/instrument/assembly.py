"""Everything measured, put together as one reading of plain numbers and words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from normgauge.core.bound import Evidence
from normgauge.core.first_notes import UNREACHED
from normgauge.core.multipliers import kept_multipliers
from normgauge.core.reading import Finding, Reading, Witness
from normgauge.core.refute import judged_reading, without_bound
from normgauge.core.spelled import ceil_log10
from normgauge.instrument.balance import Balanced
from normgauge.instrument.compose import Composition
from normgauge.instrument.local.headline import Headline
from normgauge.instrument.pictures import sample_picture
from normgauge.instrument.probe.search import Found
from normgauge.instrument.records import (
    findings,
    layer_records,
    loss_constants,
    proof,
    published_table,
    rule_texts,
    sample_table,
)
from normgauge.instrument.rules.embedding import embedding_facts
from normgauge.instrument.rules.flow import INF
from normgauge.instrument.session import Session
from normgauge.instrument.stretch import SteepestWalk
from normgauge.instrument.trace.inputs import argument_name, padding_note
from normgauge.instrument.unreached import told_parts, unreached_rows
from normgauge.render.numbers import DOWN, UP, format_factor

UNREACHED_COUNT = (
    f"{UNREACHED}, such as padding, count in the bounds composed of layers (balanced, folded), in their gains, in what "
    "steps reached and in slack; σ is of the others, and so are normalizers where a layer is named for its largest "
    "bound by itself or its slack"
)
UNMOVED = (
    "one move of the search would take more than its budget: beside the samples only a few places were looked at, and "
    "steeper ones may be missed"
)
PICTURES = 8  # most sensitive samples shown


class Findings(NamedTuple):
    """The steps without a bound: nothing is known about them, they provably have none, or none was found."""

    unknown: tuple[Finding, ...]
    unbounded: tuple[Finding, ...]
    no_bound: tuple[Finding, ...]


def find_missing(session: Session, parts: Composition) -> Findings:
    """List what has no bound in the scope, and say if the path depends on the data."""
    unknown, unbounded, no_bound = findings(parts)
    if session.trace.path_dependent and parts.ctx.scope.kind == "global":
        where = "; ".join(session.trace.reads)
        why = f"the path depends on the data, and not every input takes the one that was traced ({where})"
        no_bound.append(Finding(type(session.model).__name__, why))
    return Findings(tuple(unknown), tuple(unbounded), tuple(no_bound))


def make_reading(
    session: Session,
    parts: Composition,
    folded: Balanced,
    best: Balanced,
    top: Headline,
    found: Found,
    walk: SteepestWalk,
    missing: Findings,
    everywhere: Mapping[int, float],
) -> Reading:
    """Turn everything into plain numbers, and hold the bound against the slopes found."""
    trace, options, scope = session.trace, session.options, parts.ctx.scope
    displacement = None
    if scope.kind == "ball":
        reached = float(parts.flows[trace.end.index].radius.max().log())
        displacement = min(reached, top.total + math.log(scope.radius))
    told, reaching = told_parts(session, parts)
    mind = scope.kind != "global" and bool(unreached_rows(session))
    made = Reading(
        model=type(session.model).__name__,
        mode=options.mode,
        scope=scope,
        evidence=top.evidence or weakest_evidence(session, parts, missing),
        failure_probability=min(1.0, session.failure_probability + top.chance),
        path_dependent=trace.path_dependent,
        log_upper=top.total,
        log_balanced=best.total,
        method=top.method,
        log_folded=folded.total,
        log_lower=found.log_best,
        unknown=missing.unknown,
        unbounded=missing.unbounded,
        no_bound=missing.no_bound,
        published=published_table(told, everywhere),
        layers=layer_records(told, folded, best, walk, reaching),
        samples=with_pictures(session, sample_table(top.log_upper, found, scope)),
        together=session.together,
        precision=str(trace.sources[0].tensor.dtype).removeprefix("torch."),
        options=options.stored(),
        loss=loss_constants(top.total, trace),
        displacement=displacement,
        gauges=best.gauges,
        notes=(*notes(session, parts, best, found), *([UNREACHED_COUNT] if mind else []), *top.notes),
        input_name=argument_name(session.call.name),
        seconds={k: round(v, 3) for k, v in session.clock.seconds.items()},
        witness=None if found.lengths is None else Witness(found.witness, *found.lengths),
        rules=rule_texts(parts),
        proof=proof(parts, folded, best, everywhere),
        multipliers=top.multipliers,
        channel_weights=tuple(
            item
            for place, theta in enumerate((best.theta, parts.radius_weights))
            if theta is not None
            for item in kept_multipliers({place: theta.tolist()})
        ),
    )
    return judged_reading(without_bound(made) if made.evidence is Evidence.UNKNOWN else made)


def weakest_evidence(session: Session, parts: Composition, missing: Findings) -> Evidence:
    """The upper bound's evidence; the weakest part decides."""
    if missing.unknown or missing.no_bound:
        return Evidence.UNKNOWN
    return Evidence.PROVED if session.exact or parts.ctx.scope.kind == "global" else Evidence.ESTIMATED


def notes(session: Session, parts: Composition, best: Balanced, found: Found) -> list[str]:
    """Return the assumptions and warnings of a reading in plain words."""
    trace = session.trace
    said = [*session.call.notes, *padding_note(session.call, trace.end.tensor), *trace.notes, *session.size_notes]
    said += session.once("embeddings", lambda: embedding_notes(session))
    if trace.draws and session.options.mode == "train":
        said.append("random numbers were drawn in the forward: the bound holds for the ones drawn in this run")
    if session.together and session.samples > 1:
        said.append("samples of the batch influence each other: the whole batch is measured as one point")
    if not session.exact:
        said.append(
            f"measured as it runs, in {session.native}: a copy in float64 does not run or computes something else, so "
            "numbers off the weights are estimates"
        )
    if found.log_best == -INF and found.witness.startswith("none"):
        said.append(f"lower bound {found.witness}")
    if session.options.search and not found.steps and parts.ctx.scope.kind != "point" and found.log_best > -INF:
        said.append(UNMOVED if session.options.effort == "long" else f"{UNMOVED}; effort=long looks further")
    if found.cut:
        said.append(f"the search was ended by the clock after {found.steps} moves: another run may find another slope")
    if trace.path_dependent and parts.ctx.scope.kind == "global" and best.total < INF:
        said.append(f"along the path the data took the bound is {ceil_log10(best.total)}")
    return said


def embedding_notes(session: Session) -> list[str]:
    """Describe the embedding tables of an integer input in words."""
    said = []
    for path, _, weight in session.trace.embeddings:
        facts = embedding_facts(weight)
        apart, norm = _apart(facts["max_distance"], facts["exact"]), format_factor(facts["log_spectral"].hi, UP)
        said.append(
            f"{argument_name(session.call.name)} is discrete: measured from its embedding {path} on, "
            f"{apart}; its norm on one-hot input is at most {norm}; "
            "what else the model makes of the numbers themselves (masks, lengths) is held as in this batch"
        )
    return said


def _apart(ends: tuple[float, float], exact: bool) -> str:
    """How far apart the rows of a table lie; from two sides where not all pairs were compared."""
    low, high = (format_factor(math.log(x) if x else -INF, way) for x, way in zip(ends, (DOWN, UP), strict=True))
    return f"whose rows lie at most {high} apart" + ("" if exact else f", two of them {low} or more")


def with_pictures(session: Session, table: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    """The sample table with pictures of the most sensitive ones, where the input is images and they are wanted."""
    images = session.trace.sources[0].tensor
    if not session.options.pictures or session.trace.embeddings or images.ndim != 4 or len(table) != len(images):
        return table
    worst = {row["index"] for row in sorted(table, key=lambda row: -row["log10_lower"])[:PICTURES]}
    shown = {i: session.once(("picture", i), partial(sample_picture, images[i])) for i in worst}
    return tuple({**row, "picture": shown[row["index"]]} if shown.get(row["index"]) else row for row in table)
