"""One monitor over several processes: readings at the same steps, σ and losses put together, one writer.

Process 0 measures the weights and writes. The others hand in what only they have seen: the σ of their part of the batch
and their loss. All of it goes in one gathering a reading; steps that are not read exchange nothing. Where the weights
are sharded (FSDP2, tensor parallel), all processes measure all layers, each from its parts (`shards`).

The processes must agree on when to read although each has its own clock. Each hands in the number of steps it would
like to wait, and the largest holds, but only for the reading after next: by then the numbers have long arrived, so that
nobody waits for them. A process whose measuring breaks says so in the same exchange and keeps taking part, and all of
them stop together when one has failed too often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from normgauge.core import store
from normgauge.core.errors import InputError, StoreError
from normgauge.monitor.layers import WatchedLayer, by_channel, is_sharded, looked_up, whole_tensor
from normgauge.monitor.shards import Block, added_norms, block_of, local_part, whole_block
from normgauge.monitor.sheet import Column, Sheet

FIRST_GAP = 10  # steps from the first reading to the second: nobody knows the time of a step before

LONGEST = 100_000  # most steps between two readings

# What a process tells of each normalizer, in this order
HEARD: tuple[Column, ...] = ("inverse_max", "inverse_min", "gain", "square", "mean_square")


class Team:
    """The processes that train one model; a team of one asks nobody and changes nothing.

    Args:
        model: the network as it is trained.
        distributed: whether the processes train it together; None looks whether it is wrapped in
            DistributedDataParallel or sharded.

    Attributes:
        rank: of this process.
        world: how many there are.
        sharded: whether each process has only a part of each weight.
        exchanged_bytes: added up over the processes so far, and gathered.
        stopped: a process failed too often, or is gone: nobody measures any more.

    Raises:
        InputError: if ``distributed`` is asked for and no process group was begun.
    """

    def __init__(self, model: nn.Module, distributed: bool | None = None) -> None:
        self.sharded = any(is_sharded(p) for p in model.parameters())
        self._group = _group(model, self.sharded, distributed)
        together = self._group is not None
        self.rank = dist.get_rank(self._group) if together else 0
        self.world = dist.get_world_size(self._group) if together else 1
        self.stopped = self._holding = False
        self.exchanged_bytes = 0
        self._next, self._gap, self._last = 1, FIRST_GAP, 0
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))

    @property
    def alone(self) -> bool:
        """Whether this process trains alone."""
        return self.world == 1

    @property
    def can_prove(self) -> bool:
        """Whether this process has whole weights now, as a proof needs."""
        return self._holding or not self.sharded

    def measured(self, layers: list[WatchedLayer]) -> list[WatchedLayer]:
        """The layers this process measures: all on process 0 or where each has a part, the normalizers elsewhere."""
        return layers if self.rank == 0 or self.sharded else [layer for layer in layers if layer.role == "norm"]

    def hold(self, layers: Sequence[WatchedLayer], gradients: bool = False) -> None:
        """Take the parts of sharded weights that are here, and the whole of vectors; all processes at the same step."""
        if not self.sharded:
            return
        self._holding = True
        vectors: list[tuple[WatchedLayer, Any, Any]] = []
        for layer in layers:
            if layer.attribute is None or layer.tied is not None or layer.gone:
                continue
            weight = looked_up(layer.module, layer.attribute)
            slope = layer.parameter.grad if gradients and layer.parameter is not None else None
            part = block_of(weight, self) if layer.role != "conv" else None
            if part is None or layer.role == "norm":
                layer.block = whole_block(weight, self)
            else:
                layer.block = part
            bias = layer.module._parameters.get("bias") if gradients and layer.attribute == "weight" else None
            layer.held_bias = None if bias is None or bias.grad is None else self._held_bias(bias, layer.block)
            if part is not None and layer.role == "norm":
                vectors.append((layer, weight, slope))
                continue
            taken = whole_tensor if part is None else local_part
            layer.held = taken(weight.detach()), None if slope is None else taken(slope.detach())
        self._put_together(vectors)
        self._measure_sizes([layer for layer in layers if layer.held is not None and layer.whole_size is None])

    def added(self, tensor: Tensor) -> Tensor:
        """A tensor added up over all processes, in place."""
        if not self.alone:
            self.exchanged_bytes += tensor.numel() * tensor.element_size()
            dist.all_reduce(tensor, group=self._group)
        return tensor

    def _held_bias(self, bias: Any, beside: Block) -> Tensor:
        """The part here of a bias's gradient, so scaled that its square counts as often as that of its weight."""
        part = block_of(bias, self)
        factor = 1 / self.world if part is None else part.factor
        gradient = whole_tensor(bias.grad.detach()) if part is None else local_part(bias.grad)
        return gradient * math.sqrt(factor / beside.factor)

    def _put_together(self, vectors: Sequence[tuple[WatchedLayer, Any, Any]]) -> None:
        """Vectors of normalizers and their gradients, whole on every process: parts in zeros, added up all at once."""
        given = [tensor for _, *both in vectors for tensor in both if tensor is not None]
        if not given:
            return
        sizes = [tensor.numel() for tensor in given]  # of the whole
        room = torch.zeros(sum(sizes), dtype=torch.float64, device=self._device)
        for line, tensor in zip(room.split(sizes), given, strict=True):
            part, block = local_part(tensor), block_of(tensor, self)
            assert block is not None  # a gradient is cut as its parameter
            line.view(tensor.shape)[block.start[0] : block.start[0] + len(part)] = part.double() * block.factor
        lines = iter(self.added(room).split(sizes))
        for layer, weight, slope in vectors:
            made = next(lines).view(weight.shape).to(weight.dtype)
            layer.held = made, None if slope is None else next(lines).view(weight.shape).to(weight.dtype)

    def _measure_sizes(self, layers: Sequence[WatchedLayer]) -> None:
        """Note how large the whole weights are at first; waits for their device."""
        held = [(layer, layer.held[0], layer.block) for layer in layers if layer.held is not None]
        if held:
            blocks = [block for *_, block in held if block is not None]
            norms = added_norms([weight.double().square().sum() for _, weight, _ in held], blocks)
            for (layer, *_), size in zip(held, norms.tolist(), strict=True):
                layer.whole_size = size

    def release(self, layers: Sequence[WatchedLayer]) -> None:
        """Free the weights that `hold` put together."""
        if self._holding:
            self._holding = False
            for layer in layers:
                layer.held = layer.held_bias = None

    def opened(self, open_file: Callable[[], Any]) -> Any:
        """Open the run file on process 0, and tell the others where it goes on.

        Raises:
            StoreError: on every process, if process 0 cannot write.
        """
        if self.alone:
            return open_file()
        writer, error = None, None
        said: list[tuple[str, str, int | None, float]] = [("", "", None, 0.0)]
        if self.rank == 0:
            try:
                writer = open_file()
                said = [("", str(writer.path), writer.resumed_from, writer.elapsed)]
            except StoreError as failed:
                error, said = failed, [(str(failed), "", None, 0.0)]
        source = dist.get_global_rank(self._group, 0) if self._group is not dist.group.WORLD else 0
        dist.broadcast_object_list(said, src=source, group=self._group)
        trouble, path, resumed_from, elapsed = said[0]
        if trouble:
            raise error or StoreError(trouble)
        if writer is None:
            writer = store.Writer(Path(path), {})
            writer.resumed_from, writer.elapsed = resumed_from, elapsed
        return writer

    def begin(self, number: int) -> None:
        """Note that the training goes on after step ``number``; the step after it is read."""
        self._next, self._last = number + 1, number

    def due(self, number: int) -> bool:
        """Whether this step is to be read; the same on every process."""
        return number == self._next

    def exchange(
        self,
        sheet: Sheet,
        layers: Sequence[WatchedLayer],
        losses: dict[int, Tensor | float],
        number: int,
        wish: float,
        failures: int,
    ) -> None:
        """Exchange what was measured with the other processes, and write the combined numbers into the sheet.

        Numbers that cannot be packed are dropped, and raise only when the others have got their answer.

        Args:
            sheet: this process's numbers; those of the normalizers are replaced by those of all processes.
            layers: what this process measured, in the order of the sheet's rows.
            losses: of the steps since the last exchange.
            number: of this step.
            wish: steps this process would like to wait after the next reading.
            failures: how often measuring failed here.
        """
        if self.alone:
            return
        rows = [row for row, layer in enumerate(layers) if layer.role == "norm"]
        steps = range(self._last + 1, number + 1)
        self._next, self._last = number + self._gap, number
        broken = None
        try:
            heard, present = sigma_of(sheet, rows, self._device)
        except Exception as error:
            broken = error
            heard, present = _nothing(rows, self._device)
            for part in (sheet.cells, sheet.tensors, sheet.layers):
                part.clear()
        given = [float(step in losses) for step in steps]
        plain = torch.tensor([wish, float(failures), *given, *present], dtype=torch.float64)
        mine = torch.cat([plain.to(self._device, non_blocking=True), line_of(losses, steps, self._device), heard])
        every = torch.empty((self.world, mine.numel()), dtype=mine.dtype, device=mine.device)
        try:
            self.exchanged_bytes += mine.numel() * mine.element_size()
            dist.all_gather(list(every.unbind()), mine, group=self._group)
        except Exception:
            self.stopped = True  # a process is gone; the training itself will say so
            raise
        put_together(sheet, rows, steps, every, mine)
        if broken is not None:
            raise broken

    def wish(self, cost: float, debt: float, earned_per_step: float) -> float:
        """Steps to wait after the next reading so that its cost is earned by then.

        Args:
            cost: seconds of a reading.
            debt: seconds spent beyond what was earned, this reading included.
            earned_per_step: seconds saved up in a step; 0 where that is not known yet.
        """
        if earned_per_step <= 0.0:
            return float(FIRST_GAP)
        at_next = debt - self._gap * earned_per_step
        return float(min(max(math.ceil((at_next + cost) / earned_per_step), 1), LONGEST))

    def settle(self, sheet: Sheet, layers: Sequence[WatchedLayer], patience: int) -> list[int]:
        """Use what the processes told each other, and leave in the sheet what belongs into a line.

        Args:
            sheet: as it was delivered; changed.
            layers: what this process measures.
            patience: failures after which all stop.

        Returns:
            Processes whose measuring failed.
        """
        told = sheet.told
        if not told.wishes:
            return []
        self._gap = int(max(told.wishes.values()))
        self.stopped |= max(told.failures.values()) > patience
        sheet.losses = {step: sheet.losses[step] for step, count in told.given.items() if count}
        mend(sheet, layers)
        return [rank for rank, count in told.failures.items() if count > 0]


