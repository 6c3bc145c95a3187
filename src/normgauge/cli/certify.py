"""Say what can be promised about unseen data: every generalization bound for one network, each with what it is worth.

Each row has a kind. A bound is a promise with a confidence; vacuous is a bound that says nothing; an estimate has a
part that was only estimated; a score compares networks; not applicable says why. The row to trust is the hold-out:
labelled samples that no training step, no early stopping and no choice of settings has seen.

MODEL, --train, --holdout, --unlabeled and --groups are Python code that RUNS with your rights. A data function returns
a data set, a loader or a pair (inputs, labels), --groups a list. Give the plain training samples, without random
augmentation.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, TextIO

from normgauge.cli.arguments import CODE, number_parser, parse_positive, users_code, whole_parser
from normgauge.cli.output import Report, check_targets, write_answer, write_text
from normgauge.core.errors import InputError
from normgauge.core.user_code import find_object
from normgauge.loading import MODEL_FORMS, load_model

if TYPE_CHECKING:
    from normgauge.core.certificate import Certificate

HELP = "what can be promised about unseen data"
EXAMPLES = """\
examples:
  normgauge certify net.py:build --train net.py:train --holdout net.py:holdout
      build() returns the trained model, train() and holdout() a data set, a loader or (inputs, labels)
  normgauge certify net.py:build --train net.py:train --unlabeled net.py:unlabeled --epochs 20
      without hold-out labels: a second network trained for 20 epochs on half of the data is certified on the other
      half, and its disagreement with yours on the unlabeled inputs is added
  normgauge certify net.py:build --train net.py:train --holdout net.py:holdout --encoder 0 --html certificate.html
      the submodule called 0 was trained on other data than --train: bounds in the space of its outputs
  normgauge certify --demo mnist
      a bound from the training data that says something: an encoder from one split, a head on the other; the images
      are read from the folder NORMGAUGE_DATA or --data-dir (--demo digits needs none)
  normgauge certify net.py:build --train net.py:train --holdout net.py:holdout --tries 12 --radius 0.1
      the best of 12 networks on this hold-out: delta is shared among them; and the error under changes of length 0.1
  normgauge certify net.py:build --train net.py:train --epochs 0 --json -
      no extra training; numbers for a script
