"""The page of runs while they grow: the same sections as the offline page, exchanged as they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from normgauge.render.page import document
from normgauge.render.runs import pieces, subtitle
from normgauge.render.runs_data import Labelled

PIECES = ("piece-verdict", "piece-curves", "piece-maps", "piece-layers", "piece-notes")
TITLE = "normgauge watch"


def sections(items: Sequence[Labelled], waiting: str) -> dict[str, str]:
    """The sections by their ids, all of them at any time, so that a page opened early can be filled later."""
    if items:
        return pieces(items)
    return {**dict.fromkeys(PIECES, ""), PIECES[0]: f'<p class="verdict">{escape(waiting)}</p>'}


def heading(items: Sequence[Labelled]) -> str:
    """What stands beside the title."""
    return subtitle(items) if items else "no run yet"


def live_page(shown: Mapping[str, str], beside: str, version: str, state: str) -> str:
    """The whole page as it is first sent; its script asks the server it came from for more, and nobody else."""
    inner = "".join(f'<section id="{key}" data-piece>{content}</section>' for key, content in shown.items())
    line = f'<p class="live" id="live" data-version="{escape(version)}">{escape(state)}</p>'
    return document(TITLE, beside, line + inner, ("page", "runs", "live"), "'self'")
