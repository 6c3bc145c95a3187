"""Checks: results of training that come with the repository, under experiments/; nothing is trained."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean, linear_regression, median
from typing import Any

from normgauge.core.checkout import checkout
from normgauge.core.errors import InputError
from normgauge.theory.checks.learning import exponential
from normgauge.theory.claim import Absent, Found, below, equals, exceeds, moves, refutes, shown
from normgauge.theory.draw import Draw

Run = dict[str, Any]
Points = Sequence[tuple[float, float]]
INVERSE = "log10_prod_inv_sigma_"


@cache
def results(study: str, pattern: str) -> dict[str, Run]:
    """The files of a study by name.

    Raises:
        Absent: without a checkout, or where it has none.
    """
    try:
        paths = sorted((checkout() / "experiments" / study / "results").glob(f"{pattern}.json"))
    except InputError as error:
        raise Absent(str(error)) from None
    if not paths:
        raise Absent(f"no results of experiments/{study}, {pattern}: normgauge reproduce --train makes them")
    return {path.stem.rpartition("__")[2]: json.loads(path.read_text("utf-8")) for path in paths}


def optimizers(net: str) -> dict[str, Run]:
    """A network's runs under five optimizers."""
    found: dict[str, Run] = {}
    for group in ("nets", "optimizers", "decay"):
        found |= results("than2025", f"{group}__{net}-*")
    return {name.partition("-")[2]: run for name, run in found.items()}


def three(run: str) -> list[Run]:
    """A run and the same from two other seeds."""
    return [*results("than2025", f"*__{run}").values(), *results("than2025", f"*-seeds__{run}-seed*").values()]


def ends(what: str, values: Iterable[float], least: float, most: float, *, rel: float = 1e-3) -> Found:
    """Smallest and largest of three seeds."""
    low, _, high = sorted(values)
    yield equals(f"{what}, smallest of three seeds", low, predicted=least, rel=rel)
    yield equals("largest", high, predicted=most, rel=rel)


def read_result(run: Run, key: str = "log10_P_w") -> dict[int, float]:
    """A product of the full readings by epoch."""
    return {int(k): float(v["point"]["published"][key]) for k, v in run["readings"].items()}


def total(run: Run, key: str, epoch: int = -1) -> float:
    return float(run["epochs"][epoch]["totals"][key])


def column(run: Run, key: str, epoch: int = -1) -> list[float]:
    """A number of every layer, the root mean square over channels where there are three."""
    return [float(v[1] if isinstance(v, list) else v) for v in run["epochs"][epoch]["columns"][key]]


def gap(run: Run, epoch: int = -1) -> float:
    return 100 * float(run["epochs"][epoch]["train"][1] - run["epochs"][epoch]["test"][1])


def grown(run: Run, key: str, since: int = 0) -> int:
    return sum(b > a for a, b in zip(column(run, key, since), column(run, key), strict=True))


def above(values: Iterable[float], level: float) -> int:
    return sum(value > level for value in values)


def figure_1(draw: Draw) -> Found:
    nets = optimizers("resnet18")
    free, stated = three("resnet18-adam-none"), three("resnet18-adam")
    keys = ("log10_P_w", "log10_P_w_frobenius")
    largest, frobenius = (max(max(read_result(run, key).values()) for run in (*nets.values(), *free)) for key in keys)
    yield refutes("log10 P_w of ResNet-18, largest of five optimizers", largest, published=50, by=0.3)
    yield equals("the same", largest, predicted=27.04, rel=1e-3)
    yield equals("the same with Frobenius norms", frobenius, predicted=37.03, rel=1e-3)
    yield from ends("at the end without decay", (read_result(run)[100] for run in free), 26.95, 27.04)
    yield from ends("with the optimizer stated", (read_result(run)[100] for run in stated), -62.98, -62.4)
    accuracies = [run["epochs"][-1]["test"][1] for run in nets.values()]
    yield equals("spread of the five test accuracies", max(accuracies) - min(accuracies), predicted=0.057, rel=0.01)


