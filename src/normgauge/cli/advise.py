"""Say what is wrong with a network, in plain sentences, and what to do about it.

Problems come first, each with the layer, the number behind it and a remedy; facts follow, which need nothing. The
checks look at one run of the network on the batch: signals that fade or blow up, normalizers that are starved, dead,
constant or out of date, layers and gains far out of line, units that never wake, values that overflow, parts without
a bound. A healthy network gets no problem. Give a dozen samples or more, as different as they will be in use.

MODEL and --batch are named as for gauge; a model given as Python code RUNS that code, with your rights.
"""

from __future__ import annotations

import argparse

from normgauge.cli.arguments import open_network
from normgauge.cli.output import check_targets, complain, write_answer
from normgauge.loading import BATCH_FORMS, MODEL_FORMS

HELP = "say what is wrong with a network, and what to do"
EXAMPLES = """\
examples:
  normgauge advise net.py:build --batch net.py:batch
      build() returns the model, batch() the input; both are functions without arguments
  normgauge advise net.py:build --batch net.py:batch --json - | python -m json.tool
      {"schema": 1, "problems": [{"kind", "layer", "severity", "sentence", "numbers", "fix"}], "facts": [...]}
  normgauge advise net.py:build --batch net.py:batch --fail-on-problem
      a gate for a pipeline: exit code 3 when there is a problem

following it, in Python:
  from normgauge.advice import advise, insert_norm
  fix = advise(model, batch).problems[0].fix            where normalizers would help, or None
  model = insert_norm(model, fix.places, fix.kind)      a copy; all other weights keep their names
"""
OK, UNKNOWN, PROBLEM = 0, 2, 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_FORMS)
    parser.add_argument("--batch", metavar="B", help=BATCH_FORMS)
    parser.add_argument(
        "--mode",
        choices=("eval", "train"),
        help="how the network is run: eval, or train where no BatchNorm statistics were ever set",
    )
    parser.add_argument("--input", metavar="NAME", help="which input to vary, where the model takes several")
    parser.add_argument("--output", metavar="NAME", help="which output to look at, where the model returns several")
    parser.add_argument("--strict", action="store_true", help="exit code 2 when a part of the model has no rule")
    parser.add_argument("--json", metavar="FILE", help="write JSON; - for standard output and nothing else")
    parser.add_argument("--no-facts", action="store_true", help="problems only: faster")
    parser.add_argument("--fail-on-problem", action="store_true", help="exit code 3 when there is a problem")


def run(args: argparse.Namespace) -> int:
    """Look, write, and judge."""
    check_targets(args.json)
    with open_network(args) as (model, batch, progress):
        from normgauge.advice import advise

        found = advise(
            model,
            batch,
            facts=not args.no_facts,
            mode=args.mode,
            input=args.input,
            output=args.output,
            progress=progress,
        )
    write_answer(args.json, found.to_json, lambda stream: print(found, file=stream))
    unknown = [remark.layer for remark in found.problems if remark.kind == "unknown part"]
    if args.strict and unknown:
        complain(f"{len(unknown)} operation(s) have no rule ({', '.join(unknown)})")
        return UNKNOWN
    return PROBLEM if args.fail_on_problem and found.problems else OK
