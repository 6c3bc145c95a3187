"""Certified radii: a verdict and tables for a terminal, and one self-contained page with the two curves."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from normgauge.core.bound import Evidence
from normgauge.core.certified import CertifiedRadii, SampleRadius
from normgauge.render import svg
from normgauge.render.console import Block
from normgauge.render.document import document, fragment, listing, paragraphs, section
from normgauge.render.markup import Markup, markup, tag
from normgauge.render.numbers import format_above, format_below, format_number, plural
from normgauge.render.svg import Point, Shape
from normgauge.render.table import Grid, bare_table, html_table

ROWS = 12  # samples shown on a terminal
TOP, FOOT = 16.0, 44.0
SHARES = (0.1, 0.5, 0.9)  # quantiles of the radii at which the accuracies are listed
TITLE = "How far a sample may be moved before its prediction changes"
CAPTION = "Share of the samples that are right and stay so, against the length of the change (logarithmic)"
CURVES = (
    "The truth lies between the curves: below the lower one no change of that length can change the prediction, above "
    "the upper one the attack found a change that does."
)
HEADERS = ("sample", "label", "named", "margin", "certified", "attacked at", "evidence", "why not")


def radii_sentences(found: CertifiedRadii) -> list[str]:
    """What the radii say: contradictions first, then the verdict, then what is not certified and why."""
    said = [f"Sample {sample.index}: {sample.reason}." for sample in found.refuted]
    radii = [sample.radius for sample in found.samples if sample.certified]
    broken = [sample.attacked for sample in found.samples if sample.attacked is not None]
    said.append(
        f"{len(radii)} of {plural(len(found.samples), 'prediction')} {_be(len(radii))} certified{_known(found)}."
    )
    if radii:
        said[-1] = f"{said[-1][:-1]}; half of those cannot change within {format_below(statistics.median(radii))}."
    if broken:
        said.append(f"The attack changed {len(broken)}, half of them within {format_above(statistics.median(broken))}.")
    elif found.attack:
        said.append("The attack changed none.")
    reasons = Counter(s.reason for s in found.samples if s.reason and s.evidence is not Evidence.REFUTED)
    said += [f"{count} not certified: {reason}." for reason, count in reasons.items()]
    if found.failure_probability:
        said.append(f"Chance that any radius is wrong: at most {format_above(found.failure_probability)}.")
    return said


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _known(found: CertifiedRadii) -> str:
    kinds = Counter(sample.evidence for sample in found.samples if sample.certified)
    return f" ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})" if kinds else ""


def radii_head(found: CertifiedRadii) -> str:
    """Say which network and how it was attacked."""
    tried = "not attacked"
    if found.attack:
        descents, steps = plural(found.attack["restarts"], "descent"), plural(found.attack["steps"], "step")
        tried = f"attacked by {descents} of {steps} a sample"
    return f"{found.model}, {found.classes} classes, {plural(len(found.samples), 'sample')}, {tried}"


def listed_radii(found: CertifiedRadii) -> list[float]:
    """Zero, and round radii where the two accuracies have something to tell."""
    radii = sorted(s.radius for s in found.samples if s.certified)
    broken = sorted(s.attacked for s in found.samples if s.attacked is not None)
    chosen = [values[int(q * (len(values) - 1))] for values in (radii, broken) if values for q in SHARES]
    return sorted({0.0, *(float(f"{value:.2g}") for value in chosen)})


def accuracy_grid(found: CertifiedRadii) -> Grid:
    """Verified and attacked accuracy at a few radii."""
    rows = tuple(
        (format_number(r), f"{100 * found.verified_accuracy(r):.1f} %", f"{100 * found.attacked_accuracy(r):.1f} %")
        for r in listed_radii(found)
    )
    return Grid(
        "Accuracy under changes of the input",
        ("l2 length", "verified", "left by the attack"),
        rows,
        frozenset({0, 1, 2}),
    )


def sample_grid(found: CertifiedRadii, most: int | None = None) -> Grid:
    """One row a sample; radii are rounded down, distances up."""
    left = len(found.samples) - len(found.samples[:most])
    more = f"and {left} more; --json and --html have them all" if left else ""
    rows = tuple(_row(sample) for sample in found.samples[:most])
    return Grid("Samples", HEADERS, rows, frozenset({0, 1, 2, 3, 4, 5}), more).without_empty()


def _row(sample: SampleRadius) -> tuple[str, ...]:
    return (
        str(sample.index),
        "" if sample.label is None else str(sample.label),
        str(sample.predicted),
        format_number(sample.margin, 4),
        format_below(sample.radius),
        format_above(sample.attacked),
        sample.evidence,
        sample.reason,
    )


def radii_blocks(found: CertifiedRadii) -> list[Block]:
    """Head, verdict, accuracies, the first samples and notes."""
    return [
        radii_head(found), *radii_sentences(found), accuracy_grid(found), sample_grid(found, ROWS), *found.notes
    ]  # fmt: skip


def radii_html(found: CertifiedRadii) -> str:
    """Return the page as HTML."""
    first, *rest = radii_sentences(found)
    body = markup(
        paragraphs([first], "verdict"),
        paragraphs(rest),
        section(
            "Accuracy",
            svg.captioned_figure(CAPTION, svg.both_shapes(lambda shape: accuracy_curves(found, shape))),
            tag("p", CURVES),
            html_table(accuracy_grid(found)),
        ),
        section("Samples", html_table(sample_grid(found))),
        section("Notes", listing(found.notes)),
    )
    return document(TITLE, radii_head(found), body)


def radii_notebook(found: CertifiedRadii) -> Markup:
    """The radii as HTML that may stand among other output."""
    said = (tag("p", sentence) for sentence in radii_sentences(found))
    return fragment(said, accuracy_curves(found), bare_table(accuracy_grid(found)))


def accuracy_curves(found: CertifiedRadii, shape: Shape = svg.WIDE) -> Markup:
    """Both accuracies as stairs over the length of a change; nothing where no length is known."""
    radii = [s.radius for s in found.samples if s.certified]
    ends = [value for value in (*radii, *(s.attacked for s in found.samples)) if value and value < float("inf")]
    if not ends:
        return Markup()
    floor, left, right = TOP + shape.height, shape.left + 16, shape.width - 12
    at = svg.axis(ends, left, right, logarithmic=True), svg.axis((0.0, 100.0), floor, TOP)
    first, last = (10 ** at[0].knots[i][0] for i in (0, -1))
    verified, left_over = (
        [(at[0].at(x), at[1].at(y)) for x, y in stairs(share, [first, *ends, last])]
        for share in (found.verified_accuracy, found.attacked_accuracy)
    )
    return svg.drawing(
        (shape.width, floor + FOOT),
        shape.name,
        f"{CAPTION}; lines: verified, left by the attack",
        svg.uprights(at[0].ticks(7 if shape.wide else 4), TOP, floor, shape.width),
        svg.levels(at[1].ticks(5, "{:g} %".format), left, right),
        svg.path([*verified, *reversed(left_over)], "truth", "polygon"),
        svg.path(left_over, "reference", told="left by the attack"),
        svg.path(verified, "reached", told="verified"),
        svg.text_line(right, floor + 34, "l2 length of the change →", "tiny", "end"),
        key=[("line reached", "verified"), ("truth", "the truth lies here"), ("line reference", "left by the attack")],
        left=left,
    )


def stairs(share: Callable[[float], float], radii: Sequence[float]) -> list[Point]:
    """The corners of a share that falls at some of the radii, in percent."""
    corners: list[Point] = []
    places = sorted({radius for radius in radii if radius < float("inf")})
    for before, radius in pairwise(places):
        level = 100 * share((before + radius) / 2)
        corners += [(before, level), (radius, level)]
    return corners
