"""Measure the curvature of a loss: eigenvalues of its Hessian, trace, scale-free sharpness, spectrum.

MODEL, --loss (or --objective) and --data name what to measure; all are Python code that RUNS with your rights. The loss
is called as loss(output, target) and must return a scalar. The products are right on every normalizer, in both modes,
and the model is left as it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from normgauge.cli.arguments import CODE, parse_positive, users_code
from normgauge.cli.output import check_targets, write_answer, write_text
from normgauge.core.errors import LoadError
from normgauge.core.user_code import find_object, locate_object
from normgauge.loading import MODEL_FORMS, load_model

HELP = "measure the curvature of a loss"
EXAMPLES = """\
examples:
  normgauge curvature net.py:build --loss net.py:loss --data net.py:data
      build() returns the model, loss(output, target) a scalar, data() a list of (input, target), a loader or a data set
  normgauge curvature net.py:build --loss torch.nn.functional:cross_entropy --data net.py:data --mode train
  normgauge curvature net.py:build --loss net.py:loss --data net.py:data --density --html curvature.html
  normgauge curvature bert-folder --objective tokens.py:objective --data tokens.py:batches --top 3 --json -
      objective(model, batch) returns the scalar, for batches that are no pairs
"""
PRECISIONS = ("float32", "float64")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_FORMS)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--loss", metavar="L", help=f"loss(output, target), a scalar: {CODE}")
    given.add_argument("--objective", metavar="O", help=f"objective(model, batch) instead, a scalar: {CODE}")
    parser.add_argument(
        "--data", metavar="D", required=True, help=f"a function that returns batches, a loader or a data set: {CODE}"
    )
    parser.add_argument("--mode", choices=("eval", "train"), default="eval", help="train: batch statistics, dropout")
    parser.add_argument("--top", metavar="K", type=int, default=5, help="how many of the largest eigenvalues (5)")
    parser.add_argument("--density", action="store_true", help="the whole spectrum too: some 240 products more")
    parser.add_argument("--no-layers", action="store_true", help="no eigenvalue of each layer's block: faster")
    parser.add_argument("--precision", choices=PRECISIONS, help="the model's own by default")
    parser.add_argument(
        "--tolerance", metavar="T", type=parse_positive, default=1e-6, help="relative error of the eigenvalues (1e-6)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of all random vectors and masks")
    parser.add_argument("--json", metavar="FILE", help="write the numbers as JSON; - for standard output only")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page")


def run(args: argparse.Namespace) -> int:
    """Measure and write."""
    check_targets(args.json, args.html)
    with users_code() as progress:
        loss, objective = (_callable(args.loss, "--loss"), _callable(args.objective, "--objective"))
        data = find_object(args.data, f"--data {args.data!r}: expected {CODE}")
        model = load_model(args.model)
        import torch

        from normgauge.geometry.hessian import curvature

        found = curvature(
            model,
            loss,
            data(),
            objective=objective,
            mode=args.mode,
            dtype=None if args.precision is None else getattr(torch, args.precision),
            top=args.top,
            density=args.density,
            layers=not args.no_layers,
            tolerance=args.tolerance,
            seed=args.seed,
            progress=progress,
        )
    from normgauge.render.console import draw_blocks
    from normgauge.render.curvature import curvature_blocks, curvature_html

    if args.html is not None:
        write_text(curvature_html(found), args.html)
    write_answer(args.json, found.to_json, lambda stream: draw_blocks(curvature_blocks(found), stream))
    return 0


def _callable(spec: str | None, option: str) -> Callable[..., Any] | None:
    if spec is None:
        return None
    found = locate_object(spec, f"{option} {spec!r}: expected {CODE}")
    if isinstance(found, type):
        found = found()  # a class of torch.nn, such as torch.nn:CrossEntropyLoss
    if not callable(found):
        raise LoadError(f"{option} {spec}: expected a function, got {type(found).__name__}")
    return found