def plain(draw: Draw) -> Found:
    for name, start, end in (("adam", 4.09, 6.46), ("adam-none", 4.09, 12.11)):
        known = read_result(optimizers("mlp")[name])
        yield equals(f"log10 P_w of the MLP at the start, {name}", known[0], predicted=start, rel=2e-3)
        yield equals("at the end", known[100], predicted=end, rel=2e-3)
    yield equals("decades from epoch 1 to 20", known[20] - known[1], predicted=3.5, rel=0.02)
    yield equals("decades from epoch 50 to 100", known[100] - known[50], predicted=1.5, rel=0.02)
    cnn = results("than2025", "cnn__cnn-none-adam-none")["cnn-none-adam-none"]
    for epoch, decades in ((0, 4.6), (20, 12.0)):
        yield equals(f"log10 P_w of the plain CNN, epoch {epoch}", read_result(cnn)[epoch], predicted=decades, rel=1e-2)


def norms(draw: Draw) -> Found:
    for net, name, count, least in (("mlp", "adam", 10, 2.91), ("resnet18", "adam-none", 21, 4.55)):
        run = optimizers(net)[name]
        yield equals(f"norms of {net} that grew, {name}", grown(run, "norm"), predicted=count)
        yield equals("the smallest at the end", min(column(run, "norm")), predicted=least, rel=1e-3)
    stated = column(optimizers("resnet18")["adam"], "norm")
    yield equals("norms of ResNet-18 above 1, optimizer stated", above(stated, 1.0), predicted=17)
    yield equals("the smallest of ResNet-18's first 11, optimizer stated", min(stated[:11]), predicted=2.12, rel=2e-3)


def figure_2(draw: Draw) -> Found:
    keys = [INVERSE + mean for mean in ("min", "rms", "max")]
    free = three("resnet18-adam-none")
    nets = [*optimizers("resnet18").values(), *free]
    smallest = min(total(run, key, k) for run in nets for key in keys for k in range(101))
    yield refutes("log10 Π1/σ of ResNet-18, smallest of all", smallest, published=-25, by=0.2)
    yield equals("the same", smallest, predicted=-18.756, rel=1e-3)
    yield from ends(
        "largest σ over channels, no decay, at the end", (total(run, keys[2]) for run in free), -18.59, -18.13
    )
    for name, products, layers in (("adam", (13.96, 14.37), (4, 5)), ("adam-none", (-15.04, -14.94), (19, 19))):
        runs = three(f"resnet18-{name}")
        yield from ends(f"log10 Π1/σ, rms over channels, {name}", (total(run, keys[1]) for run in runs), *products)
        yield from ends(f"layers with σ > 1, {name}", (above(column(run, "running"), 1.0) for run in runs), *layers)
    met = [next(k for k in range(101) if 2 * total(r, keys[1], k) < -25) for r in free]
    yield from ends("epoch at which Π1/σ² passes 10^−25, no decay", met, 56, 58)


def variances(draw: Draw) -> Found:
    for net, least, most in (("mlp", 0.00447, 0.00632), ("resnet18", 0.0076, 1.58)):
        start = column(optimizers(net)["adam"], "sigma", 0)
        yield equals(f"smallest σ at the start, {net}", min(start), predicted=least, rel=1e-3)
        yield equals("largest", max(start), predicted=most, rel=1e-3)
    yield equals("layers of 20 with σ > 1 at the start, resnet18", above(start, 1.0), predicted=7)
    for name, count, products in (("adam", 2, (1.9, -5.6, -19.9, -27.9)), ("adam-none", 20, (2.3, 15.1, 23.9, 30.1))):
        run = optimizers("resnet18")[name]
        yield equals(f"layers whose σ grew from epoch 80 on, {name}", grown(run, "running", 80), predicted=count)
        for epoch, known in zip((1, 20, 50, 100), products, strict=True):
            product = -2 * total(run, INVERSE + "rms", epoch)
            yield equals(f"log10 Πσ² at epoch {epoch}", product, predicted=known, scale=1.0, rel=0.05)


def figure_3(draw: Draw) -> Found:
    run = results("than2025", "efficientnet__efficientnet_b3-adam-none")["efficientnet_b3-adam-none"]
    yield equals("norms of 131 that grew, no decay", grown(run, "norm"), predicted=112)
    yield equals("variances of 78 that grew", grown(run, "sigma"), predicted=72)
    yield equals("log10 P_w at the end", read_result(run)[30], predicted=94.63, rel=1e-3)
    stated = three("efficientnet_b3-adam")
    yield from ends("norms of 131 that grew, optimizer stated", (grown(run, "norm") for run in stated), 20, 23)
    yield from ends("variances of 78 that grew", (grown(run, "sigma") for run in stated), 8, 10)
    yield from ends("log10 P_w at epoch 20", (read_result(run)[20] for run in stated), 3.03, 12.69)
    yield from ends("log10 P_w at the end", (read_result(run)[30] for run in stated), -89.97, -59.85)


