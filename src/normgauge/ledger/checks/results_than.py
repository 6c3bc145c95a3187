"""Checks: results of training that come with the repository, experiments/than2025 and experiments/generalization."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from normgauge.core.checkout import checkout
from normgauge.errors import InputError
from normgauge.ledger.checks.learning import exponential
from normgauge.ledger.claim import Absent, Found, below, equal, moves, refutes, shown
from normgauge.ledger.draw import Draw

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
    except InputError:
        paths = []
    if not paths:
        raise Absent(f"no results of experiments/{study}, {pattern}; from a checkout of the repository")
    return {path.stem.rpartition("__")[2]: json.loads(path.read_text("utf-8")) for path in paths}


def optimizers(net: str) -> dict[str, Run]:
    """A network's runs under five optimizers."""
    found: dict[str, Run] = {}
    for group in ("nets", "optimizers", "decay"):
        found |= results("than2025", f"{group}__{net}-*")
    return {name.partition("-")[2]: run for name, run in found.items()}


def read(run: Run, key: str = "log10_P_w") -> dict[int, float]:
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
    keys = ("log10_P_w", "log10_P_w_frobenius")
    largest, frobenius = (max(max(read(run, key).values()) for run in nets.values()) for key in keys)
    yield refutes("log10 P_w of ResNet-18, largest of five optimizers", largest, published=50, by=0.3)
    yield equal("the same", largest, predicted=26.95, rel=1e-3)
    yield equal("the same with Frobenius norms", frobenius, predicted=37.03, rel=1e-3)
    yield equal("with the optimizer stated", read(nets["adam"])[100], predicted=-62.4, rel=1e-3)
    accuracies = [run["epochs"][-1]["test"][1] for run in nets.values()]
    yield equal("spread of the five test accuracies", max(accuracies) - min(accuracies), predicted=0.057, rel=0.01)


def plain(draw: Draw) -> Found:
    for name, start, end in (("adam", 4.09, 6.46), ("adam-none", 4.09, 12.11)):
        known = read(optimizers("mlp")[name])
        yield equal(f"log10 P_w of the MLP at the start, {name}", known[0], predicted=start, rel=2e-3)
        yield equal("at the end", known[100], predicted=end, rel=2e-3)
    yield equal("decades from epoch 1 to 20", known[20] - known[1], predicted=3.5, rel=0.02)
    yield equal("decades from epoch 50 to 100", known[100] - known[50], predicted=1.5, rel=0.02)
    cnn = results("than2025", "cnn__cnn-none-adam-none")["cnn-none-adam-none"]
    for epoch, decades in ((0, 4.6), (20, 12.0)):
        yield equal(f"log10 P_w of the plain CNN, epoch {epoch}", read(cnn)[epoch], predicted=decades, rel=1e-2)


def norms(draw: Draw) -> Found:
    for net, name, count, least in (("mlp", "adam", 10, 2.91), ("resnet18", "adam-none", 21, 4.55)):
        run = optimizers(net)[name]
        yield equal(f"norms of {net} that grew, {name}", grown(run, "norm"), predicted=count)
        yield equal("the smallest at the end", min(column(run, "norm")), predicted=least, rel=1e-3)
    stated = above(column(optimizers("resnet18")["adam"], "norm"), 1.0)
    yield equal("norms of ResNet-18 above 1, optimizer stated", stated, predicted=17)


def figure_2(draw: Draw) -> Found:
    nets = optimizers("resnet18")
    keys = [INVERSE + mean for mean in ("min", "rms", "max")]
    smallest = min(total(run, key, k) for run in nets.values() for key in keys for k in range(101))
    yield refutes("log10 Π1/σ of ResNet-18, smallest of all", smallest, published=-25, by=0.2)
    yield equal("the same", smallest, predicted=-18.45, rel=1e-3)
    for name, product, count in (("adam", 13.96, 5), ("adam-none", -15.04, 19)):
        run = nets[name]
        yield equal(f"log10 Π1/σ, rms over channels, {name}", total(run, keys[1]), predicted=product, rel=1e-3)
        yield equal(f"layers with σ > 1, {name}", above(column(run, "running"), 1.0), predicted=count)
    met = next(k for k in range(101) if 2 * total(run, keys[1], k) < -25)
    yield equal("epoch at which Π1/σ² passes 10^−25, no decay", met, predicted=56)


