"""The tables of README.md, filled in from results: `python -m experiments.than2025.table [RESULTS]`."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.than2025 import results
from experiments.than2025.results import Curve, Result

README = Path(__file__).with_name("README.md")
HEADERS = (
    "network",
    "optimizer",
    "epochs",
    "train",
    "test",
    "P_w",
    "P_w, Frobenius",
    "Π1/σ min",
    "Π1/σ rms",
    "Π1/σ max",
    "Π‖γ/σ‖₂",
    "balanced, everywhere",
    "balanced, at samples",
    "data Jacobian",
    "σ < 1",
)
GROUPS = ("nets", "optimizers", "efficientnet", "decay")
NETS = {"resnet18": "ResNet-18", "mlp": "MLP", "efficientnet_b3": "EfficientNet-B3"}
OPTIMIZERS = {"adam": "Adam, L2", "adamw": "AdamW", "sgd": "SGD"}


def main(argv: list[str] | None = None) -> int:
    """Write the tables between their markers.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.table", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=results.FOLDER)
    parser.add_argument("--readme", type=Path, default=README)
    args = parser.parse_args(argv)
    found = results.load(args.results)
    text = args.readme.read_text(encoding="utf-8")
    for name, table in {"nets": nets(found), "others": others(found), "count": count(found)}.items():
        text = between(text, name, table)
    args.readme.write_text(text, encoding="utf-8")
    return 0


def between(text: str, name: str, table: str) -> str:
    """The text with what lies between two markers replaced.

    Raises:
        ValueError: when the markers are not there.
    """
    begin, end = f"<!-- table {name} -->", f"<!-- end {name} -->"
    head, found, rest = text.partition(begin)
    _, also, tail = rest.partition(end)
    if not found or not also:
        raise ValueError(f"the text has no {begin} ... {end}")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def nets(found: Mapping[str, Result]) -> str:
    """Network by optimizer, last epoch; decimal logs but for accuracies."""
    runs = sorted((r for r in found.values() if r.spec.group in GROUPS), key=lambda r: [*NETS].index(r.spec.net))
    return grid(HEADERS, [[NETS[r.spec.net], _optimizer(r), *_numbers(r)] for r in runs])


def others(found: Mapping[str, Result]) -> str:
    """Every other run but those over seeds."""
    skip = (*GROUPS, "count", "count-layer")
    runs = [r for r in found.values() if r.spec.group not in skip]
    return grid(("run", *HEADERS[2:]), [[r.spec.name, *_numbers(r)] for r in runs])


def count(found: Mapping[str, Result]) -> str:
    """Number of normalizers: mean and standard deviation over seeds."""
    cells: dict[tuple[str, int], list[Result]] = {}
    for run in found.values():
        if run.spec.group in ("count", "count-layer"):
            cells.setdefault((run.spec.norm, run.spec.normalizers), []).append(run)
    rows = []
    for (norm, number), some in sorted(cells.items()):
        columns = [
            [r.score("train")[-1][1] for r in some],
            [r.score("test")[-1][1] for r in some],
            [r.gap()[-1][1] for r in some],
            [_end(r.total("log10_P_w")) for r in some],
            [_end(r.total("log10_prod_inv_sigma_rms")) for r in some],
            [_end(r.reading("point")) for r in some],
            [_end(r.log_total("jacobian_max")) for r in some],
        ]
        rows.append(
            [
                norm,
                str(number),
                str(len(some)),
                *(_spread(values, 3 if k < 3 else 2) for k, values in enumerate(columns)),
            ]
        )
    headers = (
        "normalizer",
        "how many of 9",
        "seeds",
        "train",
        "test",
        "gap",
        "P_w",
        "Π1/σ rms",
        "balanced, at samples",
        "data Jacobian",
    )
    return grid(headers, rows)


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; numbers to the right."""
    if not rows:
        return "No results yet."
    words = 1 if headers[0] == "run" else 2 if headers[1] == "optimizer" else 1
    rule = [*["---"] * words, *["---:"] * (len(headers) - words)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headers, rule, *rows))


def _numbers(run: Result) -> list[str]:
    totals = ("P_w", "P_w_frobenius", "prod_inv_sigma_min", "prod_inv_sigma_rms", "prod_inv_sigma_max", "prod_l2")
    normalizers = len(run.data["names"]["normalizers"])
    logs = [_log(_end(run.total(f"log10_{key}"))) if normalizers or key.startswith("P_w") else "–" for key in totals]
    epochs = f"{run.last['epoch']}{'' if run.data['finished'] else ' (cut)'}{' (diverged)' if run.diverged else ''}"
    return [
        epochs,
        f"{run.last['train'][1]:.1%}",
        f"{run.last['test'][1]:.1%}",
        *logs,
        _read(run, "global"),
        _read(run, "point"),
        _log(_end(run.log_total("jacobian_max"))),
        f"{run.last['totals']['below_one']} of {normalizers}" if normalizers else "–",
    ]


def _read(run: Result, scope: str) -> str:
    """The bound of the last reading, with its epoch where that is not the run's last."""
    curve = run.reading(scope)
    late = not curve or curve[-1][0] == run.last["epoch"]
    return _log(_end(curve)) + ("" if late else f" (epoch {curve[-1][0]:g})")


def _optimizer(run: Result) -> str:
    name = OPTIMIZERS[run.spec.optimizer]
    return f"{name.split(',')[0]}, no decay" if run.spec.decay == 0 else f"{name} {run.spec.decay:g}"


def _end(curve: Curve) -> float:
    return curve[-1][1] if curve else math.nan


def _log(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if value == math.inf else f"{value:.2f}".replace("-", "−")


def _spread(values: list[float], digits: int) -> str:
    kept = [v for v in values if math.isfinite(v)]
    if not kept:
        return "–"
    text = f"{statistics.fmean(kept):.{digits}f} ± {statistics.pstdev(kept):.{digits}f}"
    return text.replace("-", "−")


if __name__ == "__main__":
    raise SystemExit(main())
