"""The tables of README.md, filled in from results: `python -m experiments.than2025.table [RESULTS]`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from experiments import study
from experiments.study import grid
from experiments.than2025 import results
from experiments.than2025.results import Curve, Result

README = Path(__file__).with_name("README.md")
Results = Mapping[str, Result]
NETS = {
    "resnet18": "ResNet-18",
    "mlp": "MLP",
    "efficientnet_b3": "EfficientNet-B3",
    "resnet20": "ResNet-20",
    "resnet18_cifar": "ResNet-18, 3 × 3 stem",
    "cnn": "plain CNN",
}
DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "digits": "digits"}
OPTIMIZERS = {"adam": "Adam, L2", "adamw": "AdamW", "sgd": "SGD"}
MAIN = ("nets", "optimizers", "efficientnet", "decay")
# runs whose numbers are quoted, by the start of the names of the same runs with other seeds
SEEDS = {
    "nets/resnet18-adam": "resnet18-seeds/resnet18-adam-seed",
    "optimizers/resnet18-adam-none": "resnet18-seeds/resnet18-adam-none-seed",
    "efficientnet/efficientnet_b3-adam": "efficientnet-seeds/efficientnet_b3-adam-seed",
}
STEMS = ("nets/resnet18-adam", "optimizers/resnet18-adam-none")  # what the runs of the group stem are compared with
LEVEL = 0.5  # training accuracy at which gaps are compared


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
    themes: dict[str, tuple[tuple[str, ...], Callable[[Result], str]]] = {
        "norms": (("norms", "resnet20-norms", "mlp-norms"), lambda r: r.spec.norm),
        "affine": (("affine",), lambda r: {"gamma": "γ only", "none": "neither"}[r.spec.affine]),
        "groups": (("groups",), lambda r: f"{r.spec.groups} of {r.spec.width // r.spec.groups} features"),
        "widths": (("widths",), lambda r: str(r.spec.width)),
        "data": (("data",), lambda r: f"{DATA[r.spec.data]}, {r.spec.norm}"),
        "sweeps": (
            tuple(f"{net}-{what}" for net in ("mlp", "resnet20") for what in ("batch", "lr", "init", "init-default")),
            _swept,
        ),
        "cnn": (("cnn",), lambda r: f"{r.spec.norm}; {_optimizer(r)}"),
    }
    made = {
        name: themed([r for r in found.values() if r.spec.group in groups], label)
        for name, (groups, label) in themes.items()
    }
    made["stem"] = themed(stems(found), _optimizer)
    counts = {"": _counted(found, "count"), "-layer": _counted(found, "count-layer")}
    made |= {f"count{of}": count(runs) for of, runs in counts.items()}
    made |= {f"trend{of}": trend(runs) for of, runs in counts.items()}
    return {"nets": nets(found), "seeds": seeds(found), "below": below(found), **made}


def nets(found: Results) -> str:
    """Network by optimizer, last epoch; decimal logs but for accuracies."""
    headers = ["network", "optimizer", "epochs", "train", "test", "P_w", "P_w Frobenius", "Π1/σ min", "Π1/σ rms"]
    headers += ["Π1/σ max", "Π‖γ/σ‖₂", "Π max γ/σ", "folded", "balanced", "data Jacobian", "σ < 1"]
    keys = ("prod_inv_sigma_min", "prod_inv_sigma_rms", "prod_inv_sigma_max", "prod_l2", "prod_max")
    rows = [
        [
            NETS[r.spec.net],
            _optimizer(r),
            *_scores(r),
            _product(r, "log10_P_w"),
            _product(r, "log10_P_w_frobenius"),
            *(_product(r, f"log10_{key}") if r.normalizers else "–" for key in keys),
            _read(r, "point", "folded"),
            _read(r, "point"),
            _slope(r),
            _below_one(r),
        ]
        for r in _main(found)
    ]
    return grid(headers, rows, words=2)


def themed(runs: Sequence[Result], label: Callable[[Result], str]) -> str:
    """Some runs, last epoch."""
    headers = ("network", "run", "epochs", "train", "test", "P_w", "Π1/σ rms", "balanced, at samples")
    rows = [
        [
            NETS[r.spec.net],
            label(r),
            *_scores(r),
            _product(r, "log10_P_w"),
            _product(r, "log10_prod_inv_sigma_rms") if r.normalizers else "–",
            _read(r, "point"),
            _read(r, "global"),
            _slope(r),
            _below_one(r),
        ]
        for r in runs
    ]
    return grid((*headers, "balanced, everywhere", "data Jacobian", "σ < 1"), rows, words=2)


def stems(found: Results) -> list[Result]:
    """The runs with the stem for small images, behind those with the ImageNet stem up to the same epoch."""
    small = [r for r in found.values() if r.spec.group == "stem"]
    return [*(found[name].until(small[0].last["epoch"]) for name in STEMS if name in found), *small] if small else []


def seeds(found: Results) -> str:
    """The runs whose numbers are quoted, over seeds: smallest to largest at the last epoch that all of them have."""
    headers = ("network", "optimizer", "seeds", "epoch", "test", "P_w", "Π1/σ min", "Π1/σ rms", "Π1/σ max")
    keys = ("log10_P_w", *(f"log10_prod_inv_sigma_{how}" for how in ("min", "rms", "max")))
    rows = []
    for first, others in SEEDS.items():
        runs = [run for name, run in found.items() if name == first or name.startswith(others)]
        curves = [[dict(run.score("test")) for run in runs]]
        curves += [[dict(run.total(key)) | dict(run.published(key)) for run in runs] for key in keys]
        shared = set.intersection(*(set(curve) for some in curves for curve in some)) if runs else set()
        if shared:
            at = max(shared)
            test, *products = ([curve[at] for curve in some] for some in curves)
            cells = [_range([100 * v for v in test], 1), *(_range(some, 2) for some in products)]
            number = "one seed" if len(runs) == 1 else str(len(runs))
            rows.append([NETS[runs[0].spec.net], _optimizer(runs[0]), number, f"{at:g}", *cells])
    return grid(headers, rows, words=2)


def _counted(found: Results, group: str) -> Results:
    """The runs of a count of normalizers; those without any are the same whatever kind the others have."""
    runs = {n: r for n, r in found.items() if r.spec.group == group}
    bare = {n: r for n, r in found.items() if r.spec.group == "count" and r.spec.normalizers == 0}
    return bare | runs if runs else {}


def count(found: Results) -> str:
    """Number of normalizers: mean and standard deviation over seeds."""
    cells: dict[int, list[Result]] = {}
    for run in found.values():
        cells.setdefault(run.spec.normalizers, []).append(run)
    columns: dict[str, Callable[[Result], float]] = {
        "train, %": lambda r: 100 * _end(r.score("train")),
        "test, %": lambda r: 100 * _end(r.score("test")),
        "gap, points": lambda r: 100 * _end(r.gap()),
        f"gap at train {LEVEL:.0%}": lambda r: 100 * r.gap_at(LEVEL),
        "P_w": lambda r: _end(r.total("log10_P_w")),
        "Π1/σ rms": lambda r: _end(r.total("log10_prod_inv_sigma_rms")),
        "balanced": lambda r: _end(r.reading("point")),
        "data Jacobian": lambda r: _end(r.log_total("jacobian_max")),
    }
    rows = [
        [str(number), str(len(some)), *(_spread([value(r) for r in some], key) for key, value in columns.items())]
        for number, some in sorted(cells.items())
    ]
    return grid(("normalizers", "seeds", *columns), rows, words=0)


def trend(found: Results) -> str:
    """How the gap and the accuracy go with the number of normalizers: correlation and slope with standard errors."""
    runs = list(found.values())
    level = f"gap when training accuracy is {LEVEL:.0%}"
    values: dict[str, Callable[[Result], float]] = {
        "gap, last epoch": lambda r: _end(r.gap()),
        "gap, last epoch, nets with a normalizer": lambda r: _end(r.gap()) if r.spec.normalizers else math.nan,
        level: lambda r: r.gap_at(LEVEL),
        f"{level}, nets with a normalizer": lambda r: r.gap_at(LEVEL) if r.spec.normalizers else math.nan,
        "test accuracy, last epoch": lambda r: _end(r.score("test")),
        "training accuracy, last epoch": lambda r: _end(r.score("train")),
    }
    rows = []
    for what, value in values.items():
        pairs = [(float(r.spec.normalizers), v) for r in runs if math.isfinite(v := value(r))]
        if len({x for x, _ in pairs}) > 1 and len(pairs) > 2:
            r, error, slope, slope_error = correlation(pairs)
            points = f"{100 * slope:+.2f} ± {100 * slope_error:.2f}"
            rows.append([what, str(len(pairs)), f"{r:+.2f} ± {error:.2f}".replace("-", "−"), points.replace("-", "−")])
    return grid(("against the number of normalizers", "runs", "correlation", "points a normalizer"), rows, words=1)


def below(found: Results) -> str:
    """The share of normalizers with σ < 1 at the end, and over the epochs against the gap."""
    rows = []
    for r in _main(found):
        if r.normalizers:
            pairs = [(a, b) for (_, a), (_, b) in zip(r.share_below_one()[1:], r.gap()[1:], strict=True)]
            moves = len({a for a, _ in pairs}) > 1 and len(pairs) > 2
            over = "{:+.2f} ± {:.2f}".format(*correlation(pairs)[:2]).replace("-", "−") if moves else "–"
            rows.append([NETS[r.spec.net], _optimizer(r), _below_one(r), f"{100 * _end(r.gap()):.1f}", over])
    return grid(("network", "optimizer", "σ < 1", "gap, points", "correlation over the epochs"), rows, words=2)


def correlation(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Pearson's r with its standard error √((1 − r²)/(n − 2)), and the slope with its own."""
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    r = statistics.correlation(xs, ys)
    error = math.sqrt(max(0.0, 1 - r * r) / (len(pairs) - 2))
    unit = statistics.stdev(ys) / statistics.stdev(xs)
    return r, error, r * unit, error * unit


