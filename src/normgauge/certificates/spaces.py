"""The cell rows of a network: in input space, and in the feature space of an encoder that never saw D."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.bounds.holdout import clopper_pearson, disagreement
from normgauge.certificates.case import Case
from normgauge.certificates.conditions import ENCODER, TRAIN, UNLABELED, joined_conditions
from normgauge.certificates.facts.cells import Partition, assign_all, k_means, neighbours, one_cell, voronoi
from normgauge.certificates.facts.sample import DataSample, device_of, model_outputs
from normgauge.certificates.facts.slopes import (
    ROOT2,
    MarginSlopes,
    local_slopes,
    slopes_of,
)
from normgauge.certificates.facts.space import (
    CellSpace,
    Choice,
    fixed_loss,
    in_cells,
    linear_differences,
    linear_margins,
    margins_of,
    ramps,
)
from normgauge.certificates.rows import local, related
from normgauge.certificates.rows.cells import theorem20
from normgauge.certificates.scores.ground import HEAVY
from normgauge.certificates.scores.norms import multiplications
from normgauge.core.certificate import NETWORK, Consumed, Row, RowKind, promised_row
from normgauge.core.claim import Curve
from normgauge.core.errors import InputError

CENTRES = 32  # balls whose constants are certified in input space
FEATURE_CENTRES = 10
SHARE = 0.35  # radius of a ball over the median distance of its centre to the next
RADII = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the curve, over the median distance of nearest neighbours


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss that the cell rows bound.

    Attributes:
        name: ``ramp`` or ``cross-entropy``.
        limit: its range; None for a loss without a range.
    """

    name: str
    limit: float | None

    def choices(self, logits: Tensor, labels: Tensor, view: MarginView) -> tuple[Choice, ...]:
        """Losses on offer, each with its own constant in the space of ``view``.

        The ramp clip(1 − margin/γ, 0, 1) has that of the margin over γ. Cross-entropy is ln Σ_j e^(f_j − f_y): its
        gradient is a mean of those of the differences f_j − f_y, so it has the constant of these.
        """
        if self.limit is None:
            return ()
        if self.name == "ramp":
            return ramps(view.margins, view.slope)
        mean = float(F.cross_entropy(logits.double(), labels, reduction="none").clamp(max=self.limit).mean())
        return fixed_loss(mean, view.differences, self.limit)


@dataclass(frozen=True, slots=True, eq=False)
class MarginView:
    """The network's answers as functions on a space, and how steep they are there.

    Attributes:
        margins: (m,) of D, in units of its own: differences of outputs, or distances to a boundary.
        slope: proved Lipschitz constant of the margin in these units.
        differences: proved Lipschitz constant of every difference f_i − f_j of outputs.
        gap: why nothing is proved, where nothing is.
    """

    margins: Tensor
    slope: float
    differences: float
    gap: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Nearby:
    """Slopes of the margin, certified in balls around inputs the training never saw.

    Attributes:
        centres: these inputs.
        unit: the median distance of one to the next.
        slopes: (centres,) for the radius of the cells, then for each of the curve; None without rules.
    """

    centres: Tensor
    unit: float
    slopes: list[Tensor] | None


def measure_nearby(case: Case, slopes: MarginSlopes) -> Nearby | None:
    """Measure local slopes, all radii in one run of the gauge; None without unseen inputs of real numbers."""
    fresh = case.unseen
    if fresh is None or len(fresh) < 2:
        return None
    like = case.train.take([0]).to(device_of(case.model))
    most = CENTRES if multiplications(case.model, like) < HEAVY else CENTRES // 4
    centres = fresh.take(range(min(most, len(fresh))))
    if not centres.is_floating_point():
        return None
    unit = float(neighbours(centres.double())[0].median())
    radii = [share * unit for share in (SHARE, *RADII)]
    return Nearby(centres, unit, None if slopes.gap or unit <= 0 else local_slopes(case.model, centres, radii))


