"""A curvature measurement: tables for a terminal, and one self-contained page with the spectrum drawn."""

from __future__ import annotations

import math

from normgauge.core.curvature import Curvature, Eigenvalue
from normgauge.render import svg
from normgauge.render.console import Block
from normgauge.render.document import document, paragraphs, section
from normgauge.render.markup import Content, Markup, markup, tag
from normgauge.render.numbers import ABSENT, format_number, plural
from normgauge.render.svg import Axis, Shape
from normgauge.render.table import Grid, html_table

MEANING = "residual: an eigenvalue is at most that far away; error: what is expected of it, an estimate"
BLOCKS = "trace ± standard error and largest eigenvalue of each layer's own block; the rest of the network held fixed"
CAPTION = "Eigenvalues found, and the density of all of them where it was asked for; logarithmic upwards"
TOP, TICK = 16.0, 26.0
POINTS = 240
DECADES = 7.0  # shown below the peak of the density
WIDTH = 0.006  # of a Gaussian, as a share of the axis


def curvature_blocks(found: Curvature) -> list[Block]:
    """Head, eigenvalues, totals, layers and notes."""
    parts: list[Block] = [curvature_head(found), eigenvalue_grid(found), total_grid(found)]
    if found.layers:
        parts += [layer_grid(found), ""]
    parts += curvature_sentences(found)
    parts.append(f"{plural(sum(found.products.values()), 'Hessian-vector product')}: " + _spent(found) + ".")
    return parts


def curvature_head(found: Curvature) -> str:
    """Say which network, mode and data were measured."""
    data = f"{plural(found.samples, 'sample')} in {plural(found.batches, 'batche' if found.batches != 1 else 'batch')}"
    return f"{found.model}, mode {found.mode}, {plural(found.parameters, 'parameter')}, {data}, {found.precision}"


def curvature_sentences(found: Curvature) -> list[str]:
    """What the numbers say, and what a reader must know."""
    said = []
    if found.smallest.value + found.smallest.residual < 0:
        said.append(f"The loss curves downwards: an eigenvalue of {found.smallest.value:.4g} or below, no minimum.")
    if not found.converged:
        said.append("The largest eigenvalues did not settle within the products allowed: see their residuals.")
    if found.density is not None and found.density.outliers:
        count, gap = found.density.outliers, found.density.gap
        verb = "stands" if count == 1 else "stand"
        said.append(f"{plural(count, 'outlier')} {verb} above the rest, at least {gap:.3g} times the next eigenvalue.")
    return said + [note[:1].upper() + note[1:] + "." for note in found.notes]


def eigenvalue_grid(found: Curvature) -> Grid:
    """The largest eigenvalues and the smallest found."""
    rows = [(f"λ{i + 1}", *_cells(value)) for i, value in enumerate(found.eigenvalues)]
    rows.append(("smallest found", *_cells(found.smallest)))
    return Grid("Eigenvalues", ("", "value", "residual", "error"), tuple(rows), frozenset({1, 2, 3}), MEANING)


def total_grid(found: Curvature) -> Grid:
    """Loss, gradient, trace, sharpness and what is known of the spectrum."""
    rows = [
        ("loss", f"{found.loss:.6g}", ""),
        ("gradient norm", f"{found.gradient_norm:.6g}", ""),
        ("trace", f"{found.trace.value:.6g}", f"± {found.trace.standard_error:.2g}"),
        ("scale-free sharpness", f"{found.sharpness_scale_free.value:.6g}", "λ_max(DHD), D the norm of each tensor"),
    ]
    if found.density is not None:
        whole = "of all eigenvalues" if not found.density.probes else f"from {found.density.probes} probes"
        rows.append(("negative mass", f"{100 * found.density.negative_mass:.3g} %", f"Σ|λ<0| / Σ|λ|, {whole}"))
    if found.condition is not None:
        kept = f"{found.condition.kept} of {found.parameters} eigenvalues above {found.condition.cutoff:g} λ1"
        rows.append(("condition number", f"{found.condition.value:.4g}", kept))
    return Grid("Totals", ("", "value", ""), tuple(rows), frozenset({1}))


