"""The figures, drawn from results: `python -m experiments.than2025.figures [RESULTS [OUT]]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from experiments import study
from experiments.plot import Line, Panel
from experiments.than2025 import panels, results
from experiments.than2025.findings import FINDINGS
from experiments.than2025.panels import Results, compare, end, present
from experiments.than2025.results import Result

FIGURES = Path(__file__).with_name("figures")
MAIN = {
    "ResNet-18": "nets/resnet18-adam",
    "ResNet-18, no decay": "optimizers/resnet18-adam-none",
    "MLP": "nets/mlp-adam",
}
EFFICIENT = {"EfficientNet-B3": "efficientnet/efficientnet_b3-adam"}
BELOW = {
    "ResNet, L2": "nets/resnet18-adam",
    "ResNet, no decay": "optimizers/resnet18-adam-none",
    "ResNet, SGD": "optimizers/resnet18-sgd",
    "EffNet, L2": "efficientnet/efficientnet_b3-adam",
    "EffNet, SGD": "efficientnet/efficientnet_b3-sgd",
}


def fig1(found: Results) -> list[Panel]:
    """Figure 1: weight norms of every layer, their product, accuracy; ResNet-18 and the MLP without normalization."""
    return [
        panel
        for name, run in present(found, MAIN).items()
        for panel in (panels.norms(name, run), panels.products(name, run), panels.accuracy(name, run))
    ]


def fig2(found: Results) -> list[Panel]:
    """Figure 2: variances before every normalizer or activation."""
    return [
        panel
        for name, run in present(found, MAIN).items()
        for panel in (panels.variances(name, run), panels.products(name, run), panels.below_one(name, run))
    ]


def fig3(found: Results) -> list[Panel]:
    """Figure 3: EfficientNet-B3."""
    return [
        panel
        for name, run in present(found, EFFICIENT).items()
        for panel in (
            panels.norms(name, run, frobenius=True),
            panels.variances(name, run),
            panels.products(name, run),
            panels.accuracy(name, run),
            panels.below_one(name, run),
            panels.reductions(name, run),
        )
    ]


def slide(found: Results) -> list[Panel]:
    """The slide's product of ‖γ/σ‖, and the other ways to make one number of σ."""
    wanted = {name: run for name, run in MAIN.items() if name != "MLP"} | EFFICIENT
    chosen = present(found, wanted).items()
    return [panels.reductions(name, run) for name, run in chosen] + [panels.products(name, run) for name, run in chosen]


def optimizers(found: Results) -> list[Panel]:
    """Each network under five optimizers."""
    names = {
        "Adam, L2 1e-4": "adam",
        "AdamW 1e-4": "adamw",
        "Adam, no decay": "adam-none",
        "SGD": "sgd",
        "AdamW 0.1": "adamw-strong",
    }
    made = []
    for title, net in {"ResNet-18": "resnet18", "MLP": "mlp", "EfficientNet-B3": "efficientnet_b3"}.items():
        runs = {
            label: f"{group}/{net}-{o}"
            for label, o in names.items()
            for group in ("nets", "optimizers", "efficientnet", "decay")
            if f"{group}/{net}-{o}" in found
        }
        made += compare(found, runs, title)
    return made


def norms(found: Results) -> list[Panel]:
    """Kinds of normalization."""
    kinds = ("batch", "layer", "group", "instance", "rms", "none")
    made = []
    for title, group, net in (
        ("ResNet-18", "norms", "resnet18"),
        ("ResNet-20", "resnet20-norms", "resnet20"),
        ("MLP", "mlp-norms", "mlp"),
    ):
        made += compare(found, {n: f"{group}/{net}-{n}" for n in kinds}, title)
    return made


def affine(found: Results) -> list[Panel]:
    """BatchNorm with gain and bias, the gain alone, and neither."""
    made = []
    for title, both in {"ResNet-18": "norms/resnet18-batch", "MLP": "mlp-norms/mlp-batch"}.items():
        net = both.split("/")[1].split("-")[0]
        runs = {"γ and β": both, "γ only": f"affine/{net}-gamma", "neither": f"affine/{net}-none"}
        made += compare(found, runs, title)
    return made


def groups(found: Results) -> list[Panel]:
    """GroupNorm with 1 to 256 groups of 512 features."""
    runs = {f"{n} group{'s' if n > 1 else ''}": f"groups/groups{n}" for n in (1, 4, 16, 64, 256)}
    return compare(found, runs, "MLP", floor=True)


def widths(found: Results) -> list[Panel]:
    """LayerNorm at widths 4 to 1024."""
    runs = {f"width {n}": f"widths/width{n}" for n in (4, 16, 64, 256, 1024)}
    return compare(found, runs, "MLP", floor=True)


def data(found: Results) -> list[Panel]:
    """The MLP on MNIST and Fashion-MNIST."""
    made = []
    for title, name in {"MNIST": "mnist", "Fashion-MNIST": "fashion_mnist"}.items():
        made += compare(found, {n: f"data/{name}-{n}" for n in ("none", "batch", "layer")}, title)
    return made


def sweeps(found: Results) -> list[Panel]:
    """Batch size, learning rate and initialization against the dynamics of σ: the MLP of width 256."""
    return _sweeps(found, "MLP", "mlp", "mlp-batch/batch128")


