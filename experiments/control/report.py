"""Tables and figure of docs/control.md from the results.

python -m experiments.control.report
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

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
    page.write_text(text)
    drawn = figure("Smaller bounds, larger radii", panels(found), columns=2, below="digits, one mark a network")
    (DOCS / "images" / "control.svg").write_text(drawn)


if __name__ == "__main__":
    main()
