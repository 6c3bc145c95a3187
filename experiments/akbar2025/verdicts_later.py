"""Verdicts on experiments 3 and 4."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.akbar2025.results import Results, both, mean, of, pct, percent, share, spread, steps
from experiments.akbar2025.verdicts import OURS, PART, YES, Row, by_share

MOMENTS = {"zero": "at zero error", "loss": "at equal loss", "end": "at the end"}
Found = Mapping[str, Any]


def experiment3(found: Results) -> Iterator[Row]:
    """50-20-1."""
    base = found["margins/base"].found
    bn, plain = base["batch"], base["none"]
    ready = share(e >= 0 for m in (bn, plain) for e in m["zero"]["epoch"])
    yield Row(
        "3.accuracy",
        "both reach “100” (the text breaks off)",
        f"epochs to zero training error: {steps(bn['zero']['epoch'])} with BN, {steps(plain['zero']['epoch'])} without",
        by_share(ready),
        ready,
        "share of networks that get every training point right",
    )
    wins = [_larger(bn[m]["margin"], plain[m]["margin"]) for m in MOMENTS]
    said = "; ".join(f"{spread(bn[m]['margin'])} and {spread(plain[m]['margin'])} {w}" for m, w in MOMENTS.items())
    yield Row(
        "3.margin",
        "mean margin 1.8 with BN, 1.2 without",
        f"with and without BN: {said}",
        by_share(min(wins)) if max(wins) < 0.5 or min(wins) > 0.5 else PART,
        max(wins),
        "share of pairs with the larger mean raw margin under BN, at the moment that is best for BN",
    )
    free = {key: [_larger(bn[m][key], plain[m][key]) for m in MOMENTS] for key in ("distance", "by_bound")}
    said = "; ".join(f"{spread(bn[m]['distance'])} and {spread(plain[m]['distance'])} {w}" for m, w in MOMENTS.items())
    yield Row(
        "3.distance",
        "larger margins with BN as distances to the boundary (margin over slope)",
        f"with and without BN: {said}",
        OURS,
        mean(free["distance"]),
        "share of pairs in which BN has the larger mean margin over slope, over all moments",
    )
    narrow = [share(b < p for b, p in _pairs(bn[m]["narrow"], plain[m]["narrow"])) for m in MOMENTS]
    yield Row(
        "3.narrow",
        "margins more uniform with BN (narrower histogram)",
        f"standard deviation over mean: {spread(bn['zero']['narrow'])} and {spread(plain['zero']['narrow'])} at zero "
        f"error, {spread(bn['end']['narrow'])} and {spread(plain['end']['narrow'])} at the end",
        by_share(mean(narrow)),
        mean(narrow),
        "share of pairs in which BN has the smaller coefficient of variation, over all moments",
    )
    yield from _noise(bn, plain)
    tests = _larger(bn["zero"]["test"], plain["zero"]["test"]), _larger(bn["end"]["test"], plain["end"]["test"])
    yield Row(
        "3.test",
        "higher test accuracy with BN (measured there; no result is given)",
        f"test accuracy, %: at zero error {both(percent(bn['zero']['test']), percent(plain['zero']['test']), 1)}; "
        f"at the end {both(percent(bn['end']['test']), percent(plain['end']['test']), 1)}",
        OURS,
        mean(tests),
        "share of pairs with the higher test accuracy under BN, at zero error and at the end",
    )


def _noise(bn: Found, plain: Found) -> Iterator[Row]:
    def tolerances(model: Found, kind: str, moment: str = "zero") -> list[float]:
        told: list[float] = model[moment]["noise"][kind]["tolerance"]
        return told

    raw = mean([_larger(tolerances(bn, "raw", m), tolerances(plain, "raw", m)) for m in MOMENTS])
    yield Row(
        "3.noise",
        "BN keeps training accuracy up to larger weight noise",
        f"95 % kept up to {both(tolerances(bn, 'raw'), tolerances(plain, 'raw'), 3)}; same functions, W₁ × 0.1: "
        f"{spread(tolerances(bn, 'x0.1'), 3)}, × 10: {spread(tolerances(bn, 'x10'), 3)}",
        by_share(raw),
        raw,
        "share of pairs in which BN tolerates more raw noise, over all moments",
    )
    free = mean([_larger(tolerances(bn, "free", m), tolerances(plain, "free", m)) for m in MOMENTS])
    yield Row(
        "3.noise_free",
        "BN keeps training accuracy up to larger noise relative to each tensor's norm",
        f"{spread(tolerances(bn, 'free'), 3)} with BN, {spread(tolerances(plain, 'free'), 3)} without at zero error; "
        f"{spread(tolerances(bn, 'free', 'end'), 3)} and {spread(tolerances(plain, 'free', 'end'), 3)} at the end",
        OURS,
        free,
        "share of pairs in which BN tolerates more scale-free noise, over all moments",
    )


def experiment4(found: Results) -> Iterator[Row]:
    """Bad initializations."""
    base = found["scales/base"].found

    def trained(model: str, head: bool, low: float, high: float) -> list[bool]:
        chosen = [r for r in base[model] if r["head"] == head and low <= r["scale"] <= high]
        return [s >= 0 for r in chosen for s in r["trained"]]

    small = [share(trained("batch", head, 1e-3, 0.1)) for head in (False, True)]
    tiny = [share(trained("batch", head, 0, 1e-4)) for head in (False, True)]
    yield Row(
        "4.small",
        "BN trains smoothly from very small weights",
        f"× 1e-3 to 0.1: {pct(small[0])} of runs, {pct(small[1])} with the head scaled too",
        by_share(min(small)),
        min(small),
        "share of runs that reach 95 % of the training points, head included",
    )
    yield Row(
        "4.smaller",
        "BN trains from weights however small",
        f"× 1e-6 to 1e-4: {pct(tiny[0])} of runs, {pct(tiny[1])} with the head scaled too; × 1e-6: "
        f"{pct(share(trained('batch', False, 0, 1e-6)))} (σ² is below ε)",
        OURS,
        min(tiny),
        "share of runs that reach 95 % of the training points, head included",
    )
    large = [share(trained("batch", head, 10, 100)) for head in (False, True)]
    huge = [share(trained("batch", head, 1e3, 1e4)) for head in (False, True)]
    middle = [s for r in base["batch"] if r["scale"] in {10, 100} and not r["head"] for s in r["trained"]]
    usual = [s for r in base["batch"] if r["scale"] == 1 and not r["head"] for s in r["trained"]]
    yield Row(
        "4.large",
        "BN trains smoothly from very large weights",
        f"× 10 to 100: {pct(large[0])} of runs, {pct(large[1])} with the head scaled too; steps {steps(middle)}, "
        f"from × 1 {steps(usual)}",
        by_share(min(large)),
        min(large),
        "share of runs that reach 95 % of the training points, head included",
    )
    yield Row(
        "4.larger",
        "BN trains from weights however large",
        f"× 1000: {pct(huge[0])} of runs, {pct(huge[1])} with the head scaled too",
        OURS,
        min(huge),
        "share of runs that reach 95 % of the training points, head included",
    )
    plain = share(
        [
            not t
            for head in (False, True)
            for low, high in ((0, 0.1), (10, 1e4))
            for t in trained("none", head, low, high)
        ]
    )
    broken = share(b == 1 for r in base["none"] if r["scale"] >= 10 for b in r["broken"])
    yield Row(
        "4.plain",
        "without BN training fails: NaN from large weights, stalls from small ones",
        f"fails in {pct(plain)} of runs; NaN in {pct(broken)} from × 10 and more, none below",
        by_share(plain),
        plain,
        "share of plain runs, × 1 left out, that do not reach 95 % of the training points",
    )
    delay = [s for r in base["batch"] if r["scale"] in {1e-5, 1e-4, 1e-3} and not r["head"] for s in r["begun"]]
    if not delay:
        return
    late = mean([s for s in delay if s >= 0])
    yield Row(
        "4.delay",
        "from very small weights BN starts after a few iterations",
        f"75 % of the training points after {steps(delay)} (× 1e-5 to 1e-3, head left alone)",
        YES if late < 50 and share(s >= 0 for s in delay) > 0.9 else PART,
        late,
        "mean steps to 75 % of the training points; below 50 in nine of ten runs confirms",
    )


def _larger(first: list[float], second: list[float]) -> float:
    """The share of pairs in which the first is larger."""
    return share(a > b for a, b in _pairs(first, second))


def _pairs(first: list[float], second: list[float]) -> list[tuple[float, float]]:
    """Those of which both are numbers: a network that never got to a moment is not compared there."""
    return [(a, b) for a, b in zip(first, second, strict=True) if math.isfinite(a) and math.isfinite(b)]


LATER = {"margins": experiment3, "scales": experiment4}


def varied(found: Results) -> list[tuple[str, list[float]]]:
    """Experiment 3 at every setting: the share of pairs BN wins by margin, margin over slope, noise, test accuracy."""
    made = []
    for label, result in of(found, "margins").items():
        bn, plain = result.found["batch"], result.found["none"]
        shares = [mean([_larger(bn[m][k], plain[m][k]) for m in MOMENTS]) for k in ("margin", "distance", "test")]
        free = [[model[m]["noise"]["free"]["tolerance"] for model in (bn, plain)] for m in MOMENTS]
        made.append((label, [*shares, mean([_larger(*pair) for pair in free])]))
    return made
