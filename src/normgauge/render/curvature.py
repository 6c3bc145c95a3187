"""A curvature measurement as a console table and as one self-contained HTML page."""

from __future__ import annotations

import io
from html import escape
from typing import TextIO

from normgauge.core.curvature import Curvature, Eigenvalue, Trace
from normgauge.render.console import WIDTH, Block, draw
from normgauge.render.curvature_plot import spectrum
from normgauge.render.numbers import ABSENT, plural
from normgauge.render.page import document
from normgauge.render.parts import html_table, words
from normgauge.render.svg import NARROW, WIDE
from normgauge.render.table import Grid

MEANING = "residual: an eigenvalue is at most that far away; error: what is expected of it, an estimate"
BLOCKS = "trace ± standard error and largest eigenvalue of each layer's own block; the rest of the network held fixed"


def text(found: Curvature) -> str:
    """What ``print`` shows."""
    stream = io.StringIO()
    show(found, stream, width=WIDTH)
    return stream.getvalue().rstrip("\n")


def show(found: Curvature, stream: TextIO, *, width: int | None = None) -> None:
    """Write a measurement to a terminal."""
    draw(blocks(found), stream, width)


def blocks(found: Curvature) -> list[Block]:
    """Head, eigenvalues, totals, layers and notes."""
    parts: list[Block] = [head(found), eigenvalue_grid(found), total_grid(found)]
    if found.layers:
        parts += [layer_grid(found), ""]
    parts += sentences(found)
    parts.append(f"{plural(sum(found.products.values()), 'Hessian-vector product')}: " + _spent(found) + ".")
    return parts


def head(found: Curvature) -> str:
    """What was measured."""
    data = f"{plural(found.samples, 'sample')} in {plural(found.batches, 'batche' if found.batches != 1 else 'batch')}"
    return f"{found.model}, mode {found.mode}, {plural(found.parameters, 'parameter')}, {data}, {found.precision}"


def sentences(found: Curvature) -> list[str]:
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
    """One row a layer."""
    rows = tuple((layer.name, str(layer.parameters), *_trace(layer.trace), *_top(layer.top)) for layer in found.layers)
    headers = ("layer", "parameters", "trace", "±", "λ1 of its block", "residual")
    return Grid("Layers", headers, rows, frozenset(range(1, 6)), BLOCKS)


def html(found: Curvature) -> str:
    """The page as a string."""
    opening = "".join(f'<p class="verdict">{words(sentence)}</p>' for sentence in sentences(found))
    figure = "".join(spectrum(found, shape) for shape in (WIDE, NARROW))
    caption = "Eigenvalues found, and the density of all of them where it was asked for; logarithmic upwards"
    body = (
        opening
        + f"<section><h2>Spectrum</h2><figure><figcaption>{escape(caption)}</figcaption>{figure}</figure>"
        + f"{html_table(eigenvalue_grid(found))}<p>{escape(MEANING)}.</p></section>"
        + f"<section><h2>Totals</h2>{html_table(total_grid(found))}</section>"
        + (f"<section><h2>Layers</h2>{html_table(layer_grid(found))}</section>" if found.layers else "")
        + f"<section><h2>Cost</h2><p>Hessian-vector products: {escape(_spent(found))}.</p></section>"
    )
    return document("Curvature of the loss", head(found), body)


def _cells(value: Eigenvalue) -> tuple[str, str, str]:
    return f"{value.value:.8g}", f"{value.residual:.2g}", f"{value.error:.2g}"


def _trace(trace: Trace) -> tuple[str, str]:
    return f"{trace.value:.5g}", f"{trace.standard_error:.2g}"


def _top(top: Eigenvalue | None) -> tuple[str, str]:
    return (ABSENT, ABSENT) if top is None else (f"{top.value:.5g}", f"{top.residual:.2g}")


def _spent(found: Curvature) -> str:
    return ", ".join(f"{count} for {what}" for what, count in found.products.items())
