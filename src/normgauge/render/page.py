"""Readings as one self-contained HTML page: no network, one script of our own, every name escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from normgauge.core.reading import Reading
from normgauge.errors import InputError, ReadingError
from normgauge.render import parts
from normgauge.render.bracket import Row
from normgauge.render.glossary import TERMS
from normgauge.render.groups import Group, grouped
from normgauge.render.numbers import plural, where
from normgauge.render.overview import overview
from normgauge.render.panel import panel
from normgauge.render.theme import asset, page_css

STYLED = frozenset({"runs", "theory", "certificate"})  # scripts with a style sheet of the same name


def report(
    readings: Reading | Sequence[Reading],
    path: str | Path,
    *,
    labels: Sequence[str] | None = None,
    title: str = "normgauge report",
    lead: Sequence[str] = (),
    beside: Sequence[tuple[str, Reading]] = (),
) -> Path:
    """Write one HTML page about one or more readings.

    Args:
        readings: what to show, in this order; one network's scopes, next to each other, share a section.
        path: the file to write.
        labels: a name for each reading; the model's class name where it is not given.
        title: heading of the page.
        lead: sentences to open with.
        beside: readings to compare with, each with a label: extra rows in the bracket.

    Returns:
        The path written.

    Raises:
        ReadingError: when there is nothing to show, or labels and readings differ in number.
        InputError: when the file cannot be written.
    """
    items = [readings] if isinstance(readings, Reading) else list(readings)
    if not items:
        raise ReadingError("a report needs at least one reading, got none")
    if labels is not None and len(labels) != len(items):
        raise ReadingError(f"expected one label for each of {len(items)} readings, got {len(labels)}")
    page = Path(path)
    content = html(grouped(items, labels), title, lead, beside)
    try:
        page.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {page}: {error.strerror}; give a file in a folder that exists") from None
    return page


def html(
    groups: Sequence[Group], title: str, lead: Sequence[str] = (), beside: Sequence[tuple[str, Reading]] = ()
) -> str:
    """The page as a string."""
    return document(title, _subtitle(groups), body(groups, lead, beside))


def body(groups: Sequence[Group], lead: Sequence[str] = (), beside: Sequence[tuple[str, Reading]] = ()) -> str:
    """Everything between heading and end."""
    extra = [Row(label, reading, "beside") for label, reading in beside]
    if len(groups) == 1:
        opening = f'<p class="verdict">{parts.words(" ".join(lead))}</p>' if lead else ""
        shown = opening + _group(groups[0], "g0", extra, 2, opened=True)
    else:
        shown = overview(groups, extra, lead) + "".join(
            f'<section class="network" id="g{i}"><h2>{escape(group.label)}</h2>'
            f"{_group(group, f'g{i}', [], 3, opened=False)}</section>"
            for i, group in enumerate(groups)
        )
    everything = [reading for group in groups for reading in group.readings]
    return shown + _back_matter(everything)


def document(title: str, subtitle: str, content: str, assets: Sequence[str] = ("page",), connect: str = "") -> str:
    """A whole page around its content: style, script and a content policy that allows these two and nothing else.

    Args:
        title: the heading.
        subtitle: what stands beside it.
        content: of the page, as HTML.
        assets: names of the scripts it runs, one after the other; those in ``STYLED`` bring a style sheet.
        connect: where the scripts may ask for new content; nowhere if it is empty.
    """
    style = page_css() + "".join(asset(f"{name}.css") for name in assets if name in STYLED)
    script = "\n".join(asset(f"{name}.js") for name in assets)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        f"{f'connect-src {connect}; ' if connect else ''}base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<a class="skip" href="#main">Skip to the reading</a><header><h1>{escape(title)}</h1>'
        f"<p>{escape(subtitle)}</p></header>"
        f'<main id="main">{content}</main><script>{script}</script></body></html>\n'
    )


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _subtitle(groups: Sequence[Group]) -> str:
    if len(groups) > 1:
        return plural(sum(len(group.readings) for group in groups), "reading")
    first = groups[0].readings[0]
    label = groups[0].label
    name = first.model if label == first.model else f"{label} ({first.model})"
    return f"{name}, mode {first.mode}, {plural(len(first.layers), 'layer')}, {plural(len(first.samples), 'sample')}"


def _group(group: Group, key: str, extra: Sequence[Row], level: int, *, opened: bool) -> str:
    several = len(group.readings) > 1

    def rows(shown: Reading) -> list[Row]:
        own = [Row(where(r.scope), r, "now" if several and r is shown else "") for r in group.readings]
        return [*own, *extra]

    return (
        '<div class="group">'
        + "".join(
            panel(reading, rows(reading), f"{key}s{i}", level, opened=opened, heading=several)
            for i, reading in enumerate(group.readings)
        )
        + "</div>"
    )


def _back_matter(readings: Sequence[Reading]) -> str:
    used = parts.rules(readings)
    terms = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(words)}</dd></div>" for term, words in TERMS)
    rules = f'<details class="part"><summary><h2>Rules used</h2></summary>{used}</details>' if used else ""
    return f'{rules}<section><h2>Glossary</h2><dl class="facts">{terms}</dl></section>'
