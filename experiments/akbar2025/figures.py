"""The figures, drawn from results: `python -m experiments.akbar2025.figures [RESULTS [OUT]]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from experiments import study
from experiments.akbar2025 import figures_more, panels, results
from experiments.akbar2025.findings import FINDINGS
from experiments.akbar2025.results import Results, of
from experiments.plot import Line, Panel

FIGURES = Path(__file__).with_name("figures")


def fig51(found: Results) -> list[Panel]:
    """Figure 5.1: the loss over the plane of w with and without BatchNorm."""
    told = found["plane/base"].found
    return [
        panels.loss_contours("without BatchNorm: w₂ over w₁", told["contours"], "none", told["normal"]),
        panels.loss_contours("with BatchNorm, γ = 2: rays", told["contours"], "batch", told["normal"]),
    ]


def fig81(found: Results) -> list[Panel]:
    """Figure 8.1: paths of w in experiment 1, losses and gradient norms in experiment 2."""
    made = []
    if of(found, "plane"):
        models = found["plane/base"].found["models"]
        chosen = ((0.1, (0.1, 1.0)), (1.0, (1.0, 10.0)))
        made += [panels.paths(f"paths of w, η = {lr:g}: w₂ over w₁", models, norms, lr) for lr, norms in chosen]
    if of(found, "regression"):
        told = found["regression/base"].found
        lr = found["regression/base"].settings["lr"]
        made += [
            panels.curves(f"three layers of ten, η = {lr:g}: loss", told, "loss"),
            panels.curves("gradient norm", told, "gradient"),
        ]
    return made


def fig82(found: Results) -> list[Panel]:
    """Figure 8.2: margins and weight noise in experiment 3, at zero training error."""
    told = found["margins/base"].found
    models = {m: told[m]["zero"] for m in ("batch", "none")}
    raw = {"BatchNorm": ("batch", "raw", False), "plain": ("none", "raw", False)}
    raw |= {"BatchNorm, W₁ × 10": ("batch", "x10", True), "W₁ × 0.1": ("batch", "x0.1", True)}
    free = {"BatchNorm": ("batch", "free", False), "plain": ("none", "free", False)}
    return [
        panels.histogram("raw margins", told["edges"], {m: v["histogram"] for m, v in models.items()}, "y f(x)"),
        panels.histogram(
            "margins over slopes",
            told["edges_slope"],
            {m: v["histogram_slope"] for m, v in models.items()},
            "y f(x) / ‖∇f(x)‖",
        ),
        panels.shaken("training accuracy, raw weight noise", told, raw, "standard deviation"),
        panels.shaken("training accuracy, relative weight noise", told, free, "standard deviation over rms weight"),
    ]


def gradients(found: Results) -> list[Panel]:
    """Gradient norms of experiment 2 at every learning rate."""
    units = of(found, "regression")
    rates = sorted(
        (r.settings["lr"], label) for label, r in units.items() if label == "base" or label.startswith("lr-")
    )
    return [panels.curves(f"gradient norm, η = {lr:g}", units[label].found, "gradient") for lr, label in rates]


def badinit(found: Results) -> list[Panel]:
    """Experiment 4: share of runs that train, and their steps, by the scale of the weights."""
    base = found["scales/base"].found
    scales = list(dict.fromkeys(r["scale"] for r in base["batch"]))
    made = []
    for title, key in (("share of runs that train", "share"), ("steps to 95 % (median of those that train)", "steps")):
        lines = []
        for model in ("batch", "none"):
            for head in (False, True):
                rows = [results.cell(base[model], scale=s, head=head)["trained"] for s in scales]
                if key == "share":
                    values = [results.share(v >= 0 for v in row) for row in rows]
                else:
                    values = [panels.log(results.median([v for v in row if v > 0])) for row in rows]
                label = f"{panels.NAMES[model]}{', head too' if head else ''}"
                points = tuple((panels.log(s), v) for s, v in zip(scales, values, strict=True))
                lines.append(Line(label, points, panels.HUES[model], dashed=head, marks=True))
        y = "%" if key == "share" else "log"
        made.append(Panel(title, tuple(lines), x="weights ×", y=y, ticks=panels.ticks(scales)))
    return made


ALL: dict[str, Callable[[Results], list[Panel]]] = {
    "fig5.1": fig51,
    "fig8.1": fig81,
    "fig8.2": fig82,
    "gradients": gradients,
    "badinit": badinit,
    **figures_more.MORE,
}
# the experiments each of them needs
NEEDS: dict[str, tuple[str, ...]] = {
    "fig5.1": ("plane",),
    "fig8.1": ("plane", "regression"),
    "fig8.2": ("margins",),
    "gradients": ("regression",),
    "badinit": ("scales",),
    **{name: (name,) for name in figures_more.MORE},
}


def main(argv: list[str] | None = None) -> int:
    """Draw every figure whose results are there.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    args = study.figure_arguments(argv, __doc__, [*ALL], results.FOLDER, FIGURES)
    told = FINDINGS if args.results == results.FOLDER else {}
    for name, path in draw(results.load(args.results), args.out, args.only, told).items():
        print(f"{name}: {path or 'its results are not there'}")
    return 0


def draw(
    found: Results, out: Path, names: list[str], findings: Mapping[str, str] | None = None
) -> dict[str, Path | None]:
    """Write NAME.svg for each figure; None for one whose results are not there."""
    there = [name for name in names if all(of(found, experiment) for experiment in NEEDS[name])]
    drawn = study.draw_figures(ALL, found, out, there, findings or {}, columns=2)
    return {name: drawn.get(name) for name in names}


if __name__ == "__main__":
    raise SystemExit(main())
