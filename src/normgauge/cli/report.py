"""Write one self-contained HTML page from saved readings; nothing is measured and torch is not loaded."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from normgauge.cli.output import write_json, write_page, write_text
from normgauge.core.reading import Reading
from normgauge.errors import ReadingError
from normgauge.render.numbers import plural

HELP = "write an HTML page from saved readings"
EXAMPLES = """\
examples:
  normgauge report a.json b.json --html compare.html
      each file holds what `normgauge gauge --json FILE` or Reading.save wrote
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="readings as JSON")
    parser.add_argument("--html", metavar="FILE", default="report.html", help="the page to write (report.html)")
    parser.add_argument(
        "--json", metavar="FILE", help="write all of them into one JSON file as well; - for standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Read the files and write the page."""
    found = [item for name in args.files for item in read(Path(name))]
    labels, readings = zip(*found, strict=True)
    write_page(readings, args.html, labels)
    if args.json is not None:
        everything = {"schema": 1, "labels": labels, "readings": [reading.to_json() for reading in readings]}
        write_json(everything, args.json)
    if args.json != "-":
        write_text(f"{args.html}: {plural(len(readings), 'reading')}\n", "-")
    return 0


def read(path: Path) -> list[tuple[str, Reading]]:
    """The readings of one file, each with a label: one, or all under its key ``readings``.

    Raises:
        ReadingError: when the file is no reading.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReadingError(f"expected a JSON file with readings at {path}, got {error}") from None
    items = data.get("readings", [data]) if isinstance(data, dict) else [data]
    if items == []:
        raise ReadingError(f"{path}: expected at least one reading, got an empty list")
    try:
        readings = [Reading.from_json(item) for item in items]
        labels = data.get("labels", [str(reading.scope) for reading in readings])
        return [(f"{path.stem}: {label}", reading) for label, reading in zip(labels, readings, strict=True)]
    except (ReadingError, TypeError, ValueError) as error:
        raise ReadingError(f"{path}: {error}") from None
