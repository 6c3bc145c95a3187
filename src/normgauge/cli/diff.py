"""Compare two saved readings: by how much the bounds moved, and which layers moved them.

Layers and scopes are matched by name. A file is what `normgauge gauge --json FILE` wrote; reference:NAME is one of the
readings that come with normgauge. Nothing is measured and torch is not loaded.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from normgauge.cli.arguments import parse_finite, readings_at
from normgauge.cli.gauge import ABOVE, OK, REFUTED
from normgauge.cli.output import check_targets, complain, tell_gate, write_answer
from normgauge.cli.watch import WIDTH
from normgauge.core import reference
from normgauge.core.compare import Difference, match_scopes
from normgauge.core.errors import ReadingError
from normgauge.core.spelled import LN10
from normgauge.render.console import draw_blocks
from normgauge.render.difference import difference_blocks, difference_verdict
from normgauge.render.numbers import scope_words
from normgauge.render.verdict import apart_sentence, refutation_sentence

HELP = "compare two saved readings"
EXAMPLES = f"""\
examples:
  normgauge diff before.json after.json
  normgauge diff reference:resnet20 mine.json
  normgauge diff main.json branch.json --fail-above 0.3
      a gate for a pipeline: exit code 3 when an upper bound grew by more than 0.3 decades (a factor of two), 4 when
      one of the bounds was refuted by a slope found

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


def run(args: argparse.Namespace) -> int:
    """Read both, compare, tell, judge.

    Raises:
        ReadingError: when the two have no scope in common, or one was edited and a gate asks for it.
    """
    check_targets(args.json)
    a, b = readings_at(args.a), readings_at(args.b)
    edited = [name for name, side in ((args.a, a), (args.b, b)) if any(reading.edited for reading in side)]
    if edited and args.fail_above is not None:
        raise ReadingError(
            f"{edited[0]} was edited after it was written, and no gate is held against it; measure again"
        )
    differences, alone = match_scopes(a, b)
    if not differences:
        sides = [", ".join(str(reading.scope) for reading in side) for side in (a, b)]
        raise ReadingError(f"no scope in common: {args.a} has {sides[0]}, {args.b} has {sides[1]}; measure the same")
    if args.fail_above is not None and (apart := [d for d in differences if d.apart]):
        raise ReadingError(f"no gate is held: {apart_sentence(scope_words(apart[0].a.scope))}")
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
    return diff_exit_code(differences, args.fail_above)


def diff_exit_code(differences: list[Difference], limit: float | None) -> int:
    """The exit code, with one line on standard error: that a bound was refuted, or the verdict of a gate."""
    wrong = [
        f"{name}: {refutation_sentence(r)}"
        for d in differences
        for name, r in (("A", d.a), ("B", d.b))
        if r.log_refuted is not None
    ]
    if wrong:
        complain(" ".join(wrong))
        return REFUTED
    if limit is None:
        return OK
    grown = [d for d in differences if d.growth / LN10 > limit]
    worst = max(grown or differences, key=lambda d: d.growth)
    tell_gate(not grown, f"{_grown(worst)}; allowed are {limit:g}")
    return ABOVE if grown else OK


def _grown(difference: Difference) -> str:
    decades = difference.growth / LN10
    by = f"{'grew' if decades > 0 else 'fell'} by {abs(decades):.4g} decades" if decades else "stayed"
    what = "has no finite value any more" if decades == math.inf else "is finite now" if decades == -math.inf else by
    return f"the upper bound, scope {difference.a.scope}, {what}"
