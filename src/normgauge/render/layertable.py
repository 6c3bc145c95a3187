"""Every layer a row: on a terminal the most active ones, on the page all, repeated blocks under one summary row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from normgauge.core.reading import LayerRecord, Reading
from normgauge.render.levels import followed_direction, layer_tone
from normgauge.render.markup import Markup, markup, tag
from normgauge.render.numbers import DOWN, UP, format_decades, plural, sigma_range
from normgauge.render.table import Attributes, Grid, html_table

Way = Callable[[float], int] | None
LOGS: dict[str, tuple[str, Callable[[LayerRecord], float | None], Way]] = {
    "gain": ("at most this the layer alone stretches a change: a bound", attrgetter("gain.hi"), UP),
    "folded": ("its share when folded with its neighbours", attrgetter("log_folded"), UP),
    "balanced": ("its share in the balanced bound", attrgetter("log_balanced"), UP),
    "cumulative": ("bound from the input to here, layer by layer", attrgetter("log_cumulative"), UP),
    "reached": ("what {followed} had grown to by here", attrgetter("log_reached"), DOWN),
    "slack": ("what the gain allows over what the layer did to that direction", attrgetter("log_slack"), UP),
}
SIGMA = "smallest and largest √(variance + ε) at the samples"
SHORT = 4  # columns of them on a terminal
SUMMED = 3  # columns that add up over the layers of a block
TOP_ROWS = 30
MEANING = (
    "In decades: 1 is a factor of ten, -1 a tenth. gain: the bound of the layer alone; folded: its share when linear "
    "maps are taken together with their normalizers; balanced: when that is minimised over gauges, rescalings that "
    "leave the function alone; cumulative: from the input to here, layer by layer, where gains multiply in a chain and "
    "add where branches meet; σ: what a normalizer divides by. Each number is of the layer's own worst sample: "
    "together they may be more than the total"
)
SAMPLED = ". σ is that of the samples; gains are for the whole scope, where σ may be smaller"
APART = ". The bound quoted above is not made of these rows: they explain the balanced one"
LEAST = 4  # fewer rows than this are not worth a fold
LONGEST = 40  # layers in a repeated stretch of an unstructured network
LONG, TAIL = 36, 16  # a name longer than this is cut on the screen, its last parts are kept


def reading_layers(reading: Reading, every: bool = False) -> Grid:
    """One row a layer, in the order of execution; the most active ones of a long network unless ``every``."""
    shown = reading.layers if every else _most_active(reading.layers)
    rows = tuple((r.name, r.kind, *_numbers(r)[:SHORT], sigma_range(r.sigma), r.note) for r in shown)
    hidden = len(reading.layers) - len(rows)
    cut = f"{hidden} of {len(reading.layers)} layers with gains nearer to 1 are not shown (--all shows them)\n"
    headers = ("layer", "kind", *list(LOGS)[:SHORT], "σ", "note")
    title = f"Layers, scope {reading.scope}: log10 of what each does"
    far = reading.scope.kind != "point" and any(record.sigma is not None for record in shown)
    apart = reading.log_upper < reading.log_capacity and reading.log_capacity < math.inf
    told = (cut if hidden else "") + MEANING + (SAMPLED if far else "") + (APART if apart else "")
    return Grid(title, headers, rows, frozenset(range(2, 7)), told).without_empty()


def _numbers(record: LayerRecord) -> list[str]:
    return [format_decades(log(record), way=way) for _, log, way in LOGS.values()]


def _most_active(records: Sequence[LayerRecord]) -> Sequence[LayerRecord]:
    """Those whose own gains are farthest from 1, those with a note, and the last: there the cumulative column ends."""

    def activity(record: LayerRecord) -> float:
        return math.inf if record.note or record is records[-1] else abs(record.gain.hi)

    kept = {id(r) for r in sorted(records, key=activity, reverse=True)[:TOP_ROWS]}
    return [r for r in records if id(r) in kept]


def reading_layer_table(reading: Reading, key: str) -> Markup:
    """The table as HTML; the page's script makes it sortable, filterable and foldable.

    Args:
        reading: whose layers.
        key: rows have the ids ``{key}0``, ``{key}1``, ...
    """
    heads = {
        "#": "",
        "layer": "",
        "kind": "",
        **{name: told.format(followed=followed_direction(reading)) for name, (told, _, _) in LOGS.items()},
        "σ": SIGMA,
        "note": "",
    }
    cells, rows = zip(*_rows(reading.layers, key), strict=True)
    title = f"{plural(len(reading.layers), 'layer')} in the order of execution, log10"
    return html_table(
        Grid(title, tuple(heads), cells, frozenset({0, *range(3, len(heads) - 1)})),
        label=f"Layers, scope {reading.scope}",
        named=1,
        heads=[{"title": told or None} for told in heads.values()],
        rows=rows,
        class_="layers",
    )


def _rows(records: Sequence[LayerRecord], key: str) -> Iterator[tuple[tuple[str, ...], Attributes]]:
    starts = {fold.start: (index, fold) for index, fold in enumerate(folds(records))}
    inside, stop = "", 0
    for place, record in enumerate(records):
        if place in starts:
            index, fold = starts[place]
            inside, stop = str(index), fold.stop
            yield _summary(records, fold), {"class": "fold", "data-fold": inside}
        cells = (str(place + 1), _name(record.name), record.kind, *_numbers(record), sigma_range(record.sigma))
        told = {"class": layer_tone(record), "data-rule": record.rule, "data-tip": tip(record)}
        yield (*cells, record.note), {"id": f"{key}{place}", **told, "data-in": inside if place < stop else None}


def _name(name: str) -> str:
    """The cell with a row's name; of a long one the style sheet cuts the head, since the end tells layers apart."""
    if len(name) <= LONG:
        return markup(name)
    dot = name.find(".", len(name) - TAIL, -1)
    at = len(name) - TAIL if dot < 0 else dot
    return tag("span", tag("span", name[:at], class_="head"), tag("span", name[at:]), title=name)


