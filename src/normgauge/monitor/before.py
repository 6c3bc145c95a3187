"""Norms of the weights before the step that is read: a gradient belongs to them, not to what the step made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from normgauge.monitor.sheet import Row, Sheet

NEAR = 0.1  # share of a weight's norm up to which a step leaves that norm as good as it was


class SizesBefore:
    """Frobenius norms before the step, at next to no cost.

    Short steps leave norms as they were, to within their length. Where the step before was read, its norms are those
    before this one. Only while steps are long are norms taken before the coming one; a long step that came as a
    surprise leaves them unknown.
    """

    def __init__(self) -> None:
        self._long = True  # of the first step nothing is known
        self._step = -1
        self._last: dict[int, float] = {}
        self._moved: dict[int, float] = {}  # share of its norm by which each weight moved when that was last measured
        self._kept: tuple[list[int], Tensor] | None = None

    def keep(self, rows: Sequence[int], measure: Callable[[], Tensor]) -> None:
        """The coming step is to be read: take the norms of these rows, where the last steps were long."""
        self._kept = (list(rows), measure()) if self._long and rows else None

    def put(self, sheet: Sheet) -> None:
        """Write down what was taken."""
        if self._kept is not None:
            sheet.put_column(self._kept[0], "frobenius_before", self._kept[1])
            self._kept = None

    def of(self, row: int, raw: Row, update: float | None, step: int) -> float | None:
        """The norm of a weight before this step; None where it is not known.

        Args:
            row: of the weight.
            raw: what was measured of it.
            update: length of the step, where it was measured.
            step: its number.
        """
        if "frobenius_before" in raw:
            return raw["frobenius_before"]
        if self._step == step - 1 and row in self._last:
            return self._last[row]
        size, last = raw["frobenius"], self._last.get(row, math.nan)
        if update is None:  # what was short when it was last measured, and left the norm where it was
            near = self._moved.get(row, math.inf) <= NEAR and abs(size - last) <= NEAR * last
        else:
            near = update <= NEAR * size
        return size if near else None

    def forget(self, row: int) -> None:
        """Let go of what is known of a row that is another weight now: a step between the two there is none."""
        self._last.pop(row, None)
        self._moved.pop(row, None)

    def take(self, rows: Sequence[Row], step: int) -> None:
        """Take in the finished numbers of a reading; step 0 is a trial before the first step."""
        self._step = step
        self._last = {row: line["frobenius"] for row, line in enumerate(rows) if "frobenius" in line}
        if not step:
            return
        moved = {row: rows[row]["update"] / size for row, size in self._last.items() if size and "update" in rows[row]}
        self._moved |= moved
        self._long = not all(share <= NEAR for share in self._moved.values())  # what is no number is long, too
