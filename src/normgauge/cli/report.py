"""Write one self-contained HTML page from saved readings; nothing is measured and torch is not loaded."""

from __future__ import annotations

import argparse
from pathlib import Path

from normgauge import reference
from normgauge.cli.output import check_targets, write_json, write_page, write_text
from normgauge.core.reading import Reading
from normgauge.core.stored import items_of, read_json
from normgauge.errors import ReadingError
from normgauge.render.figures import FORMATS, NO_PNG, available, save
from normgauge.render.numbers import plural

HELP = "write an HTML page from saved readings"
EXAMPLES = """\
examples:
  normgauge report a.json b.json --html compare.html
      each file holds what `normgauge gauge --json FILE` or Reading.save wrote
  normgauge report a.json --beside resnet20 --beside b.json
      a reference that comes with normgauge, and the readings of a file, as further rows of the bracket
  normgauge report a.json --figures figures
      every figure as SVG besides, and as PNG after `pip install normgauge[plot]`
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="readings as JSON")
    parser.add_argument("--html", metavar="FILE", default="report.html", help="the page to write (report.html)")
    parser.add_argument(
        "--beside",
        metavar="NAME",
        action="append",
        default=[],
        help="a reference or a file of readings to compare with",
    )
    parser.add_argument("--figures", metavar="DIR", help="write every figure into this folder as well")
    parser.add_argument(
        "--figure-format",
        action="append",
        choices=FORMATS,
        help="svg or png; both, as far as possible, where it is not given",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write all of them into one JSON file as well; - for standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Read the files and write the page."""
    check_targets(args.html, args.json)
    labels, readings = zip(*(item for name in args.files for item in read(Path(name))), strict=True)
    beside = [item for name in args.beside for item in compared(name)]
    write_page(readings, args.html, labels, beside)
    said = [f"{args.html}: {plural(len(readings), 'reading')}"]
    if args.figures is not None:
        drawn = save(readings, args.figures, args.figure_format or available(), labels=labels)
        said.append(f"{args.figures}: {plural(len(drawn), 'file')}")
        if not args.figure_format and "png" not in available():
            said.append(f"SVG only. {NO_PNG}")
    if args.json is not None:
        everything = {"schema": 1, "labels": labels, "readings": [reading.to_json() for reading in readings]}
        write_json(everything, args.json)
    if args.json != "-":
        write_text("\n".join(said) + "\n", "-")
    return 0


def compared(name: str) -> list[tuple[str, Reading]]:
    """The labelled readings of a reference that comes with normgauge, or of a file."""
    if name in reference.names():
        return [(f"{reference.title(name)}, {reading.scope}", reading) for reading in reference.load(name)]
    return read(Path(name))


def read(path: Path) -> list[tuple[str, Reading]]:
    """The readings of one file, each with a label: one, or all under its key ``readings``.

    Raises:
        ReadingError: when the file is no reading.
    """
    data = read_json(path)
    items = items_of(data, path)
    try:
        readings = [Reading.from_json(item) for item in items]
        labels = data.get("labels") or [str(reading.scope) for reading in readings]
        return [(f"{path.stem}: {label}", reading) for label, reading in zip(labels, readings, strict=True)]
    except (ReadingError, TypeError, ValueError) as error:
        raise ReadingError(f"{path}: {error}") from None
