"""Check saved readings without the network: the arithmetic from the layers' gains to every total, done again.

The totals and the slope found are checked by one short file that imports nothing of normgauge: it can be read, copied
and run alone, as python src/normgauge/checker.py reading.json. Neither torch nor the model is needed.
"""

from __future__ import annotations

import argparse
from typing import Any

from normgauge import checker, consistency, reference
from normgauge.cli.output import check_targets, write_json, write_text
from normgauge.core.stored import read_json
from normgauge.render.numbers import plural

HELP = "check saved readings without the network"
EXAMPLES = """\
examples:
  normgauge verify a.json b.json
  normgauge verify reference:resnet20
  normgauge gauge net.py:build --batch net.py:batch --json - | normgauge verify /dev/stdin

exit codes:
  0 verified   1 not verified, with what is wrong, one finding a line
"""
CHECKED = (
    "every total recomposed from the layers' gains, products, losses, enclosures and the witness of the slope checked; "
    "not checked, as it needs the network: that the gains are those of its weights and that the slopes found were met"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="readings as JSON, or reference:NAME")
    parser.add_argument("--json", metavar="FILE", help="write the findings as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    """Check every file, tell what is wrong."""
    check_targets(args.json)
    findings: dict[str, list[str]] = {}
    counts = {}
    for name in args.files:
        data = stored(name)
        counts[name] = len(checker.readings_of(data))
        findings[name] = checker.check_file(data, consistency.check)
    wrong = any(findings.values())
    if args.json is not None:
        write_json({"schema": 1, "verified": not wrong, "findings": findings, "checked": CHECKED}, args.json)
    if args.json != "-":
        lines = [f"{name}: {sentence}" for name in findings for sentence in findings[name]]
        lines += [
            f"verified: {name}: {plural(counts[name], 'reading')}: {CHECKED}" for name in findings if not findings[name]
        ]
        write_text("\n".join(lines) + "\n", "-")
    return int(wrong)


def stored(name: str) -> Any:
    """What a file or a reference holds, not looked at any further."""
    return reference.content(name) if name.startswith(reference.PREFIX) else read_json(name)
