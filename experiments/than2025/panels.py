"""The panels the figures are made of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

from experiments.plot import Line, Panel
from experiments.than2025.results import Curve, Result

Results = Mapping[str, Result]
GAUGED = "gauge-dependent"
PAPER = ((50.0, "paper: P_w ≈ 10⁵⁰"), (-25.0, "paper: Π1/σ ≈ 10⁻²⁵"))
SLIDE = (math.log10(1.35e-8), "slide: Π‖γ/σ‖ = 1.35·10⁻⁸")
# where networks have died, products go down by hundreds of decades
FLOOR, FLOOR_SLOPE = -12.0, -3.0


def present(found: Results, wanted: Mapping[str, str]) -> dict[str, Result]:
    """Those of the wanted runs that are there, by label."""
    return {label: found[name] for label, name in wanted.items() if name in found}


def norms(name: str, run: Result, *, frobenius: bool = False) -> Panel:
    """The norm of every layer; the first and the last are named."""
    key, what = ("frobenius", "‖W‖_F") if frobenius else ("norm", "‖W‖")
    return Panel(f"{name}: {what} by layer", _ramp(run, key, run.data["names"]["matrices"], None), y="log")


def variances(name: str, run: Result) -> Panel:
    """σ² of every site (rms over channels), batch statistics."""
    lines = tuple(
        Line(line.label, tuple((x, 2 * y) for x, y in line.points), line.hue, ramp=True)
        for line in _ramp(run, "sigma", run.data["names"]["sites"], 1)
    )
    return Panel(f"{name}: variance by layer", lines, y="log", rules=((0.0, "σ = 1"),))


def _ramp(run: Result, key: str, layers: list[str], part: int | None) -> tuple[Line, ...]:
    last = max(1, len(layers) - 1)
    ends = {0: "first", last: "last"}
    return tuple(
        Line(f"{ends[k]}: {layer}" if k in ends else "", run.column(key, k, part), k / last, ramp=True)
        for k, layer in enumerate(layers)
    )


def products(name: str, run: Result) -> Panel:
    """The published products beside the balanced bound and the data Jacobian."""
    lines = [
        _product("P_w", run, "log10_P_w", 1),
        _product("P_w, Frobenius", run, "log10_P_w_frobenius", 1, dashed=True),
    ]
    if run.normalizers:
        lines.append(Line("Π1/σ, rms", run.total("log10_prod_inv_sigma_rms"), 0))
    lines += [
        Line("balanced bound", run.reading("point"), 4, marks=True),
        Line("data Jacobian", run.log_total("jacobian_max"), 2),
    ]
    rules = PAPER if run.spec.net == "resnet18" else ()
    return Panel(f"{name}: products, bound, slope", tuple(lines), y="log", rules=rules)


def _product(label: str, run: Result, key: str, hue: int, *, dashed: bool = False) -> Line:
    """A product over the epochs; with dots where only the full readings have it."""
    curve = run.total(key)
    return Line(label, curve, hue, dashed=dashed, marks=run.read_at(curve))


def accuracy(name: str, run: Result) -> Panel:
    """Training, test, and the gap."""
    lines = (
        Line("train", run.score("train"), 0),
        Line("test", run.score("test"), 1),
        Line("gap", run.gap(), 5, dashed=True),
    )
    return Panel(f"{name}: accuracy", lines, y="%")


def below_one(name: str, run: Result) -> Panel:
    """The share of sites with σ < 1, and the gap."""
    lines = (Line("σ < 1", run.share_below_one(), 0), Line("train − test accuracy", run.gap(), 5, dashed=True))
    return Panel(f"{name}: share with σ < 1, gap", lines, y="%")


def reductions(name: str, run: Result) -> Panel:
    """Every way to make one number of the σ of all normalizers."""
    kinds = (("smallest σ", "min"), ("rms", "rms"), ("largest", "max"))
    lines = [
        Line(f"Π1/σ, {word}", run.total(f"log10_prod_inv_sigma_{how}"), 0 if how == "rms" else 5, how != "rms")
        for word, how in kinds
    ]
    lines += [
        _product("Π‖γ/σ‖₂", run, "log10_prod_l2", 1),
        Line("Π max γ/σ", run.total("log10_prod_max"), 4),
    ]
    rules = (PAPER[1], SLIDE) if run.spec.net == "resnet18" else ()
    return Panel(f"{name}: one number of all σ", tuple(lines), y="log", rules=rules)


def compare(
    found: Results, runs: Mapping[str, str], title: str, *, sigma: bool = False, floor: bool = False
) -> list[Panel]:
    """The same six panels for runs that differ in one thing.

    Args:
        found: all results.
        runs: label to name of run.
        title: what they have in common.
        sigma: show σ in place of the gap.
        floor: leave out what lies far below, where networks have died.

    Returns:
        Two rows of three panels; none where no run is there.
    """
    chosen = present(found, runs)
    if not chosen:
        return []
    hue = {label: k for k, label in enumerate(runs)}

    def panel(what: str, curve: Callable[[Result], Curve], y: str = "log", low: float = -math.inf) -> Panel:
        curves = {label: curve(run) for label, run in chosen.items()}
        lines = (
            Line(label, points, hue[label], marks=chosen[label].read_at(points))
            for label, points in curves.items()
            if points
        )
        return Panel(f"{title}: {what}", tuple(lines), y=y, floor=low if floor else -math.inf)

    normalized = any(run.normalizers for run in chosen.values())
    return [
        panel("test accuracy", lambda r: r.score("test"), "%"),
        panel("σ, geometric mean", mean_sigma) if sigma else panel("gap, train − test", Result.gap, "%"),
        panel(f"P_w ({GAUGED})", lambda r: r.total("log10_P_w"), low=FLOOR),
        panel(f"Π1/σ, rms ({GAUGED})", _inverse_sigma)
        if normalized
        else panel("training accuracy", lambda r: r.score("train"), "%"),
        panel("balanced bound", lambda r: r.reading("point"), low=FLOOR),
        panel("data Jacobian", lambda r: r.log_total("jacobian_max"), low=FLOOR_SLOPE),
    ]


def _inverse_sigma(run: Result) -> Curve:
    return run.total("log10_prod_inv_sigma_rms") if run.normalizers else ()


def mean_sigma(run: Result) -> Curve:
    """Decimal log of the geometric mean of σ over the normalizers, batch statistics."""
    batch = run.total("log10_prod_inv_sigma_batch_rms")
    return tuple((x, -y / run.normalizers) for x, y in batch) if run.normalizers else ()


def against(
    title: str, runs: Mapping[int, list[Result]], values: Mapping[str, Callable[[Result], float]], y: str
) -> Panel:
    """Means over seeds with their ranges, against the number of normalizers."""
    lines = []
    for k, (label, value) in enumerate(values.items()):
        points, band = [], []
        for number, some in sorted(runs.items()):
            kept = [v for v in map(value, some) if math.isfinite(v)]
            if kept:
                points.append((float(number), statistics.fmean(kept)))
                band.append((float(number), min(kept), max(kept)))
        lines.append(Line(label if len(values) > 1 else "", tuple(points), k, marks=True, band=tuple(band)))
    ticks = tuple((float(number), str(number)) for number in sorted(runs))
    return Panel(title, tuple(lines), "normalized hidden layers, of 9", y, ticks=ticks)


def end(curve: Curve) -> float:
    """The last value."""
    return curve[-1][1] if curve else math.nan