def tip(record: LayerRecord) -> str:
    """What the tooltip says beside the rule's formula: the formula with the layer's numbers, claim and note."""
    rule = f"Rule {record.rule}" + (f", claim {record.claim}" if record.claim else "")
    return "\n".join(line for line in (record.worked, rule, record.note) if line)


def _summary(records: Sequence[LayerRecord], fold: Fold) -> tuple[str, ...]:
    members = records[fold.start : fold.stop]
    sums = [_sum([log(r) for r in members]) for _, log, _ in list(LOGS.values())[:SUMMED]]
    numbers = [*sums, *_numbers(members[-1])[SUMMED:-1], "", ""]  # neither slacks of branches side by side nor σ add up
    blocks = f"{fold.count} blocks of {plural(len(members) // fold.count, 'layer')}"
    told = f"{blocks}; gains and shares are sums, slacks do not add up"
    return (str(fold.start + 1), _name(fold.label), f"×{fold.count}", *numbers, told)


def _sum(logs: Sequence[float | None]) -> str:
    known = [log for log in logs if log is not None]
    return format_decades(math.inf if math.inf in known else sum(known) if known else None, way=UP)


@dataclass(frozen=True, slots=True)
class Fold:
    """Layers ``start`` to ``stop`` are ``count`` times the same block, one after the other."""

    start: int
    stop: int
    count: int
    label: str


def folds(records: Sequence[LayerRecord]) -> list[Fold]:
    """Runs of equal blocks, in order and without overlap.

    First by name: ``layer1.0.…``, ``layer1.1.…`` with the same parts inside. A stretch whose names are plain numbers,
    as in an `nn.Sequential`, is searched for kinds that come again and again.
    """
    return _named(records, 0, len(records), 1)


def _named(records: Sequence[LayerRecord], start: int, stop: int, level: int) -> list[Fold]:
    """Fold by the ``level``-th number in the names, then look inside what did not fold by the next."""
    keys = [_block(records[i].name, level) for i in range(start, stop)]
    runs = [list(run) for _, run in groupby(range(start, stop), key=lambda i: keys[i - start])]
    if all(keys[run[0] - start] is None for run in runs):
        return _repeated(records, start, stop)
    found: list[Fold] = []
    while runs:
        count = _equal(records, runs, level)
        size = sum(len(run) for run in runs[:count])
        first, last = runs[0][0], runs[count - 1][-1]
        key = keys[first - start]
        if count > 1 and size >= LEAST and key is not None:
            found.append(Fold(first, last + 1, count, f"{key} … {keys[last - start]}"))
            runs = runs[count:]
        else:
            found += _named(records, first, runs.pop(0)[-1] + 1, level + 1)
    return found


def _block(name: str, level: int) -> str | None:
    """The name up to its ``level``-th number, where something follows it."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts[:-1]) if part.isdigit()]
    return ".".join(parts[: numbers[level - 1] + 1]) if len(numbers) >= level else None


def _equal(records: Sequence[LayerRecord], runs: Sequence[Sequence[int]], level: int) -> int:
    """How many of the first runs are the same block under the same parent."""

    def looks(run: Sequence[int]) -> tuple[str, tuple[tuple[str, str], ...]]:
        key = _block(records[run[0]].name, level) or ""
        return key.rpartition(".")[0], tuple((records[i].name[len(key) :], records[i].kind) for i in run)

    first = looks(runs[0])
    count = 1
    while count < len(runs) and looks(runs[count]) == first:
        count += 1
    return count


def _repeated(records: Sequence[LayerRecord], start: int, stop: int) -> list[Fold]:
    """Stretches of kinds that come again at once, among layers named by plain numbers."""
    kinds = [r.kind if r.name.split(".")[-1].isdigit() else "" for r in records[start:stop]]
    found, at = [], 0
    while at < len(kinds):
        period, count = _period(kinds, at)
        size = period * count
        if count > 1 and size >= LEAST:
            ends = start + at, start + at + size
            found.append(Fold(*ends, count, f"{records[ends[0]].name} … {records[ends[1] - 1].name}"))
        at += size if count > 1 and size >= LEAST else 1
    return found


def _period(kinds: Sequence[str], at: int) -> tuple[int, int]:
    """The period that covers most from here on, and how often it comes."""
    best = (1, 1)
    for period in range(1, min(LONGEST, (len(kinds) - at) // 2) + 1):
        block = kinds[at : at + period]
        if "" in block:
            break
        count = 1
        while kinds[at + count * period : at + (count + 1) * period] == block:
            count += 1
        if count > 1 and count * period > best[0] * best[1]:
            best = (period, count)
    return best