def layer_grid(found: Curvature) -> Grid:
    """Return a table with one row for each layer."""
    rows = tuple(
        (
            layer.name,
            str(layer.parameters),
            format_number(layer.trace.value),
            format_number(layer.trace.standard_error, 2),
            *(
                (ABSENT, ABSENT)
                if layer.top is None
                else (format_number(layer.top.value), format_number(layer.top.residual, 2))
            ),
        )
        for layer in found.layers
    )
    headers = ("layer", "parameters", "trace", "±", "λ1 of its block", "residual")
    return Grid("Layers", headers, rows, frozenset(range(1, 6)), BLOCKS)


def curvature_html(found: Curvature) -> str:
    """Return the page as HTML."""
    body = markup(
        paragraphs(curvature_sentences(found), "verdict"),
        section(
            "Spectrum",
            svg.captioned_figure(CAPTION, svg.both_shapes(lambda shape: spectrum(found, shape))),
            html_table(eigenvalue_grid(found)),
            tag("p", f"{MEANING}."),
        ),
        section("Totals", html_table(total_grid(found))),
        section("Layers", html_table(layer_grid(found)) if found.layers else None),
        section("Cost", tag("p", f"Hessian-vector products: {_spent(found)}.")),
    )
    return document("Curvature of the loss", curvature_head(found), body)


def spectrum(found: Curvature, shape: Shape = svg.WIDE) -> Markup:
    """Draw the density (where it is known) over the eigenvalues found, single ones as ticks."""
    largest, smallest = [value.value for value in found.eigenvalues], found.smallest.value
    nodes = [] if found.density is None else [v for v, w in found.density.points() if w > 0]
    left, right = shape.left + 8, shape.width - 12
    across = svg.axis([*largest, smallest, *nodes, 0.0], left, right)
    floor = TOP + (shape.height if found.density is not None else 30.0)
    ticks = [(f"λ{i + 1} = {value:.6g}", value, "found solid") for i, value in enumerate(largest)]
    ticks.append((f"smallest: {smallest:.6g}", smallest, "balanced solid"))
    key = [("tick found solid", "largest eigenvalues"), ("tick balanced solid", "smallest found")]
    ends = f"{min(*largest, smallest):.3g} to {max(*largest, smallest):.3g}"
    return svg.drawing(
        (shape.width, floor + 44),
        shape.name,
        f"Spectrum of {found.parameters} eigenvalues from {ends}.",
        svg.line(left, floor, right, floor, "zero"),
        svg.uprights(across.ticks(9 if shape.wide else 5), TOP, floor, shape.width, 34),
        _density(found, across, floor),
        (
            svg.group(told, svg.line(across.at(value), floor - TICK / 2, across.at(value), floor + TICK / 2, kind))
            for told, value, kind in ticks
        ),
        key=[*key, *([] if found.density is None else [("line reached", "density of all, log10")])],
        left=left,
    )


def _density(found: Curvature, across: Axis, floor: float) -> Content:
    if found.density is None:
        return None
    (low, _), (high, _) = across.knots
    at = [low + (high - low) * i / (POINTS - 1) for i in range(POINTS)]
    heights = [math.log10(max(y * (high - low), 1e-300)) for y in found.density.curve(at, WIDTH * (high - low))]
    up = Axis(((max(heights) - DECADES, floor), (max(heights), TOP + 4)))
    places = ((across.at(x), up.at(y)) for x, y in zip(at, heights, strict=True))
    return svg.path(places, "reached"), svg.text_line(across.start - 4, TOP + 8, "log10", "tiny", "end")


def _cells(value: Eigenvalue) -> tuple[str, str, str]:
    return format_number(value.value, 8), format_number(value.residual, 2), format_number(value.error, 2)


def _spent(found: Curvature) -> str:
    return ", ".join(f"{count} for {what}" for what, count in found.products.items())
