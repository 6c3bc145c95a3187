"""Check the theory: every claim of the papers has a verdict and a check that computes both sides, and can fail.

Each check draws small random networks, layers or data, finds the number the claim is about by brute force (Jacobians,
singular values, simulation) and compares it with what is printed and with what is true. A claim that is wrong is
refuted by an example, and what is true instead is confirmed beside it. Another seed, other instances. The verdicts:

  holds            true as printed
  loose            true, but a sharper form is known
  wrong            a counterexample and a correction are given
  gauge-dependent  the number moves under a rescaling that leaves the network's function alone
  unsupported      no proof is given, or none is possible
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from normgauge.cli.output import check_targets, standard_output, write_json, write_text
from normgauge.cli.progress import progress_bar
from normgauge.core.claim import Ledger, Outcome
from normgauge.errors import InputError
from normgauge.render.theory import blocks, by_paper, claims_list, failures, markdown

if TYPE_CHECKING:
    from normgauge.ledger.claim import Claim

HELP = "check every claim of the theory on fresh random instances"
EXAMPLES = """\
examples:
  normgauge theory                          all claims: a table a source, the counts, what failed
  normgauge theory --claim T.L1             one in full: statement, correction, every comparison
  normgauge theory --claim A.P4             all whose id begins so; up to eight in full, more as a table
  normgauge theory --claim T --claim S.1    several
  normgauge theory --seed 7                 the instances of seed 7 (a seed is drawn and printed otherwise)
  normgauge theory --list                   what there is; checks nothing
  normgauge theory --html theory.html       a page with every comparison, plots and filters

exit codes:
  0 every check passed   1 a check failed (named at the end), or a mistake in what was given
"""
SEEDS = 10**6  # a drawn seed is short enough to be typed again
LARGEST = 10**12


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("claims", nargs="*", metavar="ID", help="the same as --claim ID")
    parser.add_argument(
        "--claim", action="append", default=[], metavar="ID", help="only this claim, or those whose id begins so"
    )
    parser.add_argument(
        "--seed", type=_seed, metavar="N", help="draw the instances from this seed (default: a new one)"
    )
    parser.add_argument("--list", action="store_true", help="list the claims and check nothing")
    parser.add_argument("--json", metavar="FILE", help="write the outcomes as JSON; - for standard output")
    parser.add_argument("--html", metavar="FILE", help="write them as one page; - for standard output")
    parser.add_argument("--markdown", metavar="FILE", help="write the list as a Markdown page; checks nothing")


def run(args: argparse.Namespace) -> int:
    """Check and tell, or list.

    Raises:
        InputError: when a page of checks is asked for and no check.
    """
    if args.html is not None and (args.list or args.markdown is not None):
        raise InputError("--html shows what the checks found; leave out --list and --markdown, which check nothing")
    check_targets(args.json, args.html, args.markdown)
    from normgauge.ledger import find

    args.claim = [*args.claims, *args.claim]
    claims = find(args.claim)
    if args.list or args.markdown is not None:
        return _list(args, Ledger(tuple(_unchecked(claim) for claim in claims)))
    seed = secrets.randbelow(SEEDS) if args.seed is None else args.seed
    ledger = _check(claims, seed)
    if args.json is not None:
        write_json({"seed": seed, **ledger.to_json()}, args.json)
    if args.html is not None:
        from normgauge.render.theory_page import theory_page

        write_text(theory_page(ledger), args.html)
    _tell(args, ledger, seed)
    return int(not ledger.passed)


def _check(claims: Sequence[Claim], seed: int) -> Ledger:
    from normgauge.ledger import check

    done = 0
    with progress_bar() as progress:

        def tick(claim: Claim) -> None:
            nonlocal done
            if progress is not None:
                progress(claim.id, done / len(claims))
            done += 1

        return check(claims, seed, tick)


def _tell(args: argparse.Namespace, ledger: Ledger, seed: int) -> None:
    """The tables, unless standard output is taken; what failed stands last, on standard error where it is."""
    lost = failures(ledger)
    if "-" in (args.json, args.html):
        sys.stderr.writelines(f"normgauge: {line}\n" for line in lost)
        return
    from normgauge.render.console import draw

    again = " ".join(["normgauge theory", *(f"--claim {name}" for name in args.claim), f"--seed {seed}"])
    with standard_output() as stream:
        draw([*blocks(ledger), f"The same instances again: {again}", *lost], stream)


def _list(args: argparse.Namespace, ledger: Ledger) -> int:
    if args.json is not None:
        fields = ("id", "source", "statement", "verdict", "correction", "backs", "checked")
        listed = [{name: claim[name] for name in fields} for claim in ledger.to_json()["claims"]]
        write_json({"schema": 1, "claims": listed}, args.json)
    if args.markdown is not None:
        write_text(markdown(ledger.outcomes), args.markdown)
    if args.list and "-" not in (args.json, args.markdown):
        from normgauge.render.console import draw

        with standard_output() as stream:
            draw([claims_list(name, group) for name, group in by_paper(ledger.outcomes).items()], stream)
    return 0


def _unchecked(claim: Claim) -> Outcome:
    """The claim with no findings."""
    return Outcome(claim.id, claim.source, claim.statement, claim.verdict, claim.correction, claim.backs, claim.checked)


def _seed(text: str) -> int:
    """A whole number that the generator takes.

    Raises:
        ArgumentTypeError: for anything else.
    """
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < LARGEST:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {LARGEST - 1}, got {text!r}")
    return value
