"""Work of a reading that a device is given in one launch: a graph of it is kept while nothing but numbers changes.

Most of what a reading costs on an accelerator is the host's time to launch a few hundred small kernels. What is asked
of weights is the same at every reading, and their tensors stay where they are; so from the third time on it is
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from normgauge.monitor.sheet import Sheet

Work = Callable[[Sheet, bool], None]  # where to write, and whether a graph will hold the memory it takes

FIRST = 2  # times that work is done as it is before a graph of it is made: what is made or loaded once is there by then


@dataclass(frozen=True, slots=True)
class Owned:
    """Tensors that much work depends on, looked up once.

    Attributes:
        tensors: all of them.
        places: where they are, and their shapes.
    """

    tensors: Sequence[Tensor] = ()
    places: Hashable = ()


def owned(tensors: Sequence[Tensor]) -> Owned:
    """Where tensors are now."""
    return Owned(tensors, (tuple(map(Tensor.data_ptr, tensors)), tuple([tensor.shape for tensor in tensors])))


@dataclass(slots=True)
class Piece:
    """Some work, and how it is launched.

    Attributes:
        key: what it was done with; a graph holds for this alone.
        held: the tensors it was done with: while there is a graph their memory is nobody else's.
        times: that it was done so.
        graph: once there is one.
        cells: for each number it finds the row of the layer, its key there, and whether it is one of the heads.
        packed: where a replay leaves its numbers.
        done: what the work wrote into the sheet when the graph was made; its tensors are those of the graph.
    """

    key: Hashable = None
    held: Sequence[Tensor] = ()
    times: int = 0
    graph: Any = None
    cells: list[tuple[int, Any, bool]] = field(default_factory=list)
    packed: Tensor | None = None
    done: Sheet = field(default_factory=Sheet)


class Launches:
    """Does pieces of work on one device.

    Attributes:
        why: what went wrong when a graph was made; all work is done as it is from then on. Empty otherwise.
    """

    def __init__(self) -> None:
        self.why = ""
        self._pieces: dict[Hashable, Piece] = {}
        self._pool: Any = None

    def do(
        self,
        name: Hashable,
        key: Hashable,
        tensors: Sequence[Tensor],
        work: Work,
        sheet: Sheet,
        beside: Owned = Owned(),  # noqa: B008
    ) -> None:
        """Do some work and write down what it finds.

        Args:
            name: of the work.
            key: settings that its launches depend on.
            tensors: all that it reads or writes and did not make itself. What it keeps for the next time it must leave
                where it was.
            work: writes to the sheet it is given.
            sheet: of this reading.
            beside: more tensors that it reads.
        """
        if self.ready(name, key, tensors, beside):
            self.launch(name, work, sheet)
        else:
            work(sheet, False)

    def ready(
        self, name: Hashable, key: Hashable, tensors: Sequence[Tensor], beside: Owned, first: int = FIRST
    ) -> bool:
        """Whether some work was done often enough with these for a graph; if not, this time is counted."""
        whole = key, owned(tensors).places, beside.places
        piece = self._pieces.get(name)
        if piece is None or piece.key != whole:
            piece = self._pieces[name] = Piece(whole, [*tensors, *beside.tensors])
        piece.times += 1
        return piece.times > first and not self.why

    def launch(self, name: Hashable, work: Work, sheet: Sheet) -> None:
        """Do work that is ready by its graph, which is made where there is none yet."""
        piece = self._pieces.get(name)
        if piece is not None and piece.graph is None and not self.why:
            try:
                self._capture(piece, work)
            except Exception as error:  # nothing was launched: the work is still to be done
                self._pieces.clear()
                self.why = f"{type(error).__name__}: {error}"
        if piece is None or self.why:
            work(sheet, False)
            return
        piece.graph.replay()
        put_again(piece, sheet)

    def _capture(self, piece: Piece, work: Work) -> None:
        """Make a graph of some work, on a stream of its own; other threads may use the device meanwhile."""
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                remember(piece, work)
            finally:
                graph.capture_end()
        piece.graph = graph


@cache
def kernels(device: torch.device) -> Any:
    """The module with kernels for a device; None where there are none, Triton is missing or does not work."""
    if device.type != "cuda":
        return None
    try:
        from normgauge.monitor import grouped

        one = torch.ones(2, 3, device=device)
        maps = grouped.GroupedMaps([one], grouped.Table([one]))
        sums = maps.forward(torch.ones(1, 1, 3, dtype=torch.float64, device=device)).sum()
        return grouped if float(sums) == one.numel() else None
    except Exception:  # as without a compiler: torch's own kernels do the same in more time
        return None


def remember(piece: Piece, work: Work) -> None:
    """Do some work for a piece, and keep where it leaves its numbers."""
    sheet = piece.done = Sheet()
    work(sheet, True)
    of_layers = {id(part): (row, False) for row, part in sheet.layers.items()}
    of_heads = {id(part): (row, True) for row, part in sheet.heads.items()}
    places = of_layers | of_heads
    piece.cells = [(places[id(part)][0], key, places[id(part)][1]) for part, key in sheet.cells]
    piece.packed = sheet.packed()


def put_again(piece: Piece, sheet: Sheet) -> None:
    """Write down what a replay of a piece finds."""
    if piece.packed is not None:
        sheet.cells += [((sheet.heads if head else sheet.layers)[row], key) for row, key, head in piece.cells]
        sheet.tensors.append(piece.packed)