def sweeps20(found: Results) -> list[Panel]:
    """Batch size, learning rate and initialization against the dynamics of σ: ResNet-20."""
    return _sweeps(found, "ResNet-20", "resnet20", "resnet20-norms/resnet20-batch")


def _sweeps(found: Results, title: str, net: str, base: str) -> list[Panel]:
    sweep = {
        "batch": {"32": f"{net}-batch/batch32", "128": base, "512": f"{net}-batch/batch512"},
        "lr": {"1e-4": f"{net}-lr/lr0.0001", "1e-3": base, "1e-2": f"{net}-lr/lr0.01"},
        "init": {
            "He × 0.5": f"{net}-init/he-gain0.5",
            "He": base,
            "He × 2": f"{net}-init/he-gain2",
            "default": f"{net}-init-default/default",
        },
    }
    return [
        panel
        for what, runs in sweep.items()
        for panel in compare(found, runs, f"{title}, {what}", sigma=True)
        if any(name in found for name in set(runs.values()) - {base})
    ]


def count(found: Results) -> list[Panel]:
    """Number of normalizers at fixed depth and width, over seeds, against the gap: means and ranges."""
    runs: dict[int, list[Result]] = {}
    for run in found.values():
        if run.spec.group == "count":
            runs.setdefault(run.spec.normalizers, []).append(run)
    if not runs:
        return []

    def against(title: str, y: str, **values: Callable[[Result], float]) -> Panel:
        return panels.against(title, runs, {k.replace("_", " "): value for k, value in values.items()}, y)

    return [
        against("gap: train − test, last epoch", "%", gap=lambda r: end(r.gap())),
        against("gap when 50 % of train are right", "%", gap=lambda r: r.gap_at(0.5)),
        against("accuracy", "%", train=lambda r: end(r.score("train")), test=lambda r: end(r.score("test"))),
        panels.against(
            f"products ({panels.GAUGED})",
            runs,
            {
                "P_w": lambda r: end(r.total("log10_P_w")),
                "Π1/σ, rms": lambda r: end(r.total("log10_prod_inv_sigma_rms")),
            },
            "log",
        ),
        against("balanced bound at the samples", "log", bound=lambda r: end(r.reading("point"))),
        against("data Jacobian", "log", slope=lambda r: end(r.log_total("jacobian_max"))),
    ]


def below(found: Results) -> list[Panel]:
    """Normalizers with σ < 1 over time, against the gap: ResNet-18 and EfficientNet-B3."""
    chosen = present(found, BELOW)
    if not chosen:
        return []

    def panel(title: str, curve: Callable[[Result], results.Curve], y: str) -> Panel:
        made = {name: curve(run) for name, run in chosen.items()}
        few = {name for name, points in made.items() if chosen[name].read_at(points)}
        return Panel(
            title, tuple(Line(n, points, k, marks=n in few) for k, (n, points) in enumerate(made.items())), y=y
        )

    return [
        panel("share of normalizers with σ < 1", Result.share_below_one, "%"),
        panel("gap: train − test accuracy", Result.gap, "%"),
        panel(f"P_w ({panels.GAUGED})", lambda r: r.total("log10_P_w"), "log"),
        panel(f"Π1/σ, rms ({panels.GAUGED})", lambda r: r.total("log10_prod_inv_sigma_rms"), "log"),
        panel("balanced bound at the samples", lambda r: r.reading("point"), "log"),
        panel("data Jacobian", lambda r: r.log_total("jacobian_max"), "log"),
    ]


ALL: dict[str, Callable[[Results], list[Panel]]] = {
    f.__name__: f
    for f in (fig1, fig2, fig3, slide, optimizers, norms, affine, groups, widths, data, sweeps, sweeps20, count, below)
}

# the groups of runs, and single runs, each of them needs
NEEDS: dict[str, tuple[str, ...]] = {
    "fig1": tuple(MAIN.values()),
    "fig2": tuple(MAIN.values()),
    "fig3": tuple(EFFICIENT.values()),
    "slide": ("nets/resnet18-adam", "optimizers/resnet18-adam-none", *EFFICIENT.values()),
    "optimizers": ("nets", "optimizers", "efficientnet", "decay"),
    "norms": ("norms", "mlp-norms", "resnet20-norms"),
    "affine": ("affine", "norms/resnet18-batch", "mlp-norms/mlp-batch"),
    "groups": ("groups",),
    "widths": ("widths",),
    "data": ("data",),
    "sweeps": ("mlp-batch", "mlp-lr", "mlp-init", "mlp-init-default"),
    "sweeps20": (
        *("resnet20-batch", "resnet20-lr", "resnet20-init", "resnet20-init-default"),
        "resnet20-norms/resnet20-batch",
    ),
    "count": ("count",),
    "below": tuple(BELOW.values()),
}


def main(argv: list[str] | None = None) -> int:
    """Draw every figure whose runs are there.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    args = study.figure_arguments(argv, __doc__, [*ALL], results.FOLDER, FIGURES)
    told = FINDINGS if args.results == results.FOLDER else {}
    for name, path in draw(results.load(args.results), args.out, args.only, told).items():
        print(f"{name}: {path or 'its runs are not there'}")
    return 0


def draw(
    found: Results, out: Path, names: list[str], findings: Mapping[str, str] | None = None
) -> dict[str, Path | None]:
    """Write NAME.svg for each figure; None for one whose runs are not there."""
    return study.draw_figures(ALL, found, out, names, findings or {})


if __name__ == "__main__":
    raise SystemExit(main())