def slide(draw: Draw) -> Found:
    yield from exponential(draw)
    free, limit = three("resnet18-adam-none"), math.log10(1.35e-8)
    met = [next(k for k in range(101) if total(run, "log10_prod_max", k) < limit) for run in free]
    yield from ends("epoch at which Π max γ/σ passes 1.35e-8, no decay", met, 55, 62)
    yield from ends("log10 Π max γ/σ, no decay", (total(run, "log10_prod_max") for run in free), -9.93, -9.53)
    yield from ends("log10 Π‖γ/σ‖₂", (read_result(run, "log10_prod_l2")[100] for run in free), 7.69, 7.83)
    sgd = optimizers("resnet18")["sgd"]
    yield equals("log10 Π max γ/σ, SGD", total(sgd, "log10_prod_max"), predicted=1.56, rel=2e-3)
    yield equals("log10 Π‖γ/σ‖₂", read_result(sgd, "log10_prod_l2")[100], predicted=19.5, rel=2e-3)


def below_one(draw: Draw) -> Found:
    nets = optimizers("resnet18").values()
    counts, gaps = [total(run, "below_one") for run in nets], [gap(run) for run in nets]
    yield moves("layers of 20 with σ < 1, fewest and most of five optimizers", min(counts), max(counts))
    for what, value, known in (("fewest", min(counts), 1), ("most", max(counts), 18)):
        yield equals(what, value, predicted=known)
    for what, value, points in (("smallest gap", min(gaps), 21.8), ("largest", max(gaps), 23.9)):
        yield equals(f"{what}, points", value, predicted=points, rel=2e-3)


def sweeps(draw: Draw) -> Found:
    mlp, resnet = (
        [total(run, INVERSE + "rms") for run in results("than2025", f"{net}-[bli]*__*").values()]  # batch, lr, init
        for net in ("mlp", "resnet20")
    )
    yield equals("of 8 MLPs, with Π1/σ above 1", above(mlp, 0.0), predicted=7)
    yield equals("log10 of the largest", max(mlp), predicted=4.74, rel=2e-3)
    yield shown("ResNet-20 on either side of 1", min(resnet) < 0 < max(resnet))


def count(draw: Draw) -> Found:
    for group, end, level in (("count", 2.02, -0.014), ("count-layer", 0.045, 0.003)):
        runs = [(float(run["spec"]["normalizers"]), run) for run in results("than2025", f"{group}__*").values()]
        last = linear_regression(*zip(*((n, gap(run)) for n, run in runs), strict=True)).slope
        yield equals(f"points of gap a normalizer, at the end, {group}", last, predicted=end, scale=1.0, rel=5e-3)
        early = linear_regression(*zip(*((n, gap_at(run, 0.5)) for n, run in runs if n), strict=True)).slope
        yield equals("where half of the training images are right", early, predicted=level, scale=1.0, rel=1e-3)


def gap_at(run: Run, level: float) -> float:
    """The gap where training accuracy first reaches a level, on a line between epochs."""
    train = [epoch["train"][1] for epoch in run["epochs"]]
    k = next(k for k, (a, b) in enumerate(itertools.pairwise(train)) if a < level <= b)
    return gap(run, k) + (level - train[k]) / (train[k + 1] - train[k]) * (gap(run, k + 1) - gap(run, k))


def seeds(pattern: str, part: str) -> dict[str, list[tuple[Run, ...]]]:
    """What runs that differ by their seed found, side by side."""
    found: dict[str, list[Run]] = {}
    for name, run in results("generalization", pattern).items():
        found.setdefault(name.rpartition("-")[0], []).append(run["found"][part])
    return {name: list(zip(*parts, strict=True)) for name, parts in found.items()}


def samples(draw: Draw) -> Found:
    curves = {
        name: [(float(same[0]["m"]), fmean(one["test_error"] for one in same)) for same in parts]
        for name, parts in seeds("samples__*", "sizes").items()
    }
    pairs = [(curves[f"{name.rpartition('-')[0]}-none"], c) for name, c in curves.items() if not name.endswith("none")]
    factors = sorted(factor for without, curve in pairs for factor in fewer(without, curve))
    for what, value, known in (("least", factors[0], 0.752), ("most", factors[-1], 5.21)):
        yield equals(f"times fewer images, {what}", value, predicted=known, rel=2e-3)
    yield equals("median", median(factors), predicted=1.19, rel=3e-3)
    logs = [[[(math.log(m), math.log(e)) for m, e in curve] for curve in pair] for pair in pairs]
    slopes = [[linear_regression(*zip(*c, strict=True)).slope for c in pair] for pair in logs]
    yield equals("exponents of the error apart, largest", max(abs(a - b) for a, b in slopes), predicted=0.057, rel=0.01)


