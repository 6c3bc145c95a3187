"""A certificate as text for a terminal, as a fragment for a notebook and as one self-contained HTML page."""

from __future__ import annotations

import io
from typing import TextIO

from normgauge.core.certificate import NETWORK, Certificate, Kind, Row
from normgauge.render.certificate_page import html, notebook
from normgauge.render.certificate_steps import stacked
from normgauge.render.certificate_table import family_grids, left_out, waterfall
from normgauge.render.certificate_words import MEANINGS, head, sentences
from normgauge.render.console import WIDTH, Block, draw
from normgauge.render.numbers import plural

__all__ = ["blocks", "html", "notebook", "show", "text"]
BEST = 3  # rows whose terms are drawn, of different families


def text(c: Certificate) -> str:
    """What ``print`` shows."""
    stream = io.StringIO()
    show(c, stream, width=WIDTH)
    return stream.getvalue().rstrip("\n")


def show(c: Certificate, stream: TextIO, *, every: bool = False, width: int | None = None) -> None:
    """Write a certificate to a terminal.

    Args:
        c: what to write.
        stream: where to.
        every: also in full what does not apply, and every reason.
        width: of the terminal; its own where None.
    """
    draw(blocks(c, every), stream, width)


def blocks(c: Certificate, every: bool = False) -> list[Block]:
    """Sentences, warnings, a table a family, what the best rows are made of, what does not apply, notes."""
    kinds = {row.kind for row in c.rows}
    parts: list[Block] = [*sentences(c), *(f"Warning: {words}" for words in c.warnings), "", head(c)]
    parts += family_grids(c, every)
    parts += [waterfall(row) for row in _telling(c)]
    if not every and Kind.NOT_APPLICABLE in kinds:
        parts.append(left_out(c))
    if not every and Kind.SCORE in kinds:
        count = sum(row.kind is Kind.SCORE for row in c.rows)
        parts.append(f"{plural(count, 'score')} for comparing networks: --all shows them, and so do the page and JSON.")
    parts.append("")
    parts += [f"{kind}: {words}" for kind, words in MEANINGS.items() if kind in kinds]
    parts += [words[:1].upper() + words[1:].rstrip(".") + "." for words in c.notes]
    return parts


def _telling(c: Certificate) -> list[Row]:
    """The best row of each family whose terms add up and that is about this network, a few of them."""
    first: dict[str, Row] = {}
    for row in stacked([row for row in c.rows if row.about == NETWORK]):
        first.setdefault(row.family, row)
    return list(first.values())[:BEST]
