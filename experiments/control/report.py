"""Tables and figure of docs/control.md from the results.

python -m experiments.control.report
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from experiments.control.cifar import chosen as cifar_chosen
from experiments.control.language import chosen as language_chosen
from experiments.control.methods import OURS, WORDS
from experiments.plot import Line, Panel, figure

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
IMAGES = 5  # of CIFAR-10, on which radii are certified
COLUMNS = {
    "test": ("accuracy", 100.0, "{:.1f} %"),
    "log10_upper": ("log10 proved bound", 1.0, "{:.2f}"),
    "global_radius": ("radius by the bound", 1.0, "{:.3f}"),
    "median_radius": ("certified radius", 1.0, "{:.3f}"),
    "pgd_accuracy": ("accuracy under attack", 100.0, "{:.1f} %"),
}
DRAWN = {
    "none": "none",
    "decay": "decay",
    "spectral": "spectral_norm",
    "unfolded": "σ²",
    "muon": "Muon",
    "penalty": "penalty",
    "layers": "by layer",
    "cap": "cap",
}
"""Ways in the figure, with words short enough for two rows of a legend; one colour each."""


def digits_table(found: dict[str, Any]) -> str:
    """One row a way: means over the seeds, with the smallest and largest accuracy."""
    head = " | ".join(name for name, _, _ in COLUMNS.values())
    lines = [f"| way | strength | seeds | {head} |", "|" + " --- |" * (3 + len(COLUMNS))]
    for method in {row["method"]: None for row in found["seeds"]}:
        own = [row for row in found["seeds"] if row["method"] == method]
        cells = [
            form.format(scale * statistics.fmean(row[key] for row in own)) for key, (_, scale, form) in COLUMNS.items()
        ]
        strength = f"{own[0]['strength']:g}" if own[0]["strength"] else f"lr {own[0]['lr']:g}"
        lines.append(f"| {WORDS[method]} | {strength} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rates_table(found: dict[str, Any]) -> str:
    """Validation accuracy at each learning rate."""
    rates = sorted({row["lr"] for row in found["rates"]})
    lines = ["| way | " + " | ".join(f"{lr:g}" for lr in rates) + " |", "|" + " --- |" * (1 + len(rates))]
    for method in {row["method"]: None for row in found["rates"]}:
        own = {row["lr"]: row["valid"] for row in found["rates"] if row["method"] == method}
        lines.append(f"| {WORDS[method]} | " + " | ".join(f"{100 * own[lr]:.1f}" for lr in rates) + " |")
    return "\n".join(lines)


def final_rows(rows: list[dict[str, Any]], chosen: dict[str, Any]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The fresh seeds of each finalist, and the chosen setting of every way that has none."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["part"] == "seeds":
            found.setdefault(_setting(row), []).append(row)
    known = {setting[0] for setting in found}
    return found | {_setting(row): [row] for method, row in chosen.items() if method not in known}


def cifar_table(rows: list[dict[str, Any]], radii: list[dict[str, Any]]) -> str:
    """Means over the fresh seeds of the finalists, and the chosen setting of every other way."""
    names = ("log10 folded bound", "log10 radius", "certified radius", "attack 0.5", "attack 1")
    lines = ["| way | strength | rate | seeds | accuracy | " + " | ".join(names) + " |", "|" + " --- |" * 10]
    for (method, strength, lr), own in final_rows(rows, cifar_chosen(rows)).items():
        mean = {k: statistics.fmean(row[k] for row in own) for k in ("test", "log10_cap", "pgd_0.5", "pgd_1.0")}
        radius = statistics.fmean(math.log10(r["margin"] / math.sqrt(2)) - r["log10_cap"] for r in own)
        proved = [row["radius"] for row in radii if _setting(row) == (method, strength, lr)]
        certified = f"{statistics.median(proved):.1e}" if len(proved) == IMAGES else ""
        figures = f"{100 * mean['test']:.2f} % | {mean['log10_cap']:.2f} | {radius:.2f} | {certified}"
        attacks = f"{100 * mean['pgd_0.5']:.1f} % | {100 * mean['pgd_1.0']:.1f} %"
        shown = f"{strength:g}" if strength and method != "muon" else ""
        lines.append(f"| {WORDS[method]} | {shown} | {lr:g} | {len(own)} | {figures} | {attacks} |")
    return "\n".join(lines)


def _setting(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["method"], row["strength"], row["lr"]


def language_table(rows: list[dict[str, Any]]) -> str:
    """Means as for CIFAR-10, and the held out loss at every rate that was tried in tuning."""
    tuned = [row for row in rows if row["part"] == "tune"]
    rates = sorted({row["lr"] for row in tuned})
    head = " | ".join(f"rate {lr:g}" for lr in rates)
    lines = [
        f"| way | strength | rate | seeds | test loss | log10 folded bound | a block | {head} |",
        "|" + " --- |" * (7 + len(rates)),
    ]
    for (method, strength, lr), own in final_rows(rows, language_chosen(rows)).items():
        losses = [[r["valid"] for r in tuned if (r["method"], r["lr"]) == (method, rate)] for rate in rates]
        tried = " | ".join(f"{min(found):.2f}" if found else "" for found in losses)
        loss, folded = (statistics.fmean(row[key] for row in own) for key in ("test", "log10_folded"))
        figures = f"{len(own)} | {loss:.3f} | {folded:.1f} | {folded / own[0]['depth']:.2f}"
        lines.append(f"| {WORDS[method]} | {f'{strength:g}' if strength else ''} | {lr:g} | {figures} | {tried} |")
    return "\n".join(lines)


def blind_table(rows: list[dict[str, Any]]) -> str:
    """The same columns as for digits, with the settings that the search found."""
    seeds = [row | {"strength": row["setting"]} for row in rows if row["part"] == "seeds"]
    return digits_table({"seeds": seeds})


def read_lines(name: str) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines among the results."""
    return [json.loads(line) for line in (HERE / "results" / name).read_text().splitlines()]


def panels(found: dict[str, Any]) -> list[Panel]:
    """Accuracy and certified radius against the proved bound, a mark a network."""
    made = []
    for key, title, scale in (("test", "accuracy, %", 100.0), ("median_radius", "certified radius", 1.0)):
        lines = []
        for hue, (method, word) in enumerate(DRAWN.items()):
            own = [(row["log10_upper"], scale * row[key]) for row in found["seeds"] if row["method"] == method]
            lines.append(Line(word, tuple(own), hue, marks=True, joined=False, dashed=method not in OURS))
        made.append(Panel(title, tuple(lines), "log10 of the proved bound"))
    return made


def replaced(page: str, name: str, text: str) -> str:
    """The page with what stands between two marks replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}" if rest else page


def main() -> None:
    """Write the tables into the page and the figure beside it."""
    found = json.loads((HERE / "results" / "digits.json").read_text())
    page = DOCS / "control.md"
    text = replaced(page.read_text(), "digits", digits_table(found))
    if "rates" in found:
        text = replaced(text, "rates", rates_table(found))
    text = replaced(text, "blind", blind_table(json.loads((HERE / "results" / "blind.json").read_text())))
    text = replaced(text, "cifar", cifar_table(read_lines("cifar.jsonl"), read_lines("cifar-radii.jsonl")))
    text = replaced(text, "language", language_table(read_lines("language.jsonl")))
    page.write_text(text)
    below = "digits, eight ways of the table, one mark a network"
    drawn = figure("Smaller bounds, larger radii", panels(found), columns=2, below=below)
    (DOCS / "images" / "control.svg").write_text(drawn)


if __name__ == "__main__":
    main()
