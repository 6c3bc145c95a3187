"""What advice is made of: remarks with a sentence and the numbers behind it; plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from normgauge.core.spelled import spell
from normgauge.render.markup import clean

SCHEMA = 1


class Severity(StrEnum):
    """How much a remark asks of the reader."""

    ACT = "act"
    LOOK = "look"
    FACT = "fact"


@dataclass(frozen=True, slots=True)
class Fix:
    """Normalizers to put in: ``insert_norm(model, fix.places, fix.kind)``."""

    places: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing worth saying about a network.

    Attributes:
        kind: which check it comes from, such as ``stale statistics``.
        layer: the layer it is about, named as in a reading.
        sentence: what was found, the number behind it, and what to do.
        numbers: the numbers of the sentence, by name.
        severity: ``act`` and ``look`` are problems, ``fact`` is none.
        fix: where normalizers would help, for `insert_norm`.
        depth: position of the layer in the order of execution.
    """

    kind: str
    layer: str
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    severity: Severity = Severity.ACT
    fix: Fix | None = None
    depth: int = 0

    def to_json(self) -> dict[str, Any]:
        """The remark as JSON has it."""
        return {
            "kind": self.kind,
            "layer": self.layer,
            "severity": str(self.severity),
            "sentence": self.sentence,
            "numbers": {name: spell(float(value)) for name, value in self.numbers.items()},
            "fix": None if self.fix is None else {"places": list(self.fix.places), "kind": self.fix.kind},
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """All remarks about one network on one batch, problems first.

    Attributes:
        model: class name of the network.
        mode: ``eval``, or ``train`` where the normalizers' statistics had never been set.
        remarks: problems in the order of execution, then facts.
        notes: how the network was looked at.
    """

    model: str
    mode: str
    remarks: tuple[Remark, ...]
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[Remark, ...]:
        """What there is to act on or to look at."""
        return tuple(remark for remark in self.remarks if remark.severity is not Severity.FACT)

    @property
    def facts(self) -> tuple[Remark, ...]:
        """What is so, and needs nothing."""
        return tuple(remark for remark in self.remarks if remark.severity is Severity.FACT)

    def __iter__(self) -> Iterator[Remark]:
        return iter(self.remarks)

    def __len__(self) -> int:
        return len(self.remarks)

    def __str__(self) -> str:
        count = len(self.problems)
        found = "no problem found" if not count else f"{count} problem{'s' * (count > 1)}"
        lines = [f"{self.model}, {self.mode} mode: {found}"]
        lines += [f"  {i}. [{r.kind}] {r.sentence}" for i, r in enumerate(self.problems, 1)]
        if self.facts:
            lines += ["facts"] + [f"  - {r.sentence}" for r in self.facts]
        return clean("\n".join(lines + [f"note: {note}" for note in self.notes]))

    def to_json(self) -> dict[str, Any]:
        """The advice as JSON has it."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "mode": self.mode,
            "problems": [remark.to_json() for remark in self.problems],
            "facts": [remark.to_json() for remark in self.facts],
            "notes": list(self.notes),
        }
