"""Write one self-contained HTML page from saved readings and from runs; nothing is measured and torch is not loaded."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from normgauge.cli.output import check_targets, write_answer, write_text
from normgauge.core import reference
from normgauge.core.checker import SCHEMA
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.reading import Reading
from normgauge.core.store.places import SUFFIX
from normgauge.core.stored import items_of, read_json
from normgauge.monitor.watching.scene import read_runs
from normgauge.render.compared import compared_networks, network_warnings, refuted_networks
from normgauge.render.document import section
from normgauge.render.figures import FORMATS, NO_PNG, figure_formats, save, write_drawings
from normgauge.render.groups import grouped_readings, network_trainings
from normgauge.render.markup import Markup, clean
from normgauge.render.numbers import plural, told_apart
from normgauge.render.page import body, report
from normgauge.render.runs import runs_html
from normgauge.render.runs_console import run_snapshot
from normgauge.render.runs_data import LabelledRun
from normgauge.render.runs_figures import run_drawings, run_style

Shown = tuple[str, Reading]
HELP = "write an HTML page from saved readings and from runs"
EXAMPLES = """\
examples:
  normgauge report a.json b.json --html compare.html
      each file holds what `normgauge gauge --json FILE` or Reading.save wrote
  normgauge report runs/a runs/b --html runs.html
      trainings side by side: each a run file, its folder, or a folder of runs
  normgauge report a.json --beside resnet20 --beside b.json
      a reference that comes with normgauge, and the readings of a file, as further rows of the bracket
  normgauge report --label BN b0.json --label BN b1.json --label LN l0.json --label LN l1.json
      two networks, two trainings of each: one row for each network, a dot for each training
  normgauge report a.json --figures figures
      every figure as SVG besides, and as PNG after `pip install 'normgauge[plot]'`; of runs loss, P_w, capacity and
      every total and column over the steps
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="readings as JSON, or runs")
    parser.add_argument("--html", metavar="FILE", default="report.html", help="the page to write (report.html)")
    parser.add_argument(
        "--beside",
        metavar="NAME",
        action="append",
        default=[],
        help="a reference or a file of readings to compare with",
    )
    parser.add_argument(
        "--label",
        metavar="NAME",
        action="append",
        help="what a file of readings is called: one for each, in their order; files that share one are several "
        "trainings of a network, shown by their median and range",
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
    """Read the files and write the page.

    Raises:
        InputError: when options for readings stand beside runs alone.
    """
    check_targets(args.html, args.json)
    run_files = [name for name in args.files if _is_run(Path(name))]
    runs, note = read_runs(run_files) if run_files else ([], "")
    files = [name for name in args.files if name not in run_files]
    if args.label and len(args.label) != len(files):
        raise InputError(
            f"--label: expected one for each of {plural(len(files), 'file')} of readings, got {len(args.label)}"
        )
    stems = short_names(files)
    named = list(zip(files, args.label or told_apart(stems, "{} ({})"), strict=True))
    each = [file_readings(Path(name), label) for name, label in named]
    found = [item for items in each for item in items]
    labels, readings = [label for label, _ in found], [reading for _, reading in found]
    sources = [stem for stem, items in zip(stems, each, strict=True) for _ in items]
    if not readings and args.beside:
        raise InputError("--beside is for readings, and only runs were given; add a file of readings")
    beside = [item for name in args.beside for item in comparison_readings(name)]
    if runs:
        kept = [*found, *(item for run in runs for item in _last_reading(run))]
        write_text(runs_html(runs, "normgauge report", _readings(kept, beside)), args.html)
    else:
        report(readings, args.html, labels=labels, beside=beside, files=sources)
    counts = [plural(len(group), noun) for group, noun in ((runs, "run"), (readings, "reading")) if group]
    groups = grouped_readings(readings, labels, sources)
    compared = compared_networks(groups) if network_trainings(groups) else []
    said = [*refuted_networks(groups), *network_warnings(groups), *compared, f"{args.html}: {', '.join(counts)}", note]
    said = [line for line in said if line]
    if args.figures is not None:
        said += _figures(args, runs, readings, labels, sources)

    def data() -> dict[str, Any]:
        everything = {"schema": SCHEMA, "labels": labels, "readings": [reading.to_json() for reading in readings]}
        return everything | ({"runs": [run_snapshot(item) for item in runs]} if runs else {})

    write_answer(args.json, data, lambda stream: stream.writelines(f"{clean(line)}\n" for line in said))
    return 0


def short_names(files: Sequence[str]) -> list[str]:
    """What files are called: their names without an end, and with their folders where these are all that differs.

    >>> short_names(["x/a.json", "x/b.json"]), short_names(["runs/a/net.json", "runs/b/net.json", "runs/c.json"])
    (['a', 'b'], ['a/net', 'b/net', 'c'])
    """
    stems = [Path(name).stem for name in files]
    if len(set(stems)) == len(stems) or len(set(files)) < 2:
        return stems
    common = os.path.commonpath([Path(name).absolute().parent for name in files])
    full = [Path(os.path.relpath(Path(name).absolute(), common)).with_suffix("").as_posix() for name in files]
    return [long if stems.count(stem) > 1 else stem for stem, long in zip(stems, full, strict=True)]


def _is_run(path: Path) -> bool:
    """A folder, or a file of lines; readings are files that end in ``.json``."""
    return path.is_dir() or path.suffix == SUFFIX


def _readings(kept: Sequence[Shown], beside: Sequence[Shown]) -> Markup:
    """Readings as they follow runs on a page; a single one needs its name, several bring theirs."""
    if not kept:
        return Markup()
    name = kept[0][0] if len(kept) == 1 else "Readings"
    shown = body(grouped_readings([reading for _, reading in kept], [label for label, _ in kept]), (), beside)
    return section(name, shown, class_="network")


def _last_reading(item: LabelledRun) -> list[Shown]:
    """The last full reading in a run that can be read."""
    for record in reversed(item.run.readings):
        try:
            reading = Reading.from_json(record["reading"])
        except (ReadingError, KeyError, TypeError, ValueError):
            continue
        return [(f"{item.label}: full reading at step {record.get('step')}", reading)]
    return []


def _figures(
    args: argparse.Namespace,
    runs: Sequence[LabelledRun],
    readings: Sequence[Reading],
    labels: Sequence[str],
    sources: Sequence[str],
) -> list[str]:
    formats = args.figure_format or figure_formats()
    drawn = save(readings, args.figures, formats, labels=labels, files=sources) if readings else []
    drawn += write_drawings(run_drawings(runs), args.figures, formats, run_style()) if runs else []
    said = [f"{args.figures}: {plural(len(drawn), 'file')}"]
    if not args.figure_format and "png" not in figure_formats():
        said.append(f"SVG only. {NO_PNG}")
    return said


def comparison_readings(name: str) -> list[Shown]:
    """The labelled readings of a reference that comes with normgauge, or of a file."""
    if name in reference.names():
        return [
            (f"{reference.reference_title(name)}, {reading.scope}", reading)
            for reading in reference.load_reference(name)
        ]
    return file_readings(Path(name))


def file_readings(path: Path, name: str | None = None) -> list[Shown]:
    """The readings of one file, each with a label that begins with ``name``, or with that of the file.

    Raises:
        ReadingError: when the file is no reading.
    """
    if not path.exists():
        raise ReadingError(
            f"{path}: No such file or folder; expected readings as JSON, a run file, its folder, or runs in a folder"
        )
    data = read_json(path)
    items = items_of(data, path)
    try:
        readings = [Reading.from_json(item) for item in items]
        labels = data.get("labels") or [str(reading.scope) for reading in readings]
        return [(f"{name or path.stem}: {label}", reading) for label, reading in zip(labels, readings, strict=True)]
    except (ReadingError, TypeError, ValueError) as error:
        raise ReadingError(f"{path}: {error}") from None
