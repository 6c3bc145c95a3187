"""The figures, drawn from results: `python -m experiments.generalization.figures [--results DIR] [--out DIR]`."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path

from experiments.generalization.report import SETS, ratios
from experiments.generalization.results import FOLDER, Result, groups, load
from experiments.plot import Line, Panel, figure

FIGURES = Path(__file__).with_name("figures")
HUES = {"none": 1, "batch": 0, "layer": 2}
COLUMNS = {"local": 4}
NAMES = {"none": "no norm", "batch": "BatchNorm", "layer": "LayerNorm"}


def main(argv: list[str] | None = None) -> int:
    """Draw what there are results for.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        0.
    """
    parser = argparse.ArgumentParser(prog="experiments.generalization.figures", description=__doc__)
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=FIGURES)
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, (title, panels) in DRAWN.items():
        found = load(name, args.results)
        if found:
            (args.out / f"{name}.svg").write_text(
                figure(title, panels(found), columns=COLUMNS.get(name, 3)), encoding="utf-8"
            )
    return 0


def disagreement(found: list[Result]) -> list[Panel]:
    """Bound, hold-out bound and true error, one panel a data set."""
    made = []
    for (name,), own in groups(found, "data").items():
        ticks = tuple((float(k), f"seed {r.settings['seed']}") for k, r in enumerate(own))

        def line(label: str, values: list[float], hue: int) -> Line:
            return Line(label, tuple((float(k), v) for k, v in enumerate(values)), hue, marks=True, joined=False)

        lines = (
            line("disagreement", [r.found["certificate"]["bound"] for r in own], 0),
            line("hold-out (test labels)", [r.found["holdout"] for r in own], 2),
            line("test error", [r.found["truth"]["error"] for r in own], 5),
        )
        title = f"{SETS.get(name, name)}, δ = {own[0].settings['delta']:g}"
        made.append(Panel(title, lines, x="", y="%", rules=((0.0, ""),), ticks=ticks))
    return made


def local(found: list[Result]) -> list[Panel]:
    """The gap over four constants, one dot a network."""
    radii = found[0].settings["radii"]
    middle = len(radii) // 2
    axes: tuple[tuple[str, Callable[[dict[str, float]], float]], ...] = (
        ("log₁₀ global constant, proved", lambda n: n["global"]),
        (f"log₁₀ constant in a ball of {radii[middle]:g}, proved", lambda n: n["balls"][middle]),  # type: ignore[index]
        ("log₁₀ constant at the samples, proved", lambda n: n["point"]),
        ("log₁₀ mean Jacobian at samples", lambda n: n["jacobian_mean"]),
    )
    made = []
    for (name,), own in groups(found, "data").items():
        for title, axis in axes:
            lines = tuple(
                Line(
                    NAMES[norm],
                    tuple((axis(n), n["gap"]) for r in same for n in r.found["nets"]),
                    HUES[norm],
                    marks=True,
                    joined=False,
                )
                for (norm,), same in groups(own, "norm").items()
            )
            made.append(Panel(f"{SETS.get(name, name)}: gap", lines, x=title, y="%"))
    return made


def samples(found: list[Result]) -> list[Panel]:
    """Test error, gap and the ratio of sample sizes over the number of samples."""
    made = []
    for (name, net), own in groups(found, "data", "net").items():
        norms = groups(own, "norm")
        sizes = [row["m"] for row in own[0].found["sizes"]]
        ticks = tuple((math.log10(m), f"{m:,}") for m in sizes[::2])
        for word, key in (("test error", "test_error"), ("gap", "gap")):
            lines = tuple(_mean(norm, same, key) for (norm,), same in norms.items())
            made.append(
                Panel(f"{SETS.get(name, name)}, {net}: {word}", lines, x="training samples", y="log", ticks=ticks)
            )
        plain = norms.get(("none",), [])
        lines = tuple(
            Line(NAMES[norm], tuple((math.log10(m), x) for m, x in ratios(plain, same)), HUES[norm], marks=True)
            for (norm,), same in norms.items()
            if norm != "none" and plain
        )
        title = f"{SETS.get(name, name)}, {net}: times fewer samples"
        made.append(Panel(title, lines, x="samples of the plain network", ticks=ticks, rules=((1.0, "as many"),)))
    return made


def _mean(norm: str, same: list[Result], key: str) -> Line:
    """Mean over seeds with whiskers from the lowest to the highest, in logarithms."""
    columns = list(zip(*(r.found["sizes"] for r in same), strict=False))
    kept = [(c[0]["m"], [row[key] for row in c]) for c in columns if all(row[key] > 0 for row in c)]
    points = tuple((math.log10(m), math.log10(statistics.fmean(v))) for m, v in kept)
    band = tuple((math.log10(m), math.log10(min(v)), math.log10(max(v))) for m, v in kept)
    return Line(NAMES[norm], points, HUES[norm], marks=True, band=band)


def adversarial(found: list[Result]) -> list[Panel]:
    """Mean Jacobian, proved global constant and gap over the size of the attack."""
    made = []
    for (name, net), own in groups(found, "data", "net").items():
        for word, key, y in (
            ("mean Jacobian", "jacobian_mean", "log"),
            ("global constant, proved", "global", "log"),
            ("gap", "gap", "%"),
        ):
            lines = tuple(_attacked(norm, same, key) for (norm,), same in groups(own, "norm").items())
            made.append(Panel(f"{SETS.get(name, name)}, {net}: {word}", lines, x="size of the attack in training", y=y))
    return made


def _attacked(norm: str, same: list[Result], key: str) -> Line:
    columns = list(zip(*(r.found["nets"] for r in same), strict=True))
    points = tuple((c[0]["attack"], statistics.fmean(row[key] for row in c)) for c in columns)
    band = tuple((c[0]["attack"], min(row[key] for row in c), max(row[key] for row in c)) for c in columns)
    return Line(NAMES[norm], points, HUES[norm], marks=True, band=band)


DRAWN: dict[str, tuple[str, Callable[[list[Result]], list[Panel]]]] = {
    "disagreement": (
        "Certificates of unmodified networks trained on all the data, against their true error",
        disagreement,
    ),
    "local": ("Which Lipschitz constant follows the gap?", local),
    "samples": ("Error and gap against the number of training samples", samples),
    "adversarial": ("Lipschitz constants of networks trained on attacked images", adversarial),
}

if __name__ == "__main__":
    raise SystemExit(main())
