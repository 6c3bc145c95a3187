"""Verdicts on what the text claims beside the experiments: learning rates, flow, curvature, noise, depth, inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from experiments.akbar2025.results import (
    Result,
    Results,
    both,
    cell,
    ends,
    mean,
    median,
    of,
    pct,
    percent,
    share,
    short,
    spread,
)
from experiments.akbar2025.verdicts import NO, OURS, PART, YES, Row, by_share


def stable(found: Results) -> Iterator[Row]:
    """Larger learning rates."""

    def ratio(result: Result) -> list[float]:
        pair = zip(result.found["batch"]["largest"], result.found["none"]["largest"], strict=True)
        return [a / b for a, b in pair]

    units = of(found, "stable")
    base = units["base"].found
    every = {label: mean(ratio(r)) for label, r in units.items()}
    yield Row(
        "5.lr",
        "BN allows much larger learning rates (2.3, 5.1, 7.1)",
        f"largest stable η {both(base['batch']['largest'], base['none']['largest'])}; ratio "
        f"{short(min(every.values()))} to {short(max(every.values()))} over {len(every)} settings",
        by_share(share(v > 1.5 for v in every.values())),
        every["base"],
        "share of settings in which the largest stable learning rate is 1.5 times as large with BN; value: at the base",
    )
    best = {
        label: [b / p for b, p in zip(r.found["batch"]["best"], r.found["none"]["best"], strict=True)]
        for label, r in units.items()
    }
    wins = {label: share(v < 1 for v in ratios) for label, ratios in best.items()}
    yield Row(
        "5.tuned",
        "BN converges in fewer iterations (each at its best learning rate)",
        f"loss after {units['base'].settings['steps']} steps, BN over plain: {spread(best['base'])}; BN is lower in "
        f"{pct(wins['base'])} of seeds at the base, in {ends(percent([*wins.values()]), lambda v: f'{v:.0f}')} % over "
        f"{len(wins)} settings",
        by_share(mean([*wins.values()])),
        mean([*wins.values()]),
        "share of seeds in which BN reaches the lower loss, each at the best learning rate of its own, over settings",
    )


def growth(found: Results) -> Iterator[Row]:
    """The norm under flow and under descent."""
    rows = found["growth/base"].found["rows"]
    flow, finest, coarsest = rows[-1], rows[-2], rows[0]
    gap = max(v for r in rows[:-1] for v in r["gap"])
    yield Row(
        "5.flow",
        "gradient flow keeps every ‖w‖ (Lemma 5.1)",
        f"largest change {short(max(flow['largest']))} (ε = 0); by descent Σ‖w‖² grows by "
        f"{short(100 * mean(coarsest['growth']))} % at η = {coarsest['lr']:g}, "
        f"{short(100 * mean(finest['growth']))} % at {finest['lr']:g}, which is Σ η²‖∇‖² to {short(gap)}",
        YES if max(flow["largest"]) < 1e-4 else NO,
        max(flow["largest"]),
        "largest relative change of one norm along a Runge-Kutta flow",
    )


def edge(found: Results) -> Iterator[Row]:
    """Where λ_max settles."""
    units = of(found, "edge")

    def last(norm: str, rule: str, key: str) -> list[float]:
        chosen = [r for r in units.values() if r.settings["norm"] == norm and r.settings["rule"] == rule]
        return [v / r.found["limit"] for r in chosen for row in r.found[key][-5:] for v in row]

    levels = {n: last(n, "sgd", "sharpness") for n in ("batch", "none")}
    yield Row(
        "5.edge",
        "BN smooths the landscape: λ_max is lower at the solution",
        f"η λ_max/2 at the end of descent: {spread(levels['batch'])} with BN, {spread(levels['none'])} without",
        NO if mean(levels["batch"]) > 0.8 * mean(levels["none"]) else YES,
        mean(levels["batch"]),
        "η λ_max/2 with BN, mean over the last readings, learning rates and seeds; the learning rate sets λ_max",
    )
    for rule, key in (("momentum", "sharpness"), ("adam", "preconditioned")):
        both = [last(n, rule, key) for n in ("batch", "none")]
        yield Row(
            f"5.edge_{rule}",
            f"λ_max is lower with BN under {rule.replace('adam', 'Adam, preconditioned')}",
            f"over the optimizer's limit: {spread(both[0])} with BN, {spread(both[1])} without",
            OURS,
            mean(both[0]),
            "λ_max over the limit of the optimizer with BN",
        )


def saddle(found: Results) -> Iterator[Row]:
    """Leaving a saddle."""
    base = found["saddle/base"]
    told, most = base.found, base.settings["steps"]

    def time(norm: str, kind: str, at: int) -> float:
        return median([s if s >= 0 else most for s in told[norm][kind][at]])

    small = told["batches"].index(min(told["batches"], key=lambda b: abs(b - 32)))
    times = {kind: time("batch", kind, small) for kind in ("neither", "samples", "statistics", "both")}
    plain = time("none", "samples", small)
    ratios = [time("batch", "both", k) / time("batch", "samples", k) for k in range(len(told["batches"]))]
    yield Row(
        "5.saddle",
        "the noise of BN's statistics helps to leave saddles (5.1, 7.1)",
        f"median steps at batch {told['batches'][small]}: {times['neither']:.0f} without noise, "
        f"{times['statistics']:.0f} with that of the statistics, {times['samples']:.0f} of the samples, "
        f"{times['both']:.0f} of both; plain network, samples: {plain:.0f}. Both over samples alone, over batch sizes: "
        f"{ends(ratios)}",
        YES if times["both"] < 0.8 * times["samples"] else PART if times["statistics"] < 0.8 * times["neither"] else NO,
        times["both"] / times["samples"],
        "steps with both kinds of noise over steps with that of the samples alone; below 0.8 confirms",
    )


def noise(found: Results) -> Iterator[Row]:
    """Noise of samples and of statistics."""
    told = found["noise/base"].found
    ratios = {
        moment: [mean(r["statistics"]) / mean(r["samples"]) for r in told["batch"][moment]]
        for moment in ("start", "trained")
    }
    said = {
        moment: ", ".join(f"{short(v)} ({b})" for b, v in zip(told["batches"], row, strict=True))
        for moment, row in ratios.items()
    }
    yield Row(
        "5.noise",
        "BN's noise is a sizeable addition to that of SGD (7.2 calls it mild)",
        f"variance of the statistics over that of the samples, by batch: {said['start']} at the start; "
        f"{said['trained']} after training",
        OURS,
        ratios["start"][-1],
        "that ratio at the start, largest batch",
    )


def depth(found: Results) -> Iterator[Row]:
    """Gradients against depth."""
    units = of(found, "depth")
    relu = units["activation-relu"].found
    others = {
        r.settings["activation"]: r.found for r in units.values() if r.name.count("-") == 1 and r.found["predicted"]
    }
    said = ", ".join(f"{name} {spread(f['factor'], 3)} ({f['predicted']:.3f})" for name, f in others.items())
    none = next((r.found for r in units.values() if r.settings["norm"] == "none"), None)
    yield Row(
        "5.depth",
        "BN can prevent exponential growth of gradients with depth (9.5, an intuition)",
        f"factor a layer, predicted for wide layers in parentheses: {said}"
        + (f"; ReLU without BN {spread(none['factor'], 3)}" if none else ""),
        by_share(share(mean(f["factor"]) < 1.05 for f in others.values())),
        mean(relu["factor"]),
        "share of activations with a factor below 1.05 a layer at initialization; value: the factor with ReLU",
    )


def shift(found: Results) -> Iterator[Row]:
    """Scaled inputs."""
    base = found["shift/base"].found

    def lost(model: str, factor: float) -> list[float]:
        rows = base[model]["factor"]
        one, other = (rows[base["factors"].index(f)] for f in (1.0, factor))
        return [100 * (a - b) for a, b in zip(one, other, strict=True)]

    named = {
        "BN, running statistics": "batch, running",
        "BN, those of the batch": "batch, own",
        "LayerNorm": "layer",
        "plain": "none",
        "plain, no biases": "no biases",
    }
    said = "; ".join(
        f"× {factor:g}: " + ", ".join(f"{spread(lost(model, factor), 1)} ({name})" for name, model in named.items())
        for factor in (0.1, 100.0)
    )
    yield Row(
        "5.shift",
        "BN may make a network more robust to a change of input scale (7.2)",
        f"points of test accuracy lost at inputs {said}",
        by_share(share(mean(lost(f"batch, {how}", 0.1)) < mean(lost("none", 0.1)) - 1 for how in ("own", "running"))),
        mean(lost("batch, running", 0.1)) - mean(lost("none", 0.1)),
        "whether BN loses a point less at inputs × 0.1, with statistics of the batch and with running ones; "
        "value: points lost with the latter minus points lost without BN",
    )


def combined(found: Results) -> Iterator[Row]:
    """Optimizers and dropout."""
    rows = found["combined/base"].found["rows"]

    def at(norm: str, rule: str, drop: float, key: str) -> list[float]:
        told: list[float] = cell(rows, norm=norm, rule=rule, drop=drop)[key]
        return told

    gain = {n: 100 * (mean(at(n, "adam", 0.0, "test")) - mean(at(n, "sgd", 0.0, "test"))) for n in ("batch", "none")}
    yield Row(
        "5.adam",
        "with BN plain SGD is enough, without it one needs Adam (9.1)",
        f"test accuracy gained by Adam: {short(gain['batch'], 1)} points with BN, {short(gain['none'], 1)} without; "
        f"SGD without BN has {short(100 * mean(at('none', 'sgd', 0.0, 'train')), 1)} % of the training points right "
        f"and {short(100 * mean(at('none', 'sgd', 0.0, 'test')), 1)} % of the test points; Adam with BN "
        f"{short(100 * mean(at('batch', 'adam', 0.0, 'test')), 1)} %",
        (YES if gain["none"] > 2 else PART) if gain["none"] > max(gain["batch"], 0) else NO,
        gain["none"] - gain["batch"],
        "Adam gains more than 2 points without BN, and less with it, confirms; some, and less with BN, is part. "
        "value: points it gains without minus points it gains with BN",
    )
    radial = {rule: mean(at("batch", rule, 0.0, "radial")) for rule in ("sgd", "momentum", "adam")}
    yield Row(
        "5.radial",
        "updates of descent stay at right angles to w (5.1); momentum and Adam are not stated",
        "largest cosine of an update with w: " + ", ".join(f"{short(v)} ({rule})" for rule, v in radial.items()),
        YES if radial["sgd"] < 1e-3 else NO,
        radial["sgd"],
        "largest cosine with SGD, which is zero up to ε; below 1e-3 confirms",
    )
    drop = dropped(rows)
    other = found.get("combined/task-committee")
    also = dropped(other.found["rows"]) if other else {}
    told = f" ({short(also['batch'], 1)} and {short(also['none'], 1)} on the other task)" if also else ""
    yield Row(
        "5.dropout",
        "dropout and BN somewhat reduce each other's effect (9.5, as noted by others)",
        f"test accuracy gained by dropout 0.5: {short(drop['batch'], 1)} points with BN, {short(drop['none'], 1)} "
        f"without{told}; variance at test over running variance {spread(at('batch', 'sgd', 0.5, 'variance'))}",
        by_share(share(abs(d["batch"]) < abs(d["none"]) for d in (drop, also) if d)),
        drop["batch"] - drop["none"],
        "share of tasks where dropout moves accuracy less with BN; value: points gained with BN minus without",
    )


def dropped(rows: list[Any]) -> dict[str, float]:
    """Points of test accuracy that dropout 0.5 adds under SGD, with and without BatchNorm."""
    return {
        n: 100
        * (
            mean(cell(rows, norm=n, rule="sgd", drop=0.5)["test"])
            - mean(cell(rows, norm=n, rule="sgd", drop=0.0)["test"])
        )
        for n in ("batch", "none")
    }


TEXT: dict[str, Callable[[Results], Iterator[Row]]] = {
    f.__name__: f for f in (stable, growth, edge, saddle, noise, depth, shift, combined)
}
