"""Checks on the committed results of experiments/akbar2025: numbers that were measured once, nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Any

from normgauge.core.checkout import checkout
from normgauge.errors import InputError
from normgauge.ledger.claim import Absent, Found, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw


def results() -> Path:
    try:
        return checkout() / "experiments" / "akbar2025" / "results"
    except InputError as error:
        raise Absent("its results are not installed; from a checkout of the repository") from error


def found(unit: str, *keys: str) -> Any:
    told = json.loads((results() / f"{unit}.json").read_text(encoding="utf-8"))["found"]
    for key in keys:
        told = told[key]
    return told


def both(unit: str, *keys: str) -> list[Any]:
    """With batch norm and without."""
    return [found(unit, net, *keys) for net in ("batch", "none")]


def share(facts: Iterable[bool]) -> float:
    return fmean([float(fact) for fact in facts])


def wins(unit: str, *keys: str) -> float:
    """The share of seeds in which batch norm has the larger number."""
    return share(a > b for a, b in zip(*both(unit, *keys), strict=True))


def row(rows: list[Any], **wanted: object) -> Any:
    return next(r for r in rows if all(r[key] == value for key, value in wanted.items()))


def norm_kept(_: Draw) -> Found:
    rows = found("plane__base", "models", "batch")
    gentle = row(rows, norm=1.0, lr=0.01)
    yield below("largest change of ‖w‖, rate 0.01 from 1", max(gentle["largest"]), predicted=0.01)
    yield below("degrees from the best direction there", fmean(gentle["angle"]), predicted=15.0)
    for start, change in ((0.1, 2.896), (1.0, 0.02118), (10.0, 2.84e-6)):
        measured = fmean(row(rows, norm=start, lr=0.1)["change"])
        yield equal(f"change of ‖w‖, rate 0.1 from {start:g}", measured, predicted=change, rel=1e-3)


def straight_path(_: Draw) -> Found:
    for unit, straight in (("plane__base", 0.85), ("plane__gamma-fixed", 0.99)):
        rows = found(unit, "models", "batch")
        back = share(b < 0.05 for r in rows if r["lr"] <= r["norm"] ** 2 for b in r["back"])
        yield equal(f"share that goes straight, η ≤ ‖w₀‖², {unit}", back, predicted=straight, rel=5e-3)
    far = fmean(row(found("plane__base", "models", "batch"), norm=10.0, lr=0.1)["angle"])
    yield equal("degrees off after 500 steps from length 10", far, predicted=88.0, rel=1e-2)


def plain_norm(_: Draw) -> Found:
    rows, late = (found(f"plane__{label}", "models", "none") for label in ("base", "steps-5000"))
    grows = share(c > 0 for r in rows if r["norm"] == 0.1 for c in r["change"])
    shrinks = share(c < -0.05 for r in rows if r["norm"] == 10.0 for c in r["lowest"])
    yield equal("share that grows from 0.1", grows, predicted=1.0)
    yield equal("share that shrinks from 10", shrinks, predicted=1.0)
    before, after = (row(r, norm=1.0, lr=1.0)["change"] for r in (rows, late))
    grown = fmean([(1 + b) / (1 + a) for a, b in zip(before, after, strict=True)])
    yield equal("‖w‖ after 5000 steps over that after 500", grown, predicted=1.68, rel=1e-2)


def convergence(_: Draw) -> Found:
    rough, fine = (found("regression__base", "batch", "reached", level) for level in ("0.1", "0.01"))
    yield exceeds("steps to 1 % of the start with batch norm", median(fine), published=100.0)
    yield equal("share at 10 % in 100 steps, batch norm", share(0 <= s < 100 for s in rough), predicted=0.9)


def slower(_: Draw) -> Found:
    for steps, expected in zip(both("regression__base", "reached", "0.01"), (641.5, 1860), strict=True):
        yield equal("steps to 1 % of the start, with batch norm and without", median(steps), predicted=expected)
    yield equal("pairs in which it is later with batch norm", wins("regression__base", "reached", "0.01"), predicted=0)


def largest_eigenvalue(_: Draw) -> Found:
    spectra = zip(*both("regression__base", "spectrum"), strict=True)
    ratio = fmean([plain["top"] / batch["top"] for batch, plain in spectra])
    yield refutes("λ_max without batch norm over that with it", ratio, published=5.0)
    yield equal("λ_max without batch norm over that with it", ratio, predicted=1.0, rel=2e-2)
    for net, rate in (("batch", 0.2), ("none", 0.2), ("none", 0.05)):
        told = found(f"edge__norm-{net}-lr-{rate:g}")
        last = fmean([v for sharpness in told["sharpness"][-5:] for v in sharpness])
        yield equal(f"λ_max·η/2 at rate {rate:g}, {net}", last / told["limit"], predicted=1.0, rel=2e-2)


def conditioning(_: Draw) -> Found:
    batch, plain = both("regression__base", "spectrum")
    for k, cut in ((1, 1e-6), (3, 1e-3), (4, 1e-2)):
        one, other = (fmean([s["kappa"][k] for s in spectra]) for spectra in (batch, plain))
        yield refutes(f"κ without over κ with, cut-off {cut:g}", other / one, published=200 / 20)
        yield below(f"κ with batch norm, cut-off {cut:g}", one, predicted=1 / cut)
    yield equal("eigenvalues within 1e-8 of zero, batch norm", max(s["zero"][0] for s in batch), predicted=0)
    yield equal("share with a negative eigenvalue", share(s["bottom"] < 0 for s in batch), predicted=1.0)


def stable_rates(_: Draw) -> Found:
    rates = {path.stem: both(path.stem, "largest") for path in results().glob("stable__*.json")}
    ratios = {name: fmean([a / b for a, b in zip(*pair, strict=True)]) for name, pair in rates.items()}
    yield equal("largest stable rate with over without", ratios["stable__base"], predicted=0.95, rel=3e-2)
    yield below(f"the largest ratio of {len(ratios)} settings", max(ratios.values()), predicted=2.1)
    for said, rises, expected in zip(("with", "without"), both("regression__base", "rises"), (0.47, 0.41), strict=True):
        yield equal(f"share of steps in which the loss rises, {said}", fmean(rises), predicted=expected, rel=2e-2)


def spikes(_: Draw) -> Found:
    for label, expected in (("base", (14.6, 89.7)), ("lr-0.02", (24.7, 1.9))):
        for peaks, number in zip(both(f"regression__{label}", "spike"), expected, strict=True):
            yield equal(f"peak of the gradient over those near, {label}", fmean(peaks), predicted=number, rel=2e-2)


def raw_margins(_: Draw) -> Found:
    for moment, expected in (("zero", (3.24, 4.06)), ("end", (7.99, 10.07))):
        one, other = (fmean(margins) for margins in both("margins__base", moment, "margin"))
        yield refutes(f"mean margin with over without, {moment}", one / other, published=1.8 / 1.2)
        yield equal(f"mean margin with batch norm, {moment}", one, predicted=expected[0], rel=2e-3)
        yield equal(f"mean margin without, {moment}", other, predicted=expected[1], rel=2e-3)


def confidence(_: Draw) -> Found:
    for moment in ("zero", "loss", "end"):
        for key, said in (("margin", "larger mean margin"), ("narrow", "wider spread of margins")):
            measured = wins("margins__base", moment, key)
            yield equal(f"pairs with the {said} under batch norm, {moment}", measured, predicted=0)


def accuracy(_: Draw) -> Found:
    fitted = share(epoch >= 0 for epochs in both("margins__base", "zero", "epoch") for epoch in epochs)
    yield equal("share that gets all training points right", fitted, predicted=1.0)
    for task, expected in (("base", 0.0), ("task-committee", 0.9)):
        measured = wins(f"margins__{task}", "loss", "test")
        yield equal(f"pairs that test better with batch norm at equal loss, {task}", measured, predicted=expected)


def noise_tolerance(_: Draw) -> Found:
    batch, plain = both("margins__base", "zero", "noise")
    short, long, free = (fmean(batch[kind]["tolerance"]) for kind in ("x0.1", "x10", "free"))
    yield moves("noise borne by the same function, weights × 0.1 and × 10", short, long)
    yield below("noise in proportion to the weights, batch norm", free, predicted=fmean(plain["free"]["tolerance"]))


def bad_starts(_: Draw) -> Found:
    batch, plain = both("scales__base")

    def trained(rows: list[Any], low: float, high: float, *heads: bool) -> float:
        return share(s >= 0 for r in rows if r["head"] in heads and low <= r["scale"] <= high for s in r["trained"])

    yield equal("trained, × 1e-3 to × 100", trained(batch, 1e-3, 100, True), predicted=1.0)
    yield equal("trained, × 1e-5 to × 1000, head left alone", trained(batch, 1e-5, 1e3, False), predicted=1.0)
    yield equal("trained, × 1e-6", trained(batch, 0, 1e-6, False), predicted=0.1)
    begun = [s for r in batch if not r["head"] and 1e-5 <= r["scale"] <= 1e-3 for s in r["begun"]]
    yield equal("steps to the start of learning, small weights", median(begun), predicted=8.5)
    for low, high in ((0, 0.1), (10, 1e4)):
        others = trained(plain, low, high, False, True)
        yield below(f"trained without batch norm, × {low:g} to {high:g}", others, predicted=0.05)
    broken = share(b == 1 for r in plain for b in r["broken"] if r["scale"] >= 10)
    yield equal("NaN without batch norm, × 10 and more", broken, predicted=0.73, rel=1e-2)


def contours(_: Draw) -> Found:
    cells, apart = [(i, j) for i in range(-12, 13) for j in range(-12, 13) if i or j], []
    for loss in (found("plane__base", "contours", net) for net in ("batch", "none")):
        apart.append(max(abs(1 - loss[24 + i][24 + j] / loss[24 + 2 * i][24 + 2 * j]) for i, j in cells))
    yield below("largest change of the loss from w to 2w", apart[0], predicted=2e-4)
    yield below("the same, against without batch norm", apart[0], predicted=apart[1] / 1000)


def batch_noise(_: Draw) -> Found:
    for moment, expected in (("start", {4: 1.12, 32: 0.19, 256: 0.105}), ("trained", {4: 8.92, 32: 0.79, 256: 0.35})):
        for batch, ratio in expected.items():
            at = found("noise__base", "batch", moment)[found("noise__base", "batches").index(batch)]
            measured, said = fmean(at["statistics"]) / fmean(at["samples"]), f"batch {batch}, {moment}"
            yield equal(f"noise of statistics over that of samples, {said}", measured, predicted=ratio, rel=3e-2)


def scaled_inputs(_: Draw) -> Found:
    factors = found("shift__base", "factors")
    for model, expected in (("batch, running", 15.7), ("none", 8.7), ("batch, own", 0.0)):
        usual, scaled = (fmean(found("shift__base", model, "factor")[factors.index(f)]) for f in (1.0, 0.1))
        lost = 100 * (usual - scaled)
        yield equal(f"points lost at inputs × 0.1, {model}", lost, predicted=expected, rel=1e-2, scale=10.0)


def dropout(_: Draw) -> Found:
    for task, expected in (("base", (-0.9, -4.9)), ("task-committee", (4.6, 3.0))):
        rows = found(f"combined__{task}", "rows")
        for net, points in zip(("batch", "none"), expected, strict=True):
            kept, dropped = (fmean(row(rows, norm=net, rule="sgd", drop=drop)["test"]) for drop in (0.0, 0.5))
            gain = 100 * (dropped - kept)
            yield equal(f"points that dropout adds, {net}, {task}", gain, predicted=points, rel=1e-2, scale=10.0)
