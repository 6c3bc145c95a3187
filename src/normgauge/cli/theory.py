"""Check the theory: every claim of the papers has a verdict, and nearly all have a check that can fail.

Each check draws small random networks, layers or data, finds the number the claim is about by brute force (Jacobians,
singular values, simulation) or in the committed results of an experiment, and compares it with what is printed and with
what is true; a check has passed when it confirms the verdict. A few claims are only read, against the text or the work
it cites. Another seed, other instances. The verdicts:

  holds                    true as printed
  loose                    true; a sharper form is known, or a condition any reader supplies is missing
  wrong                    a counterexample inside the source's own assumptions, what is true instead, what survives
  gauge-dependent          the number moves under a rescaling that leaves the network's function alone
  unsupported              no proof is given, or it rests on what is not stated
  not reproduced           an experiment that came out otherwise for us
  withdrawn by the author  taken back in the same text

Of each comparison:

  published   what the printed statement says the number is on this instance, put in by us
  predicted   what the true statement says it is, or is at most
  measured    what was found
  difference  of measured from predicted (from published where that is refuted), as a share of the larger of the two

Of a claim in full: `reading` is the claim in our words, `one error` the mistake it shares with other claims, which
count as one independent error with it, `our code for it` the rules of the instrument (`normgauge rules`) that rest on
it, `recipe` the function that draws and compares. Our own results are counted apart.

CLAIM may ask for places or ids, sources, verdicts and words. What is of one kind adds up ("Lemma 1, Lemma 2"), what
differs in kind narrows ("Lemma 1 of Than", "LayerNorm wrong"); a claim has all words that stand together, and a comma,
"and" or "or" sets alternatives apart. A question ("Is Lemma 2 wrong?") gets all that is at the place. What stands
elsewhere and is wrong by the same error, or has the id of the place, is named behind it.
"""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import shlex

from normgauge.cli.arguments import whole_parser
from normgauge.cli.output import check_targets, complain, progress_bar, standard_output, write_json, write_text
from normgauge.core.claim import Ledger, Outcome, Verdict
from normgauge.core.errors import InputError
from normgauge.render.console import draw_blocks
from normgauge.render.theory import (
    by_source,
    check_failures,
    claims_index,
    source_heading,
    theory_blocks,
    theory_markdown,
)

HELP = "check every claim of the theory on fresh random instances"
EXAMPLES = """\
examples:
  normgauge theory                          the errors that matter, what holds by source, what failed
  normgauge theory --all                    and a table a source
  normgauge theory --claim T.L1             one in full: words, counterexample, every comparison
  normgauge theory --claim A.P4             all whose id begins so; up to nine in full, more as a table
  normgauge theory T.L1 S.VC                several
  normgauge theory Lemma 1                  all at a place; "Thm 13 (8)", "Lemmas 1 and 3" and "Eqs. 6-14" likewise
  normgauge theory Lemma 1 of Than          all at the place in the sources of this name; "T Lemma 1" likewise
  normgauge theory §4.2                     all that a section holds, as docs/sources.md has it; "Appendix B" likewise
  normgauge theory --list LayerNorm slope   all that have both words; "LayerNorm or slope": one of them
  normgauge theory --list LayerNorm wrong   those that have the word and this verdict; also as --verdict wrong
  normgauge theory --seed 7                 the instances of seed 7 (a seed is drawn and printed otherwise)
  normgauge theory --list | less            what there is, in some 1,500 lines; checks nothing
  normgauge theory --html theory.html       a page with every comparison, plots and filters

exit codes:
  0 every check that was run passed   1 a check failed (named at the end), or a mistake in what was given
"""
SEEDS = 10**6  # a drawn seed is short enough to be typed again
LARGEST = 10**12


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    seed = whole_parser(f" from 0 to {LARGEST - 1}", most=LARGEST - 1)  # what the generator takes
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="the same as --claim")
    parser.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="ID",
        help="only this claim, those whose id begins so, with this place, source, verdict or words",
    )
    parser.add_argument(
        "--verdict",
        action="append",
        default=[],
        type=_verdict,
        metavar="VERDICT",
        help="only claims with this verdict, such as wrong; may be given again",
    )
    parser.add_argument("--seed", type=seed, metavar="N", help="draw the instances from this seed (default: a new one)")
    parser.add_argument("--all", action="store_true", help="and every claim in a table")
    parser.add_argument("--list", action="store_true", help="list the claims and check nothing")
    parser.add_argument("--json", metavar="FILE", help="write the outcomes as JSON; - for standard output")
    parser.add_argument("--html", metavar="FILE", help="write them as one page; - for standard output")
    parser.add_argument("--markdown", metavar="FILE", help="write the list as a Markdown page; checks nothing")


