"""The `normgauge` command: a table of subcommands and what all of them share."""

from __future__ import annotations

from collections.abc import Sequence

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
from normgauge.cli.output import complain, standard_output
from normgauge.cli.parsing import Commands, Parser, PrintCompletion
from normgauge.core.errors import NormgaugeError
from normgauge.core.interrupted import Interrupted, Stopped
from normgauge.core.version import __version__

GROUPS = {
    "measure a network": {
        "gauge": gauge,
        "advise": advise,
        "radius": radius,
        "ratios": ratios,
        "symmetries": symmetries,
        "curvature": curvature,
        "certify": certify,
    },
    "read what was measured": {"report": report, "diff": diff, "explain": explain, "verify": verify},
    "train": {"watch": watch, "sweep": sweep},
    "learn": {"demo": demo, "rules": rules, "theory": theory, "reproduce": reproduce},
}
COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}

DESCRIPTION = "Measure how fast a network's output can change: a proved upper bound beside a slope that was found."
EPILOG = """\
first steps:
  normgauge demo                   train five small networks and compare them
  normgauge gauge net.py:build --batch net.py:batch    measure your own
  normgauge watch runs/a           follow a training that ng.Monitor writes down
  normgauge theory --claim T.L1    is that theorem true? show me
  normgauge gauge --help           all about one command, with examples

exit codes:
  0 done   1 a mistake in what was given   2 unknown parts under --strict
  3 above --fail-above   4 a bound was refuted by a slope found
"""


def build_parser() -> Parser:
    """Return the parser with every subcommand."""
    parser = Commands(prog="normgauge", description=DESCRIPTION, epilog=EPILOG)
    parser.groups = {title: {name: m.HELP for name, m in group.items()} for title, group in GROUPS.items()}
    parser.add_argument("--version", action="version", version=f"normgauge {__version__}", help="print the version")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        metavar="SHELL",
        help="what bash, zsh or tcsh needs to complete commands",
    )
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__, epilog=module.EXAMPLES)
        module.configure(command)
        command.set_defaults(run=module.run, parser=command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; without one, say which there are.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        with standard_output() as stream:
            parser.print_help(stream)
        return 0
    try:
        code: int = arguments.run(arguments)
    except NormgaugeError as error:
        complain(" ".join(str(error).split()))
        return 1
    except Interrupted as stopped:
        complain(str(stopped))
        return 130
    except Stopped as stopped:
        complain(str(stopped))
        return stopped.code
    except KeyboardInterrupt:
        return 130
    return code
