"""Is the advice right? Planted problems, healthy networks, and networks that train once the advice is followed.

    python benchmarks/advice.py [--count 20] [--first-seed 1000] [--no-training] [--json FILE]

The thresholds were tuned on seeds below 1000, none of them on the default seeds. A hit names the planted
kind and the planted layer; "first" is a hit that is also the first problem listed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from following import FAILING, follow
from planted import NORMS, PLANTED, Case, healthy, images, rescaled, trained

import normgauge as ng
from normgauge.lab.zoo import cifar_resnet, gpt, mlp, vit

RESULTS = Path(__file__).parent / "results" / "advice.json"


def judge(make: Callable[[int], Case], seeds: range) -> dict[str, Any]:
    """Hit rates of one kind."""
    hits = first = 0
    families: Counter[str] = Counter()
    others: Counter[str] = Counter()
    missed = []
    for seed in seeds:
        case = make(seed)
        problems = ng.advise(case.model, case.batch, facts=False).problems
        right = [r.kind == case.kind and r.layer in case.layers for r in problems]
        hits += any(right)
        first += bool(right) and right[0]
        families[case.family] += 1
        others.update(r.kind for r, good in zip(problems, right, strict=True) if not good)
        if not any(right):
            missed.append({"seed": seed, "family": case.family, "said": [f"{r.kind}: {r.layer}" for r in problems]})
    return {
        "nets": len(seeds), "hits": hits, "first": first, "families": dict(families), "others": dict(others),
        "missed": missed,
    }  # fmt: skip


def well(seeds: range) -> Iterator[tuple[str, Case]]:
    """Healthy networks: random, without normalizers, trained, each also rescaled; and the zoo's."""
    for seed in seeds:
        for sort, case in (
            ("random", healthy(seed, norms=NORMS)),
            ("random, no normalizer", healthy(seed, norms=(None,))),
            ("trained on digits", trained(seed)),
        ):
            yield sort, case
            yield f"{sort}, rescaled", rescaled(case, seed)
    torch.manual_seed(seeds[0])
    batch, _ = images(seeds[0])
    yield "zoo", Case("mlp/batch fresh", mlp(norm="batch"), batch.flatten(1))
    yield "zoo", Case("vit", vit(8, 2, 1), batch)
    yield "zoo", Case("gpt", gpt(), torch.randint(0, 65, (16, 32)))
    yield "zoo", Case("gpt/rms", gpt(norm="rms"), torch.randint(0, 65, (16, 32)))
    yield "zoo", Case("resnet20 fresh", cifar_resnet(20), torch.randn(16, 3, 16, 16))
    yield "zoo", Case("resnet32/group", cifar_resnet(32, norm="group"), torch.randn(8, 3, 16, 16))


def judge_healthy(seeds: range) -> dict[str, Any]:
    """How many healthy networks get a problem, by sort."""
    counts: Counter[str] = Counter()
    blamed: Counter[str] = Counter()
    said = []
    for sort, case in well(seeds):
        problems = ng.advise(case.model, case.batch, facts=False).problems
        counts[sort] += 1
        blamed[sort] += bool(problems)
        if problems:
            said.append({"sort": sort, "family": case.family, "said": [f"{r.kind}: {r.layer}" for r in problems]})
    return {"nets": dict(counts), "with_problem": dict(blamed), "said": said}


def judge_following(seeds: range) -> list[dict[str, Any]]:
    """Accuracies with and without the advice."""
    rows = []
    for start in FAILING:
        for seed in seeds:
            done = follow(start, seed)
            rows.append(done.to_json())
            print(
                f"{start:28} seed {seed}: none {done.none:.2f}, advised ({len(done.places)}) {done.advised:.2f}, "
                f"one elsewhere {done.one_elsewhere:.2f}, as many elsewhere {done.same_number_elsewhere:.2f}",
                flush=True,
            )
    return rows


def main() -> None:
    """Prints the tables and writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="networks of each kind")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--json", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.count)
    print(f"{'planted':28} {'nets':>5} {'named':>6} {'first':>6}  said besides")
    kinds = {}
    for kind, make in PLANTED.items():
        row = kinds[kind] = judge(make, seeds)
        print(f"{kind:28} {row['nets']:5} {row['hits']:6} {row['first']:6}  {row['others']}", flush=True)
    fine = judge_healthy(range(seeds[0], seeds[0] + max(chosen.count // 2, 1)))
    print(f"{'healthy':28} {'nets':>5} {'with a problem':>15}")
    for sort, nets in fine["nets"].items():
        print(f"{sort:28} {nets:5} {fine['with_problem'][sort]:15}")
    followed = [] if chosen.no_training else judge_following(range(seeds[0], seeds[0] + 5))
    for start in FAILING if followed else ():
        rows = [row for row in followed if row["start"] == start]
        means = {k: statistics.mean(r[k] for r in rows) for k in ("none", "advised", "one_elsewhere")}
        print(f"{start:28} mean accuracy {', '.join(f'{k} {v:.2f}' for k, v in means.items())}")
    environment = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    result = {"environment": environment, "first_seed": seeds[0], "planted": kinds, "healthy": fine}
    chosen.json.parent.mkdir(exist_ok=True)
    chosen.json.write_text(json.dumps({**result, "following": followed}, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
