"""Tables of what the text claims beside its experiments."""

from __future__ import annotations

from collections.abc import Callable

from experiments.akbar2025.results import Results, mean, of, short, spread, steps
from experiments.than2025.table import grid

MODELS = {"batch": "BN", "none": "plain"}
SHOWN = {"factor": (0.01, 0.1, 0.3, 1.0, 100.0), "offset": (1.0, 3.0, 10.0)}


def stable(found: Results) -> str:
    """Largest stable learning rate at every setting."""
    lines = []
    for label, r in of(found, "stable").items():
        bn, plain = r.found["batch"], r.found["none"]
        ratio = [a / b for a, b in zip(bn["largest"], plain["largest"], strict=True)]
        reached = [spread(m["best"]) for m in (bn, plain)]
        lines.append([label, spread(bn["largest"]), spread(plain["largest"]), spread(ratio), *reached])
    headers = ("setting", "BN: largest η", "plain: largest η", "ratio", "BN: best loss", "plain: best loss")
    return grid(headers, lines, words=1)


def edge(found: Results) -> str:
    """λ_max over the optimizer's limit at the end, and the scale-free sharpness."""
    lines = []
    for r in of(found, "edge").values():
        s = r.settings
        ends = [[v / r.found["limit"] for v in row] for row in r.found["preconditioned"]]
        late = [v for row in ends[-5:] for v in row]
        free = [v for row in r.found["scale_free"][-5:] for v in row]
        start = spread(ends[0] if s["rule"] != "adam" else ends[1])
        lines.append([MODELS[s["norm"]], s["rule"], f"{s['lr']:g}", start, spread(late), spread(free, 0)])
    return grid(("network", "optimizer", "η", "over the limit, start", "end", "λ_max(DHD), end"), lines, words=2)


def saddle(found: Results) -> str:
    """Median steps to leave the saddle, by batch size and noise."""
    told = found["saddle/base"].found
    columns = {
        "BN, none": told["batch"]["neither"],
        "BN, statistics": told["batch"]["statistics"],
        "BN, samples": told["batch"]["samples"],
        "BN, both": told["batch"]["both"],
        "plain, none": told["none"]["neither"],
        "plain, samples": told["none"]["samples"],
    }
    lines = [[str(b), *(steps(c[k]) for c in columns.values())] for k, b in enumerate(told["batches"])]
    return grid(("batch", *columns), lines, words=0)


def depth(found: Results) -> str:
    """The factor a layer."""
    lines = []
    for r in of(found, "depth").values():
        s, f = r.settings, r.found
        predicted = f"{f['predicted']:.3f}" if f["predicted"] else "–"
        sizes = [str(s[k]) for k in ("width", "depth", "batch")]
        lines.append([s["norm"], s["activation"], *sizes, spread(f["factor"], 3), predicted])
    headers = ("normalizer", "activation", "width", "depth", "batch", "factor a layer", "predicted, wide and large")
    return grid(headers, lines, words=2)


def combined(found: Results) -> str:
    """Optimizer by dropout."""
    lines = []
    for row in found["combined/base"].found["rows"]:
        bn = row["norm"] == "batch"
        lines.append(
            [
                MODELS[row["norm"]],
                row["rule"],
                f"{row['drop']:g}",
                steps(row["to95"]),
                *(spread([100 * v for v in row[key]], 1) for key in ("train", "test")),
                *(spread(row[key]) if bn else "–" for key in ("radial", "growth", "variance")),
            ]
        )
    headers = ("network", "optimizer", "dropout", "epochs to 95 %", "train, %", "test, %", "largest cos(Δw, w)")
    return grid((*headers, "growth of ‖w‖", "variance, test over running"), lines, words=2)


def growth(found: Results) -> str:
    """Growth of Σ‖w‖² by learning rate, and of the norm that changed most along the flow."""
    units = of(found, "growth")
    names = {"base": "BN, ε = 0", "norm-layer": "LayerNorm, ε = 0"}
    lines = []
    for k, row in enumerate(units["base"].found["rows"]):
        cells = [spread([100 * v for v in r.found["rows"][k]["growth"]]) for r in units.values()]
        largest = short(max(row["largest"]))
        lines.append([f"{row['lr']:g}" if row["lr"] else "flow", *cells, largest, spread(row["loss"])])
    headers = [names.get(label, label.replace("eps-", "BN, ε = ")) for label in units]
    return grid(("η", *headers, "ε = 0: largest change of one ‖w‖", "ε = 0: loss"), lines, words=1)


def noise(found: Results) -> str:
    """Variance of the gradient of a batch over ‖∇‖², from samples and from statistics."""
    told = found["noise/base"].found
    lines = []
    for k, batch in enumerate(told["batches"]):
        cells = []
        for moment in ("start", "trained"):
            row, plain = told["batch"][moment][k], told["none"][moment][k]
            cells += [short(mean(row[key])) for key in ("samples", "statistics", "bias")]
            cells += [short(mean(row["cosine"])), short(mean(plain["cosine"]))]
        lines.append([str(batch), *cells])
    names = ("samples", "statistics", "bias", "cosine", "cosine, plain")
    return grid(("batch", *(f"{m}: {n}" for m in ("start", "trained") for n in names)), lines, words=0)


def shift(found: Results) -> str:
    """Test accuracy on scaled and on moved inputs."""
    lines = []
    for r in of(found, "shift").values():
        for key, axis, sign in (("factor", "factors", "×"), ("offset", "offsets", "+")):
            for k, value in enumerate(r.found[axis]):
                if value not in SHOWN[key]:
                    continue
                rows = [r.found[m][key][k] for m in ("batch, running", "batch, own", "layer", "none", "no biases")]
                means = [f"{100 * mean(row):.1f}" for row in rows]
                lines.append([r.settings["task"], f"{sign} {value:g}", *means])
    headers = ("task", "inputs", "BN, running", "BN, of the batch", "LayerNorm", "plain", "plain, no biases")
    return grid(headers, lines, words=2)


TABLES: dict[str, Callable[[Results], str]] = {
    f.__name__: f for f in (stable, growth, edge, saddle, noise, depth, shift, combined)
}
