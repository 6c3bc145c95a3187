"""Train five small networks on handwritten digits, gauge each, and show which numbers can be trusted.

The networks differ in their normalization only. One of them is then rescaled in a way that leaves its function alone:
the published products move by many decades, the balanced bound stays. Needs scikit-learn (normgauge[data]).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normgauge.cli.output import standard_output, write_json
from normgauge.cli.progress import Report, progress_bar
from normgauge.core.reading import LN10, Reading
from normgauge.errors import InputError
from normgauge.render.numbers import decades, factor
from normgauge.render.table import Grid

if TYPE_CHECKING:
    import torch
    from torch import nn

HELP = "train five small networks and compare them"
EXAMPLES = """\
examples:
  normgauge demo                     about a minute; writes demo-output/report.html and readings.json
  normgauge demo --quick --out tmp   a few seconds, badly trained networks
"""
NETWORKS = {"no norm": None, "BatchNorm": "batch", "LayerNorm": "layer", "GroupNorm": "group", "RMSNorm": "rms"}
RESCALINGS = {"as trained": (0.0, 0.0), "all x 1,000": (3.0, 3.0), "each x 0.01 to 10,000": (-2.0, 4.0)}
SIZES = (64, 64, 64, 64, 10)
SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Trained:
    """One network of the demo and what was read from it."""

    name: str
    accuracy: float
    point: Reading
    everywhere: Reading


@dataclass(frozen=True, slots=True)
class Twin:
    """One rescaling of the BatchNorm network: how far its outputs and its numbers moved."""

    name: str
    output_change: float
    reading: Reading


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--out", metavar="DIR", default="demo-output", help="folder for report.html and readings.json")
    parser.add_argument("--quick", action="store_true", help="train for two epochs only")
    parser.add_argument(
        "--json", metavar="FILE", help="write all readings as JSON; - for standard output and nothing else"
    )


def run(args: argparse.Namespace) -> int:
    """Train, gauge, rescale, tell."""
    folder = _folder(args.out)
    with progress_bar() as progress:
        networks, twins = measure(epochs=2 if args.quick else 30, progress=progress)
    words = verdict(networks, twins)
    data = _to_json(networks, twins)
    write_json(data, str(folder / "readings.json"))
    _write_page(data["labels"], networks, twins, folder / "report.html", words)
    if args.json is not None:
        write_json(data, args.json)
    if args.json != "-":
        _show(networks, twins, [*words, f"Written: {folder / 'report.html'}, {folder / 'readings.json'}"])
    return 0


def measure(epochs: int, progress: Report | None = None) -> tuple[list[Trained], list[Twin]]:
    """Train and read every network, then every rescaled twin of the BatchNorm one."""
    from normgauge.zoo import digits

    batch = digits("test", limit=SAMPLES).inputs
    networks, models = [], {}
    for done, (name, norm) in enumerate(NETWORKS.items()):
        if progress:
            progress(f"training with {name}", done / (len(NETWORKS) + 1))
        models[name], accuracy = _train(norm, epochs)
        networks.append(Trained(name, accuracy, *_read(models[name], batch)))
    if progress:
        progress("rescaling", len(NETWORKS) / (len(NETWORKS) + 1))
    return networks, list(_twins(models["BatchNorm"], batch))


def _train(norm: str | None, epochs: int) -> tuple[nn.Module, float]:
    import torch

    from normgauge.training import accuracy, train
    from normgauge.zoo import digits, mlp

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = mlp(SIZES, norm=norm)
    train(model, digits("train"), epochs=epochs, batch_size=64, lr=1e-3, seed=0)
    return model, accuracy(model, digits("test"))


def _read(model: nn.Module, batch: torch.Tensor) -> list[Reading]:
    from normgauge.measure import readings

    return readings(model, batch, scopes=("point", "global"))


def _twins(model: nn.Module, batch: torch.Tensor) -> Iterator[Twin]:
    import torch

    from normgauge.cli.rescaling import rescaled
    from normgauge.measure import gauge

    exact = batch.double()
    with torch.no_grad():
        before = rescaled(model, 0.0, 0.0)(exact)
        for name, (low, high) in RESCALINGS.items():
            twin = rescaled(model, low, high)
            change = float((twin(exact) - before).abs().max() / before.abs().max())
            yield Twin(name, change, gauge(twin, exact, scope="global", search=False))


def verdict(networks: Sequence[Trained], twins: Sequence[Twin]) -> list[str]:
    """What the numbers say, in plain words."""
    tame = min(networks, key=lambda n: n.point.log_upper)
    wild = max(networks, key=lambda n: n.point.log_upper)
    low, high = min(n.accuracy for n in networks), max(n.accuracy for n in networks)
    p_w = [_published(t.reading, "log10_P_w") for t in twins]
    inverse = [_inverse_sigma(t.reading) for t in twins]
    bounds = [t.reading.log_upper / LN10 for t in twins]
    return [
        f"The {len(networks)} networks read the digits right {low:.1%} to {high:.1%} of the time.",
        f"At the samples {wild.name} reacts the most (a small change grows at most {factor(wild.point.log_upper)}-fold, "
        f"proved) and {tame.name} the least (at most {factor(tame.point.log_upper)}-fold).",
        f"Rescaling the BatchNorm network moved P_w by {max(p_w) - min(p_w):.1f} decades and Π1/σ by "
        f"{max(inverse) - min(inverse):.1f}, while its outputs moved by {max(t.output_change for t in twins):.0e} of "
        f"their size and the balanced bound by {max(bounds) - min(bounds):.4f} decades: the products depend on the "
        "scale in which the weights happen to be written, the balanced bound is a property of the function.",
    ]


def _published(reading: Reading, name: str) -> float:
    return float(reading.published[name])


def _inverse_sigma(reading: Reading) -> float:
    return float(reading.published["log10_prod_inv_sigma"]["rms"])


def _grids(networks: Sequence[Trained], twins: Sequence[Twin]) -> tuple[Grid, Grid]:
    trained = tuple(
        (
            n.name,
            f"{n.accuracy:.1%}",
            factor(n.point.log_lower),
            factor(n.point.log_upper),
            decades(n.everywhere.log_upper),
            decades(n.everywhere.log_folded),
        )
        for n in networks
    )
    headers = ("network", "accuracy", "found", "at most", "log10 everywhere", "folded only")
    moved = tuple(
        (
            t.name,
            f"{t.output_change:.0e}",
            f"{_published(t.reading, 'log10_P_w'):.2f}",
            f"{_inverse_sigma(t.reading):.2f}",
            decades(t.reading.log_folded),
            decades(t.reading.log_upper, 4),
        )
        for t in twins
    )
    moved_headers = (
        "channels of BatchNorm",
        "outputs moved",
        "log10 P_w",
        "log10 Π1/σ",
        "log10 folded",
        "log10 balanced",
    )
    numeric = frozenset(range(1, 6))
    return (
        Grid(
            "Five networks: how much a small change of an image can grow, at 100 samples and everywhere",
            headers,
            trained,
            numeric,
        ),
        Grid("One network, the same function, three ways to write it down", moved_headers, moved, numeric),
    )


def _show(networks: Sequence[Trained], twins: Sequence[Twin], words: Sequence[str]) -> None:
    from normgauge.render.console import draw

    with standard_output() as stream:
        draw([*_grids(networks, twins), "", *words], stream)


def _to_json(networks: Sequence[Trained], twins: Sequence[Twin]) -> dict[str, Any]:
    items = [(f"{n.name}, {r.scope}", r) for n in networks for r in (n.point, n.everywhere)]
    items += [(f"BatchNorm, {t.name}", t.reading) for t in twins]
    return {
        "schema": 1,
        "accuracy": {n.name: n.accuracy for n in networks},
        "output_change": {t.name: t.output_change for t in twins},
        "labels": [label for label, _ in items],
        "readings": [reading.to_json() for _, reading in items],
    }


def _write_page(
    labels: list[str], networks: Sequence[Trained], twins: Sequence[Twin], path: Path, words: Sequence[str]
) -> None:
    from normgauge.render.page import report

    shown = [r for n in networks for r in (n.point, n.everywhere)] + [t.reading for t in twins]
    report(shown, path, labels=labels, title="normgauge: five networks on digits", lead=words)


def _folder(name: str) -> Path:
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; give another with --out") from None
    return folder
