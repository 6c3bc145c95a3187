"""Find what can be done to the weights without changing what the network computes.

Scales that a normalizer takes off, shifts that a mean or a softmax takes off, pairs in which one weight gives back what
another gains: through convolutions, residuals, attention and tied weights, without annotation. Every family is tried on
the model with random factors before it is printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TextIO

from normgauge.cli.arguments import open_network
from normgauge.cli.output import check_targets, write_answer
from normgauge.core.errors import InputError
from normgauge.loading import BATCH_FORMS, MODEL_FORMS
from normgauge.render.console import draw_blocks
from normgauge.render.symmetry import symmetry_blocks

HELP = "find the invariances of a network"
EXAMPLES = """\
examples:
  normgauge symmetries net.py:build --batch net.py:batch
  normgauge symmetries net.py:build --batch net.py:batch --mode train --json -
      with the statistics of the batch; without --mode, running statistics count as weights
  normgauge symmetries net.py:build --batch net.py:batch --canonical net.safetensors
      the same function with its free scales fixed, as a file of weights
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_FORMS)
    parser.add_argument("--batch", metavar="B", help=BATCH_FORMS)
    parser.add_argument("--mode", choices=("eval", "train"), default="eval", help="train: statistics of the batch")
    parser.add_argument("--input", metavar="NAME", help="which input is the sample, where the model takes several")
    parser.add_argument("--output", metavar="NAME", help="which output to look at, where the model returns several")
    parser.add_argument("--json", metavar="FILE", help="write the families as JSON; - for standard output and no more")
    parser.add_argument("--canonical", metavar="FILE", help="write the weights in canonical scales (.safetensors)")


def run(args: argparse.Namespace) -> int:
    """Find, write, print.

    Raises:
        InputError: for a file of weights that is not safetensors.
    """
    if args.canonical is not None and Path(args.canonical).suffix != ".safetensors":
        raise InputError(f"--canonical: expected a file that ends in .safetensors, got {args.canonical}")
    check_targets(args.json, args.canonical)
    with open_network(args) as (model, batch, progress):
        from normgauge.geometry.symmetry import canonical, symmetries

        found = symmetries(model, batch, mode=args.mode, input=args.input, output=args.output, progress=progress)
        twin = canonical(model, batch, output=args.output) if args.canonical else None
    if twin is not None:
        from safetensors.torch import save_model

        save_model(twin.model, args.canonical)

    def words(stream: TextIO) -> None:
        draw_blocks(symmetry_blocks(found), stream)
        if twin is not None:
            said = f"canonical scales: eval output changed by {twin.eval_defect:.1e}, train by {twin.train_defect:.1e}"
            draw_blocks([said, *(f"· {note}" for note in twin.notes)], stream)

    write_answer(args.json, found.to_json, words)
    return 0
