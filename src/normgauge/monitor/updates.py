"""How far a step moved each matrix, in the operator norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.monitor.launched import kernels
from normgauge.monitor.maps import Maps, MatrixMaps, working
from normgauge.monitor.sheet import Sheet
from normgauge.monitor.warm import cold_space

TURNS = 6  # of the directions at a reading: those of a step have nothing to do with those of the step read before


class SpectralSteps:
    """Keeps a direction for the step of each matrix, and one for the matrix, and turns them at every reading."""

    def __init__(self) -> None:
        self._directions: dict[tuple[int, ...], Tensor] = {}
        self._tables: dict[tuple[int, ...], Any] = {}

    @property
    def state(self) -> list[Tensor]:
        """Where the directions are."""
        return [*self._directions.values(), *(tensor for table in self._tables.values() for tensor in table.state)]

    def read(self, steps: Mapping[int, Tensor], weights: Mapping[int, Tensor], sheet: Sheet) -> None:
        """Write down ‖step‖₂ and ‖matrix‖₂ of rows of each matrix, from below.

        Args:
            steps: what the last step changed of some rows of each matrix.
            weights: the same rows as they are now.
            sheet: where to write.
        """
        if steps and self._together(list(steps.values()), list(weights.values())):
            rows = tuple(steps)
            self._turn(rows, self._where_they_are(rows, [*steps.values(), *weights.values()]), sheet)
            return
        together: dict[tuple[int, ...], list[int]] = {}
        for row, step in steps.items():
            together.setdefault(tuple(step.shape), []).append(row)
        for rows in map(tuple, together.values()):
            both = [*(steps[row] for row in rows), *(weights[row] for row in rows)]
            self._turn(rows, MatrixMaps(both, working(weights[rows[0]])), sheet)

    def _together(self, steps: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
        """Whether matrices of all shapes are multiplied at once."""
        made = kernels(steps[0].device)
        return made is not None and made.can_compare([*steps, *weights], [])

    def _where_they_are(self, rows: tuple[int, ...], both: Sequence[Tensor]) -> Maps:
        made, table = kernels(both[0].device), self._tables.get(rows)
        if table is None or not table.holds(both):
            table = self._tables[rows] = made.Table(both)
        maps: Maps = made.GroupedMaps(both, table)
        return maps

    def _turn(self, rows: tuple[int, ...], maps: Maps, sheet: Sheet) -> None:
        dtype, count, size = maps.dtype, maps.count, maps.inputs
        kept = self._directions.get(rows)
        if kept is None or (tuple(kept.shape), kept.device, kept.dtype) != ((count, 1, size), maps.device, dtype):
            kept = self._directions[rows] = cold_space(count, size, torch.empty(0, device=maps.device), dtype)[:, :1]
        place = kept
        for _ in range(TURNS):
            kept = F.normalize(maps.adjoint(maps.forward(kept)), dim=-1, eps=torch.finfo(dtype).tiny)
        sizes = torch.linalg.vector_norm(maps.forward(kept), dim=(1, 2))
        cold = cold_space(1, size, kept, dtype)[:, :1]  # what was 0 or no number starts anew
        alive = torch.isfinite(kept).all(-1, keepdim=True) & (kept != 0).any(-1, keepdim=True)
        place.copy_(torch.where(alive, kept, cold))  # where they were: a graph goes on from there
        sheet.put_column(rows, "step_norm", sizes[: len(rows)])
        sheet.put_column(rows, "sampled_norm", sizes[len(rows) :])