def _group(model: nn.Module, sharded: bool, distributed: bool | None) -> Any:
    """The process group that trains this model together; None where this process trains alone.

    Raises:
        InputError: if they are asked for and there is no process group.
    """
    begun = dist.is_available() and dist.is_initialized()
    if distributed and not begun:
        raise InputError("distributed=True needs torch.distributed.init_process_group to be called before the Monitor.")
    if not begun or distributed is False:
        return None
    wrapped = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]
    group = wrapped[0].process_group if wrapped else dist.group.WORLD
    wanted = bool(wrapped) or sharded or distributed
    return group if wanted and dist.get_world_size(group) > 1 else None


def sigma_of(sheet: Sheet, rows: Sequence[int], device: torch.device) -> tuple[Tensor, list[float]]:
    """This process's σ as one vector (column by column, one number a normalizer), and which normalizers it has."""
    where = {(id(part), key): i for i, (part, key) in enumerate(sheet.cells)}
    packed = sheet.packed()
    if packed is None or not rows:
        return _nothing(rows, device)
    # Numbers are picked one by one: a list of indices would go to the device first, and the host would wait for that.
    numbers = packed.to(device, torch.float64).unbind()
    absent = torch.zeros((), dtype=torch.float64, device=device)
    at = [where.get((id(sheet.layers[row]), column)) for column in HEARD for row in rows]
    heard = torch.stack([absent if i is None else numbers[i] for i in at])
    return heard, [float(i is not None) for i in at[: len(rows)]]