def fewer(without: Points, other: Points) -> list[float]:
    """How many times fewer samples the other needs for the same errors, on lines between logarithms."""
    lowest = itertools.accumulate((error for _, error in other), min)
    falling = [(m, e) for (m, _), e in zip(other, lowest, strict=True)]
    return [
        m / m0 * (m0 / m1) ** (math.log(e0 / error) / math.log(e0 / e1))
        for m, error in without
        for (m0, e0), (m1, e1) in itertools.pairwise(falling)
        if e0 > error >= e1
    ]


def adversarial(draw: Draw) -> Found:
    ratios, smaller = [], 0
    for plain, *_, attacked in seeds("adversarial__*", "nets").values():
        slope, less = (fmean(10 ** net["jacobian_mean"] for net in nets) for nets in (plain, attacked))
        ratios.append(slope / less)
        smaller += sum(net["gap"] for net in attacked) < sum(net["gap"] for net in plain)
    yield equals("mean slope, times smaller, least of 12", min(ratios), predicted=2.5, rel=0.02)
    yield equals("most", max(ratios), predicted=11.1, rel=0.02)
    yield equals("settings with a smaller gap", smaller, predicted=11)


def kendall(selection: str, score: str) -> tuple[float, float]:
    """τ of a score and the gap, with its standard error."""
    told = results("generalization", "ranking")["ranking"]["selections"][selection]["scores"][score]["gap"]["kendall"]
    return told["value"], told["error"]


def ranking(draw: Draw) -> Found:
    for score, known, wide in (("balanced-capacity", 0.062, 0.028), ("log-prod-spec", 0.008, 0.033)):
        value, error = kendall("matched", f"{score}-margin")
        yield equals(f"τ of gap and {score} over margin", value, predicted=known, scale=1.0, rel=1e-3)
        yield equals("its standard error", error, predicted=wide, scale=1.0, rel=1e-3)


def belkin(draw: Draw) -> Found:
    truths = [run["found"]["truth"] for run in results("generalization", "disagreement__mnist-*").values()]
    yield below("training error on MNIST, worst of three", max(t["train_error"] for t in truths), predicted=1e-3)
    yield equals("test error, mean", fmean(t["error"] for t in truths), predicted=0.0026, rel=0.02)
    yield equals(
        "τ of gap and number of weights, CNNs", kendall("matched cnn", "params")[0], predicted=-0.498, rel=2e-3
    )


def local_bound(draw: Draw) -> Found:
    tables = [run["found"]["certificate"]["rows"] for run in results("generalization", "tables__*").values()]
    values = [float(row["value"]) for rows in tables for row in rows if row["name"] == "Theorem 20, as published"]
    yield equals("networks", len(values), predicted=18)
    yield equals("(13), least of them", min(values), predicted=122.1, rel=1e-3)
    for name, known in (("global", 0.042), ("balls", 0.111), ("jacobian_mean", 0.387)):
        taus = []
        for data in ("mnist", "fashion_mnist"):
            nets = [n for run in results("generalization", f"local__{data}-*").values() for n in run["found"]["nets"]]
            points = [(n[name][0] if name == "balls" else n[name], n["gap"]) for n in nets if n["train_error"] <= 0.01]
            taus.append(tau(points))
        yield equals(f"τ of gap and {name}", fmean(taus), predicted=known, scale=1.0, rel=1e-3)


def tau(points: Points) -> float:
    pairs = [(a[0] - b[0], a[1] - b[1]) for a, b in itertools.combinations(points, 2)]
    signs = [[(x > 0) - (x < 0) for x in pair] for pair in pairs]
    return sum(x * y for x, y in signs) / math.sqrt(sum(x * x for x, _ in signs) * sum(y * y for _, y in signs))


def found(unit: str, *keys: str) -> Any:
    told = results("akbar2025", unit)[unit.rpartition("__")[2]]["found"]
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
        yield equals(f"change of ‖w‖, rate 0.1 from {start:g}", measured, predicted=change, rel=1e-3)


