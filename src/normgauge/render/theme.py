"""Colours, and the style sheets that use them by name, so that one drawing serves light, dark and paper."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

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


@cache
def asset(name: str) -> str:
    """A style sheet or script of the page."""
    return files("normgauge.render").joinpath("assets", name).read_text(encoding="utf-8")


def page_css() -> str:
    """The style sheet of the page, figures included, for light and dark screens and for paper."""
    light, dark = (";".join(f"--{name}:{colour}" for name, colour in p.items()) for p in (LIGHT, DARK))
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n" + asset("figure.css") + asset("page.css")
    )


def figure_css(palette: Mapping[str, str] = LIGHT, prefix: str = "") -> str:
    """The style sheet of a figure alone, with the colours written out.

    Args:
        palette: the colours by name.
        prefix: a selector that every rule is put under, where the figure stands among what is not ours.
    """
    sheet = re.sub(r"var\(--(\w+)\)", lambda found: palette[found[1]], asset("figure.css"))
    return re.sub(r"^(?=\.fig)", f"{prefix} ", sheet, flags=re.MULTILINE) if prefix else sheet
