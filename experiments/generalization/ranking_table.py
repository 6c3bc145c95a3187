"""From the lines of a sweep to a table: one row a score, one block a selection of networks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.generalization.ranking_stats import (
    Estimate,
    binned_kendall,
    granulated,
    kendall,
    pairs,
    sign_error,
    tau_b,
    worst_change,
)
from normgauge import NormgaugeError

Record = dict[str, Any]
HYPER = ("kind", "norm", "depth", "width", "lr", "batch", "decay", "seed")
AXES = ("norm", "depth", "width", "lr", "batch", "decay")
TARGETS = {"gap": "gap", "test error": "test_error"}
FEWEST = 8  # networks a rank correlation is taken of
BASELINES = ("train-loss", "train-error", "params")
FAMILIES = (("kind",), ("kind", "norm"), ("kind", "norm", "depth"))  # networks that share these
SELECTIONS: dict[str, Callable[[Record], bool]] = {
    "all": lambda record: True,
    "matched": lambda record: record["reached"],
    "matched mlp": lambda record: record["reached"] and record["kind"] == "mlp",
    "matched cnn": lambda record: record["reached"] and record["kind"] == "cnn",
    "matched, none or batch": lambda record: record["reached"] and record["norm"] in ("none", "batch"),
}


def read(paths: Sequence[Path]) -> list[Record]:
    """The networks of the files, in the order of their keys; a key counts once.

    Raises:
        NormgaugeError: when there is none.
    """
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line]
    found = {record["key"]: record for record in map(json.loads, lines)}
    if not found:
        raise NormgaugeError(f"no network in {', '.join(map(str, paths))}; run experiments.generalization.sweep first")
    return [found[key] for key in sorted(found)]


def ranking(records: Sequence[Record]) -> dict[str, Any]:
    """Everything the table shows, as JSON."""
    fit = [r for r in records if "failed" not in r and r["scores"]]
    keys = list(dict.fromkeys(key for r in fit for key in r["scores"]))
    blocks = {name: block([r for r in fit if chosen(r)], keys) for name, chosen in SELECTIONS.items()}
    counts = {
        "networks": len(records),
        "failed": sum("failed" in r for r in records),
        "diverged": sum(bool(r.get("diverged")) for r in records),
        "not reached": sum(not r["reached"] for r in fit),
        "matched": sum(r["reached"] for r in fit),
    }
    matched = [r for r in fit if r["reached"]]
    return {
        "counts": counts,
        "families": [against_size(matched, keys, shared) for shared in FAMILIES],
        "selections": {name: made for name, made in blocks.items() if made["scores"]},
    }


def against_size(records: Sequence[Record], keys: Sequence[str], shared: Sequence[str]) -> dict[str, Any]:
    """Kendall's τ with the gap within families, for minus the number of parameters and the scores.

    Args:
        records: networks that were trained to one loss.
        keys: the scores.
        shared: what the networks of a family have in common.

    Returns:
        "families", how many; "ahead", in how many of them minus parameters beats all else; "parameters" and "best",
        means over the families, "score" the name of the best score, of those that all families have.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in shared), []).append(record)
    told = (_taus(own, keys) for own in groups.values() if len(own) >= FEWEST)
    taus = [tau for tau in told if "params" in tau and len(tau) > 1]
    if not taus:
        return {"shared": list(shared), "families": 0}
    means = {k: fmean(t[k] for t in taus) for k in keys if k not in BASELINES and all(k in t for t in taus)}
    size = [-t["params"] for t in taus]
    score = max(means, key=lambda key: means[key], default="")
    return {
        "shared": list(shared),
        "families": len(taus),
        "ahead": sum(own > max(t[k] for k in t if k != "params") for own, t in zip(size, taus, strict=True)),
        "parameters": fmean(size),
        "best": means.get(score),
        "score": score,
    }