def straight_path(_: Draw) -> Found:
    for unit, straight in (("plane__base", 0.85), ("plane__gamma-fixed", 0.99)):
        rows = found(unit, "models", "batch")
        back = share(b < 0.05 for r in rows if r["lr"] <= r["norm"] ** 2 for b in r["back"])
        yield equals(f"share that goes straight, η ≤ ‖w₀‖², {unit}", back, predicted=straight, rel=5e-3)
    far = fmean(row(found("plane__base", "models", "batch"), norm=10.0, lr=0.1)["angle"])
    yield equals("degrees off after 500 steps from length 10", far, predicted=88.0, rel=1e-2)


def plain_norm(_: Draw) -> Found:
    rows, late = (found(f"plane__{label}", "models", "none") for label in ("base", "steps-5000"))
    grows = share(c > 0 for r in rows if r["norm"] == 0.1 for c in r["change"])
    shrinks = share(c < -0.05 for r in rows if r["norm"] == 10.0 for c in r["lowest"])
    yield equals("share that grows from 0.1", grows, predicted=1.0)
    yield equals("share that shrinks from 10", shrinks, predicted=1.0)
    before, after = (row(r, norm=1.0, lr=1.0)["change"] for r in (rows, late))
    grown = fmean([(1 + b) / (1 + a) for a, b in zip(before, after, strict=True)])
    yield equals("‖w‖ after 5000 steps over that after 500", grown, predicted=1.68, rel=1e-2)


def convergence(_: Draw) -> Found:
    rough, fine = (found("regression__base", "batch", "reached", level) for level in ("0.1", "0.01"))
    yield exceeds("steps to 1 % of the start with batch norm", median(fine), published=100.0)
    yield equals("share at 10 % in 100 steps, batch norm", share(0 <= s < 100 for s in rough), predicted=0.9)


def slower(_: Draw) -> Found:
    for steps, expected in zip(both("regression__base", "reached", "0.01"), (641.5, 1860), strict=True):
        yield equals("steps to 1 % of the start, with batch norm and without", median(steps), predicted=expected)
    yield equals("pairs in which it is later with batch norm", wins("regression__base", "reached", "0.01"), predicted=0)


def largest_eigenvalue(_: Draw) -> Found:
    spectra = zip(*both("regression__base", "spectrum"), strict=True)
    ratio = fmean([plain["top"] / batch["top"] for batch, plain in spectra])
    yield refutes("λ_max without batch norm over that with it", ratio, published=5.0)
    yield equals("λ_max without batch norm over that with it", ratio, predicted=1.0, rel=2e-2)
    for net, rate in (("batch", 0.2), ("none", 0.2), ("none", 0.05)):
        told = found(f"edge__norm-{net}-lr-{rate:g}")
        last = fmean([v for sharpness in told["sharpness"][-5:] for v in sharpness])
        yield equals(f"λ_max·η/2 at rate {rate:g}, {net}", last / told["limit"], predicted=1.0, rel=2e-2)


def conditioning(_: Draw) -> Found:
    batch, plain = both("regression__base", "spectrum")
    for k, cut in ((1, 1e-6), (3, 1e-3), (4, 1e-2)):
        one, other = (fmean([s["kappa"][k] for s in spectra]) for spectra in (batch, plain))
        yield refutes(f"κ without over κ with, cut-off {cut:g}", other / one, published=200 / 20)
        yield below(f"κ with batch norm, cut-off {cut:g}", one, predicted=1 / cut)
    yield equals("eigenvalues within 1e-8 of zero, batch norm", max(s["zero"][0] for s in batch), predicted=0)
    yield equals("share with a negative eigenvalue", share(s["bottom"] < 0 for s in batch), predicted=1.0)


def stable_rates(_: Draw) -> Found:
    rates = {name: both(f"stable__{name}", "largest") for name in results("akbar2025", "stable__*")}
    ratios = {name: fmean([a / b for a, b in zip(*pair, strict=True)]) for name, pair in rates.items()}
    yield equals("largest stable rate with over without", ratios["base"], predicted=0.95, rel=3e-2)
    yield below(f"the largest ratio of {len(ratios)} settings", max(ratios.values()), predicted=2.1)
    for said, rises, expected in zip(("with", "without"), both("regression__base", "rises"), (0.47, 0.41), strict=True):
        yield equals(f"share of steps in which the loss rises, {said}", fmean(rises), predicted=expected, rel=2e-2)


