"""The tables of README.md, filled in from results: `python -m experiments.akbar2025.table [RESULTS]`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments import study
from experiments.akbar2025 import results, table_text, verdicts, verdicts_later, verdicts_text
from experiments.akbar2025.results import Results, mean, of, pct, share, short, spread, steps
from experiments.akbar2025.table_text import MODELS
from experiments.akbar2025.verdicts import Row
from experiments.study import grid

DIVERGED = 1e3  # a loss, of targets with variance 1
README = Path(__file__).with_name("README.md")
# tables that are not named after their experiment
FROM = {"won": "margins", "plane-varied": "plane", "scales-varied": "scales"}


def main(argv: list[str] | None = None) -> int:
    """Write the tables between their markers.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    return study.fill_readme(argv, __doc__, lambda folder: tables(results.load(folder)), results.FOLDER, README)


def tables(found: Results) -> dict[str, str]:
    """Every table by the name of its markers."""
    made: dict[str, Callable[[Results], str]] = {
        "plane": plane,
        "plane-varied": plane_varied,
        "regression": regression,
        "margins": margins,
        "won": won,
        "scales": scales,
        "scales-varied": scales_varied,
        **table_text.TABLES,
    }
    rows = {"published": published(found), "text": text(found)}
    judged = {name: _judged([r for r in some if r.verdict != verdicts.OURS]) for name, some in rows.items()}
    own = [r for some in rows.values() for r in some if r.verdict == verdicts.OURS]
    judged["ours"] = grid((verdicts.OURS, "found"), [[r.published, r.ours] for r in own], words=2)
    return judged | {
        name: make(found) if of(found, FROM.get(name, name)) else "No results yet." for name, make in made.items()
    }


def published(found: Results) -> list[Row]:
    """Experiments 1 to 4."""
    return verdicts.rows(found, {**verdicts.PUBLISHED, **verdicts_later.LATER})


def text(found: Results) -> list[Row]:
    """What the text claims beside them."""
    return verdicts.rows(found, verdicts_text.TEXT)


def _judged(rows: Sequence[Row]) -> str:
    return grid(("published", "ours", "verdict"), [[r.published, r.ours, r.verdict] for r in rows], words=3)


def plane(found: Results) -> str:
    """Change of ‖w‖ and the angle left, by starting norm and learning rate."""
    base = found["plane/base"].found["models"]
    lines = [
        [
            f"{b['norm']:g}",
            f"{b['lr']:g}",
            *(cell for r in (b, p) for cell in (spread([100 * v for v in r["change"]], 1), spread(r["angle"], 1))),
        ]
        for b, p in zip(base["batch"], base["none"], strict=True)
    ]
    headers = ("‖w₀‖", "η", "BN: change of ‖w‖, %", "BN: angle left, °", "plain: change, %", "plain: angle left, °")
    return grid(headers, lines, words=0)


def plane_varied(found: Results) -> str:
    """Every setting of experiment 1: how many runs keep ‖w‖, find the direction, do both, and go straight."""
    lines = []
    for label, r in of(found, "plane").items():
        rows = r.found["models"]["batch"]
        seen = [
            (c < 0.01, a < verdicts.TURNED) for row in rows for c, a in zip(row["largest"], row["angle"], strict=True)
        ]
        kept, turned, both = (share(facts) for facts in zip(*[(c, a, c and a) for c, a in seen], strict=True))
        middle = results.cell(rows, norm=1.0, lr=0.1) if 0.1 in r.settings["lrs"] else rows[0]
        straight = verdicts.straight(rows, matched=r.settings["lr"] == "matched")
        flipped = share(v > 0 for row in rows for v in row["flipped"])
        change = spread([100 * v for v in middle["change"]])
        lines.append([label, *map(pct, (kept, turned, both, straight, flipped)), change])
    headers = ("setting", "‖w‖ within 1 %", "direction found", "both", "straight, η ≤ ‖w₀‖²", "γ < 0 at the end")
    return grid((*headers, "change of ‖w‖ at ‖w₀‖ = 1, η = 0.1, %"), lines, words=1)


