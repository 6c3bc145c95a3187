"""Figures of what the text claims beside its experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.akbar2025 import panels
from experiments.akbar2025.panels import HUES, NAMES, log, over
from experiments.akbar2025.results import Results, mean, median, of
from experiments.plot import Line, Panel

SHIFTED = {
    "batch, running": "BN, running",
    "batch, own": "BN, of the batch",
    "layer": "LayerNorm",
    "none": "plain",
    "no biases": "plain, no biases",
}
SHORT = {"sgd": "SGD", "momentum": "mom.", "adam": "Adam"}
KINDS = {"neither": "no noise", "statistics": "statistics", "samples": "samples", "both": "both"}


def stable(found: Results) -> list[Panel]:
    """Loss reached by learning rate, and the largest that is stable, at every setting."""
    units = of(found, "stable")
    base, steps = units["base"].found, units["base"].settings["steps"]
    xs = [log(lr) for lr in base["grid"]]
    reached = tuple(over(NAMES[m], xs, base[m]["reached"], HUES[m], marks=True) for m in ("batch", "none"))
    largest = []
    for model in ("batch", "none"):
        columns = [r.found[model]["largest"] for r in units.values()]
        points = tuple((float(k), log(median(c))) for k, c in enumerate(columns))
        band = tuple((float(k), log(min(c)), log(max(c))) for k, c in enumerate(columns))
        largest.append(Line(NAMES[model], points, HUES[model], marks=True, joined=False, band=band))
    numbered = tuple((float(k), str(k + 1)) for k in range(len(units)))
    return [
        Panel(f"loss after {steps} steps", reached, x="learning rate", y="log", ticks=panels.ticks(base["grid"], 3)),
        Panel(
            "largest stable learning rate", tuple(largest), x="setting, in the table's order", y="log", ticks=numbered
        ),
    ]


def growth(found: Results) -> list[Panel]:
    """Growth of squared norms over the same time, by learning rate."""
    lines = []
    for hue, (label, r) in enumerate(of(found, "growth").items()):
        rows = r.found["rows"][:-1]
        xs = [log(row["lr"]) for row in rows]
        name = {"base": "BatchNorm, ε = 0", "norm-layer": "LayerNorm"}.get(label, label.replace("eps-", "ε = "))
        by_seed = [[row["growth"][k] for row in rows] for k in range(r.seeds)]
        lines.append(over(name, xs, by_seed, hue, marks=True))
    base = found["growth/base"].found["rows"]
    law = tuple((log(row["lr"]), log(mean(row["pushed"]))) for row in base[:-1])
    ticks = panels.ticks([row["lr"] for row in base[:-1]])
    dashed = Line("Σ η²‖∇‖², ε = 0", law, 5, dashed=True)
    changed = []
    for hue, (label, name) in enumerate((("base", "BatchNorm"), ("norm-layer", "LayerNorm"))):
        if f"growth/{label}" in found:
            rows = found[f"growth/{label}"].found["rows"]
            points = tuple((log(row["lr"]), log(max(row["largest"]))) for row in rows[:-1])
            changed.append(Line(f"{name}, descent", points, 3 * hue, marks=True))
            still = log(max(rows[-1]["largest"]))
            flow = tuple((log(row["lr"]), still) for row in rows[:-1])
            changed.append(Line(f"{name}, flow", flow, 3 * hue, dashed=True))
    return [
        Panel("growth of Σ‖w‖² over the start", (*lines, dashed), x="learning rate", y="log", ticks=ticks),
        Panel("largest change of one ‖w‖, ε = 0", tuple(changed), x="learning rate", y="log", ticks=ticks),
    ]


def edge(found: Results) -> list[Panel]:
    """Largest curvature over the optimizer's limit, and the scale-free sharpness."""
    units = of(found, "edge")
    made = []
    for rule, title, key in (
        ("sgd", "η λ_max / 2, gradient descent", "sharpness"),
        ("momentum", "η λ_max / 3.8, momentum 0.9", "sharpness"),
        ("adam", "η λ_max(P^-½ H P^-½) / 38, Adam", "preconditioned"),
        ("sgd", "λ_max(D H D), gradient descent", "scale_free"),
    ):
        lines = []
        rates = sorted({r.settings["lr"] for r in units.values() if r.settings["rule"] == rule})
        for r in units.values():
            if r.settings["rule"] == rule:
                by = 1.0 if key == "scale_free" else r.found["limit"]
                points = tuple(
                    (s, log(median(row) / by)) for s, row in zip(r.found["steps"], r.found[key], strict=True) if s
                )
                model, lr = r.settings["norm"], r.settings["lr"]
                short = {"batch": "BN", "none": "plain"}[model]
                lines.append(Line(f"{short} {lr:g}", points, rates.index(lr), dashed=model == "none"))
        rules = () if key == "scale_free" else ((0.0, "limit"),)
        made.append(Panel(title, tuple(lines), x="step", y="log", rules=rules))
    return made


