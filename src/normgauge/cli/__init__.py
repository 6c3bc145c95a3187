"""The `normgauge` command: a table of subcommands and what all of them share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from normgauge.cli import (
    advise,
    certify,
    curvature,
    demo,
    diff,
    explain,
    gauge,
    radius,
    ratios,
    report,
    reproduce,
    rules,
    sweep,
    symmetries,
    theory,
    verify,
    watch,
)
from normgauge.cli.output import complain
from normgauge.core.errors import NormgaugeError
from normgauge.core.interrupted import Interrupted
from normgauge.core.version import __version__
from normgauge.render.markup import clean

COMMANDS = {
    "gauge": gauge,
    "advise": advise,
    "symmetries": symmetries,
    "curvature": curvature,
    "certify": certify,
    "radius": radius,
    "rules": rules,
    "explain": explain,
    "watch": watch,
    "report": report,
    "diff": diff,
    "verify": verify,
    "ratios": ratios,
    "sweep": sweep,
    "theory": theory,
    "reproduce": reproduce,
    "demo": demo,
}

DESCRIPTION = "Measure how fast a network's output can change: a proved upper bound beside a slope that was found."
EPILOG = """\
first steps:
  normgauge demo                                          train five small networks and compare them
  normgauge gauge net.py:build --batch net.py:batch       measure your own
  normgauge advise net.py:build --batch net.py:batch      what is wrong with it, and what to do
  normgauge watch runs/a                                  follow a training that ng.Monitor writes down
  normgauge diff before.json after.json                   what changed, by layer
  normgauge explain reading.json layer                    all that a saved reading knows about one layer
  normgauge symmetries net.py:build --batch net.py:batch  what can be done to its weights without changing it
  normgauge certify net.py:build --train net.py:train     what can be promised about unseen data
  normgauge radius net.py:build --batch net.py:batch      how far a sample may move before its class could change
  normgauge theory --claim T.L1                           is that theorem true? show me
  normgauge rules                                         what is known about each layer, with formula and source

exit codes:
  0 done   1 a mistake in what was given   2 unknown parts under --strict   3 above --fail-above
  4 a bound was refuted by a slope found
"""


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps to the exit codes: a mistake is 1 and takes one line."""

    def error(self, message: str) -> NoReturn:
        """End with one line on standard error."""
        self.exit(1, f"{self.prog}: {clean(message)} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    """Return the parser with every subcommand."""
    parser = Parser(
        prog="normgauge", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"normgauge {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except NormgaugeError as error:
        complain(" ".join(str(error).split()))
        return 1
    except Interrupted as stopped:
        complain(str(stopped))
        return 130
    except KeyboardInterrupt:
        return 130
    return code
