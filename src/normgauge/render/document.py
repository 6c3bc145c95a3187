"""One self-contained page around its content, and the parts all pages are made of; the colours they have."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from normgauge.core.errors import InputError
from normgauge.render.markup import Content, Markup, markup, sentence_markup, tag

LIGHT = {
    "bg": "#ffffff",
    "panel": "#f5f6f8",
    "ink": "#1b1f24",
    "soft": "#545d68",
    "line": "#d9dee4",
    "axis": "#8b949e",
    "weight": "#c8553d",
    "norm": "#2b6c8f",
    "other": "#9aa3ad",
    "mixed": "#8a6d3b",
    "open": "#8a2be2",
    "found": "#1a7f47",
    "truth": "#e0a526",
    "accent": "#0b5cad",
}
DARK = {
    "bg": "#14171c",
    "panel": "#1d2229",
    "ink": "#e8eaed",
    "soft": "#aab2bc",
    "line": "#343b45",
    "axis": "#7d8794",
    "weight": "#e8795f",
    "norm": "#63a9d0",
    "other": "#707a86",
    "mixed": "#c9a66b",
    "open": "#bb86fc",
    "found": "#4cc38a",
    "truth": "#d9a02c",
    "accent": "#7ab8ff",
}
# A notebook brings its own background: text takes its colour, and bars are mid-tones that show on both.
NOTEBOOK = {
    **LIGHT,
    "bg": "transparent",
    "ink": "currentColor",
    "soft": "currentColor",
    "line": "rgba(128,128,128,.35)",
    "axis": "rgba(128,128,128,.9)",
    "norm": "#3d8fb8",
    "found": "#2a9d5c",
}


STYLED = frozenset({"runs", "theory", "certificate"})  # scripts with a style sheet of the same name
SCOPE = ".normgauge-reading"  # where the style sheet of a notebook's fragment reaches


@cache
def asset(name: str) -> Markup:
    """A style sheet or script of the page."""
    return Markup(files("normgauge.render").joinpath("assets", name).read_text(encoding="utf-8"))


def figure_css(palette: Mapping[str, str] = LIGHT, prefix: str = "") -> Markup:
    """The style sheet of a figure alone, with the colours written out.

    Args:
        palette: the colours by name.
        prefix: a selector that every rule is put under, where the figure stands among what is not ours.
    """
    sheet = re.sub(r"var\(--(\w+)\)", lambda found: palette[found[1]], asset("figure.css"))
    return Markup(re.sub(r"^(?=\.fig)", f"{prefix} ", sheet, flags=re.MULTILINE) if prefix else sheet)


def document(title: str, subtitle: str, content: str, assets: Sequence[str] = ("page",), connect: str = "") -> str:
    """A whole page around its content: style, script and a content policy that allows these two and nothing else.

    Args:
        title: the heading.
        subtitle: what stands beside it.
        content: of the page.
        assets: names of the scripts it runs, one after the other; those in ``STYLED`` bring a style sheet.
        connect: where the scripts may ask for new content; nowhere if it is empty.
    """
    light, dark = (";".join(f"--{name}:{colour}" for name, colour in palette.items()) for palette in (LIGHT, DARK))
    style = Markup(
        f":root{{color-scheme:light dark;{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        + "".join(asset(f"{name}.css") for name in ("figure", "page", *(name for name in assets if name in STYLED)))
    )
    script = Markup("\n".join(asset(f"{name}.js") for name in assets))
    policy = Markup(
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        f"{f'connect-src {connect}; ' if connect else ''}base-uri 'none'; form-action 'none'"
    )
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", style),
    )
    body = (
        tag("a", "Skip to the reading", class_="skip", href="#main"),
        tag("header", tag("h1", title), tag("p", subtitle)),
        tag("main", content, id="main"),
        tag("script", script),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def write_file(text: str, path: str | Path) -> Path:
    """Write a text to a file.

    Raises:
        InputError: when the file cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; give a file in a folder that exists") from None
    return Path(path)


def fragment(*content: Content) -> Markup:
    """Content that may stand in a notebook: no script, no style that reaches beyond it, the notebook's own colours."""
    style = tag("style", figure_css(NOTEBOOK, SCOPE), asset("notebook.css"))
    return tag("div", style, content, class_=SCOPE[1:])


def section(title: str, *content: Content, **attributes: str | None) -> Markup:
    """Content under a heading; nothing without content."""
    inside = markup(*content)
    return tag("section", tag("h2", title), inside, **attributes) if inside else inside


def paragraphs(sentences: Iterable[str], kind: str | None = None) -> Markup:
    """Return one paragraph for each sentence."""
    return markup(tag("p", sentence_markup(sentence), class_=kind) for sentence in sentences)


def listing(sentences: Sequence[str]) -> Markup:
    """Return a list of the sentences, or nothing without any."""
    return tag("ul", (tag("li", sentence_markup(sentence)) for sentence in sentences)) if sentences else Markup()


def fact_list(pairs: Iterable[tuple[str, str | Sequence[str]]]) -> Markup:
    """Terms, each with what is said of it in one or more sentences; terms with nothing to say are left out."""
    rows = ((term, [told] if isinstance(told, str) else told) for term, told in pairs)
    shown = (
        tag("div", tag("dt", term), (tag("dd", sentence_markup(one)) for one in told))
        for term, told in rows
        if any(told)
    )
    return tag("dl", shown, class_="facts")
