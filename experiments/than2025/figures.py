"""The figures, drawn from results: `python -m experiments.than2025.figures [RESULTS [OUT]]`."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.plot import Line, Panel, figure
from experiments.than2025 import results
from experiments.than2025.results import Curve, Result

FIGURES = Path(__file__).with_name("figures")
GAUGED = "gauge-dependent"
Results = Mapping[str, Result]


def fig1(found: Results) -> str | None:
    """Figure 1: weight norms of every layer, their product, accuracy; ResNet-18 and the MLP without normalization."""
    chosen = _present(found, {"ResNet-18": "nets/resnet18-adam", "MLP": "nets/mlp-adam"})
    panels = [
        p for name, run in chosen.items() for p in (_norms(name, run), _products(name, run), _accuracy(name, run))
    ]
    return _draw("Than 2025, figure 1: weight norms, their product, and what it says about the function", panels)


def fig2(found: Results) -> str | None:
    """Figure 2: variances before every normalizer or activation."""
    chosen = _present(found, {"ResNet-18": "nets/resnet18-adam", "MLP": "nets/mlp-adam"})
    panels = [
        p for name, run in chosen.items() for p in (_variances(name, run), _products(name, run), _below(name, run))
    ]
    return _draw("Than 2025, figure 2: variances before each normalizer or activation", panels)


def fig3(found: Results) -> str | None:
    """Figure 3: EfficientNet-B3."""
    chosen = _present(found, {"EfficientNet-B3": "efficientnet/efficientnet_b3-adam"})
    panels = [
        p
        for name, run in chosen.items()
        for p in (
            _norms(name, run),
            _variances(name, run),
            _products(name, run),
            _accuracy(name, run),
            _below(name, run),
        )
    ]
    return _draw("Than 2025, figure 3: EfficientNet-B3", panels)


def slide(found: Results) -> str | None:
    """The slide's product of ‖γ/σ‖, and the other ways to make one number of σ."""
    chosen = _present(
        found, {"ResNet-18": "nets/resnet18-adam", "EfficientNet-B3": "efficientnet/efficientnet_b3-adam"}
    )
    panels = [p for name, run in chosen.items() for p in (_reductions(name, run), _products(name, run))]
    return _draw("Π‖γ/σ‖ of the slide (1.35e-8) and Π1/σ of the paper (1e-25), in every reduction", panels, columns=2)


def optimizers(found: Results) -> str | None:
    """One network, four optimizers."""
    names = {
        "Adam, L2": "adam",
        "AdamW 1e-4": "adamw",
        "no decay": "adam-none",
        "SGD": "sgd",
        "AdamW 0.1": "adamw-strong",
    }
    panels = []
    for title, net in {"ResNet-18": "resnet18", "MLP": "mlp", "EfficientNet-B3": "efficientnet_b3"}.items():
        groups = ("nets", "optimizers", "efficientnet", "decay")
        runs = {
            label: f"{group}/{net}-{o}"
            for label, o in names.items()
            for group in groups
            if f"{group}/{net}-{o}" in found
        }
        panels += _compare(found, runs, title)
    return _draw("The same network under other optimizers", panels)


def norms(found: Results) -> str | None:
    """Kinds of normalization."""
    panels = []
    for title, group, net in (
        ("ResNet-18", "norms", "resnet18"),
        ("ResNet-20", "resnet20-norms", "resnet20"),
        ("MLP", "mlp-norms", "mlp"),
    ):
        panels += _compare(
            found, {n: f"{group}/{net}-{n}" for n in ("batch", "layer", "group", "instance", "rms", "none")}, title
        )
    return _draw("Kinds of normalization", panels)


def affine(found: Results) -> str | None:
    """With gain and bias, the gain alone, and neither."""
    panels = []
    for title, both in {"ResNet-18": "norms/resnet18-batch", "MLP": "mlp-norms/mlp-batch"}.items():
        net = both.split("/")[1].split("-")[0]
        panels += _compare(
            found, {"γ and β": both, "γ only": f"affine/{net}-gamma", "neither": f"affine/{net}-none"}, title
        )
    return _draw("BatchNorm with and without γ and β", panels)


