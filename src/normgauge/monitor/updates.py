"""How far a step moved each matrix, in the operator norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.monitor.maps import working
from normgauge.monitor.sheet import Sheet
from normgauge.monitor.warm import cold_space

TURNS = 6  # of the directions at a reading: those of a step have nothing to do with those of the step read before


class SpectralSteps:
    """Keeps a direction for the step of each matrix, and one for the matrix, and turns them at every reading."""

    def __init__(self) -> None:
        self._directions: dict[tuple[int, ...], Tensor] = {}

    @property
    def state(self) -> list[Tensor]:
        """Where the directions are."""
        return list(self._directions.values())

    def read(self, steps: Mapping[int, Tensor], weights: Mapping[int, Tensor], sheet: Sheet) -> None:
        """Write down ‖step‖₂ and ‖matrix‖₂ of rows of each matrix, from below.

        Args:
            steps: what the last step changed of some rows of each matrix.
            weights: the same rows as they are now.
            sheet: where to write.
        """
        together: dict[tuple[int, ...], list[int]] = {}
        for row, step in steps.items():
            together.setdefault(tuple(step.shape), []).append(row)
        for rows in together.values():
            self._turn(rows, [steps[row] for row in rows], [weights[row] for row in rows], sheet)

    def _turn(self, rows: Sequence[int], steps: Sequence[Tensor], weights: Sequence[Tensor], sheet: Sheet) -> None:
        dtype = working(weights[0])
        both = torch.stack([*(step.to(dtype) for step in steps), *(weight.to(dtype) for weight in weights)])
        kept = self._directions.get(tuple(rows))
        like = (len(both), both.shape[2]), both.device, dtype
        if kept is None or ((kept.shape[0], kept.shape[2]), kept.device, kept.dtype) != like:
            kept = self._directions[tuple(rows)] = cold_space(len(both), both.shape[2], both, dtype)[:, :1].clone()
        place = kept
        for _ in range(TURNS):
            image = kept @ both.mT
            kept = F.normalize(image @ both, dim=-1, eps=torch.finfo(dtype).tiny)
        sizes = torch.linalg.vector_norm(kept @ both.mT, dim=(1, 2))
        cold = cold_space(1, both.shape[2], both, dtype)[:, :1]  # what was 0 or no number starts anew
        alive = torch.isfinite(kept).all(-1, keepdim=True) & (kept != 0).any(-1, keepdim=True)
        place.copy_(torch.where(alive, kept, cold))  # where they were: a graph goes on from there
        sheet.put_column(rows, "step_norm", sizes[: len(rows)])
        sheet.put_column(rows, "sampled_norm", sizes[len(rows) :])
