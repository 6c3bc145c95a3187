"""Text and tables on a terminal or in a pipe, readings too."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from normgauge.core.fields import declared_fields
from normgauge.core.first_notes import measured_output, padding_notes
from normgauge.core.reading import InverseSigma, Published, Reading
from normgauge.render import verdict
from normgauge.render.layertable import reading_layers
from normgauge.render.markup import clean
from normgauge.render.numbers import ABSENT, scope_words
from normgauge.render.table import Grid
from normgauge.render.terminal import grid_lines, sentence_lines

WIDTH = 80
STYLES = ("\x1b[1m", "\x1b[2m", "\x1b[0m")  # bold, dim, as before
Block = str | Grid
PRODUCTS = {  # under names people know; the keys of the JSON form stay as they are
    **{field.key.removeprefix("log10_"): field.told.sentence for field in declared_fields(Published)},
    **{f"prod_inv_sigma, {end.key}": end.told.sentence for end in declared_fields(InverseSigma)},
}
PRODUCTS_NOTE = (
    f"{ABSENT}: its statement is not about all these normalizers (F.normalize, say, divides by a norm and has no σ). "
    "Theorem, corollaries and lemma are those of Than 2025 (arXiv 2511.00958), checked by `normgauge theory T.T9 T.C10 "
    "T.C11 T.C11.reduce T.L3`. All are stated for chains of layers with activations of slope at most 1; those without "
    "γ for normalizers whose γ is 1. Elsewhere they are no bounds."
)
OF_SAMPLES = {
    "point": "with σ of the samples",
    "ball": "with the smallest σ in the balls around the samples, Π 1/σ with that of the samples",
    "global": "with the smallest σ there can be, Π 1/σ with that of the samples",
}


def reading_text(reading: Reading, every: bool = False) -> str:
    """One reading as the text that ``print(reading)`` shows."""
    return as_text(reading_blocks([reading], every))


def reading_blocks(readings: Sequence[Reading], every: bool = False) -> list[Block]:
    """Head, totals, a paragraph for each scope, then the layers of the first reading and the published products."""
    first = readings[0]
    batch = f", {verdict.sample_count(first)}" if first.samples else ""
    measured = "" if first.input_name == "input" else f", measured in {first.input_name}"
    alarms = [verdict.refutation_sentence(reading) for reading in readings if reading.log_refuted is not None]
    output = measured_output(first.notes)
    measured += f"{' to' if measured else ', measured in the input to'} {output}" if output else ""
    padding = padding_notes(first.notes)
    head = f"{first.model}, mode {first.mode}{measured}{batch}"
    parts: list[Block] = [*alarms, head, *padding, reading_totals(readings), ""]
    told = {*alarms, *padding}  # scopes share most of their notes
    for reading in readings:
        found = verdict.finding_sentences(reading)  # said in each scope: it is why its bound is infinite
        troubles = [said for said in verdict.trouble_sentences(reading) if said in found or said not in told]
        told.update(troubles)
        parts.append(f"{reading.scope}: {verdict.verdict_line(reading)}")
        said = (verdict.judgement(reading), verdict.steepest_sample(reading), *troubles, verdict.gap_line(reading))
        parts.extend(f"  {sentence}" for sentence in said if sentence)
    if first.layers:
        parts += [reading_layers(first, every), ""]
    parts += filter(None, [verdict.balance_sentence(first)])
    if first.gauges:
        parts.append("Minimised over: " + "; ".join(first.gauges) + ".")
    if first.published:
        parts.append(printed_products(first) if every else products_line(first))
    return parts


def reading_totals(readings: Sequence[Reading]) -> Grid:
    """One labelled upper bound for each scope beside the slope found there, and the largest slope found."""
    rows = [
        (
            f"at most, {scope_words(r.scope)}",
            str(r.scope),
            verdict.most_words(r),
            verdict.evidence_words(r),
            verdict.found_words(r),
        )
        for r in readings
    ]
    found = max(readings, key=lambda r: r.log_lower)
    rows.append(("at least, found", str(found.scope), verdict.found_words(found), "observed", ABSENT))
    headers = ("", "scope", "factor", "evidence", "found there")
    return Grid("How much a small change of the input can grow", headers, tuple(rows), frozenset({2, 4}))


def products_line(reading: Reading) -> str:
    """The two products that are quoted most, and where the others are."""
    named = (("P_w", "P_w"), ("Π 1/σ", "prod_inv_sigma, rms"))
    told = ", ".join(f"{name} 10^{log:z.2f}" for name, key in named if (log := reading.products.get(key)) is not None)
    return f"Published products depend on the gauge: {told} (--all shows each)."


def printed_products(reading: Reading) -> Grid:
    """The papers' products, labelled as what they are, in decades; those without a name here are shown as they are."""
    title = (
        f"Published quantities, {OF_SAMPLES[reading.scope.kind]} (scope {reading.scope}): gauge-dependent, the "
        "same function written with other weights (before a LayerNorm, another ε too) has others"
    )
    rows = list[tuple[str, str]]()
    for name, log in reading.products.items():
        rows.append((PRODUCTS.get(name, name), ABSENT if log is None else f"{log:z.2f}"))
    return Grid(title, ("quantity", "log10"), tuple(rows), frozenset({1}), PRODUCTS_NOTE)


def as_text(parts: Sequence[Block]) -> str:
    """Blocks as plain text of 80 columns."""
    stream = io.StringIO()
    draw_blocks(parts, stream, WIDTH)
    return stream.getvalue().rstrip("\n")


def draw_blocks(parts: Sequence[Block], stream: TextIO, width: int | None = None) -> None:
    """Draw blocks on a stream; nothing in them can steer the terminal.

    Args:
        parts: sentences and tables.
        stream: where to.
        width: of the lines; where None, that of the terminal, 80 where there is none, or what ``COLUMNS`` says.
    """
    size = shutil.get_terminal_size((WIDTH, 24)).columns if width is None else width
    bold, dim, plain = STYLES if styled(stream) else ("", "", "")
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines += sentence_lines(clean(part), size)
            continue
        grid = _cleaned(part)
        lines += ["", *(f"{bold}{line}{plain}" for line in sentence_lines(grid.title, size)), *grid_lines(grid, size)]
        lines += [f"{dim}{line}{plain}" for line in (sentence_lines(grid.footer, size) if grid.footer else ())]
    stream.write("".join(f"{line}\n" for line in lines))


def styled(stream: TextIO) -> bool:
    """Whether titles may stand out: on a terminal that knows how, unless ``NO_COLOR`` is set."""
    unable = os.environ.get("TERM") == "dumb" or sys.platform == "win32"
    return stream.isatty() and not unable and not os.environ.get("NO_COLOR")


def _cleaned(grid: Grid) -> Grid:
    headers, *rows = (tuple(map(clean, row)) for row in (grid.headers, *grid.rows))
    return Grid(clean(grid.title), headers, tuple(rows), grid.numeric, clean(grid.footer), grid.keys)
