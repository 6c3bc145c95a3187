"""A certificate as text for a terminal, as a fragment for a notebook and as one self-contained HTML page."""

from __future__ import annotations

import io
from typing import TextIO

from normgauge.core.certificate import NETWORK, Certificate, Row
from normgauge.render.certificate_page import html, notebook
from normgauge.render.certificate_steps import stacked
from normgauge.render.certificate_table import by_class, face, family_grids, listed, waterfall
from normgauge.render.certificate_words import MEANINGS, head, sentences
from normgauge.render.console import WIDTH, Block, draw

__all__ = ["blocks", "html", "notebook", "show", "text"]
BEST = 3  # rows whose terms are drawn, of different families


def text(c: Certificate, *, every: bool = False) -> str:
    """What ``print`` shows; ``every``: all rows."""
    stream = io.StringIO()
    show(c, stream, every=every, width=WIDTH)
    return stream.getvalue().rstrip("\n")


def show(c: Certificate, stream: TextIO, *, every: bool = False, width: int | None = None) -> None:
    """Write a certificate to a terminal.

    Args:
        c: what to write.
        stream: where to.
        every: all rows with every reason, not one line a family.
        width: of the terminal; its own where None.
    """
    draw(blocks(c, every), stream, width)


def blocks(c: Certificate, every: bool = False) -> list[Block]:
    """Sentences and warnings, then one line a family, or every row and what the best are made of."""
    parts: list[Block] = [*sentences(c), *(f"Warning: {words}" for words in c.warnings)]
    parts += _all(c) if every else [face(c)]
    parts += listed(c, every)
    parts += [words[:1].upper() + words[1:].rstrip(".") + "." for words in c.notes]
    return parts


def _all(c: Certificate) -> list[Block]:
    kinds = {row.kind for row in c.rows}
    parts: list[Block] = ["", head(c), *family_grids(c), *by_class(c), *map(waterfall, _telling(c)), ""]
    return parts + [f"{kind}: {words}" for kind, words in MEANINGS.items() if kind in kinds]


def _telling(c: Certificate) -> list[Row]:
    """The first row of each family whose terms add up and that is about this network, a few of them."""
    first: dict[str, Row] = {}
    for row in stacked([row for row in c.rows if row.about == NETWORK]):
        first.setdefault(row.family, row)
    return list(first.values())[:BEST]
