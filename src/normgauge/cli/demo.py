"""Train five small networks on handwritten digits, gauge each, and show which numbers can be trusted.

The networks differ in their normalization only. One of them is then rescaled in a way that leaves its function alone:
the published products move by many decades, the balanced bound stays. Needs scikit-learn (normgauge[data]).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normgauge.cli.output import check_targets, progress_bar, write_answer, write_json
from normgauge.core.checker import SCHEMA
from normgauge.core.errors import InputError
from normgauge.core.spelled import LN10
from normgauge.render.console import draw_blocks
from normgauge.render.numbers import DOWN, UP, format_decades, format_factor
from normgauge.render.page import report
from normgauge.render.table import Grid

if TYPE_CHECKING:
    from normgauge.cli.demo_networks import Trained, Twin

HELP = "train five small networks and compare them"
EXAMPLES = """\
examples:
  normgauge demo                     one to two minutes; writes demo-output/report.html and readings.json
  normgauge demo --quick --out tmp   a few seconds, badly trained networks
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--out", metavar="DIR", default="demo-output", help="folder for report.html and readings.json")
    parser.add_argument("--quick", action="store_true", help="two epochs, twenty samples, no search for slopes")
    parser.add_argument(
        "--json", metavar="FILE", help="write all readings as JSON; - for standard output and nothing else"
    )


def run(args: argparse.Namespace) -> int:
    """Train, gauge, rescale, tell.

    Raises:
        InputError: when the folder cannot be made.
    """
    folder = Path(args.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; give another with --out") from None
    check_targets(args.json, str(folder / "readings.json"), str(folder / "report.html"))
    from normgauge.cli.demo_networks import measure_demo
    from normgauge.lab.training import one_thread

    with one_thread(), progress_bar() as progress:
        networks, twins = measure_demo(args.quick, progress)
    words = demo_verdict(networks, twins)
    shown = {f"{n.name}, {r.scope}": r for n in networks for r in (n.point, n.everywhere)}
    shown |= {f"BatchNorm, {t.name}, no search": t.reading for t in twins}
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "accuracy": {n.name: n.accuracy for n in networks},
        "output_change": {t.name: t.output_change for t in twins},
        "labels": list(shown),
        "readings": [reading.to_json() for reading in shown.values()],
    }
    write_json(data, str(folder / "readings.json"))
    title = "normgauge: five networks on digits"
    report(list(shown.values()), folder / "report.html", labels=list(shown), title=title, lead=words)
    told: list[str | Grid] = [*_grids(networks, twins), "", *words]
    told.append(f"Written: {folder / 'report.html'}, {folder / 'readings.json'}")
    write_answer(args.json, lambda: data, lambda stream: draw_blocks(told, stream))
    return 0


def demo_verdict(networks: Sequence[Trained], twins: Sequence[Twin]) -> list[str]:
    """What the numbers say, in plain words."""
    tame = min(networks, key=lambda n: n.point.log_lower)
    wild = max(networks, key=lambda n: n.point.log_lower)
    proved = [n.point.log_upper for n in networks]
    low, high = min(n.accuracy for n in networks), max(n.accuracy for n in networks)
    p_w = [t.reading.published["log10_P_w"] for t in twins]
    inverse = [t.reading.published["log10_prod_inv_sigma"]["rms"] for t in twins]
    bounds = [t.reading.log_capacity / LN10 for t in twins]
    return [
        f"The {len(networks)} networks read the digits right {low:.1%} to {high:.1%} of the time.",
        f"At the samples the steepest slope found is {format_factor(wild.point.log_lower, DOWN)} with {wild.name} and "
        f"{format_factor(tame.point.log_lower, DOWN)} with {tame.name}; proved is at most "
        f"{format_factor(min(proved), UP)} to {format_factor(max(proved), UP)}, depending on the network.",
        f"Rescaling the BatchNorm network moved P_w by {max(p_w) - min(p_w):.1f} decades and Π1/σ by "
        f"{max(inverse) - min(inverse):.1f}, while its outputs moved by {max(t.output_change for t in twins):.0e} of "
        f"their size and the balanced bound by {max(bounds) - min(bounds):.4f} decades: the products depend on the "
        "scale in which the weights happen to be written, the balanced bound is a property of the function.",
    ]


def _grids(networks: Sequence[Trained], twins: Sequence[Twin]) -> tuple[Grid, Grid]:
    trained = tuple(
        (
            n.name,
            f"{n.accuracy:.1%}",
            format_factor(n.point.log_lower, DOWN),
            format_factor(n.point.log_upper, UP),
            format_decades(n.everywhere.log_upper, way=UP),
            format_decades(n.everywhere.log_folded, way=UP),
        )
        for n in networks
    )
    headers = ("network", "accuracy", "found", "at most", "log10 everywhere", "folded only")
    moved = tuple(
        (
            t.name,
            f"{t.output_change:.0e}",
            f"{t.reading.products['P_w']:.2f}",
            f"{t.reading.products['prod_inv_sigma, rms']:.2f}",
            format_decades(t.reading.log_folded, way=UP),
            format_decades(t.reading.log_capacity, 4),
        )
        for t in twins
    )
    moved_headers = ("BatchNorm channels", "outputs by", "log10 P_w", "log10 Π1/σ", "folded", "balanced")
    numeric = frozenset(range(1, 6))
    return (
        Grid(
            "Five networks: how much a small change of an image can grow, at the samples and everywhere",
            headers,
            trained,
            numeric,
        ),
        Grid("One network, the same function, three ways to write it down", moved_headers, moved, numeric),
    )