"""
DEMOS = ("mnist", "fashion-mnist", "digits")
LOSSES = ("ramp", "cross-entropy")
OWN: dict[str, Any] = {
    "train": None, "holdout": None, "unlabeled": None, "encoder": None, "cells": 1, "loss": "ramp", "clip": None,
    "tries": 1, "groups": None, "data_free": [], "radius": None,
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help=f"{MODEL_FORMS}; not with --demo")
    data = parser.add_argument_group("data", f"functions without arguments: {CODE}")
    data.add_argument("--train", metavar="D", help="the samples the model was trained on, without augmentation")
    data.add_argument("--holdout", metavar="V", help="labelled samples no part of the training ever saw")
    data.add_argument("--unlabeled", metavar="U", help="inputs no part of the training ever saw; labels are not read")
    data.add_argument("--encoder", metavar="NAME", help="first submodule, trained on other data than --train: 0")
    data.add_argument(
        "--groups", metavar="G", help="which scene, person or series each hold-out sample is from, where they share one"
    )
    data.add_argument(
        "--data-free", metavar="NAME", action="append", default=[],
        help="tensor of the model that was fixed without --train, such as a frozen layer's 0.weight; may be repeated",
    )  # fmt: skip
    data.add_argument("--demo", choices=DEMOS, help="the feature-space certificate on a known data set, end to end")
    data.add_argument("--data-dir", metavar="DIR", help="with --demo: folder of the data sets (NORMGAUGE_DATA)")
    count = whole_parser(", 0 or more")
    share = number_parser("a number between 0 and 1, such as 0.05", lambda value: 0 < value < 1)
    parser.add_argument("--delta", metavar="P", type=share, default=0.05, help="chance that a row fails (0.05)")
    parser.add_argument(
        "--tries", metavar="K", type=whole_parser(", 1 or more", 1), default=1,
        help="networks or settings compared on these samples, this one included: delta is divided by it (1)",
    )  # fmt: skip
    parser.add_argument(
        "--radius", metavar="R", type=parse_positive,
        help="also bound the share of inputs that are wrong or that a change of l2 length R could make wrong",
    )  # fmt: skip
    parser.add_argument("--cells", metavar="N", type=count, default=1, help="cells times labels, fixed in advance (1)")
    parser.add_argument("--loss", choices=LOSSES, default="ramp", help="of the rows made from cells (ramp, at most 1)")
    parser.add_argument(
        "--clip", metavar="C", type=parse_positive, help="with cross-entropy: losses above C count as C"
    )
    parser.add_argument("--epochs", metavar="N", type=count, help="a row may train for (5 if that takes seconds)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of all random draws (0)")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON; - for standard output only")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page")
    parser.add_argument("--all", action="store_true", help="every row with its reasons, not one line a family")


def run(args: argparse.Namespace) -> int:
    """Certify and write."""
    _check(args)
    begun = time.monotonic()
    check_targets(args.json, args.html)
    with users_code() as progress:
        found = _demo(args, progress) if args.demo else _certify(args, progress)
    from normgauge.render.certificate import certificate_blocks
    from normgauge.render.certificate_page import certificate_html
    from normgauge.render.console import draw_blocks

    if args.html is not None:
        write_text(certificate_html(found), args.html)

    def words(stream: TextIO) -> None:
        draw_blocks(certificate_blocks(found, args.all), stream)
        stream.write(f"Took {time.monotonic() - begun:.0f} s.\n")

    write_answer(args.json, found.to_json, words)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse what does not go together, before anything runs.

    Raises:
        InputError: saying what to give instead.
    """
    given = [f"--{name.replace('_', '-')}" for name, usual in OWN.items() if getattr(args, name) != usual]
    if args.demo is not None and (args.model is not None or given):
        raise InputError(f"--demo brings its own network, data and settings; leave out {', '.join(given) or 'MODEL'}")
    if args.demo is None and (args.model is None or args.train is None):
        missing = " and ".join(n for n, v in (("MODEL", args.model), ("--train", args.train)) if v is None)
        raise InputError(f"expected {missing} too, as {CODE}, or --demo {DEMOS[0]}")
    if args.demo is None and args.data_dir is not None:
        raise InputError("--data-dir goes with --demo; your own data functions know where their data lies")
    if args.clip is not None and args.loss != "cross-entropy":
        raise InputError("--clip goes with --loss cross-entropy: the ramp loss is at most 1 as it is")


def _certify(args: argparse.Namespace, progress: Report | None) -> Certificate:
    """The certificate of the network named."""
    given = {name: getattr(args, name) for name in ("train", "holdout", "unlabeled", "groups")}
    sources = {
        name: find_object(spec, f"--{name} {spec!r}: expected {CODE}")
        for name, spec in given.items()
        if spec is not None
    }
    model = load_model(args.model)
    from normgauge.certificates.table import certify

    data = {name: source() for name, source in sources.items()}
    return certify(
        model,
        data["train"],
        holdout=data.get("holdout"),
        unlabeled=data.get("unlabeled"),
        groups=data.get("groups"),
        encoder=args.encoder,
        delta=args.delta,
        cells=args.cells,
        loss=args.loss,
        clip=args.clip,
        epochs=args.epochs,
        seed=args.seed,
        tries=args.tries,
        data_free=tuple(args.data_free),
        radius=args.radius,
        progress=progress,
    )


def _demo(args: argparse.Namespace, progress: Report | None) -> Certificate:
    """The feature-space certificate of a data set: encoder on one split, head on the other."""
    from normgauge.certificates.demo import feature_certificate

    return feature_certificate(args.demo, folder=args.data_dir, delta=args.delta, seed=args.seed, progress=progress)