def _main(found: Results) -> list[Result]:
    """The runs of the main table, network by network."""
    return sorted((r for r in found.values() if r.spec.group in MAIN), key=lambda r: [*NETS].index(r.spec.net))


def _scores(run: Result) -> list[str]:
    epochs = f"{run.last['epoch']}{'' if run.data['finished'] else ' (cut)'}{' (diverged)' if run.diverged else ''}"
    return [epochs, f"{100 * run.last['train'][1]:.1f}", f"{100 * run.last['test'][1]:.1f}"]


def _product(run: Result, key: str) -> str:
    """The last value; of the full reading where one was taken at the last epoch."""
    read = dict(run.published(key))
    return _log(read.get(run.last["epoch"], _end(run.total(key))))


def _read(run: Result, scope: str, key: str = "upper") -> str:
    """The bound of the last reading, with its epoch where that is not the run's last."""
    curve = run.reading(scope, key)
    late = not curve or curve[-1][0] == run.last["epoch"]
    return _log(_end(curve)) + ("" if late else f" (epoch {curve[-1][0]:g})")


def _slope(run: Result) -> str:
    """The data Jacobian; 0 where the output no longer depends on the input."""
    return _log(_end(run.log_total("jacobian_max"))) if run.last["totals"]["jacobian_max"] else "−∞"