def groups(found: Results) -> str | None:
    """GroupNorm with 1 to 256 groups of 512 features."""
    runs = {f"{n} group{'s' if n > 1 else ''}": f"groups/groups{n}" for n in (1, 4, 16, 64, 256)}
    return _draw("GroupNorm in an MLP of width 512, by number of groups", _compare(found, runs, "MLP"))


def widths(found: Results) -> str | None:
    """LayerNorm at widths 4 to 1024."""
    runs = {f"width {n}": f"widths/width{n}" for n in (4, 16, 64, 256, 1024)}
    return _draw("LayerNorm in an MLP of depth 10, by width", _compare(found, runs, "MLP"))


def data(found: Results) -> str | None:
    """MNIST and Fashion-MNIST."""
    panels = []
    for title, name in {"MNIST": "mnist", "Fashion-MNIST": "fashion_mnist"}.items():
        panels += _compare(found, {n: f"data/{name}-{n}" for n in ("none", "batch", "layer")}, title)
    return _draw("The MLP on MNIST and Fashion-MNIST", panels)


def sweeps(found: Results) -> str | None:
    """Batch size, learning rate and initialization against the dynamics of σ."""
    panels = []
    for title, net, base in (
        ("MLP", "mlp", "mlp-batch/batch128"),
        ("ResNet-20", "resnet20", "resnet20-norms/resnet20-batch"),
    ):
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
        for what, runs in sweep.items():
            panels += _compare(found, runs, f"{title}, {what}", sigma=True)
    return _draw("Batch size, learning rate and initialization", panels)


def count(found: Results) -> str | None:
    """Number of normalizers at fixed depth and width, over seeds, against the gap."""
    panels = []
    for title, group in {"BatchNorm": "count", "LayerNorm": "count-layer"}.items():
        runs: dict[int, list[Result]] = {}
        for run in found.values():
            if run.spec.group == group or (
                group == "count-layer" and run.spec.group == "count" and not run.spec.normalizers
            ):
                runs.setdefault(run.spec.normalizers, []).append(run)
        if any(run.spec.group == group for some in runs.values() for run in some):
            panels += [
                _against(title, "train − test accuracy", runs, lambda r: r.gap()[-1][1]),
                _against(title, "test accuracy", runs, lambda r: r.score("test")[-1][1]),
                _against(title, "P_w, log10", runs, lambda r: r.total("log10_P_w")[-1][1]),
                _against(title, "Π1/σ rms, log10", runs, lambda r: r.total("log10_prod_inv_sigma_rms")[-1][1]),
                _against(title, "balanced bound at samples, log10", runs, lambda r: _end(r.reading("point"))),
                _against(title, "data Jacobian, log10", runs, lambda r: _end(r.log_total("jacobian_max"))),
            ]
    return _draw("How many of nine hidden layers are normalized: mean and range over seeds", panels)


def below(found: Results) -> str | None:
    """Normalizers with σ < 1 over time, against the gap."""
    chosen = _present(
        found,
        {
            "ResNet-18, Adam": "nets/resnet18-adam",
            "no decay": "optimizers/resnet18-adam-none",
            "SGD": "optimizers/resnet18-sgd",
            "EfficientNet-B3, Adam": "efficientnet/efficientnet_b3-adam",
        },
    )
    if not chosen:
        return None
    share = tuple(Line(n, _share(r), k) for k, (n, r) in enumerate(chosen.items()))
    gaps = tuple(Line(n, r.gap(), k) for k, (n, r) in enumerate(chosen.items()))
    plane = tuple(
        Line(n, tuple((a, b) for (_, a), (_, b) in zip(_share(r), r.gap(), strict=True)), k, marks=False)
        for k, (n, r) in enumerate(chosen.items())
    )
    panels = [
        Panel("share of normalizers with σ < 1", share),
        Panel("train − test accuracy", gaps),
        Panel("one against the other, over the epochs", plane, "share with σ < 1", "train − test accuracy"),
    ]
    return _draw("Normalizers with σ < 1 and the generalization gap", panels)


