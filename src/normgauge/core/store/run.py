"""What a run file says, once it was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from normgauge.core.errors import StoreError
from normgauge.core.store.lines import Record
from normgauge.core.store.numbers import read_number
from normgauge.core.store.steps import StepRecord, numbers_of

Series = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run file says. Records are as stored: `series` and `total` read the spelled numbers.

    Attributes:
        path: the file.
        header: its first line.
        steps: the step lines; of steps taken twice, after a resume, only the later.
        alarms: the causes of incidents.
        notes, readings, resumes: the other lines.
        end: the last line of a run that was closed.
        problems: sentences about what was left out.
        consequences: what followed from an incident's cause; each names its cause and the step of it.
        written: when the file was last written, in seconds as `time.time` counts them; None where that is not known.
        held: whether a process holds the file's lock, as one that writes it does; None where that is not known.
    """

    path: Path
    header: Record
    steps: Sequence[StepRecord] = ()
    alarms: Sequence[Record] = ()
    notes: Sequence[Record] = ()
    readings: Sequence[Record] = ()
    resumes: Sequence[Record] = ()
    end: Record | None = None
    problems: Sequence[str] = ()
    consequences: Sequence[Record] = ()
    written: float | None = None
    held: bool | None = None

    @property
    def layers(self) -> list[str]:
        """The layers' names, in the order of every column."""
        return [str(layer.get("name", i)) for i, layer in enumerate(self.header["layers"])]

    def series(self, column: str, layer: str | int) -> Series:
        """Step and value of one layer's quantity wherever it was measured.

        Raises:
            StoreError: when the run has no such layer.
        """
        place = layer if isinstance(layer, int) else self._place(layer)
        pairs = []
        for step in self.steps:
            cells = step["columns"].get(column, ())
            value = read_number(cells[place]) if place < len(cells) else None
            if value is not None:
                pairs.append((step.step, value))
        return pairs

    def total(self, name: str) -> Series:
        """Step and value of a total, or of ``loss``, ``lr`` or ``time``, wherever it was measured."""
        return list(numbers_of(self.steps, name))

    def _place(self, layer: str) -> int:
        try:
            return self.layers.index(layer)
        except ValueError:
            raise StoreError(
                f"{self.path} has no layer {layer!r}; its layers are {', '.join(self.layers[:8])}, ..."
            ) from None
