"""A bound that holds on one path through the model alone passes no gate, unless a person allows it by name."""

from __future__ import annotations

import argparse
import math

from normgauge.core.errors import InputError
from normgauge.core.reading import Reading

PATH = "path"
WHY = "the path through the model depends on the data, and off the path traced no bound is known"


def configure_path(parser: argparse.ArgumentParser) -> None:
    """Declare ``--allow path``."""
    parser.add_argument(
        "--allow",
        action="append",
        choices=(PATH,),
        help="path: hold the limit though the bound holds only where the data take the path traced",
    )


def check_allow(args: argparse.Namespace) -> None:
    """Refuse ``--allow`` without a gate.

    Raises:
        InputError: where --fail-above is not given.
    """
    if args.allow and args.fail_above is None:
        raise InputError("--allow is for a gate: give --fail-above too")


def holds_on_one_path(reading: Reading) -> bool:
    """Whether a reading has a bound that other paths may exceed."""
    return reading.path_dependent and reading.log_upper < math.inf