def variances(draw: Draw) -> Found:
    for net, least, most in (("mlp", 0.00447, 0.00632), ("resnet18", 0.0076, 1.58)):
        start = column(optimizers(net)["adam"], "sigma", 0)
        yield equal(f"smallest σ at the start, {net}", min(start), predicted=least, rel=1e-3)
        yield equal("largest", max(start), predicted=most, rel=1e-3)
    for name, count, products in (("adam", 2, (1.9, -5.6, -19.9, -27.9)), ("adam-none", 20, (2.3, 15.1, 23.9, 30.1))):
        run = optimizers("resnet18")[name]
        yield equal(f"layers whose σ grew from epoch 80 on, {name}", grown(run, "running", 80), predicted=count)
        for epoch, known in zip((1, 20, 50, 100), products, strict=True):
            product = -2 * total(run, INVERSE + "rms", epoch)
            yield equal(f"log10 Πσ² at epoch {epoch}", product, predicted=known, scale=1.0, rel=0.05)


def figure_3(draw: Draw) -> Found:
    for name, weights, sigmas, end in (("adam-none", 112, 72, 94.63), ("adam", 20, 10, -89.97)):
        run = results("than2025", f"efficientnet__efficientnet_b3-{name}")[f"efficientnet_b3-{name}"]
        yield equal(f"norms of 131 that grew, {name}", grown(run, "norm"), predicted=weights)
        yield equal("variances of 78 that grew", grown(run, "sigma"), predicted=sigmas)
        yield equal("log10 P_w at the end", read(run)[30], predicted=end, rel=1e-3)


def slide(draw: Draw) -> Found:
    nets = optimizers("resnet18")
    yield from exponential(draw)
    path = (total(nets["adam-none"], "log10_prod_max", k) for k in range(101))
    met = next(k for k, value in enumerate(path) if value < math.log10(1.35e-8))
    yield equal("epoch at which Π max γ/σ passes 1.35e-8, no decay", met, predicted=55)
    for name, largest, euclidean in (("adam-none", -9.93, 7.69), ("sgd", 1.56, 19.5)):
        yield equal(f"log10 Π max γ/σ, {name}", total(nets[name], "log10_prod_max"), predicted=largest, rel=2e-3)
        yield equal("log10 Π‖γ/σ‖₂", read(nets[name], "log10_prod_l2")[100], predicted=euclidean, rel=2e-3)


def below_one(draw: Draw) -> Found:
    nets = optimizers("resnet18").values()
    counts, gaps = [total(run, "below_one") for run in nets], [gap(run) for run in nets]
    yield moves("layers of 20 with σ < 1, fewest and most of five optimizers", min(counts), max(counts))
    for what, value, known in (("fewest", min(counts), 1), ("most", max(counts), 18)):
        yield equal(what, value, predicted=known)
    for what, value, points in (("smallest gap", min(gaps), 21.8), ("largest", max(gaps), 23.9)):
        yield equal(f"{what}, points", value, predicted=points, rel=2e-3)


def sweeps(draw: Draw) -> Found:
    mlp, resnet = (
        [total(run, INVERSE + "rms") for run in results("than2025", f"{net}-[bli]*__*").values()]  # batch, lr, init
        for net in ("mlp", "resnet20")
    )
    yield equal("of 8 MLPs, with Π1/σ above 1", above(mlp, 0.0), predicted=7)
    yield equal("log10 of the largest", max(mlp), predicted=4.74, rel=2e-3)
    yield shown("ResNet-20 on either side of 1", min(resnet) < 0 < max(resnet))


