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
COLUMNS = {
    "test": ("accuracy", 100.0, "{:.1f} %"),
    "log10_upper": ("log10 proved bound", 1.0, "{:.2f}"),
    "global_radius": ("radius by the bound", 1.0, "{:.3f}"),
    "median_radius": ("certified radius", 1.0, "{:.3f}"),
    "pgd_accuracy": ("accuracy under attack", 100.0, "{:.1f} %"),
}


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


def cifar_table(rows: list[dict[str, Any]]) -> str:
    """Means over the fresh seeds of the finalists, and the chosen setting of every other way."""
    seeds = [row for row in rows if row["part"] == "seeds"]
    means = {m: [row for row in seeds if row["method"] == m] for m in {row["method"]: None for row in seeds}}
    means |= {m: [row] for m, row in cifar_chosen(rows).items() if m not in means}
    lines = [
        "| way | strength | rate | seeds | accuracy | log10 folded bound | log10 radius | attack 0.5 | attack 1 |",
        "|" + " --- |" * 9,
    ]
    for method, own in means.items():
        mean = {k: statistics.fmean(row[k] for row in own) for k in ("test", "log10_cap", "pgd_0.5", "pgd_1.0")}
        radius = statistics.fmean(math.log10(r["margin"] / math.sqrt(2)) - r["log10_cap"] for r in own)
        figures = f"{100 * mean['test']:.1f} % | {mean['log10_cap']:.2f} | {radius:.2f}"
        attacks = f"{100 * mean['pgd_0.5']:.1f} % | {100 * mean['pgd_1.0']:.1f} %"
        setting = f"{own[0]['strength']:g}" if own[0]["strength"] else ""
        lines.append(f"| {WORDS[method]} | {setting} | {own[0]['lr']:g} | {len(own)} | {figures} | {attacks} |")
    return "\n".join(lines)


def language_table(rows: list[dict[str, Any]]) -> str:
    """The chosen setting of every way, and the loss at every rate of its strength."""
    rates = sorted({row["lr"] for row in rows})
    head = " | ".join(f"rate {lr:g}" for lr in rates)
    lines = [
        f"| way | strength | rate | test loss | log10 folded bound | a block | {head} |",
        "|" + " --- |" * (6 + len(rates)),
    ]
    for method, row in language_chosen(rows).items():
        own = [r for r in rows if r["method"] == method]
        losses = [[r["valid"] for r in own if r["lr"] == lr] for lr in rates]
        tried = " | ".join(f"{min(found):.2f}" if found else "" for found in losses)
        strength = f"{row['strength']:g}" if row["strength"] else ""
        figures = f"{row['test']:.3f} | {row['log10_folded']:.1f} | {row['log10_folded'] / row['depth']:.2f}"
        lines.append(f"| {WORDS[method]} | {strength} | {row['lr']:g} | {figures} | {tried} |")
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
        for hue, method in enumerate({row["method"]: None for row in found["seeds"] if row["method"] != "layer_norm"}):
            own = [(row["log10_upper"], scale * row[key]) for row in found["seeds"] if row["method"] == method]
            ours = method in OURS
            lines.append(Line(WORDS[method], tuple(own), hue % 8, marks=True, joined=False, dashed=not ours))
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
    text = replaced(text, "cifar", cifar_table(read_lines("cifar.jsonl")))
    text = replaced(text, "language", language_table(read_lines("language.jsonl")))
    page.write_text(text)
    drawn = figure("Smaller bounds, larger radii", panels(found), columns=2, below="digits, one mark a network")
    (DOCS / "images" / "control.svg").write_text(drawn)


if __name__ == "__main__":
    main()