def cell_rows(
    case: Case, slopes: MarginSlopes, loss: Loss, partition: Partition | None, cells: int, near: Nearby | None = None
) -> Iterator[Row]:
    """All rows of both spaces; ``near`` is measured where it is not given."""
    if partition is not None:
        partition.check_unseen(frozenset(case.train.marks))
    fresh = case.unseen
    partition = partition or made(fresh, cells, case.seed)
    view = MarginView(case.margins, slopes.balanced, slopes.balanced, slopes.gap)
    inputs = _space("inputs", case, case.train, partition, view, loss)
    wrong = None if case.held is None else case.held <= 0
    yield from theorem20(inputs, case.delta)
    yield from related.related_rows(inputs, case.delta, case.holdout, wrong)
    case.progress("local constants", 0.3)
    balls = input_balls(case, slopes, near or measure_nearby(case, slopes))
    yield local.corollary21(balls, inputs, case.delta)
    yield from local.corollary22(inputs, slopes, case.delta)
    yield local.corollary22_local(balls, inputs, case.delta)
    if case.encoder is not None:
        case.progress("feature space", 0.6)
        yield from feature_rows(case, loss, cells, fresh, wrong)


def made(fresh: DataSample | None, cells: int, seed: int) -> Partition:
    """The partition into this many cells, made without D.

    Raises:
        InputError: where there is nothing to make several cells from.
    """
    if cells == 1:
        return one_cell()
    if fresh is None:
        raise InputError(
            f"cells={cells}: cells are made from inputs the training never saw; give unlabeled= or holdout="
        )
    return k_means(fresh.take(range(min(len(fresh), 10_000))), cells, seed=seed)


def _space(name: str, case: Case, points: DataSample, partition: Partition, view: MarginView, loss: Loss) -> CellSpace:
    cells, spread = in_cells(points, case.classes, partition, seed=case.seed)
    choices = loss.choices(case.logits, points.truth, view)
    return CellSpace(
        name,
        points,
        case.classes,
        partition,
        cells,
        spread,
        view.margins,
        view.slope,
        view.gap,
        loss.limit or 1.0,
        "error" if loss.name == "ramp" else "clipped cross-entropy",
        choices,
        "" if loss.limit is not None else "cross-entropy has no upper end: give clip=C to bound min(loss, C)",
    )


def input_balls(case: Case, slopes: MarginSlopes, near: Nearby | None) -> local.LocalCells | None:
    """Balls around inputs the training never saw, with a constant certified in each."""
    if near is None:
        return None
    balls = voronoi(near.centres, SHARE * near.unit)
    said = model_outputs(case.model, DataSample(near.centres, None))
    gap = slopes.gap or ("" if near.slopes else "no constant could be certified in a ball around an input")
    found = near.slopes[0] if near.slopes else torch.full((len(near.centres),), math.inf, dtype=torch.float64)
    return local.LocalCells(balls, assign_all(balls, case.train), found, margins_of(said, said.argmax(1)), gap)


def feature_rows(case: Case, loss: Loss, cells: int, fresh: DataSample | None, wrong: Tensor | None) -> Iterator[Row]:
    """Theorem 20 behind an encoder that never saw D: only the head's slope counts."""
    assert case.encoder is not None and isinstance(case.model, nn.Sequential)
    head = nn.Sequential(*list(case.model)[1:])
    points = encoded_sample(case.encoder, case.train)
    others = None if fresh is None else encoded_sample(case.encoder, fresh)
    view = head_view(head, points, case)
    partition = made(others, cells, case.seed)
    space = _space("features", case, points, partition, view, loss)
    held = None if case.holdout is None else encoded_sample(case.encoder, case.holdout)
    yield from theorem20(space, case.delta)
    yield from related.related_rows(space, case.delta, held, wrong)
    balls = None
    if others is not None and len(others) >= FEATURE_CENTRES and not view.gap:
        made_of = k_means(others.take(range(min(len(others), 10_000))), FEATURE_CENTRES, seed=case.seed)
        assert made_of.centres is not None
        around = voronoi(made_of.centres, SHARE * float(neighbours(made_of.centres.double())[0].median()))
        said = model_outputs(head, DataSample(made_of.centres, None))
        leads = head_margins(head, DataSample(made_of.centres, said.argmax(1)), said)
        slopes = torch.full((FEATURE_CENTRES,), view.slope, dtype=torch.float64)
        balls = local.LocalCells(around, assign_all(around, points), slopes, leads)
    yield local.corollary21(balls, space, case.delta)
    yield from plain_rows(case, points, others)