def count(draw: Draw) -> Found:
    for group, end, level in (("count", 2.02, -0.014), ("count-layer", 0.041, -0.009)):
        runs = [(float(run["spec"]["normalizers"]), run) for run in results("than2025", f"{group}__*").values()]
        last = statistics.linear_regression(*zip(*((n, gap(run)) for n, run in runs), strict=True)).slope
        yield equal(f"points of gap a normalizer, at the end, {group}", last, predicted=end, scale=1.0, rel=5e-3)
        early = statistics.linear_regression(*zip(*((n, gap_at(run, 0.5)) for n, run in runs if n), strict=True)).slope
        yield equal("where half of the training images are right", early, predicted=level, scale=1.0, rel=1e-3)


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
        name: [(float(same[0]["m"]), statistics.fmean(one["test_error"] for one in same)) for same in parts]
        for name, parts in seeds("samples__*", "sizes").items()
    }
    pairs = [(curves[f"{name.rpartition('-')[0]}-none"], c) for name, c in curves.items() if not name.endswith("none")]
    factors = sorted(factor for without, curve in pairs for factor in fewer(without, curve))
    for what, value, known in (("least", factors[0], 0.752), ("most", factors[-1], 5.21)):
        yield equal(f"times fewer images, {what}", value, predicted=known, rel=2e-3)
    yield equal("median", statistics.median(factors), predicted=1.19, rel=3e-3)
    logs = [[[(math.log(m), math.log(e)) for m, e in curve] for curve in pair] for pair in pairs]
    slopes = [[statistics.linear_regression(*zip(*c, strict=True)).slope for c in pair] for pair in logs]
    yield equal("exponents of the error apart, largest", max(abs(a - b) for a, b in slopes), predicted=0.057, rel=0.01)


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
        slope, less = (statistics.fmean(10 ** net["jacobian_mean"] for net in nets) for nets in (plain, attacked))
        ratios.append(slope / less)
        smaller += sum(net["gap"] for net in attacked) < sum(net["gap"] for net in plain)
    yield equal("mean slope, times smaller, least of 12", min(ratios), predicted=2.5, rel=0.02)
    yield equal("most", max(ratios), predicted=11.1, rel=0.02)
    yield equal("settings with a smaller gap", smaller, predicted=11)


def kendall(selection: str, score: str) -> tuple[float, float]:
    """τ of a score and the gap, with its standard error."""
    told = results("generalization", "ranking")["ranking"]["selections"][selection]["scores"][score]["gap"]["kendall"]
    return told["value"], told["error"]


def ranking(draw: Draw) -> Found:
    for score, known, wide in (("balanced-capacity", 0.062, 0.028), ("log-prod-spec", 0.008, 0.033)):
        value, error = kendall("matched", f"{score}-margin")
        yield equal(f"τ of gap and {score} over margin", value, predicted=known, scale=1.0, rel=1e-3)
        yield equal("its standard error", error, predicted=wide, scale=1.0, rel=1e-3)


def belkin(draw: Draw) -> Found:
    truths = [run["found"]["truth"] for run in results("generalization", "disagreement__mnist-*").values()]
    yield below("training error on MNIST, worst of three", max(t["train_error"] for t in truths), predicted=1e-3)
    yield equal("test error, mean", statistics.fmean(t["error"] for t in truths), predicted=0.0026, rel=0.02)
    yield equal("τ of gap and number of weights, CNNs", kendall("matched cnn", "params")[0], predicted=-0.498, rel=2e-3)


def local_bound(draw: Draw) -> Found:
    tables = [run["found"]["certificate"]["rows"] for run in results("generalization", "tables__*").values()]
    values = [float(row["value"]) for rows in tables for row in rows if row["name"] == "Theorem 20, as published"]
    yield equal("networks", len(values), predicted=18)
    yield equal("(13), least of them", min(values), predicted=122.1, rel=1e-3)
    for name, known in (("global", 0.042), ("balls", 0.111), ("jacobian_mean", 0.387)):
        taus = []
        for data in ("mnist", "fashion_mnist"):
            nets = [n for run in results("generalization", f"local__{data}-*").values() for n in run["found"]["nets"]]
            points = [(n[name][0] if name == "balls" else n[name], n["gap"]) for n in nets if n["train_error"] <= 0.01]
            taus.append(tau(points))
        yield equal(f"τ of gap and {name}", statistics.fmean(taus), predicted=known, scale=1.0, rel=1e-3)


def tau(points: Points) -> float:
    pairs = [(a[0] - b[0], a[1] - b[1]) for a, b in itertools.combinations(points, 2)]
    signs = [[(x > 0) - (x < 0) for x in pair] for pair in pairs]
    return sum(x * y for x, y in signs) / math.sqrt(sum(x * x for x, _ in signs) * sum(y * y for _, y in signs))
