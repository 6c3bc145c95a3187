"""What the processes of a team tell each other at a reading, and what it amounts to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normgauge.monitor.fetch import Floats, Sheet
from normgauge.monitor.layers import Layer, by_channel

LOSS = -1
"""Row of a sheet that holds the losses since the last one, by step."""

TOLD = -3
"""Row of a sheet that holds what the processes told each other."""

MAXIMA = ("inverse_max", "negative_min", "gain")
"""Columns of which the largest over the processes holds, in the order they are told."""


def blank(rows: Sequence[int], device: torch.device) -> tuple[Tensor, list[float]]:
    """What a process tells that heard nothing."""
    return torch.full((4 * len(rows),), -math.inf, dtype=torch.float64, device=device), [0.0] * len(rows)


def sigma_of(sheet: Sheet, rows: Sequence[int], device: torch.device) -> tuple[Tensor, list[float]]:
    """This process's σ as one vector (column by column, one number a normalizer), and which normalizers it has."""
    where = {place: i for i, place in enumerate((*sheet.places, *sheet.spans))}
    packed = sheet.packed()
    if packed is None or not rows:
        return blank(rows, device)
    # Numbers are picked one by one: a list of indices would go to the device first, and the host would wait for that.
    numbers = packed.to(device, torch.float64).unbind()
    absent = torch.full((), -math.inf, dtype=torch.float64, device=device)
    signed = (("inverse_max", False), ("inverse_min", True), ("gain", False), ("square", False))
    lines = []
    for column, negative in signed:
        cells = [numbers[where[row, column]] if (row, column) in where else absent for row in rows]
        lines.append(torch.stack([-cell if negative and cell is not absent else cell for cell in cells]))
    return torch.cat(lines), [float((row, "inverse_max") in where) for row in rows]


def line_of(losses: dict[int, Any], steps: range, device: torch.device) -> Tensor:
    """The losses in the order of the steps; 0 where there is none."""
    values = [losses.get(step, 0.0) for step in steps]
    if all(isinstance(value, float) for value in values):
        return torch.tensor(values, dtype=torch.float64).to(device, non_blocking=True)
    tensors = [torch.as_tensor(value).to(device, torch.float64, non_blocking=True).reshape(1) for value in values]
    return torch.cat(tensors) if tensors else torch.zeros(0, dtype=torch.float64, device=device)


def put_together(sheet: Sheet, rows: Sequence[int], steps: range, every: Tensor, mine: Tensor) -> None:
    """Write down maxima, minima and means over the processes; a process counts only where it saw something."""
    sizes = [1, 1, len(steps), len(rows), len(steps), *[len(rows)] * 4]
    wish, failures, given, present, losses, *maxima, square = every.split(sizes, dim=1)
    sheet.put_all([TOLD], "wish", wish.amax(0))
    _put_named(sheet, [f"failures {rank}" for rank in range(every.shape[0])], failures.flatten())
    _put_named(sheet, [f"given {step}" for step in steps], given.sum(0))
    _put_named(sheet, [f"loss {step}" for step in steps], _mean(losses, given))
    sheet.put_all(rows, "inverse_here", mine.split(sizes)[5])
    sheet.put_all(rows, "present", present.sum(0))
    for column, values in zip(MAXIMA, maxima, strict=True):
        sheet.put_all(rows, column, values.amax(0))
    sheet.put_all(rows, "square", _mean(square, present))


def _put_named(sheet: Sheet, columns: Sequence[str], values: Tensor) -> None:
    sheet.spans += [(TOLD, column) for column in columns]
    sheet.vectors.append(values)


def _mean(values: Tensor, given: Tensor) -> Tensor:
    """Mean over the processes that gave a number; nan where none did."""
    return torch.where(given > 0, values, 0.0).sum(0) / given.sum(0)


def mend(floats: Floats, layers: Sequence[Layer]) -> None:
    """The normalizers' numbers as one process would have them, and the folded gains with the σ of all."""
    here: dict[int, float] = {}
    for row, layer in enumerate(layers):
        raw = floats.get(row, {})
        if layer.role != "norm" or "present" not in raw:
            continue
        here[row] = raw.pop("inverse_here")
        lowest = -raw.pop("negative_min")
        if raw.pop("present"):
            raw["inverse_min"] = lowest
        else:
            for column in ("inverse_max", "inverse_min", "gain", "square"):
                raw.pop(column, None)
    for row, layer in enumerate(layers):
        norm = layer.normalizer
        # Batch normalization scales each channel by its own σ: there the gain is that of this process's batch.
        if norm in here and "folded" in floats.get(row, {}) and not by_channel(layers[norm].module):
            top = floats[norm].get("inverse_max")
            if top is not None and 0.0 < here[norm] < math.inf:
                floats[row]["folded"] *= top / here[norm]
