"""Measure one network: how much a small change of its input can grow on the way to the output.

MODEL and --batch name what to measure. A model given as Python code (file.py:function, package.module:callable) RUNS
that code, with your rights; the other forms execute nothing: weights are read from safetensors or plain tensors only.
Without --scope three readings are made: at the samples, in a ball around each, and over all inputs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, TextIO

from normgauge.cli.arguments import open_network, parse_finite, parse_positive
from normgauge.cli.obstacles import OF_ONE, check_allow, chosen_ends, configure_allow, cure_sentence, obstacles_of
from normgauge.cli.output import check_targets, complain, tell_gate, write_answer
from normgauge.core import reference
from normgauge.core.bound import Scope
from normgauge.core.reading import Reading
from normgauge.core.spelled import LN10, ceil_log10
from normgauge.loading import BATCH_FORMS, MODEL_FORMS
from normgauge.render.console import draw_blocks, reading_blocks
from normgauge.render.difference import reference_totals
from normgauge.render.page import report
from normgauge.render.verdict import evidence_words, refutation_sentence

HELP = "measure one network"
EXAMPLES = """\
examples:
  normgauge gauge net.py:build --batch net.py:batch
      build() returns the model, batch() the input; both are functions without arguments
  normgauge gauge zoo:resnet20@weights.safetensors --batch images.npy --scope global
  normgauge gauge net.py:build --batch net.py:batch --beside resnet20
      with the totals of a network that comes with normgauge, for comparison
  normgauge gauge bert-folder
      without a batch one is made by the folder's tokenizer or from its configuration
  normgauge gauge bert-folder --batch tokens.py:batch --output last_hidden_state --html reading.html
      batch() returns what the tokenizer does; of a sentence-transformers folder the embedding is measured otherwise
  normgauge gauge net.py:build --batch net.py:batch --scope global --fail-above 6
      a gate for a pipeline: exit code 3 when the proved upper bound exceeds 10^6 or is infinite
  normgauge gauge net.py:build --batch net.py:batch --scope point --json - | python -m json.tool

exit codes:
  0 done   1 a mistake in what was given; with --fail-above, a bound that holds on one path of the data alone, or is of
  one of several outputs or inputs that none was chosen of
  2 --strict, and nothing is known of a part   3 above --fail-above
  4 a slope was found above a bound, which is taken back; it is returned whatever else applies
