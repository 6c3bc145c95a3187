"""Which layers of a long network are the same block again, so that a table can fold them into one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from normgauge.core.reading import LayerRecord

LEAST = 4  # fewer rows than this are not worth a fold
LONGEST = 40  # layers in a repeated stretch of an unstructured network


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