def plain_rows(case: Case, points: DataSample, others: DataSample | None) -> Iterator[Row]:
    """D is a plain hold-out to the encoder: bounds of the encoder's own decision, and of the network through it."""
    own = Row(
        "features.encoder_holdout",
        "The encoder by itself, D as its hold-out",
        "feature cells",
        RowKind.NOT_APPLICABLE,
        confidence=1 - case.delta,
        consumed=(Consumed.TRAIN_LABELS, Consumed.OTHER),
        about="the encoder alone, which names its largest feature",
        condition=joined_conditions(TRAIN, ENCODER),
        reason=f"it gives {points.take([0]).shape[1]} features for {case.classes} classes, so it names none itself",
        source="Langford 2005",
        formula="largest p with P(Bin(m, p) ≤ k) ≥ δ, k errors of the encoder on D",
    )
    through = dataclasses.replace(
        own,
        key="features.disagreement",
        name="Through the encoder: its errors on D and where the two differ",
        about=NETWORK,
        consumed=(*own.consumed, Consumed.UNLABELED),
        condition=joined_conditions(own.condition, UNLABELED),
        source="Bazinet et al. 2026, Theorem 4; Clopper & Pearson 1934",
        formula="Bin⁻¹(errors of the encoder on D, m, δ/2) + Bin⁻¹(#{network ≠ encoder on U}, |U|, δ/2)",
    )
    if points.take([0]).shape[1] != case.classes:
        yield from (own, through)
        return
    features = torch.cat(list(points.batches()))
    wrong = int((features.argmax(1) != points.truth).sum())
    value = clopper_pearson(wrong, case.m, math.log(case.delta))
    terms = (("error of the encoder on D", wrong / case.m), ("price of its size", value - wrong / case.m))
    yield promised_row(own, value=value, terms=terms, additive=True, reason="")
    fresh = case.unseen
    if others is None or fresh is None:
        yield dataclasses.replace(through, reason="it needs inputs the network never saw: give unlabeled=")
        return
    apart = int((torch.cat(list(others.batches())).argmax(1) != case.answers(fresh).argmax(1)).sum())
    risk = clopper_pearson(wrong, case.m, math.log(case.delta / 2))
    parts = disagreement(risk, apart, len(fresh), case.delta / 2)
    yield promised_row(through, value=parts.value, terms=parts.terms, additive=True, reason="")


def encoded_sample(encoder: nn.Module, sample: DataSample) -> DataSample:
    """A sample with the encoder's features as its inputs, one vector each."""
    place = device_of(encoder)
    with torch.no_grad():
        found = torch.cat([encoder(x.to(place)).flatten(1).float().cpu() for x in sample.batches()])
    return DataSample(found, sample.labels)


def only_linear(head: nn.Sequential) -> nn.Linear | None:
    """The linear map a head consists of; None if anything else is computed too."""
    kept = [m for m in head if type(m) not in (nn.Flatten, nn.Identity, nn.Dropout)]
    return kept[0] if len(kept) == 1 and type(kept[0]) is nn.Linear and all(map(as_written, head)) else None


def as_written(module: nn.Module) -> bool:
    """Whether nothing but the forward of its class computes what a module gives."""
    hooked = (module._forward_hooks, module._forward_pre_hooks, module.__dict__.get("forward"))
    return not any(hooked) and "_call_impl" not in module.__dict__


def head_margins(head: nn.Sequential, points: DataSample, said: Tensor) -> Tensor:
    """Margins in units of distance for a linear head, else those of its outputs."""
    linear = only_linear(head)
    return margins_of(said, points.truth) if linear is None else linear_margins(linear, points)


def head_view(head: nn.Sequential, points: DataSample, case: Case) -> MarginView:
    """How steep the margins are: 1 for those in units of distance, else the gauge's constant."""
    margins, linear = head_margins(head, points, case.logits), only_linear(head)
    if linear is not None:
        return MarginView(margins, 1.0, linear_differences(linear))
    slopes = slopes_of(head, points.take(range(min(16, len(points)))))
    return MarginView(margins, slopes.balanced, slopes.balanced, slopes.gap)


def local_curve(slopes: MarginSlopes, near: Nearby | None) -> tuple[Curve, ...]:
    """Certified local constants against the radius, beside the global one: where normalizers become harmless."""
    if near is None or not near.slopes:
        return ()
    found = near.slopes[1:]
    lines = [
        ("certified in balls, largest", tuple(float(s.max()) for s in found)),
        ("certified in balls, median", tuple(float(s.median()) for s in found)),
        ("certified everywhere", (slopes.balanced,) * len(RADII)),
    ]
    if slopes.point is not None:
        lines.append(("largest found at samples", (ROOT2 * 10**slopes.point.log10_lower,) * len(RADII)))
    return (
        Curve(
            "Slope of the margin, certified in balls around unseen inputs",
            "radius over the median distance of nearest neighbours",
            "slope",
            RADII,
            tuple(lines),
            log_x=True,
            log_y=True,
        ),
    )