def _below_one(run: Result) -> str:
    return f"{run.last['totals']['below_one']} of {run.normalizers}" if run.normalizers else "–"


def _optimizer(run: Result) -> str:
    name = OPTIMIZERS[run.spec.optimizer]
    return f"{name.split(',')[0]}, no decay" if run.spec.decay == 0 else f"{name} {run.spec.decay:g}"


def _swept(run: Result) -> str:
    """What a run of a sweep sets."""
    what = run.spec.group.split("-", 1)[1]
    if what == "init":
        return f"He × {run.spec.gain:g}"
    return {"batch": f"batch {run.spec.batch}", "lr": f"lr {run.spec.lr:g}", "init-default": "default init"}[what]


def _end(curve: Curve) -> float:
    return curve[-1][1] if curve else math.nan


def _log(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if value == math.inf else f"{value:.2f}".replace("-", "−")


def _range(values: list[float], digits: int) -> str:
    """Smallest to largest; one number for one."""
    ends = [f"{v:.{digits}f}".replace("-", "−") for v in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))


def _spread(values: list[float], key: str) -> str:
    kept = [v for v in values if math.isfinite(v)]
    digits = 1 if "%" in key or "gap" in key else 2
    if len(kept) < 2:
        return "–" if not kept else f"{kept[0]:.{digits}f}"
    return f"{statistics.fmean(kept):.{digits}f} ± {statistics.stdev(kept):.{digits}f}".replace("-", "−")


if __name__ == "__main__":
    raise SystemExit(main())
