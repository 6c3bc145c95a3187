"""``python -m tests.fuzz``: random networks, an adversarial search, a histogram; status 1 on any violation."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import torch

from normgauge.rules import REGISTRY
from tests.fuzz.mutants import mutated
from tests.fuzz.nets import make_case
from tests.fuzz.run import Outcome, fuzz_one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; network k has seed + k")
    parser.add_argument("--json", type=Path, help="also write the summary there")
    parser.add_argument(
        "--mutate", metavar="RULE_ID", help="multiply this rule's gains by 0.99: a violation must be found"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    registry = mutated(given.mutate) if given.mutate else REGISTRY
    outcomes: list[Outcome] = []
    begun = time.time()
    for seed in range(given.seed, given.seed + given.count):
        try:
            outcome = fuzz_one(seed, registry, balance=not given.mutate and seed % 3 == 0)
        except Exception:
            outcome = Outcome(seed, broken=["crash: " + traceback.format_exc()])
        outcomes.append(outcome)
        if outcome.broken:
            print(f"VIOLATION with seed {seed}", *outcome.broken, make_case(seed).describe(), sep="\n  ", flush=True)
            if given.mutate:
                break
        if len(outcomes) % 100 == 0:
            print(f"{len(outcomes)} of {given.count}, {time.time() - begun:.0f} s", flush=True)
    summary = summarise(outcomes, time.time() - begun)
    if given.json:
        given.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 1 if summary["violations"] else 0


def summarise(outcomes: list[Outcome], seconds: float) -> dict[str, object]:
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