def _taus(records: Sequence[Record], keys: Sequence[str]) -> dict[str, float]:
    """τ of the scores that all of these networks have, where it is defined."""
    gaps = [r["gap"] for r in records]
    have = [key for key in keys if all(key in r["scores"] for r in records)]
    found = {key: tau_b([r["scores"][key] for r in records], gaps) for key in have}
    return {key: tau for key, tau in found.items() if not math.isnan(tau)}


def block(records: Sequence[Record], keys: Sequence[str]) -> dict[str, Any]:
    """The scores of one selection."""
    rows = {key: scored([r for r in records if key in r["scores"]], key) for key in keys}
    spread = {name: _range([r[field] for r in records]) for name, field in TARGETS.items()} if records else {}
    agreement = _plain(kendall([r["gap"] for r in records], [r["test_error"] for r in records])) if records else None
    scores = {key: row for key, row in rows.items() if row}
    return {"networks": len(records), "range": spread, "gap with test error": agreement, "scores": scores}


def scored(records: Sequence[Record], key: str) -> dict[str, Any]:
    """What one score is worth on these networks, by target."""
    if len(records) < FEWEST:
        return {}
    values = [r["scores"][key] for r in records]
    loss = [r["train_loss"] for r in records]
    among = pairs([{name: r[name] for name in HYPER} for r in records], AXES)
    made: dict[str, Any] = {"n": len(records)}
    for name, field in TARGETS.items():
        target = [r[field] for r in records]
        worst = worst_change(values, target, among)
        made[name] = {
            "kendall": _plain(kendall(values, target)),
            "in bins": _plain(binned_kendall(values, target, loss)),
            "granulated": _plain(granulated(values, target, among)),
            "sign error": _plain(sign_error(values, target, among)),
            "worst": None if worst is None else {"value": worst[0], "change": worst[1]},
        }
    return made


def markdown(found: dict[str, Any]) -> str:
    """The tables, one a selection and target, best first."""
    counts = found["counts"]
    parts = [", ".join(f"{value} {name}" for name, value in counts.items()) + ".\n"]
    told = ((name, _cell(made["gap with test error"])) for name, made in found["selections"].items())
    parts += ["Kendall τ of gap and test error: " + "; ".join(f"{name} {tau}" for name, tau in told) + ".\n"]
    parts += ["| families share | families | τ of minus parameters | best score | its τ | minus parameters ahead in |"]
    parts += ["| --- | ---: | ---: | --- | ---: | ---: |"]
    parts += [_family(one) for one in found["families"] if one["families"]]
    for name, made in found["selections"].items():
        for target in TARGETS:
            low, high = made["range"][target]
            parts.append(f"\n**{name}: {made['networks']} networks, against the {target}** ({low:.3f} to {high:.3f})\n")
            parts += ["| score | n | Kendall τ | τ in bins of train loss | Ψ | sign error | worst change |"]
            parts += ["| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
            ordered = sorted(made["scores"].items(), key=lambda item: -_value(item[1][target]["kendall"]))
            parts += [_row(key, row["n"], row[target]) for key, row in ordered]
    return "\n".join(parts) + "\n"


def _family(one: dict[str, Any]) -> str:
    taus = f"{one['parameters']:.2f} | {one['score']} | {one['best']:.2f}".replace("-0", "−0")
    return f"| {', '.join(one['shared'])} | {one['families']} | {taus} | {one['ahead']} |"


def _row(key: str, n: int, row: dict[str, Any]) -> str:
    shown = [_cell(row[what]) for what in ("kendall", "in bins", "granulated", "sign error")]
    worst = "" if row["worst"] is None else f"{row['worst']['value']:.2f} {row['worst']['change']}"
    name = f"*{key} (baseline)*" if key in BASELINES else key
    return f"| {name} | {n} | {' | '.join(shown)} | {worst} |"


def _cell(estimate: dict[str, float] | None) -> str:
    return "" if estimate is None else f"{estimate['value']:.2f} ± {estimate['error']:.2f}".replace("-", "−")


def _value(estimate: dict[str, float] | None) -> float:
    return -2.0 if estimate is None else estimate["value"]


def _plain(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)