"""
SCOPES = ("point", "ball:0.1", "global")
OK, NOT_HELD, UNKNOWN, ABOVE, REFUTED = 0, 1, 2, 3, 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_FORMS)
    parser.add_argument("--batch", metavar="B", help=BATCH_FORMS)
    parser.add_argument(
        "--scope",
        metavar="S",
        action="append",
        help="where the bound must hold: point, ball:RADIUS or global; may be given again; without it, all three",
    )
    parser.add_argument("--mode", choices=("eval", "train"), default="eval", help="train: the map of the whole batch")
    parser.add_argument("--input", metavar="NAME", help="which input to measure, where the model takes several")
    parser.add_argument("--output", metavar="NAME", help="which output to measure, where the model returns several")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit code 2 when nothing is known of a part: it has no rule, or cannot be traced",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the reading as JSON; - for standard output and nothing else"
    )
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page")
    parser.add_argument(
        "--fail-above",
        metavar="LOG10",
        type=parse_finite,
        help="exit code 3 when log10 of the upper bound exceeds this; the widest scope measured counts, which is "
        "global without --scope: give --scope to choose it",
    )
    configure_allow(parser, OF_ONE)
    parser.add_argument(
        "--effort",
        choices=("quick", "default", "long"),
        default="default",
        help="work that goes into bounds below the balanced one; quick: the Jacobian of a small batch alone",
    )
    parser.add_argument("--no-balance", action="store_true", help="stop at the folded bound: faster, looser")
    parser.add_argument("--no-search", action="store_true", help="no search for large slopes beyond the samples")
    parser.add_argument(
        "--no-pictures", action="store_true", help="keep no pictures of the most sensitive samples in JSON and page"
    )
    parser.add_argument("--all", action="store_true", help="print every layer of a long network")
    parser.add_argument(
        "--beside",
        metavar="NAME",
        action="append",
        default=[],
        help=f"what is normal for {', '.join(reference.names())}",
    )
    parser.add_argument(
        "--width", metavar="W", type=parse_positive, default=1e-3, help="relative width of a norm's enclosure"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, write, and judge."""
    asked = dict.fromkeys(Scope.parse(scope) for scope in args.scope or SCOPES)
    scopes = [str(scope) for scope in sorted(asked, key=attrgetter("radius"))]  # the widest last
    check_allow(args)
    check_targets(args.json, args.html)
    others = [(name, reference.load_reference(name)) for name in args.beside]
    with open_network(args) as (model, batch, progress):
        from normgauge.instrument.measure import readings

        found = readings(
            model,
            batch,
            scopes=scopes,
            mode=args.mode,
            balance=not args.no_balance,
            search=not args.no_search,
            pictures=not args.no_pictures,
            width=args.width,
            input=args.input,
            output=args.output,
            progress=progress,
            effort=args.effort,
        )
    if args.html is not None:
        rows = [
            (f"{reference.reference_title(name)}, {r.scope}", r)
            for name, other in others
            for r in other
            if str(r.scope) in scopes
        ]
        report(found, args.html, beside=rows)

    def words(stream: TextIO) -> None:
        draw_blocks(reading_blocks(found, args.all), stream)
        if others:
            grid = reference_totals(found, [(reference.reference_title(name), other) for name, other in others])
            draw_blocks([grid, *(reference.about(name) for name, _ in others)], stream)

    write_answer(args.json, lambda: gauge_json(found), words)
    return gauge_exit_code(found, args.strict, args.fail_above, args.allow or ())


def gauge_json(found: list[Reading]) -> dict[str, Any]:
    """The reading; with several scopes the first one's object and all of them under ``readings``."""
    first = found[0].to_json()
    return first if len(found) == 1 else {**first, "readings": [reading.to_json() for reading in found]}


def gauge_exit_code(found: list[Reading], strict: bool, limit: float | None, allowed: Sequence[str] = ()) -> int:
    """The exit code, with one line on standard error where it is not 0 or a gate was asked for."""
    refuted = [refutation_sentence(reading) for reading in found if reading.log_refuted is not None]
    if refuted:
        complain(" ".join(refuted))
        return REFUTED
    unknown = {f.name: f.why for reading in found for f in reading.unknown}
    if strict and unknown:
        listing = "; ".join(f"{name}: {why}" for name, why in unknown.items())
        complain(f"nothing is known of {len(unknown)} part(s) ({listing})")
        return UNKNOWN
    return (
        OK if limit is None else _held(found[-1], unknown, limit, allowed)
    )  # the widest: the one asked for, or global


def _held(reading: Reading, unknown: Iterable[str], limit: float, allowed: Sequence[str]) -> int:
    """Whether a bound keeps a limit, told on one line; where it says too little for that, that must be allowed."""
    endless = reading.log_upper == math.inf
    shown = "infinite" if endless else ceil_log10(reading.log_upper)
    shown += f", since nothing is known of {', '.join(unknown)}" if unknown and endless else ""
    told = f"the upper bound, scope {reading.scope}, is {shown} ({evidence_words(reading)})"
    above = reading.log_upper / LN10 > limit
    found = list(obstacles_of(reading))
    refused = [item for item in found if item.word not in allowed]
    if refused and not above:
        why = "; ".join(item.said for item in refused)
        complain(f"no limit is held: {told}: {why}. {cure_sentence(refused)}")
        return NOT_HELD
    told += f", {'above' if above else 'not above'} 10^{limit:g}"
    tell_gate("limit", not above, "; ".join([told, *chosen_ends(reading), *(item.said for item in found)]))
    return ABOVE if above else OK
