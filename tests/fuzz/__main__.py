"""``python -m tests.fuzz``: random networks, an adversarial search, a histogram; status 1 on any violation."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from normgauge.instrument.rules import REGISTRY
from tests.fuzz.jobs import awkward, network, shared
from tests.fuzz.run import Outcome
from tests.fuzz.tracer import Attempt
from tests.fuzz.tracing import TRICKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; network k has seed + k")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share the networks")
    parser.add_argument("--json", type=Path, help="also write the summary there")
    parser.add_argument(
        "--mutate", metavar="RULE_ID", help="multiply this rule's gains by 0.99: a violation must be found"
    )
    parser.add_argument("--tracer", action="store_true", help="networks that are hard to trace, against differences")
    parser.add_argument("--trick", choices=sorted(TRICKS), help="with --tracer: this kind only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.time()
    work: Callable[[int], Any] = partial(network, given.mutate)
    if given.tracer:
        work = partial(awkward, given.trick)
    outcomes: list[Any] = []
    for outcome in shared(work, range(given.seed, given.seed + given.count), given.jobs):
        outcomes.append(outcome)
        if outcome.broken:
            print(f"VIOLATION with seed {outcome.seed}", *outcome.broken, outcome.what, sep="\n  ", flush=True)
            if given.mutate:
                break
        if len(outcomes) % 100 == 0:
            print(f"{len(outcomes)} of {given.count}, {time.time() - begun:.0f} s", flush=True)
    summary = (summarise_tricks if given.tracer else summarise)(outcomes, time.time() - begun)
    if given.json:
        given.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 1 if summary["violations"] else 0


def summarise_tricks(attempts: list[Attempt], seconds: float) -> dict[str, Any]:
    """Print what became of each kind of awkward network, and return it."""
    kinds: dict[str, Counter[str]] = {}
    for attempt in attempts:
        kinds.setdefault(attempt.name, Counter()).update(attempt.answers)
    bad = [a for a in attempts if a.broken]
    for name, answers in sorted(kinds.items()):
        wrong = sum(a.name == name for a in bad)
        print(f"{name:22}{wrong:4} wrong; readings:", ", ".join(f"{k} {n}" for k, n in answers.most_common()))
    total: Counter[str] = sum(kinds.values(), Counter())
    print(f"{len(attempts)} awkward networks; {len(bad)} with violations; {seconds:.0f} s;", dict(total))
    return {
        "networks": len(attempts), "violations": [a.seed for a in bad], "answers": total, "kinds": kinds,
        "seconds": round(seconds, 1),
    }  # fmt: skip


def summarise(outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """Print the figures and return them."""
    rules: Counter[str] = sum((o.rules for o in outcomes), Counter())
    kinds: Counter[str] = sum((o.kinds for o in outcomes), Counter())
    unknown = Counter(text for o in outcomes for text in o.unknown)
    bad = [o for o in outcomes if o.broken]
    finite = {scope: sum(o.finite.get(scope, False) for o in outcomes) for scope in ("global", "ball", "point")}
    print("\nrule" + " " * 32 + "steps")
    for name, count in rules.most_common():
        print(f"{name:36}{count}")
    print(f"\n{len(kinds)} kinds of operation:", ", ".join(f"{k} {n}" for k, n in kinds.most_common()))
    missing = sorted({r.id for r in REGISTRY.entries()} - set(rules))
    print("rules not met:", ", ".join(missing) or "none")
    lines = "".join(f"\n  {n:5} {text}" for text, n in unknown.most_common(20))
    print(f"unknown in {sum(bool(o.unknown) for o in outcomes)} networks:{lines}")
    near = sum(o.tightest > 0.99 for o in outcomes)
    print(f"\n{len(outcomes)} networks; finite bound", ", ".join(f"{scope} {n}" for scope, n in finite.items()))
    print(f"found within 1 % of the bound in {near}; {len(bad)} with violations; {seconds:.0f} s")
    return {
        "networks": len(outcomes), "violations": [o.seed for o in bad], "finite": finite, "rules": rules,
        "kinds": kinds, "unknown": unknown, "within_one_percent": near, "seconds": round(seconds, 1),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