def _verdict(words: str) -> Verdict:
    """A verdict by how it begins.

    Raises:
        argparse.ArgumentTypeError: for words that begin none, or several.
    """
    found = [verdict for verdict in Verdict if words and str(verdict).startswith(words.lower())]
    if len(found) != 1:
        meant = {"false": "; what is false: wrong", "true": "; what is true: holds or loose"}.get(words.lower(), "")
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(Verdict)}, got {words!r}{meant}")
    return found[0]


def run(args: argparse.Namespace) -> int:
    """Check and tell, or list.

    Raises:
        InputError: when a page of checks is asked for and no check.
    """
    if args.html is not None and (args.list or args.markdown is not None):
        raise InputError("--html shows what the checks found; leave out --list and --markdown, which check nothing")
    check_targets(args.json, args.html, args.markdown)
    from normgauge.theory import ABOUT, check_claims, look_up

    args.about = ABOUT
    claims, args.beside = look_up([*args.claims, *args.claim, *args.verdict])
    args.claim = [*([" ".join(args.claims)] if args.claims else []), *args.claim]
    if args.list or args.markdown is not None:
        return _list(args, Ledger(tuple(Outcome(claim.entry, absent="only listed") for claim in claims), ABOUT))
    seed = secrets.randbelow(SEEDS) if args.seed is None else args.seed
    with progress_bar() as progress:
        ledger = check_claims(claims, seed, progress)
    if args.json is not None:
        write_json({"seed": seed, **ledger.to_json()}, args.json)
    if args.html is not None:
        from normgauge.render.theory_page import theory_page

        write_text(theory_page(ledger), args.html)
    _tell(args, ledger, seed)
    return int(bool(ledger.failed))


def _tell(args: argparse.Namespace, ledger: Ledger, seed: int) -> None:
    """What was found, unless standard output is taken; what failed stands last, on standard error where it is."""
    lost = check_failures(ledger)
    if "-" in (args.json, args.html):
        for line in lost:
            complain(line)
        return
    chosen = [*(("--claim", name) for name in args.claim), *(("--verdict", str(v)) for v in args.verdict)]
    command = shlex.join(["normgauge", "theory", *(word for pair in chosen for word in pair), "--seed", str(seed)])
    again = [f"The same instances again: {command}"] if any(outcome.ran for outcome in ledger.outcomes) else []
    with standard_output() as stream:
        draw_blocks([*theory_blocks(ledger, every=args.all or bool(chosen)), *args.beside, *again, *lost], stream)


def _list(args: argparse.Namespace, ledger: Ledger) -> int:
    if args.json is not None:
        listed = [dataclasses.asdict(outcome.claim) for outcome in ledger.outcomes]
        write_json({"schema": 2, "independent_errors": len(ledger.errors), "claims": listed}, args.json)
    if args.markdown is not None:
        write_text(theory_markdown(ledger), args.markdown)
    if args.list and "-" not in (args.json, args.markdown):
        with standard_output() as stream:
            groups = by_source(ledger.outcomes).items()
            shown = [claims_index(source_heading(name, len(group), args.about), group) for name, group in groups]
            draw_blocks([*shown, *args.beside], stream)
    return 0