def spikes(_: Draw) -> Found:
    for label, expected in (("base", (14.6, 89.7)), ("lr-0.02", (24.7, 1.9))):
        for peaks, number in zip(both(f"regression__{label}", "spike"), expected, strict=True):
            yield equals(f"peak of the gradient over those near, {label}", fmean(peaks), predicted=number, rel=2e-2)


def raw_margins(_: Draw) -> Found:
    for moment, expected in (("zero", (3.24, 4.06)), ("end", (7.99, 10.07))):
        one, other = (fmean(margins) for margins in both("margins__base", moment, "margin"))
        yield refutes(f"mean margin with over without, {moment}", one / other, published=1.8 / 1.2)
        yield equals(f"mean margin with batch norm, {moment}", one, predicted=expected[0], rel=2e-3)
        yield equals(f"mean margin without, {moment}", other, predicted=expected[1], rel=2e-3)


def confidence(_: Draw) -> Found:
    for moment in ("zero", "loss", "end"):
        for key, said in (("margin", "larger mean margin"), ("narrow", "wider spread of margins")):
            measured = wins("margins__base", moment, key)
            yield equals(f"pairs with the {said} under batch norm, {moment}", measured, predicted=0)


def accuracy(_: Draw) -> Found:
    fitted = share(epoch >= 0 for epochs in both("margins__base", "zero", "epoch") for epoch in epochs)
    yield equals("share that gets all training points right", fitted, predicted=1.0)
    for task, expected in (("base", 0.0), ("task-committee", 0.9)):
        measured = wins(f"margins__{task}", "loss", "test")
        yield equals(f"pairs that test better with batch norm at equal loss, {task}", measured, predicted=expected)


def noise_tolerance(_: Draw) -> Found:
    batch, plain = both("margins__base", "zero", "noise")
    short, long, free = (fmean(batch[kind]["tolerance"]) for kind in ("x0.1", "x10", "free"))
    yield moves("noise borne by the same function, weights × 0.1 and × 10", short, long)
    yield below("noise in proportion to the weights, batch norm", free, predicted=fmean(plain["free"]["tolerance"]))


def bad_starts(_: Draw) -> Found:
    batch, plain = both("scales__base")

    def trained(rows: list[Any], low: float, high: float, *heads: bool) -> float:
        return share(s >= 0 for r in rows if r["head"] in heads and low <= r["scale"] <= high for s in r["trained"])

    yield equals("trained, × 1e-3 to × 100", trained(batch, 1e-3, 100, True), predicted=1.0)
    yield equals("trained, × 1e-5 to × 1000, head left alone", trained(batch, 1e-5, 1e3, False), predicted=1.0)
    yield equals("trained, × 1e-6", trained(batch, 0, 1e-6, False), predicted=0.1)
    begun = [s for r in batch if not r["head"] and 1e-5 <= r["scale"] <= 1e-3 for s in r["begun"]]
    yield equals("steps to the start of learning, small weights", median(begun), predicted=8.5)
    for low, high in ((0, 0.1), (10, 1e4)):
        others = trained(plain, low, high, False, True)
        yield below(f"trained without batch norm, × {low:g} to {high:g}", others, predicted=0.05)
    broken = share(b == 1 for r in plain for b in r["broken"] if r["scale"] >= 10)
    yield equals("NaN without batch norm, × 10 and more", broken, predicted=0.73, rel=1e-2)


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
            yield equals(f"noise of statistics over that of samples, {said}", measured, predicted=ratio, rel=3e-2)


def scaled_inputs(_: Draw) -> Found:
    factors = found("shift__base", "factors")
    for model, expected in (("batch, running", 15.7), ("none", 8.7), ("batch, own", 0.0)):
        usual, scaled = (fmean(found("shift__base", model, "factor")[factors.index(f)]) for f in (1.0, 0.1))
        lost = 100 * (usual - scaled)
        yield equals(f"points lost at inputs × 0.1, {model}", lost, predicted=expected, rel=1e-2, scale=10.0)


def dropout(_: Draw) -> Found:
    for task, expected in (("base", (-0.9, -4.9)), ("task-committee", (4.6, 3.0))):
        rows = found(f"combined__{task}", "rows")
        for net, points in zip(("batch", "none"), expected, strict=True):
            kept, dropped = (fmean(row(rows, norm=net, rule="sgd", drop=drop)["test"]) for drop in (0.0, 0.5))
            gain = 100 * (dropped - kept)
            yield equals(f"points that dropout adds, {net}, {task}", gain, predicted=points, rel=1e-2, scale=10.0)