def saddle(found: Results) -> list[Panel]:
    """Steps to leave a saddle by batch size and kind of noise."""
    made = []
    for label, r in of(found, "saddle").items():
        lines = []
        for model in ("batch", "none"):
            for hue, (kind, name) in enumerate(KINDS.items()):
                if kind in r.found[model]:
                    values = [
                        median([s if s >= 0 else r.settings["steps"] for s in row]) for row in r.found[model][kind]
                    ]
                    points = tuple((log(b), log(v)) for b, v in zip(r.found["batches"], values, strict=True))
                    said = f"{'BN' if model == 'batch' else 'plain'}: {name}"
                    lines.append(Line(said, points, hue, dashed=model == "none", marks=True))
        title = "off by 1e-6, η = 0.05" if label == "base" else label.replace("off-", "off by ").replace("lr-", "η = ")
        made.append(Panel(title, tuple(lines), x="batch", y="log", ticks=panels.ticks(r.found["batches"])))
    return made


def noise(found: Results) -> list[Panel]:
    """Noise of the gradient by batch size: samples, BatchNorm's statistics, bias."""
    base = found["noise/base"].found
    xs = [log(b) for b in base["batches"]]
    made = []
    for moment, title in (("start", "at the start"), ("trained", "after training")):
        rows = base["batch"][moment]
        lines = [
            _parts(name, xs, [row[name] for row in rows], k) for k, name in enumerate(("samples", "statistics", "bias"))
        ]
        lines.append(_parts("plain: samples", xs, [row["samples"] for row in base["none"][moment]], 0, dashed=True))
        made.append(Panel(f"{title}, over ‖∇‖²", tuple(lines), x="batch", y="log", ticks=panels.ticks(base["batches"])))
    return made


def _parts(
    name: str, xs: Sequence[float], columns: Sequence[Sequence[float]], hue: int, *, dashed: bool = False
) -> Line:
    return Line(
        name, tuple((x, log(mean(c))) for x, c in zip(xs, columns, strict=True)), hue, dashed=dashed, marks=True
    )


def depth(found: Results) -> list[Panel]:
    """Gradient norms at initialization against the layer, relative to the last."""
    units = of(found, "depth")
    some = {
        "ReLU, width 256, batch 256": {
            "activation-relu-depth-80": "BN",
            "activation-relu-batch-16": "BN, batch 16",
            "activation-relu": "BN, 40 layers",
            "norm-layer-activation-relu": "LayerNorm",
            "norm-none-activation-relu": "plain",
        },
        "BatchNorm, tanh and linear": {
            "activation-tanh": "tanh",
            "activation-linear": "linear",
            "activation-linear-batch-16": "linear, batch 16",
        },
    }
    made = []
    for title, chosen in some.items():
        lines = []
        for hue, (label, name) in enumerate(chosen.items()):
            if label in units:
                curves, predicted = units[label].found["curves"], units[label].found["predicted"]
                layers = range(1 - len(curves[0]), 1)
                points = tuple((k, median([c[k - 1] for c in curves])) for k in layers)
                lines.append(Line(name, points, hue))
                if label in ("activation-relu-depth-80", "activation-tanh"):
                    lines.append(Line("predicted", tuple((k, -k * log(predicted)) for k in layers), 5, dashed=True))
        made.append(Panel(title, tuple(lines), x="layers from the last", y="log"))
    return made


def shift(found: Results) -> list[Panel]:
    """Test accuracy when the inputs are scaled or shifted after training."""
    made = []
    for r in of(found, "shift").values():
        for key, axis in (("factor", "factors"), ("offset", "offsets")):
            at = [v for v in r.found[axis] if v > 0]
            lines = []
            for hue, (model, name) in enumerate(SHIFTED.items()):
                rows = r.found[model][key][-len(at) :]
                points = tuple((log(v), mean(row)) for v, row in zip(at, rows, strict=True))
                lines.append(Line(name, points, hue, marks=True))
            task = r.settings["task"]
            made.append(
                Panel(
                    f"{task}: inputs {'×' if key == 'factor' else '+'}",
                    tuple(lines),
                    x=key,
                    y="%",
                    ticks=panels.ticks(at),
                )
            )
    return made


def combined(found: Results) -> list[Panel]:
    """Test accuracy by dropout, with and without BatchNorm, for three optimizers."""
    made = []
    for r in of(found, "combined").values():
        lines = []
        for model in ("batch", "none"):
            for hue, rule in enumerate(r.settings["lrs"]):
                rows = [row for row in r.found["rows"] if row["norm"] == model and row["rule"] == rule]
                points = tuple((row["drop"], mean(row["test"])) for row in rows)
                lines.append(
                    Line(
                        f"{'BN' if model == 'batch' else 'plain'} {SHORT[rule]}",
                        points,
                        hue,
                        dashed=model == "none",
                        marks=True,
                    )
                )
        made.append(Panel(f"{r.settings['task']}: test accuracy", tuple(lines), x="dropout", y="%"))
    return made


MORE: dict[str, Callable[[Results], list[Panel]]] = {
    f.__name__: f for f in (stable, growth, edge, saddle, noise, depth, shift, combined)
}
