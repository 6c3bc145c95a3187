"""Every figure as a file of its own, for papers and slides.

The drawings are the page's own SVG with the light theme's colours written in. They are made by hand rather than by a
plotting library: no dependency, well under 100 kB, themable, and in the page hoverable and accessible. PNG needs the
extra ``plot``, which brings a converter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from normgauge.core.errors import InputError, ReadingError
from normgauge.core.reading import Reading
from normgauge.render.bracket import BracketRow, bracket, sound_rows
from normgauge.render.document import LIGHT, figure_css
from normgauge.render.groups import told_by_source
from normgauge.render.markup import Markup, tag
from normgauge.render.numbers import scope_words, told_apart
from normgauge.render.page import bracket_rows
from normgauge.render.sigma import sigma_ranges
from normgauge.render.svg import WIDE
from normgauge.render.verdict import edit_contradicts
from normgauge.render.waterfall import waterfall

FORMATS = ("svg", "png")
NO_PNG = "PNG figures need a converter: pip install 'normgauge[plot]'"
NO_STYLE = Markup()
SCALE = 2.0  # pixels of a PNG for each unit of the drawing


def save(
    readings: Reading | Sequence[Reading],
    folder: str | Path,
    formats: Sequence[str] = FORMATS,
    *,
    labels: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
) -> list[Path]:
    """Write waterfall and σ of every reading and one bracket of all of them.

    Args:
        readings: what to draw.
        folder: where to; made where it does not exist.
        formats: ``svg``, ``png`` or both.
        labels: a name for each reading, its scope in words where not given. Readings that share one in the same scope
            are several trainings of a network and share a row of the bracket.
        files: where each reading is from; it stands in the names of figures whose label comes again.

    Returns:
        The files written.

    Raises:
        ReadingError: for no reading at all, or labels that differ in number.
    """
    items = [readings] if isinstance(readings, Reading) else list(readings)
    names = [scope_words(item.scope) for item in items] if labels is None else list(labels)
    if not items or len(names) != len(items):
        raise ReadingError(f"figures: expected readings and a label for each, got {len(items)} and {len(names)} labels")
    return write_drawings(_drawings(items, names, labels is not None, files), folder, formats)


def write_drawings(
    drawings: Sequence[tuple[str, str]], folder: str | Path, formats: Sequence[str] = FORMATS, style: Markup = NO_STYLE
) -> list[Path]:
    """Write drawings, each with the stem of its file's name.

    Args:
        drawings: stems and drawings.
        folder: where to; made where it does not exist.
        formats: ``svg``, ``png`` or both.
        style: rules for marks of their own.

    Returns:
        The files written.

    Raises:
        InputError: for another format, PNG without the converter, or a folder that cannot be written.
    """
    wrong = [name for name in formats if name not in FORMATS]
    if wrong or not formats:
        raise InputError(f"figures: expected the formats svg, png or both, got {', '.join(wrong) or 'none'}")
    if set(formats) - set(figure_formats()):
        raise InputError(f"{NO_PNG}, or ask for svg figures only")
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        return [
            _write(target / f"{stem}.{form}", standalone(drawing, style))
            for stem, drawing in drawings
            for form in formats
        ]
    except OSError as error:
        raise InputError(f"cannot write figures to {target}: {error.strerror}; give another folder") from None


def figure_formats() -> tuple[str, ...]:
    """The formats that can be written here: PNG only with the converter."""
    return FORMATS if find_spec("vl_convert") else ("svg",)


def standalone(drawing: str, style: Markup = NO_STYLE) -> str:
    """A drawing as a file of its own: size, background and colours written in."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert found is not None  # every drawing comes from svg.drawing
    head, body = drawing.split(">", 1)
    ground = tag("rect", width="100%", height="100%", fill=LIGHT["bg"])
    return f'{head} width="{found[1]}" height="{found[2]}">{tag("style", figure_css(), style)}{ground}{body}\n'


def _drawings(
    items: Sequence[Reading], names: Sequence[str], labelled: bool, files: Sequence[str] | None
) -> list[tuple[str, str]]:
    """Stems and drawings; readings with one label and scope are trainings of one network and share a row."""
    one = len({item.scope for item in items}) == 1
    short = [name.removesuffix(f": {items[0].scope}") if one else name for name in names]
    sources = files or [""] * len(names)
    named = list(zip(short, told_by_source(short, sources, "{} ({})"), items, strict=True))
    rows = bracket_rows(named) if labelled else [BracketRow(name, item) for name, _, item in named]
    sound = sound_rows(rows)
    drawn = [("bracket", bracket(sound, WIDE))] if sound else []
    full = told_by_source(names, sources, "{} {}")
    plain = [re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:80] or "reading" for name in full]
    for name, item in zip(told_apart(plain, "{}-{}"), items, strict=True):  # file names without surprises
        end = f"-{name}" if len(items) > 1 else ""
        if edit_contradicts(item):  # nothing follows from it
            continue
        drawn += [(f"waterfall{end}", waterfall(item)), (f"sigma{end}", sigma_ranges(item))]
    return [(stem, drawing) for stem, drawing in drawn if drawing]


def _write(path: Path, content: str) -> Path:
    if path.suffix == ".svg":
        path.write_text(content, encoding="utf-8")
    else:
        import vl_convert

        path.write_bytes(vl_convert.svg_to_png(content, scale=SCALE))
    return path