def _nothing(rows: Sequence[int], device: torch.device) -> tuple[Tensor, list[float]]:
    """What a process reports that has seen none of its normalizers run."""
    return torch.zeros(len(HEARD) * len(rows), dtype=torch.float64, device=device), [0.0] * len(rows)


def line_of(losses: dict[int, Tensor | float], steps: range, device: torch.device) -> Tensor:
    """The losses in the order of the steps, as one tensor; 0 for a step without a loss."""
    values = [losses.get(step, 0.0) for step in steps]
    if all(isinstance(value, float) for value in values):
        return torch.tensor(values, dtype=torch.float64).to(device, non_blocking=True)
    tensors = [torch.as_tensor(value).to(device, torch.float64, non_blocking=True).reshape(1) for value in values]
    return torch.cat(tensors) if tensors else torch.zeros(0, dtype=torch.float64, device=device)


def put_together(sheet: Sheet, rows: Sequence[int], steps: range, every: Tensor, mine: Tensor) -> None:
    """Write down maxima, minima and means over the processes; a process counts only where it saw something."""
    sizes = [1, 1, len(steps), len(rows), len(steps), *[len(rows)] * len(HEARD)]
    wishes, failures, given, present, losses, top, bottom, gain, square, means = every.split(sizes, dim=1)
    known = {id(part) for part, key in sheet.cells if key == "mean_square"}
    centred = [place for place, row in enumerate(rows) if id(sheet.layers[row]) in known]
    ranks, there = range(every.shape[0]), present > 0
    sheet.put_part(sheet.told.wishes, ranks, wishes.flatten())
    sheet.put_part(sheet.told.failures, ranks, failures.flatten())
    sheet.put_part(sheet.told.given, steps, given.sum(0))
    sheet.put_part(sheet.losses, steps, _mean(losses, given))
    sheet.put_column(rows, "inverse_here", mine.split(sizes)[5])
    sheet.put_column(rows, "present", present.sum(0))
    sheet.put_column(rows, "inverse_max", torch.where(there, top, -math.inf).amax(0))
    sheet.put_column(rows, "inverse_min", torch.where(there, bottom, math.inf).amin(0))
    sheet.put_column(rows, "gain", torch.where(there, gain, -math.inf).amax(0))
    sheet.put_column(rows, "square", _mean(square, present))
    if centred:
        mean = _mean(means, present).unbind()
        sheet.put_column([rows[place] for place in centred], "mean_square", torch.stack([mean[i] for i in centred]))


def _mean(values: Tensor, given: Tensor) -> Tensor:
    """Mean over the processes that gave a number; nan where none did."""
    return torch.where(given > 0, values, 0.0).sum(0) / given.sum(0)


def mend(sheet: Sheet, layers: Sequence[WatchedLayer]) -> None:
    """Change the numbers of normalizers, and the folded gains, to what a single process would have measured."""
    here: dict[int, float] = {}
    for row, numbers in sheet.layers.items():
        if "present" in numbers:
            here[row] = numbers.pop("inverse_here")
            if not numbers.pop("present"):
                for column in HEARD:
                    numbers.pop(column, None)
    for row, layer in enumerate(layers):
        norm = layer.normalizer
        # Batch normalization scales each channel by its own σ: there the gain is that of this process's batch.
        if norm in here and "folded" in sheet.layers[row] and not by_channel(layers[norm].module):
            top = sheet.layers[norm].get("inverse_max")
            if top is not None and 0.0 < here[norm] < math.inf:
                sheet.layers[row]["folded"] *= top / here[norm]
