"""Compare two saved readings: by how much the bounds moved, and which layers moved them.

Layers and scopes are matched by name. A file is what `normgauge gauge --json FILE` wrote; reference:NAME is one of the
readings that come with normgauge. Nothing is measured and torch is not loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from normgauge.cli.arguments import parse_finite, readings_at
from normgauge.cli.gate import ALLOWED, Gate, Verdict
from normgauge.cli.gauge import ABOVE, OK, REFUTED
from normgauge.cli.obstacles import check_allow
from normgauge.cli.output import check_targets, complain, tell_gate, write_answer
from normgauge.cli.watch import WIDTH
from normgauge.core import reference
from normgauge.core.compare import match_scopes
from normgauge.core.errors import ReadingError
from normgauge.core.reading import Reading
from normgauge.render.console import draw_blocks
from normgauge.render.difference import difference_blocks, difference_verdict
from normgauge.render.verdict import refutation_sentence

HELP = "compare two saved readings"
EXAMPLES = f"""\
examples:
  normgauge diff before.json after.json
  normgauge diff reference:resnet20 mine.json
  normgauge diff main.json branch.json --fail-above 0.3
      a gate for a pipeline: exit code 3 when an upper bound grew by more than
      0.3 decades (a factor of two), 4 when one of the bounds was refuted by a
      slope found, 1 where the two cannot be compared: other samples, scopes,
      settings or versions, unless --allow says that this is meant

references:
  {", ".join(reference.names())}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("a", metavar="A", help="a file with readings, or reference:NAME")
    parser.add_argument("b", metavar="B", help="what A is compared with, likewise")
    parser.add_argument("--json", metavar="FILE", help="write the comparison as JSON; - for standard output")
    parser.add_argument("--all", action="store_true", help="print every layer that moved")
    parser.add_argument(
        "--fail-above",
        metavar="DECADES",
        type=parse_finite,
        help="exit code 3 when an upper bound grew by more decades",
    )
    parser.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        choices=ALLOWED,
        help=f"hold the gate though this differs: {', '.join(ALLOWED)}; may be given again",
    )


def run(args: argparse.Namespace) -> int:
    """Read both, compare, tell, judge.

    Raises:
        InputError: for --allow without a gate.
        ReadingError: when the two have no scope in common, or a gate cannot compare them.
    """
    check_targets(args.json)
    check_allow(args)
    a, b = readings_at(args.a), readings_at(args.b)
    differences, alone = match_scopes(a, b)
    if not differences:
        sides = [", ".join(str(reading.scope) for reading in side) for side in (a, b)]
        raise ReadingError(f"no scope in common: {args.a} has {sides[0]}, {args.b} has {sides[1]}; measure the same")
    wrong = _refutations(a, b)
    verdict = None
    if args.fail_above is not None and not wrong:
        verdict = Gate((args.a, args.b), a, b).judge(args.fail_above, args.allow or ())
    told = [f"Only one of the two was read in scope {', '.join(alone)}."] if alone else []

    def data() -> dict[str, Any]:
        items = [{**d.to_json(), "verdict": difference_verdict(d)} for d in differences]
        return {"schema": 1, "a": args.a, "b": args.b, "unmatched": alone, "scopes": items}

    write_answer(
        args.json,
        data,
        lambda stream: draw_blocks(
            [*difference_blocks(differences, (args.a, args.b), args.all), *told],
            stream,
            None if stream.isatty() else WIDTH,
        ),
    )
    return diff_exit_code(wrong, verdict)


def _refutations(a: Sequence[Reading], b: Sequence[Reading]) -> list[str]:
    """What refutes a bound as it was measured; numbers that were edited refute nothing."""
    refuted = [
        (name, r) for name, side in (("A", a), ("B", b)) for r in side if r.log_refuted is not None and not r.edited
    ]
    return [f"{name}: {refutation_sentence(reading)}" for name, reading in refuted]


def diff_exit_code(wrong: Sequence[str], verdict: Verdict | None) -> int:
    """The exit code, with one line on standard error: that a bound was refuted, or the verdict of a gate."""
    if wrong:
        complain(" ".join(wrong))
        return REFUTED
    if verdict is None:
        return OK
    tell_gate("growth", verdict.passed, verdict.sentence)
    return OK if verdict.passed else ABOVE
