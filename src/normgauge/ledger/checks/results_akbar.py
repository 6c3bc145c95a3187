"""Checks on the committed results of experiments/akbar2025: numbers that were measured once, nothing is trained."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from normgauge.core.checkout import checkout
from normgauge.errors import InputError
from normgauge.ledger.claim import Absent, Found, below, equal, exceeds, moves, refutes
from normgauge.ledger.draw import Draw

mean, median = statistics.fmean, statistics.median
NETS = ("batch", "none")  # with batch norm and without


def results() -> Path:
    try:
        return checkout() / "experiments" / "akbar2025" / "results"
    except InputError as error:
        raise Absent("its results are not installed; from a checkout of the repository") from error


def found(unit: str) -> Any:
    return json.loads((results() / f"{unit}.json").read_text(encoding="utf-8"))["found"]


def share(facts: Iterable[bool]) -> float:
    return mean([float(fact) for fact in facts])


def larger(pair: Iterable[list[float]]) -> float:
    first, second = pair
    return share(a > b for a, b in zip(first, second, strict=True))


def row(rows: list[Any], **wanted: object) -> Any:
    return next(r for r in rows if all(r[key] == value for key, value in wanted.items()))


def norm_kept(_: Draw) -> Found:
    rows = found("plane__base")["models"]["batch"]
    gentle = row(rows, norm=1.0, lr=0.01)
    yield below("largest change of ‖w‖, rate 0.01 from 1", max(gentle["largest"]), predicted=0.01)
    yield below("degrees from the best direction there", mean(gentle["angle"]), predicted=15.0)
    for start, change in ((0.1, 2.896), (1.0, 0.02118), (10.0, 2.84e-6)):
        measured = mean(row(rows, norm=start, lr=0.1)["change"])
        yield equal(f"change of ‖w‖, rate 0.1 from {start:g}", measured, predicted=change, rel=1e-3)


def straight_path(_: Draw) -> Found:
    for unit, least in (("plane__base", 0.8), ("plane__gamma-fixed", 0.98)):
        rows = [r for r in found(unit)["models"]["batch"] if r["lr"] <= r["norm"] ** 2]
        yield below(
            "share that turns back, η ≤ ‖w₀‖²", share(b >= 0.05 for r in rows for b in r["back"]), predicted=1 - least
        )
    far = row(found("plane__base")["models"]["batch"], norm=10.0, lr=0.1)["angle"]
    yield exceeds("degrees off after 500 steps from length 10", mean(far), published=80.0)


def plain_norm(_: Draw) -> Found:
    rows, late = (found(f"plane__{label}")["models"]["none"] for label in ("base", "steps-5000"))
    grows = share(c > 0 for r in rows if r["norm"] == 0.1 for c in r["change"])
    shrinks = share(c < -0.05 for r in rows if r["norm"] == 10.0 for c in r["lowest"])
    yield equal("share that grows from 0.1", grows, predicted=1.0)
    yield equal("share that shrinks from 10", shrinks, predicted=1.0)
    grown = [
        (1 + b) / (1 + a) for a, b in zip(*(row(r, norm=1.0, lr=1.0)["change"] for r in (rows, late)), strict=True)
    ]
    yield refutes("‖w‖ after 5000 steps over that after 500", mean(grown), published=1.0, by=0.3)


def convergence(_: Draw) -> Found:
    told = found("regression__base")
    reached = {level: [told[net]["reached"][level] for net in NETS] for level in ("0.1", "0.01")}
    yield equal(
        "share at 10 % of the start in 100 steps", share(0 <= s < 100 for s in reached["0.1"][0]), predicted=0.9
    )
    yield exceeds("steps to 1 % with batch norm", median(reached["0.01"][0]), published=100.0)
    yield equal("pairs in which it is later without", larger(reversed(reached["0.01"])), predicted=1.0)


def largest_eigenvalue(_: Draw) -> Found:
    tops = [[s["top"] for s in found("regression__base")[net]["spectrum"]] for net in NETS]
    ratio = mean([n / b for b, n in zip(*tops, strict=True)])
    yield refutes("λ_max without batch norm over that with it", ratio, published=5.0)
    yield equal("λ_max without batch norm over that with it", ratio, predicted=1.0, rel=2e-2)
    for net, rate in (("batch", 0.2), ("none", 0.2), ("none", 0.05)):
        told = found(f"edge__norm-{net}-lr-{rate:g}")
        last = mean([v for sharpness in told["sharpness"][-5:] for v in sharpness])
        yield equal(f"λ_max·η/2 at rate {rate:g}, {net}", last / told["limit"], predicted=1.0, rel=2e-2)


def conditioning(_: Draw) -> Found:
    spectra = [found("regression__base")[net]["spectrum"] for net in NETS]
    for k, cut in ((1, 1e-6), (3, 1e-3), (4, 1e-2)):
        batch, plain = (mean([s["kappa"][k] for s in spectrum]) for spectrum in spectra)
        yield refutes(f"κ without over κ with, cut-off {cut:g}", plain / batch, published=10.0)
        yield below(f"κ with batch norm, cut-off {cut:g}", batch, predicted=1 / cut)
    yield equal(
        "eigenvalues within 1e-8 of zero, batch norm", max(s["zero"][0] for s in spectra[0]), predicted=0, scale=1.0
    )
    yield equal("share with a negative eigenvalue", share(s["bottom"] < 0 for s in spectra[0]), predicted=1.0)


def stable_rates(_: Draw) -> Found:
    ratios = {}
    for path in results().glob("stable__*.json"):
        told = found(path.stem)
        ratios[path.stem] = mean([a / b for a, b in zip(*(told[net]["largest"] for net in NETS), strict=True)])
    yield equal("largest stable rate with over without, base", ratios["stable__base"], predicted=0.95, rel=3e-2)
    yield below(f"and over {len(ratios)} settings", max(ratios.values()), predicted=2.1)
    rises = [mean(found("regression__base")[net]["rises"]) for net in NETS]
    yield below("share of steps in which the loss rises, without", rises[1], predicted=rises[0])


def spikes(_: Draw) -> Found:
    fast, slow = ([mean(found(f"regression__{label}")[net]["spike"]) for net in NETS] for label in ("base", "lr-0.02"))
    yield refutes("peak of the gradient over its surroundings, batch norm", fast[0], published=1.0, by=0.8)
    yield below("the same at rate 0.02 without", slow[1], predicted=slow[0] / 5)


def confidence(_: Draw) -> Found:
    told = found("margins__base")
    for moment, said in (("zero", "at zero error"), ("end", "at the end")):
        margins = [told[net][moment]["margin"] for net in NETS]
        yield refutes(f"mean margin with over without, {said}", mean(margins[0]) / mean(margins[1]), published=1.5)
        yield equal(f"pairs with the smaller margin under batch norm, {said}", larger(reversed(margins)), predicted=1.0)


def uniform_margins(_: Draw) -> Found:
    told = found("margins__base")
    for moment in ("zero", "loss", "end"):
        spread = larger(told[net][moment]["narrow"] for net in reversed(NETS))
        yield equal("pairs with the more uniform margins under batch norm", spread, predicted=1.0)


def accuracy(_: Draw) -> Found:
    base, other = found("margins__base"), found("margins__task-committee")
    fitted = share(epoch >= 0 for net in NETS for epoch in base[net]["zero"]["epoch"])
    yield equal("share that gets all training points right", fitted, predicted=1.0)
    for told, wins in ((base, 0.0), (other, 0.9)):
        measured = larger(told[net]["loss"]["test"] for net in NETS)
        yield equal("pairs that test better with batch norm, at equal loss", measured, predicted=wins, scale=1.0)


def noise_tolerance(_: Draw) -> Found:
    batch, plain = (found("margins__base")[net]["zero"]["noise"] for net in NETS)
    short, long, free = (mean(batch[kind]["tolerance"]) for kind in ("x0.1", "x10", "free"))
    yield moves("noise borne by the same function, weights × 0.1 and × 10", short, long)
    yield below("noise in proportion to the weights, batch norm", free, predicted=mean(plain["free"]["tolerance"]))


def bad_starts(_: Draw) -> Found:
    told = found("scales__base")

    def trained(net: str, head: bool, low: float, high: float) -> list[bool]:
        return [s >= 0 for r in told[net] if r["head"] == head and low <= r["scale"] <= high for s in r["trained"]]

    yield equal("trained, × 1e-3 to × 100", share(trained("batch", True, 1e-3, 100)), predicted=1.0)
    yield equal("trained, × 1e-5 to × 1000, head left alone", share(trained("batch", False, 1e-5, 1e3)), predicted=1.0)
    yield below("trained, × 1e-6", share(trained("batch", False, 0, 1e-6)), predicted=0.1)
    delay = [s for r in told["batch"] if not r["head"] and 1e-5 <= r["scale"] <= 1e-3 for s in r["begun"]]
    yield equal("steps to the start of learning, small weights", median(delay), predicted=8, rel=0.1)
    plain = [t for head in (False, True) for ends in ((0, 0.1), (10, 1e4)) for t in trained("none", head, *ends)]
    yield below("trained without batch norm", share(plain), predicted=0.05)
    broken = [b == 1 for r in told["none"] for b in r["broken"] if r["scale"] >= 10]
    yield equal("NaN without batch norm, × 10 and more", share(broken), predicted=0.73, rel=1e-2)


def contours(_: Draw) -> Found:
    told, cells = found("plane__base")["contours"], [(i, j) for i in range(-12, 13) for j in range(-12, 13) if i or j]
    batch, plain = (
        max(abs(1 - told[net][24 + i][24 + j] / told[net][24 + 2 * i][24 + 2 * j]) for i, j in cells) for net in NETS
    )
    yield below("largest change of the loss from w to 2w", batch, predicted=2e-4)
    yield below("the same, against without batch norm", batch, predicted=plain / 1000)


def batch_noise(_: Draw) -> Found:
    told = found("noise__base")
    for moment, expected in (("start", (1.12, 0.19, 0.105)), ("trained", (8.92, 0.79, 0.35))):
        for batch, ratio in zip((4, 32, 256), expected, strict=True):
            at = told["batch"][moment][told["batches"].index(batch)]
            measured = mean(at["statistics"]) / mean(at["samples"])
            yield equal(
                f"noise of statistics over that of samples, batch {batch}, {moment}",
                measured,
                predicted=ratio,
                rel=3e-2,
            )


def scaled_inputs(_: Draw) -> Found:
    told = found("shift__base")

    def lost(model: str) -> float:
        usual, scaled = (mean(told[model]["factor"][told["factors"].index(f)]) for f in (1.0, 0.1))
        return 100 * (usual - scaled)

    yield exceeds(
        "points lost at inputs × 0.1, against without batch norm", lost("batch, running"), published=lost("none")
    )
    yield equal("points lost with statistics of the batch", lost("batch, own"), predicted=0.0, scale=100.0, rel=1e-3)


def dropout(_: Draw) -> Found:
    for task in ("base", "task-committee"):
        rows = found(f"combined__{task}")["rows"]
        gains = []
        for net in NETS:
            kept, dropped = (mean(row(rows, norm=net, rule="sgd", drop=drop)["test"]) for drop in (0.0, 0.5))
            gains.append(100 * (dropped - kept))
        yield exceeds("points dropout adds with batch norm, against without", gains[0], published=gains[1])
