"""One reading on the page: its verdict, its figures, and everything behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from normgauge.core.reading import Reading
from normgauge.render import parts, verdict
from normgauge.render.bracket import Row, bracket
from normgauge.render.layertable import layer_table
from normgauge.render.numbers import where
from normgauge.render.sigma import sigma_ranges
from normgauge.render.svg import NARROW, WIDE
from normgauge.render.waterfall import waterfall


def panel(reading: Reading, rows: Sequence[Row], key: str, level: int, *, opened: bool, heading: bool) -> str:
    """A reading in full.

    Args:
        reading: what to show.
        rows: of the bracket beside its waterfall.
        key: begins every id in it.
        level: of its headings.
        opened: the parts below the figures are open.
        heading: it is one of several scopes and says which.
    """
    title = _title(reading, key, level) if heading else ""
    below = level + 1 if heading else level
    inner = "".join(
        f'<details class="part"{" open" if opened else ""}><summary><h{below}>{escape(name)}</h{below}></summary>'
        f"{content}</details>"
        for name, content in _parts(reading, f"{key}-")
        if content
    )
    kind = "panel scoped" if heading else "panel"
    named = f' aria-labelledby="{key}"' if heading else ""
    return f'<section class="{kind}"{named}>{title}{_opening(reading)}{_figures(reading, rows, key)}{inner}</section>'


def _title(reading: Reading, key: str, level: int) -> str:
    """The scope in words, and in fewer words for its tab."""
    full = where(reading.scope).capitalize()
    short = full.removesuffix(" of the samples")
    return (
        f'<h{level} class="scope" id="{key}" data-tab="{escape(short)}" data-scope="{escape(str(reading.scope))}">'
        f"{escape(full)}</h{level}>"
    )


def _opening(reading: Reading) -> str:
    troubles = [s for s in verdict.trouble_sentences(reading) if s not in reading.notes]
    warned = "".join(f'<p class="warn">{parts.words(sentence)}</p>' for sentence in troubles)
    told = f"{verdict.upper_sentence(reading)} {verdict.bracket_sentence(reading)}"
    refuted = "" if reading.log_refuted is None else f'<p class="warn">{parts.words(verdict.alarm(reading))}</p>'
    return f'{refuted}<p class="verdict">{parts.words(told)}</p>{warned}'


def _figures(reading: Reading, rows: Sequence[Row], key: str) -> str:
    drawn = figure("Gain by depth", *(waterfall(reading, shape, f"{key}-") for shape in (WIDE, NARROW)))
    beside = figure("Where the truth lies", *(bracket(rows, shape) for shape in (WIDE, NARROW))) if rows else ""
    return f'<div class="top">{drawn}{beside}</div>'


def figure(caption: str, wide: str, narrow: str) -> str:
    """Both shapes of a figure, of which the style sheet shows one."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{wide}{narrow}</figure>" if wide else ""


def _parts(reading: Reading, key: str) -> Iterator[tuple[str, str]]:
    notes = [*reading.notes, *filter(None, [verdict.balance_sentence(reading)])]
    yield "Notes", "".join(f"<p>{parts.words(note)}</p>" for note in notes)
    yield "Layers", layer_table(reading, key) if reading.layers else ""
    drawn = figure("", *(sigma_ranges(reading, shape, key) for shape in (WIDE, NARROW)))
    yield "σ by layer", drawn.replace("<figcaption></figcaption>", "")
    yield "Most sensitive samples", parts.samples(reading)
    yield "Losses", parts.losses(reading)
    yield "Published products: they depend on the gauge", parts.products(reading)
    yield "What was assumed", parts.assumed(reading)
