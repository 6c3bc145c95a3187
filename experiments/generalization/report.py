"""The tables of the README, from results: `python -m experiments.generalization.report [--results DIR] [--check]`.

A table stands between `<!-- table NAME -->` and `<!-- end -->`; without results it says that there are none.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.generalization.fits import fewer, power_law, spread, up
from experiments.generalization.ranking_stats import tau_b
from experiments.generalization.results import FOLDER, Result, groups, load

README = Path(__file__).with_name("README.md")
NONE = "*No results yet.*"
SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
NETWORK = "this network"  # what a certificate calls the network it was asked about
MATCHED = 0.01  # training error below which networks count as fitted
# Reasons of a row that the device was at fault for, not its conditions.
UNMEASURED = (
    "like the weights, got cpu",
    "batch_norm eps must be positive",
    "needs a reading",
    "needs the Lipschitz term",
)

Row = Mapping[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Fill the README in, or see that it is filled in.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0; 1 where ``--check`` finds another text.
    """
    parser = argparse.ArgumentParser(prog="experiments.generalization.report", description=__doc__)
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    before = args.readme.read_text(encoding="utf-8")
    after = filled(before, args.results)
    if args.check:
        return int(after != before)
    args.readme.write_text(after, encoding="utf-8")
    return 0


def filled(text: str, folder: Path = FOLDER) -> str:
    """A text with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        name = match[1]
        experiment = name.split()[0]
        found = load(experiment, folder)
        return f"<!-- table {name} -->\n{TABLES[name](found) if found else NONE}\n<!-- end -->"

    return re.sub(r"<!-- table ([\w ]+) -->\n.*?<!-- end -->", made, text, flags=re.DOTALL)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table, the first columns to the left and numbers to the right."""
    lines = [head, ["---"] * left + ["---:"] * (len(head) - left), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def disagreement(found: list[Result]) -> str:
    """Bounds over seeds, rounded up, beside what the test labels say."""
    rows = []
    for (name,), own in groups(found, "data").items():
        made = [r.found for r in own]

        def column(part: str, key: str, made: list[Mapping[str, Any]] = made) -> list[float]:
            return [f[part][key] for f in made]

        bounds = column("certificate", "bound")
        rows.append(
            [
                SETS.get(name, name),
                str(len(own)),
                f"{own[0].settings['delta']:g}",
                f"**{up(statistics.fmean(bounds))}** ({up(max(bounds))})",
                up(statistics.fmean(column("certificate", "surrogate"))),
                up(statistics.fmean(column("certificate", "disagreement"))),
                up(statistics.fmean(column("single", "bound"))),
                up(statistics.fmean(f["holdout"] for f in made)),
                spread([100 * e for e in column("truth", "error")]),
            ]
        )
    head = ["data", "seeds", "δ", "bound, % (worst seed)", "surrogate", "disagreement", "one surrogate", "hold-out"]
    return markdown([*head, "test error"], rows)


def tables(found: list[Result]) -> str:
    """Every row of the certificates, one table a data set."""
    parts = []
    for (name,), own in groups(found, "data").items():
        parts.append(f"**{SETS.get(name, name)}**, δ = {own[0].settings['delta']:g}\n")
        columns = [{row["key"]: row for row in r.found["certificate"]["rows"]} for r in own]
        keys = dict.fromkeys(key for column in columns for key in column)
        names = {key: next(c[key]["name"] for c in columns if key in c) for key in keys}
        errors = [f"{100 * r.found['errors']['test_error']:.2f} %" for r in own]
        rows = [["test error", *errors]]
        rows += [[names[key], *(cell(c.get(key)) for c in columns)] for key in keys]
        parts.append(markdown(["row", *(f"{r.settings['net']} {r.settings['norm']}" for r in own)], rows) + "\n")
    return "\n".join(parts).rstrip()


def cell(row: Row | None) -> str:
    """A row of a certificate in a table.

    A bound on this network's error is bold and rounded up, one on another predictor's has a dagger, other kinds have
    their letter; a dash is a row that could have been measured and was not.
    """
    if row is None or row["kind"] == "not applicable":
        reason = "" if row is None else row.get("reason", "")
        return "–" if any(words in reason for words in UNMEASURED) else "n/a"
    value = row["value"]
    if row["kind"] == "bound":
        words = f"{math.ceil(value * 1e4 - 1e-9) / 1e4:.4f}"
        return f"**{words}**" if row["about"] == NETWORK else f"{words} †"
    words = "∞" if value is None or not math.isfinite(value) else f"{value:.3g}".replace("-", "−")
    return f"{words} {row['kind'][0]}"


def local(found: list[Result]) -> str:
    """Kendall's τ of every constant with the gap."""
    nets = [{**row, **_setting(r)} for r in found for row in r.found["nets"]]
    fitted = [n for n in nets if n["train_error"] <= MATCHED]
    clean = [n for n in fitted if n["noise"] == 0]
    sets = (nets, fitted, clean, *([n for n in fitted if n["norm"] == norm] for norm in ("none", "batch", "layer")))
    head = ["constant", *(f"{word} ({len(s)})" for word, s in zip(SPLITS, sets, strict=True))]
    rows = [[name, *(_tau(s, score) for s in sets)] for name, score in local_scores(found[0].settings["radii"])]
    return markdown(head, rows)


SPLITS = ("all", "fitted", "fitted, no noise", "fitted, none", "fitted, batch", "fitted, layer")


def local_scores(radii: Sequence[float]) -> list[tuple[str, Callable[[Row], float]]]:
    """What is set against the gap, by name; the baseline first."""

    def masked(row: Row, k: int) -> float:
        value = row["masked"][k]
        return row["balls"][k] if value is None else min(value, row["balls"][k])

    made: list[tuple[str, Callable[[Row], float]]] = [("−training error (baseline)", lambda r: -r["train_error"])]
    made.append(("global, proved", lambda r: r["global"]))
    for k in reversed(range(len(radii))):
        made.append((f"ball of {radii[k]:g}, proved", lambda r, k=k: r["balls"][k]))
        made.append((f"ball of {radii[k]:g}, units that are off left out", lambda r, k=k: masked(r, k)))
    made.append(("at the samples, proved", lambda r: r["point"]))
    made.append(("largest Jacobian at samples", lambda r: r["jacobian_max"]))
    made.append(("mean Jacobian at samples", lambda r: r["jacobian_mean"]))
    over = [("global over margin", "global"), ("mean Jacobian over margin", "jacobian_mean")]
    return made + [(name, lambda r, key=key: r[key] - _log(r["margin"])) for name, key in over]


def _log(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf


def _setting(result: Result) -> dict[str, Any]:
    return {key: result.settings[key] for key in ("data", "norm", "width", "depth")}


def _tau(rows: list[dict[str, Any]], score: Callable[[Row], float]) -> str:
    """Mean over the data sets: networks of different data are not compared."""
    taus = []
    for name in sorted({row["data"] for row in rows}):
        own = [row for row in rows if row["data"] == name]
        taus.append(tau_b([score(r) for r in own], [r["gap"] for r in own]) if len(own) > 2 else math.nan)
    kept = [tau for tau in taus if not math.isnan(tau)]
    return f"{statistics.fmean(kept):.2f}".replace("-", "−") if kept else "–"


def samples(found: list[Result]) -> str:
    """Exponents of error and gap, and how many times fewer samples a normalizer asks for."""
    rows = []
    for (name, net), own in groups(found, "data", "net").items():
        for (norm,), seeds in groups(own, "norm").items():
            errors, gaps = ([power_law(_curve(r, key)) for r in seeds] for key in ("test_error", "gap"))
            last = [r.found["sizes"][-1] for r in seeds]
            rows.append(
                [
                    SETS.get(name, name),
                    net,
                    norm,
                    spread([law.b for law in errors], 3),
                    spread([law.b for law in gaps], 3),
                    f"{statistics.fmean(law.error for law in gaps):.3f}",
                    spread([100 * s["test_error"] for s in last]),
                    spread([100 * s["gap"] for s in last]),
                    _fewer(own, seeds, norm),
                ]
            )
    head = ["data", "net", "norm", "b of error", "b of gap", "its fit error", "error at the end, %", "gap, %"]
    return markdown([*head, "times fewer samples"], rows, left=3)


def _curve(result: Result, key: str) -> list[tuple[float, float]]:
    return [(row["m"], row[key]) for row in result.found["sizes"]]


def ratios(plain: Sequence[Result], other: Sequence[Result]) -> list[tuple[float, float]]:
    """(size of the plain network, times fewer samples with the normalizer), for the mean curves over seeds."""
    curves = []
    for own in (plain, other):
        each = [_curve(r, "test_error") for r in own]
        curves.append([(points[0][0], statistics.fmean(e for _, e in points)) for points in zip(*each, strict=False)])
    return fewer(*curves)


def _fewer(own: list[Result], seeds: list[Result], norm: str) -> str:
    plain = [r for r in own if r.settings["norm"] == "none"]
    if norm == "none" or not plain:
        return "1"
    found = [ratio for _, ratio in ratios(plain, seeds)]
    return f"{min(found):.2f} to {max(found):.2f}, median {statistics.median(found):.2f}" if found else "–"


def adversarial(found: list[Result]) -> str:
    """Constants by the size of the attack in training."""
    rows = []
    for (name, net, norm), own in groups(found, "data", "net", "norm").items():
        for k, size in enumerate(own[0].settings["sizes"]):
            nets = [r.found["nets"][k] for r in own]

            def linear(key: str, nets: list[Row] = nets) -> str:
                return spread([10 ** n[key] for n in nets])

            rows.append(
                [
                    SETS.get(name, name),
                    net,
                    norm,
                    f"{size:g}",
                    linear("jacobian_mean"),
                    linear("jacobian_max"),
                    *(spread([n["balls"][j] for n in nets]) for j in range(len(own[0].settings["radii"]))),
                    spread([n["global"] for n in nets]),
                    spread([100 * n["gap"] for n in nets]),
                    spread([100 * n["test_error"] for n in nets], 1),
                    spread([100 * n["attacked_error"] for n in nets], 1),
                ]
            )
    balls = [f"log₁₀ ball {r:g}" for r in found[0].settings["radii"]]
    head = ["data", "net", "norm", "attack", "mean Jacobian", "largest", *balls, "log₁₀ global", "gap, %"]
    return markdown([*head, "test error, %", "attacked, %"], rows, left=3)


def machine(found: list[Result]) -> str:
    """The machines the results come from, and how long they took."""
    devices = sorted({f"{r.environment['device']}, torch {r.environment['torch']}" for r in found})
    minutes = sum(r.environment["seconds"] for r in found) / 60
    return f"{len(found)} units, {minutes:.0f} minutes if run one after another ({'; '.join(devices)})."


TABLES: dict[str, Callable[[list[Result]], str]] = {
    "disagreement": disagreement,
    "tables": tables,
    "local": local,
    "samples": samples,
    "adversarial": adversarial,
    **{f"{name} machine": machine for name in ("disagreement", "tables", "local", "samples", "adversarial")},
}

if __name__ == "__main__":
    raise SystemExit(main())
