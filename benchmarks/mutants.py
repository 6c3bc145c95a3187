"""Can the checks of the theory fail? Mistakes put into the formula of every check, one at a time.

    python benchmarks/mutants.py [--claim ID] [--seeds 0 1] [--json FILE]

A mutant is a check whose formula has one mistake: a wrong constant, index, exponent, operator or function in what leads
to ``predicted=``, or a printed formula that was made right. Instances, and what is measured on them, are left alone.
It is killed when the check fails on either of two seeds. One mutant a check is chosen, the first wrong constant,
exponent or index where there is one; and all are counted. What survives is the same where no number moved by more than
a millionth, a weaker bound where only bounds rose (they stay true), one with room where a bound fell and still holds,
as a loose bound may, and missed otherwise. The first two are no mistakes and are counted apart. Every survivor is
written down, with its line.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from formula_side import parsed, sites, unit_of
from mutate import Mutant, bodies, judged, mutants, run

from normgauge.theory import find_claims
from normgauge.theory.claim import Claim

RESULTS = Path(__file__).parent / "results" / "mutants.json"
FATAL, HARMLESS = ("killed", "crashed"), ("same", "weaker bound")
FIRST = ("constant", "exponent", "index", "operator", "function", "condition", "factor", "printed", "fact")
FINDINGS = ("equals", "below", "refutes", "exceeds", "moves", "shown")


def judge(claim: Claim, seeds: Sequence[int]) -> dict[str, Any]:
    """The fate of every mutant of a claim's check."""
    begun = time.process_time()
    base = [run(claim, seed) for seed in seeds]
    if not all(outcome.passed for outcome in base):
        return {"id": claim.id, "problem": "the check itself fails", "mutants": []}
    unit = unit_of(claim.check) if claim.check else None
    if unit is None:
        return {"id": claim.id, "problem": "its source was not found", "mutants": []}
    told: list[dict[str, Any]] = []
    for factors in (False, True):
        if chosen(told) is None:
            made = mutants(claim, sites(unit.function), bodies(parsed(unit.module)), factors)
            told = [_told(mutant, claim, seeds, base) for mutant in made]
    return {
        "id": claim.id, "verdict": str(claim.entry.verdict), "file": unit.module.__name__,
        "seconds": round(time.process_time() - begun, 2), "chosen": chosen(told), "mutants": told,
    }  # fmt: skip


def _told(mutant: Mutant, claim: Claim, seeds: Sequence[int], base: list[Any]) -> dict[str, Any]:
    end, problem = judged(claim, mutant.check, seeds, base)
    names = ("kind", "finding", "line", "before", "after")
    return {**{name: getattr(mutant, name) for name in names}, "fate": end, "problem": problem}


def rank(mutant: dict[str, Any]) -> tuple[int, int, int]:
    """Of an equality before a bound, a wrong constant, exponent or index before an operator, the first line first."""
    return FINDINGS.index(mutant["finding"]), FIRST.index(mutant["kind"]) // 3, mutant["line"]


def chosen(told: Sequence[dict[str, Any]]) -> int | None:
    """Which mutant stands for the check; one that moves no number, or only raises a bound, is no mistake."""
    order = sorted((i for i, m in enumerate(told) if m["fate"] not in HARMLESS), key=lambda i: rank(told[i]))
    return order[0] if order else None


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares over all claims."""
    all_of_them = [m for r in results for m in r["mutants"]]
    fates = Counter(m["fate"] for m in all_of_them)
    picked = [r["mutants"][r["chosen"]] for r in results if r.get("chosen") is not None]
    firsts = [min(r["mutants"], key=rank) for r in results if r["mutants"]]
    real = [m for m in all_of_them if m["fate"] not in HARMLESS]
    by_kind = {
        kind: {
            "mutants": sum(m["kind"] == kind for m in real),
            "killed": sum(m["kind"] == kind and m["fate"] in FATAL for m in real),
        }
        for kind in FIRST
    }
    return {
        "checks": len(results),
        "without a mutant": [r["id"] for r in results if r.get("chosen") is None],
        "chosen": {"mutants": len(picked), "killed": sum(m["fate"] in FATAL for m in picked)},
        "first, harmless or not": {"mutants": len(firsts), "killed": sum(m["fate"] in FATAL for m in firsts)},
        "all": {"mutants": len(all_of_them), **fates},
        "mistakes": {"mutants": len(real), "killed": sum(m["fate"] in FATAL for m in real)},
        "by kind": by_kind,
    }


def show(results: Sequence[dict[str, Any]], told: dict[str, Any]) -> None:
    for r in results:
        lost = [m for m in r["mutants"] if m["fate"] not in FATAL]
        killed = len(r["mutants"]) - len(lost)
        print(f"{r['id']:28} {killed:4} of {len(r['mutants']):4} killed  {r.get('problem', '')}")
        for m in lost:
            if m["fate"] not in HARMLESS:
                star = "*" if r["chosen"] is not None and r["mutants"][r["chosen"]] is m else " "
                print(f"   {star}{m['fate']} {m['kind']} ({m['finding']}), line {m['line']}: {m['before']}")
                print(f"{'':12}-> {m['after']}")
    print(json.dumps(told, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claim", action="append", default=[], metavar="ID")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--json", metavar="FILE", default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    checked = [claim for claim in find_claims(args.claim) if claim.check]
    for claim in checked:
        unit_of(claim.check)  # reads the sources now: an edit meanwhile would move their lines
    results = [judge(claim, args.seeds) for claim in checked]
    told = summary(results)
    show(results, told)
    target = args.json or (None if args.claim else RESULTS)
    if target:
        data = {"seeds": args.seeds, "python": platform.python_version(), "torch": torch.__version__, **told}
        kept = [{**r, "mutants": [m for m in r["mutants"] if m["fate"] not in FATAL], "count": len(r["mutants"]),
                 "killed": sum(m["fate"] in FATAL for m in r["mutants"])} for r in results]  # fmt: skip
        Path(target).write_text(
            json.dumps({**data, "claims": kept}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
