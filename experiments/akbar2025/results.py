"""Results by unit, and the few statistics tables, verdicts and figures are made with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.than2025.store import read_json

FOLDER = Path(__file__).with_name("results")
SPELLED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True, slots=True)
class Result:
    """One unit as it was measured.

    Attributes:
        name: such as "plane/base".
        settings: all of them.
        seeds: how many.
        found: what the experiment gave back.
        environment: versions and seconds.
    """

    name: str
    settings: Mapping[str, Any]
    seeds: int
    found: Mapping[str, Any]
    environment: Mapping[str, Any]


Results = Mapping[str, Result]


def load(folder: Path = FOLDER, experiments: Sequence[str] = ("*",)) -> dict[str, Result]:
    """Every result in a folder, or those of some experiments, by the name of its unit."""
    found = {}
    for path in sorted(path for name in experiments for path in folder.glob(f"{name}__*.json")):
        told = read_json(path)
        name = f"{told['experiment']}/{told['label']}"
        found[name] = Result(name, told["settings"], told["seeds"], _read(told["found"]), told["environment"])
    return found


def _read(value: Any) -> Any:
    """Stored data with the numbers that are spelled out as numbers."""
    if isinstance(value, str):
        return SPELLED.get(value, value)
    if isinstance(value, dict):
        return {key: _read(item) for key, item in value.items()}
    return [_read(item) for item in value] if isinstance(value, list) else value


def of(found: Results, experiment: str) -> dict[str, Result]:
    """The units of an experiment by label, the base first where there is one."""
    own = {r.name.split("/", 1)[1]: r for r in found.values() if r.name.startswith(f"{experiment}/")}
    return dict(sorted(own.items(), key=lambda item: item[0] != "base"))


def cell(rows: Iterable[Mapping[str, Any]], **wanted: Any) -> Mapping[str, Any]:
    """The row with these values."""
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def mean(values: Sequence[float]) -> float:
    """The mean of those that are numbers; nan if none is."""
    kept = [v for v in values if math.isfinite(v)]
    return statistics.fmean(kept) if kept else math.nan


def median(values: Sequence[float]) -> float:
    """The median, infinite ones included; nan of nothing."""
    kept = [v for v in values if not math.isnan(v)]
    return statistics.median(kept) if kept else math.nan


def share(facts: Iterable[bool]) -> float:
    """How many of some facts are true."""
    listed = list(facts)
    return sum(listed) / len(listed) if listed else math.nan


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation over seeds; how many are numbers, where some are not.

    >>> spread([1.0, 2.0]), spread([3.0, math.nan])
    ('1.50 ± 0.71', '3.00 (1 of 2)')
    """
    kept = [v for v in values if math.isfinite(v)]
    if not kept:
        return "–"
    wide = f" ± {short(statistics.stdev(kept), digits)}" if len(kept) > 1 else ""
    some = f" ({len(kept)} of {len(values)})" if len(kept) < len(values) else ""
    return f"{short(statistics.fmean(kept), digits)}{wide}{some}"


def both(bn: Sequence[float], plain: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation with and without BatchNorm."""
    return f"{spread(bn, digits)} with BN, {spread(plain, digits)} without"


def pct(part: float) -> str:
    """A share in words."""
    return "–" if math.isnan(part) else f"{100 * part:.0f} %"


def percent(values: Sequence[float]) -> list[float]:
    """Shares in percent."""
    return [100 * v for v in values]


def ends(values: Sequence[float], word: Callable[[float], str] | None = None) -> str:
    """Lowest to highest."""
    kept = [v for v in values if math.isfinite(v)]
    said = word or short
    return "–" if not kept else f"{said(min(kept))} to {said(max(kept))}"


def short(value: float, digits: int = 2) -> str:
    """A number in a table: so many digits after the point, or so many in all where it is large or small.

    >>> short(1.234), short(-0.00123), short(12345.6), short(0.0), short(math.inf)
    ('1.23', '−0.0012', '12346', '0', '∞')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        text = f"{value:.0f}" if size < 1e6 else f"{value:.1e}"
    elif size >= 0.1:
        text = f"{value:.{digits}f}"
    else:
        text = f"{value:.2g}" if size >= 1e-4 else f"{value:.1e}"
    return text.replace("-", "−")


def steps(values: Sequence[int]) -> str:
    """Median and range of step counts of those that got there, and how many did."""
    kept = [v for v in values if v >= 0]
    if not kept:
        return f"0 of {len(values)}"
    middle = f"{statistics.median(kept):.0f} ({min(kept)} to {max(kept)})"
    return middle if len(kept) == len(values) else f"{middle}, {len(kept)} of {len(values)}"
