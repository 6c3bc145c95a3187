"""Compare what worst-case laws of training use: a network against the same one without its normalizers, by layer.

For each layer with weights a bound of the output's slope in them, at the weights there are, is proved with and without
normalizers, and their ratio is printed with the power in which each law uses a constant. The laws are about worst cases
over classes of functions with a constant over all weights, which such a slope is not; the ratios are never numbers of
iterations of a given training. Two saved readings can be compared as well; torch is not loaded then.

MODEL and --batch are named as for gauge; a model given as Python code RUNS that code, with your rights.
"""

from __future__ import annotations

import argparse

from normgauge.cli.arguments import open_network, readings_at
from normgauge.cli.output import check_targets, write_answer
from normgauge.core.bound import Scope
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.ratios import Ratios, ratios
from normgauge.loading import BATCH_FORMS, MODEL_FORMS
from normgauge.render.console import draw_blocks
from normgauge.render.ratios import ratio_blocks

HELP = "what normalizers do to the slopes in the weights"
EXAMPLES = """\
examples:
  normgauge ratios net.py:build --batch net.py:batch
      build() returns the model, batch() the input; both are functions without arguments
  normgauge ratios net.py:build --batch net.py:batch --scope ball:0.1 --json ratios.json
  normgauge ratios a.json b.json
      two readings that gauge --json wrote; layers are matched by name

in Python:
  from normgauge.core.ratios import ratios
  from normgauge.advice.whatif.complexity import complexity
  complexity(ng.what_if(model, batch, scope="point"))    against the same network without its normalizers
  ratios(a, b)                                           of two readings
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help=f"{MODEL_FORMS}; or a file with readings, with a second one")
    parser.add_argument(
        "other", metavar="B", nargs="?", help="a file with readings that MODEL, one too, is compared with"
    )
    parser.add_argument("--batch", metavar="BATCH", help=BATCH_FORMS)
    parser.add_argument(
        "--scope", metavar="S", help="where the constants must hold: point (default), ball:RADIUS or global"
    )
    parser.add_argument("--mode", choices=("eval", "train"), default="eval", help="train: the map of the whole batch")
    parser.add_argument("--input", metavar="NAME", help="which input to vary, where the model takes several")
    parser.add_argument("--output", metavar="NAME", help="which output to look at, where the model returns several")
    parser.add_argument("--json", metavar="FILE", help="write JSON; - for standard output and nothing else")


def run(args: argparse.Namespace) -> int:
    """Compare, write, tell."""
    check_targets(args.json)
    scope = Scope.parse(args.scope or "point")
    found = measured_ratios(args, scope) if args.other is None else stored_ratios(args)
    write_answer(args.json, found.to_json, lambda stream: draw_blocks(ratio_blocks(found), stream))
    return 0


def measured_ratios(args: argparse.Namespace, scope: Scope) -> Ratios:
    """The model named against itself without normalizers."""
    with open_network(args) as (model, batch, progress):
        from normgauge.advice.whatif import what_if
        from normgauge.advice.whatif.complexity import complexity

        return complexity(
            what_if(
                model,
                batch,
                scope=scope,
                mode=args.mode,
                balance=False,
                search=False,
                pictures=False,
                input=args.input,
                output=args.output,
                progress=progress,
            )
        )


def stored_ratios(args: argparse.Namespace) -> Ratios:
    """Two files, in the scope asked for or the first they share.

    Raises:
        InputError: when --batch is given with two files.
        ReadingError: when they share no scope, or not the one asked for.
    """
    if args.batch is not None:
        raise InputError("expected --batch with a model or two files with readings, got both; leave one out")
    sides = [{str(reading.scope): reading for reading in readings_at(name)} for name in (args.model, args.other)]
    wanted = [str(Scope.parse(args.scope))] if args.scope else list(sides[0])
    shared = [scope for scope in wanted if all(scope in side for side in sides)]
    if not shared:
        told = " and ".join(", ".join(side) for side in sides)
        raise ReadingError(f"no scope in common: the files have {told}; measure both in one")
    return ratios(sides[0][shared[0]], sides[1][shared[0]], names=(args.model, args.other))
