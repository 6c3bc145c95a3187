"""Certify how far each sample may be moved before its prediction could change, and attack it.

For each sample two lengths, in l2: within the first no change of the input can change the class the network names,
proved; at the second an attack changed it. Their curves over a batch are the accuracy that is verified and the accuracy
that the attack leaves; the truth lies between them.

MODEL, --batch and --labels may be Python code that RUNS with your rights.
"""

from __future__ import annotations

import argparse
import time
from typing import TextIO

from normgauge.cli.arguments import CODE, users_code, whole_parser
from normgauge.cli.output import check_targets, write_answer, write_text
from normgauge.core.user_code import find_object
from normgauge.loading import BATCH_FORMS, MODEL_FORMS, find_labelled, load_model

HELP = "how far a sample may move before its prediction could change"
EXAMPLES = """\
examples:
  normgauge radius net.py:build --batch net.py:batch
      build() returns the model, batch() the samples; the class is the one the network names
  normgauge radius net.py:build --batch net.py:pair --html radius.html
      pair() returns (inputs, labels), a loader or a data set: a sample that is wrong already has radius 0
  normgauge radius net.py:build --batch net.py:batch --labels net.py:labels --restarts 20 --json -

exit codes:
  0 done   1 a mistake in what was given   4 an attack succeeded inside a certified radius
"""
REFUTED = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_FORMS)
    parser.add_argument("--batch", metavar="B", help=f"the samples, with labels or without: {BATCH_FORMS}")
    parser.add_argument("--labels", metavar="L", help=f"a function that returns one class number a sample: {CODE}")
    count = whole_parser(", 0 or more")
    parser.add_argument("--restarts", metavar="N", type=count, default=4, help="descents of the attack a sample (4)")
    parser.add_argument(
        "--steps", metavar="N", type=whole_parser(", 1 or more", 1), default=40, help="of each descent (40)"
    )
    parser.add_argument("--seed", metavar="N", type=count, default=0, help="of the attack's random starts (0)")
    parser.add_argument(
        "--effort",
        choices=("quick", "default", "long"),
        default="default",
        help="how many radii are tried, and how many units may be open in a ball (default)",
    )
    parser.add_argument("--json", metavar="FILE", help="write the radii as JSON; - for standard output only")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page")


def run(args: argparse.Namespace) -> int:
    """Certify, attack and write."""
    begun = time.monotonic()
    check_targets(args.json, args.html)
    with users_code() as progress:
        batch = find_labelled(args.batch)
        labels = None if args.labels is None else find_object(args.labels, f"--labels {args.labels!r}: expected {CODE}")
        model = load_model(args.model)
        from normgauge.advice.certified import radius

        data, own = batch()
        found = radius(
            model,
            data,
            own if labels is None else labels(),
            restarts=args.restarts,
            steps=args.steps,
            seed=args.seed,
            progress=progress,
            effort=args.effort,
        )
    from normgauge.render.certified import radii_blocks, radii_html
    from normgauge.render.console import draw_blocks

    if args.html is not None:
        write_text(radii_html(found), args.html)

    def words(stream: TextIO) -> None:
        draw_blocks(radii_blocks(found), stream)
        stream.write(f"Took {time.monotonic() - begun:.0f} s.\n")

    write_answer(args.json, found.to_json, words)
    return REFUTED if found.refuted else 0