def regression(found: Results) -> str:
    """Every setting of experiment 2."""
    headers = ("setting", "network", "loss at 100", "steps to 1 %", "loss rises", "λ_max", "λ_max(DHD)")
    lines = []
    for label, r in of(found, "regression").items():
        for key, name in MODELS.items():
            m = r.found[key]
            spectra = [s for s in m["spectrum"] if s]
            kappas = [[s["kappa"][k] for s in spectra] for k in (1, 3, 4)]
            lines.append(
                [
                    label,
                    name,
                    spread([v if v < DIVERGED else math.inf for v in m["loss100"]]),
                    steps(m["reached"]["0.01"]),
                    f"{pct(mean(m['rises']))}",
                    spread([s["top"] for s in spectra]),
                    spread(m["scale_free"], 0),
                    *(short(mean(k), 0) for k in kappas),
                    spread([s["zero"][0] for s in spectra], 1),
                ]
            )
    return grid((*headers, "κ, cut 1e-6", "1e-3", "1e-2", "zeros"), lines, words=2)


def margins(found: Results) -> str:
    """Every setting of experiment 3, at zero training error."""
    headers = ("setting", "network", "zero error at epoch", "test, %", "margin", "std/mean", "margin/slope")
    lines = []
    for label, r in of(found, "margins").items():
        for key, name in MODELS.items():
            m = r.found[key]["zero"]
            lines.append(
                [
                    label,
                    name,
                    steps(m["epoch"]),
                    spread([100 * v for v in m["test"]], 1),
                    spread(m["margin"]),
                    spread(m["narrow"]),
                    spread(m["distance"]),
                    spread(m["noise"]["raw"]["tolerance"], 3),
                    spread(m["noise"]["free"]["tolerance"], 3),
                ]
            )
    return grid((*headers, "raw noise kept", "relative noise kept"), lines, words=2)


def won(found: Results) -> str:
    """Experiment 3: how often BatchNorm is ahead, at every setting."""
    headers = ("setting", "raw margin", "margin/slope", "test accuracy", "relative noise")
    return grid(headers, [[label, *map(pct, shares)] for label, shares in verdicts_later.varied(found)], words=1)


def scales(found: Results) -> str:
    """Experiment 4 by scale: runs trained, and the median of their steps."""
    base = found["scales/base"].found
    headers = [
        "weights ×",
        *(f"{n}, head {w}" for n in MODELS.values() for w in ("× 1", "too")),
        "σ²/(σ² + ε), first layer",
    ]
    lines = []
    for scale in dict.fromkeys(r["scale"] for r in base["batch"]):
        cells = [results.cell(base[k], scale=scale, head=h) for k in MODELS for h in (False, True)]
        kept = short(mean(cells[0]["kept"]))
        lines.append([f"{scale:g}", *(_outcome(c) for c in cells), kept])
    return grid(headers, lines, words=0)


def scales_varied(found: Results) -> str:
    """Experiment 4 at every setting: shares of runs that train."""
    headers = ["setting"]
    for model in MODELS.values():
        headers += [f"{model}, {size}{head}" for size in ("small", "large") for head in ("", ", head too")]
    lines = []
    for label, r in of(found, "scales").items():
        cells = []
        for key in MODELS:
            for low, high in ((0.0, 0.5), (5.0, 1e9)):
                for head in (False, True):
                    rows = [row for row in r.found[key] if row["head"] == head and low < row["scale"] < high]
                    cells.append(pct(share(s >= 0 for row in rows for s in row["trained"])))
        broken = share(b == 1 for row in r.found["none"] if row["scale"] > 5 for b in row["broken"])
        lines.append([label, *cells, pct(broken)])
    return grid((*headers, "plain, large: NaN"), lines, words=1)


def _outcome(row: Any) -> str:
    broken = sum(row["broken"])
    return steps(row["trained"]) + (f", NaN {broken}" if broken else "")


if __name__ == "__main__":
    raise SystemExit(main())
