"""What keeps a gate from being held unless a person allows it by name, and what may be done about it.

Of one bound alone: it holds on one path through the model; or it is of one output or input of several, of which nobody
chose it, so that whatever the others do passes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from normgauge.core.errors import InputError
from normgauge.core.first_notes import ends_of_several
from normgauge.core.reading import Reading

PATH, ENDS = "path", ("input", "output")
OF_ONE = ("inputs", "outputs", PATH)  # words that allow what may be wrong with one bound alone
WHY = "the path through the model depends on the data, and off the path traced no bound is known"


class Obstacle(NamedTuple):
    """What is in a gate's way: the word that allows it, "" where nothing does; a sentence; what else to do."""

    word: str
    said: str
    cure: str = "measure both alike"


def obstacles_of(reading: Reading) -> Iterator[Obstacle]:
    """What is in the way of a bound that is not compared with another."""
    for end, said in ends_of_several(reading.notes).items():
        if said and reading.options.get(end) is None:  # so it is stored where nobody asked for one by name
            what = f"the model has several {end}s and none was chosen ({said})"
            yield Obstacle(f"{end}s", what, f"choose what is to be judged: --{end} NAME")
    if reading.path_dependent and reading.log_upper < math.inf:
        yield Obstacle(PATH, WHY, "")  # there is no other way to measure such a model


def chosen_ends(reading: Reading) -> list[str]:
    """What stands in the line of a verdict: which output and input of several were chosen, and which are not judged."""
    return [
        said for end, said in ends_of_several(reading.notes).items() if said and reading.options.get(end) is not None
    ]


def cure_sentence(found: Sequence[Obstacle]) -> str:
    """What may be done about all of them."""
    words = list(dict.fromkeys(item.word for item in found))
    cures = [cure for cure in dict.fromkeys(item.cure for item in found) if cure]
    cures += [] if "" in words else [f"allow it: {' '.join(f'--allow {word}' for word in words)}"]
    cure = ", or ".join(cures)
    return f"{cure[0].upper()}{cure[1:]}"


def configure_allow(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare ``--allow`` for a limit on bounds that are not compared."""
    meant = {PATH: "a bound that holds only where the data take the path traced"}
    meant |= {f"{end}s": f"a bound of the {end} that was measured of several, none having been chosen" for end in ENDS}
    parser.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        choices=words,
        help=f"hold the limit all the same; {'; '.join(f'{word}: {meant[word]}' for word in words)}",
    )


def check_allow(args: argparse.Namespace) -> None:
    """Refuse ``--allow`` without a gate.

    Raises:
        InputError: where --fail-above is not given.
    """
    if args.allow and args.fail_above is None:
        raise InputError("--allow is for a gate: give --fail-above too")
