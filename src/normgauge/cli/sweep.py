"""Train many networks from one TOML file, gauge each, and compare them: a grid or random draws, several seeds.

Each trial is a process of its own and has its own folder. A sweep that was stopped in any way goes on when the same
command is given again: finished trials are kept, a stopped one resumes from its checkpoint, a failed one gets another
attempt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from normgauge.cli.arguments import parse_finite, whole_parser
from normgauge.cli.obstacles import PATH, configure_allow

HELP = "train many networks from one TOML file and compare them"
EXAMPLES = """\
examples:
  normgauge sweep norms.toml --dry-run           what would run
  normgauge sweep norms.toml --workers 4         run it, or go on with it
  normgauge sweep norms.toml --show              the table of what is done so far; runs nothing
  normgauge sweep norms.toml --html norms.html --y test_accuracy --y gap
  normgauge sweep norms.toml --fresh --fail-on-failed --fail-above 2
      a gate for a nightly run: exit code 1 where a trial failed or could not be gauged, 3 where a bound exceeds 10^2
  normgauge sweep norms.toml --engine ray --address auto     on a Ray cluster (extra: normgauge[ray])

exit codes:
  0 done   3 above --fail-above
  1 a mistake in what was given, every trial failed, what --fail-on-failed names, a gate that cannot be held
  130 stopped by Ctrl-C, 143 by SIGTERM: the same command goes on
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a TOML file; docs/sweep.md lists its keys")
    parser.add_argument("--dry-run", action="store_true", help="check the config and list its trials; run nothing")
    parser.add_argument("--show", action="store_true", help="show what is done so far; run nothing")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="run the finished trials again whose code, or files it opens while it builds, have changed since",
    )
    parser.add_argument("--fresh-all", action="store_true", help="run all finished trials again, changed or not")
    parser.add_argument(
        "--fail-on-failed",
        action="store_true",
        help="exit code 1 where any trial failed, not all, was trained and could not be gauged, or used earlier code",
    )
    parser.add_argument(
        "--fail-above",
        metavar="LOG10",
        type=parse_finite,
        help="exit code 3 when log10 of a trial's upper bound exceeds this, 1 when a trial has none or used earlier "
        "code; the widest of measure.scopes counts",
    )
    configure_allow(parser, (PATH,))
    parser.add_argument("--out", metavar="DIR", help="folder for trials and results, instead of run.out")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=whole_parser(" of at least 1", 1),
        help="trials at a time, instead of run.workers",
    )
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="what runs the trials")
    parser.add_argument("--address", metavar="HOST", help="a running Ray cluster; one is begun here where not given")
    parser.add_argument(
        "--sort",
        metavar="MEASURE",
        default="test_accuracy",
        help="order of the table, best first; of a gap, the one nearest to 0",
    )
    parser.add_argument("--x", metavar="KEY", action="append", help="setting to plot; twice for a heat map")
    parser.add_argument("--y", metavar="MEASURE", action="append", help="measure to plot; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write all results as JSON; - for standard output")
    parser.add_argument("--html", metavar="FILE", help="write a page with the table and plots")


def run(args: argparse.Namespace) -> int:
    """Check, run what is not done, tell."""
    from normgauge.cli.sweep_run import run_sweep

    return run_sweep(args)
