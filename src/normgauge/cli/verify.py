"""Check saved readings: the arithmetic from the layers' gains to every total, done again from the file alone.

The totals, the scope and the slope found are checked by one short file that imports nothing of normgauge: it can be
read, copied and run alone, as python src/normgauge/core/checker.py reading.json. Neither torch nor the model is needed.
With --model the weights are compared by their digest, and with --batch too everything is measured again, which RUNS the
code that builds them where they are given as Python code.
"""

from __future__ import annotations

import argparse
from typing import Any, TextIO

from normgauge.cli.output import check_targets, write_answer
from normgauge.cli.remeasure import Network
from normgauge.core import checker, consistency, reference
from normgauge.core.errors import InputError
from normgauge.core.stored import read_json
from normgauge.loading import BATCH_FORMS, MODEL_FORMS
from normgauge.render.console import draw_blocks
from normgauge.render.markup import clean
from normgauge.render.numbers import plural

HELP = "check saved readings, with the network or without"
EXAMPLES = """\
examples:
  normgauge verify a.json b.json
  normgauge verify reference:resnet20
  normgauge gauge net.py:build --batch net.py:batch --json - | normgauge verify /dev/stdin
  normgauge verify a.json --model net.py:build --batch net.py:batch
      measure again in the same scope, mode and options, and compare every bound and every layer's gain

exit codes:
  0 verified   1 not verified, with what is wrong, one finding a line; a refuted bound is never verified
"""
STORED = (
    "every total recomposed from the layers' gains, scope, products, losses, enclosures, the witness of the slope and "
    "the digest of the content checked"
)
CHECKED = {
    "file": (
        STORED,
        "as it needs the network (--model, --batch): that the gains are those of its weights in that scope and mode, "
        "that nothing looked at the data, that the slopes found were met; nor any text (notes, names, formulas)",
    ),
    "weights": (
        f"{STORED}; the digest of the parameters and buffers compared",
        "as it needs data (--batch): numbers that the model holds elsewhere, that the gains are those of these "
        "weights, and that the slopes found were met",
    ),
    "again": (
        f"{STORED}; the digest of the parameters and buffers compared, every bound and every layer's gain measured "
        "again, with the stored multipliers and channel weights where there are any: none lies below by more than "
        "rounding",
        "that the same slopes are found again: the search has a budget of time; those found lie below the bounds; "
        "nor any text (notes, formulas), options and times",
    ),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="readings as JSON, or reference:NAME")
    parser.add_argument("--model", metavar="MODEL", help=f"the network they are about: {MODEL_FORMS}")
    parser.add_argument("--batch", metavar="B", help=f"what it was measured on: {BATCH_FORMS}")
    parser.add_argument("--json", metavar="FILE", help="write the findings as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    """Check every file, tell what is wrong.

    Raises:
        InputError: for a batch without a model.
    """
    check_targets(args.json)
    if args.batch is not None and args.model is None:
        raise InputError("a batch says nothing without its network: give --model too")
    files = {
        name: reference.reference_content(name) if name.startswith(reference.PREFIX) else read_json(name)
        for name in args.files
    }
    network = None if args.model is None else Network.load(args.model, args.batch)
    findings = {name: file_problems(data, network) for name, data in files.items()}
    checked, open_ = CHECKED["file" if network is None else "again" if network.measured else "weights"]
    wrong = any(findings.values())
    told = {"schema": 1, "verified": not wrong, "findings": findings, "checked": checked, "not_checked": open_}
    lines = [f"{name}: {sentence}" for name in findings for sentence in findings[name]]  # one a line, as compilers do
    fine = [
        f"verified: {name}: {plural(len(checker.readings_of(data)), 'reading')}: {checked}; not checked, {open_}"
        for name, data in files.items()
        if not findings[name]
    ]

    def words(stream: TextIO) -> None:
        stream.writelines(f"{clean(line)}\n" for line in lines)
        draw_blocks(fine, stream)

    write_answer(args.json, lambda: told, words)
    return int(wrong)


def file_problems(data: Any, network: Network | None) -> list[str]:
    """What is wrong with a file, a sentence each: its stored numbers first, then against the network."""
    found = checker.check_file(data, consistency.check_consistency)
    if network is None:
        return found
    items = checker.readings_of(data)
    said = network.check([item for _, item in items])
    return found + [label + sentence for (label, _), one in zip(items, said, strict=True) for sentence in one]