ALL: dict[str, Callable[[Results], str | None]] = {
    f.__name__: f
    for f in (fig1, fig2, fig3, slide, optimizers, norms, affine, groups, widths, data, sweeps, count, below)
}

# the groups of runs each of them needs
NEEDS: dict[str, tuple[str, ...]] = {
    "fig1": ("nets",),
    "fig2": ("nets",),
    "fig3": ("efficientnet",),
    "slide": ("nets", "efficientnet"),
    "optimizers": ("nets", "optimizers", "decay"),
    "norms": ("norms", "mlp-norms", "resnet20-norms"),
    "affine": ("affine", "norms", "mlp-norms"),
    "groups": ("groups",),
    "widths": ("widths",),
    "data": ("data",),
    "sweeps": (
        *(f"{net}-{what}" for net in ("mlp", "resnet20") for what in ("batch", "lr", "init", "init-default")),
        "resnet20-norms",
    ),
    "count": ("count", "count-layer"),
    "below": ("nets", "optimizers", "efficientnet"),
}


def main(argv: list[str] | None = None) -> int:
    """Draw every figure whose runs are there.

    Args:
        argv: the arguments, those of the process where None.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="experiments.than2025.figures", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=results.FOLDER)
    parser.add_argument("out", nargs="?", type=Path, default=FIGURES)
    parser.add_argument("--only", nargs="*", choices=[*ALL], default=[*ALL])
    args = parser.parse_args(argv)
    for name, path in draw(results.load(args.results), args.out, args.only).items():
        print(f"{name}: {path or 'its runs are not there'}")
    return 0


def draw(found: Results, out: Path, names: list[str]) -> dict[str, Path | None]:
    """Write NAME.svg for each figure; None for one whose runs are not there."""
    out.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path | None] = {}
    for name in names:
        picture = ALL[name](found)
        written[name] = None if picture is None else out / f"{name}.svg"
        if picture is not None:
            (out / f"{name}.svg").write_text(picture, encoding="utf-8")
    return written


def _draw(title: str, panels: list[Panel], columns: int = 3) -> str | None:
    return figure(title, panels, columns=columns) if panels else None


def _present(found: Results, wanted: Mapping[str, str]) -> dict[str, Result]:
    return {label: found[name] for label, name in wanted.items() if name in found}


def _norms(name: str, run: Result) -> Panel:
    """‖W_k‖ of every layer; the first and the last are named."""
    layers = run.data["names"]["matrices"]
    return Panel(f"{name}: ‖W‖ by layer ({GAUGED})", _ramp(run, "norm", layers, None), y="log10")


def _variances(name: str, run: Result) -> Panel:
    """σ² = 2 log10 σ (rms over channels), batch statistics."""
    sites = run.data["names"]["sites"]
    lines = tuple(
        Line(line.label, tuple((x, 2 * y) for x, y in line.points), line.hue, ramp=True)
        for line in _ramp(run, "sigma", sites, 1)
    )
    return Panel(f"{name}: σ² by layer ({GAUGED})", lines, y="log10", rules=((0.0, "σ = 1"),))


def _ramp(run: Result, key: str, layers: list[str], part: int | None) -> tuple[Line, ...]:
    last = max(1, len(layers) - 1)
    return tuple(
        Line(layer if k in (0, last) else "", run.column(key, k, part), k / last, ramp=True)
        for k, layer in enumerate(layers)
    )


def _products(name: str, run: Result) -> Panel:
    """The published products beside the balanced bound and the data Jacobian."""
    lines = [
        Line("P_w", run.total("log10_P_w"), 1),
        Line("P_w, Frobenius", run.total("log10_P_w_frobenius"), 1, dashed=True),
    ]
    if run.data["names"]["normalizers"]:
        lines.append(Line("Π1/σ, rms", run.total("log10_prod_inv_sigma_rms"), 0))
    lines += [
        Line("balanced, at samples", run.reading("point"), 4, marks=True),
        Line("data Jacobian", run.log_total("jacobian_max"), 2),
    ]
    return Panel(f"{name}: products, bound, slope", tuple(lines), y="log10")


def _accuracy(name: str, run: Result) -> Panel:
    return Panel(
        f"{name}: accuracy",
        (
            Line("train", run.score("train"), 0),
            Line("test", run.score("test"), 1),
            Line("gap", run.gap(), 5, dashed=True),
        ),
    )


def _below(name: str, run: Result) -> Panel:
    """The share of sites with σ < 1, and the gap."""
    return Panel(
        f"{name}: layers with σ < 1, and the gap",
        (Line("share with σ < 1", _share(run), 0), Line("train − test accuracy", run.gap(), 5, dashed=True)),
    )


def _share(run: Result) -> Curve:
    return tuple(
        (e["epoch"], statistics.fmean(float(three[1]) < 1 for three in e["columns"]["running"])) for e in run.epochs
    )


def _reductions(name: str, run: Result) -> Panel:
    kinds = (("smallest σ", "min"), ("rms σ", "rms"), ("largest σ", "max"))
    lines = [
        Line(f"Π1/σ, {word}", run.total(f"log10_prod_inv_sigma_{how}"), 0 if how == "rms" else 5, how != "rms")
        for word, how in kinds
    ]
    lines += [Line("Π‖γ/σ‖₂", run.total("log10_prod_l2"), 1), Line("Π max γ/σ", run.total("log10_prod_max"), 4)]
    rules = ((-25.0, "paper, Π1/σ"), (math.log10(1.35e-8), "slide, Π‖γ/σ‖")) if "ResNet" in name else ()
    return Panel(f"{name}: one number of σ ({GAUGED})", tuple(lines), y="log10", rules=rules)


def _compare(found: Results, runs: Mapping[str, str], title: str, *, sigma: bool = False) -> list[Panel]:
    """The same six panels for runs that differ in one thing."""
    chosen = _present(found, runs)
    if not chosen:
        return []
    hue = {label: k for k, label in enumerate(runs)}

    def panel(what: str, curve: Callable[[Result], Curve], y: str = "", marks: bool = False) -> Panel:
        lines = tuple(Line(label, curve(run), hue[label], marks=marks) for label, run in chosen.items())
        return Panel(f"{title}: {what}", lines, y=y)

    first = (
        panel("σ, geometric mean over sites", _mean_sigma, "log10") if sigma else panel("gap, train − test", Result.gap)
    )
    return [
        panel("test accuracy", lambda r: r.score("test")),
        first,
        panel(f"P_w ({GAUGED})", lambda r: r.total("log10_P_w"), "log10"),
        panel(f"Π1/σ, rms ({GAUGED})", lambda r: r.total("log10_prod_inv_sigma_rms"), "log10"),
        panel("balanced bound at samples", lambda r: r.reading("point"), "log10", marks=True),
        panel("data Jacobian", lambda r: r.log_total("jacobian_max"), "log10"),
    ]


def _mean_sigma(run: Result) -> Curve:
    count = len(run.data["names"]["normalizers"])
    return tuple((x, -y / count) for x, y in run.total("log10_prod_inv_sigma_batch_rms")) if count else ()


def _against(title: str, what: str, runs: Mapping[int, list[Result]], value: Callable[[Result], float]) -> Panel:
    """Mean over seeds with its range, against the number of normalizers."""
    points, band = [], []
    for number, some in sorted(runs.items()):
        values = [v for v in map(value, some) if math.isfinite(v)]
        if values:
            points.append((float(number), statistics.fmean(values)))
            band.append((float(number), min(values), max(values)))
    line = Line("", tuple(points), 0, marks=True, band=tuple(band))
    return Panel(f"{title}: {what}", (line,), "normalized hidden layers, of 9")


def _end(curve: Curve) -> float:
    return curve[-1][1] if curve else math.nan


if __name__ == "__main__":
    raise SystemExit(main())
