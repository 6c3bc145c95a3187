"""Are the symmetries found right, and are they all? Against the null space of the weights' Jacobian.

    python benchmarks/symmetries.py [--only WORD] [--large] [--json FILE]

For each network: directions that change no output (the truth, from float64 linear algebra), directions found, whether
every one found lies in the null space, and the time of `symmetries` over that of a forward of the same samples.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from null_space import Truth, mixed, truth
from symmetric_cases import cases, settle
from symmetric_nets import Case
from torch import nn

from normgauge.geometry.symmetry.find import analysed, report_symmetries
from normgauge.geometry.symmetry.generators import tangents

RESULTS = Path(__file__).parent / "results" / "symmetries.json"
RIGHT = 1e-6  # largest ‖J t‖ / (‖J‖ ‖t‖) of a direction in the null space; central differences leave about 1e-9

MISSES = {
    "residual, layer after": "shears I + 1wᵀ of the stream before the mean, undone in the branch that reads it",
}


def judge(case: Case) -> dict[str, Any]:
    """One network: found against true."""
    model, batches = drawn(case)
    right = truth(model, batches, case.mode)
    with analysed(model, batches[0], case.mode) as found:
        said = report_symmetries(found, case.mode)
        kept = [g for g in found.generators if (g.what, g.parameters) in {(s.what, s.parameters) for s in said.groups}]
        worst = max((change(right, tangents(g, found.trial.state)) for g in kept), default=0.0)
    spent, forward = timed(model, batches[0], case.mode)
    return {
        "name": case.name, "mode": case.mode, "weights": right.weights, "rows": right.rows, "true": right.nullity,
        "found": said.dimension, "families": len(said.groups), "worst": worst, "kept": right.kept,
        "dropped": right.dropped, "forwards": said.forwards, "rejected": list(said.rejected),
        "unknown": list(said.unknown), "missing": MISSES.get(case.name, ""), "seconds": spent, "ratio": spent / forward,
    }  # fmt: skip


def drawn(case: Case) -> tuple[nn.Module, list[Any]]:
    """A network with random weights in which no unit is on for all samples, or off.

    Raises:
        SystemExit: when no draw is.
    """
    torch.manual_seed(0)
    model, batches = case.build(), case.batches()
    for seed in range(200):
        with torch.random.fork_rng(devices=[]):
            twin = settle(copy.deepcopy(model), seed)
            with torch.no_grad():
                for batch in batches:  # running statistics near the true ones
                    twin(batch)
            looked = copy.deepcopy(twin) if case.mode == "train" else copy.deepcopy(twin).eval()
            if mixed(looked, batches):
                return twin, batches
    raise SystemExit(f"{case.name}: every draw has a unit that is linear on the samples")


def change(right: Truth, moves: dict[str, torch.Tensor]) -> float:
    """How far a family's directions are outside the null space."""
    count = len(next(iter(moves.values())))
    whole = torch.zeros(count, right.weights, dtype=torch.float64)
    for name, rows in moves.items():
        if name in right.names:
            whole[:, right.names[name]] = rows
    return right.change(whole)


def timed(model: nn.Module, batch: Any, mode: str) -> tuple[float, float]:
    """CPU seconds of `symmetries` and of a forward of the samples it uses."""
    import normgauge as ng

    few = batch[:8]
    model.train(mode == "train")
    with torch.no_grad():
        forward = least(lambda: model(few), 5)
    return least(lambda: ng.symmetries(model, few, mode=mode), 1), forward


def least(do: Callable[[], object], repeats: int) -> float:
    """The shortest CPU time of a few."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        do()
        times.append(time.process_time() - start)
    return max(min(times), 1e-6)


def large() -> list[dict[str, Any]]:
    """Times alone, on networks whose Jacobian is too large to write out."""
    import transformers as tf

    from normgauge.lab.zoo import build_network

    words = torch.randint(0, 30000, (8, 32))
    nets: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
        "ResNet-20": (lambda: build_network("resnet20"), torch.randn(8, 3, 32, 32)),
        "ResNet-18": (lambda: build_network("resnet18", stem="cifar"), torch.randn(8, 3, 32, 32)),
        "BERT-base": (lambda: tf.BertModel(tf.BertConfig(), add_pooling_layer=False), words),
    }
    rows = []
    for name, (make, batch) in nets.items():
        torch.manual_seed(0)
        model = make()
        spent, forward = timed(model, batch, "train")
        weights = sum(p.numel() for p in model.parameters())
        rows.append({"name": name, "weights": weights, "seconds": spent, "forward": forward, "ratio": spent / forward})
        print(f"{name:30} {weights:>10} weights {spent:8.1f} s, {spent / forward:6.0f} forwards", flush=True)
    return rows


def main() -> None:
    """Judge all and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="WORD", help="networks whose name contains it")
    parser.add_argument("--large", action="store_true", help="also time large networks")
    parser.add_argument("--json", type=Path, help=f"default, for a full run: {RESULTS.name} in results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in cases():
        if args.only and args.only not in case.name:
            continue
        row = judge(case)
        rows.append(row)
        print(
            f"{row['name']:30} {row['mode']:5} found {row['found']:4} of {row['true']:4} in {row['weights']:4} weights "
            f"({row['rows']} rows)  outside {row['worst']:.0e}  gap {row['kept']:.0e} {row['dropped']:.0e}  "
            f"{row['ratio']:5.0f} forwards {row['rejected'] or ''} {row['unknown'] or ''}",
            flush=True,
        )
    true, found = (sum(r[k] for r in rows) for k in ("true", "found"))
    wrong = [r["name"] for r in rows if r["worst"] > RIGHT or r["found"] > r["true"]]
    summary = {
        "networks": len(rows), "true": true, "found": found, "recall": found / max(true, 1), "wrong": wrong,
        "complete": sum(r["found"] == r["true"] for r in rows),
        "median_ratio": sorted(r["ratio"] for r in rows)[len(rows) // 2],
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    environment = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    text = {"environment": environment, "summary": summary, "networks": rows, "large": large() if args.large else []}
    if args.json or not args.only:
        (args.json or RESULTS).write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
