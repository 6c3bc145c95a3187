"""What advice is made of: remarks with a sentence and the numbers behind it; plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

from normgauge.core.fields import FieldForm, Stored, Told
from normgauge.core.spelled import spell_number, unspell_number
from normgauge.render.console import as_text


class Severity(StrEnum):
    """How much a remark asks of the reader."""

    ACT = "act"
    LOOK = "look"
    FACT = "fact"


Plain = Annotated[
    float, FieldForm("number", lambda value: spell_number(float(value)), unspell_number)
]  # from whatever was measured


@dataclass(frozen=True, slots=True)
class Fix(Stored):
    """Normalizers to put in: ``insert_norm(model, fix.places, fix.kind)``."""

    places: Annotated[tuple[str, ...], Told("the layers to put them behind")]
    kind: Annotated[str, Told("of normalizer")]


@dataclass(frozen=True, slots=True)
class Remark(Stored):
    """One thing worth saying about a network."""

    kind: Annotated[str, Told("which check it comes from, such as `stale statistics`")]
    layer: Annotated[str, Told("the layer it is about, named as in a reading")]
    sentence: Annotated[str, Told("what was found, the number behind it, and what to do")]
    numbers: Annotated[Mapping[str, Plain], Told("those of the sentence, by name")] = field(default_factory=dict)
    severity: Annotated[Severity, Told("`act` and `look` are problems, `fact` is not")] = Severity.ACT
    fix: Annotated[Fix | None, Told("where normalizers would help, see below; `null` where none would")] = None
    depth: int = 0  # position of the layer in the order of execution


@dataclass(frozen=True, slots=True)
class Advice(Stored):
    """All remarks about one network on one batch, problems first."""

    schema: ClassVar[Annotated[int, Told("1")]] = 1
    model: Annotated[str, Told("class name of the network")]
    mode: Annotated[str, Told("`eval`, or `train` where the normalizers' statistics had never been set")]
    remarks: tuple[Remark, ...]
    notes: Annotated[tuple[str, ...], Told("how the network was looked at")] = ()

    @property
    @Told("what there is to act on or to look at, see below")
    def problems(self) -> tuple[Remark, ...]:
        """What there is to act on or to look at."""
        return tuple(remark for remark in self.remarks if remark.severity is not Severity.FACT)

    @property
    @Told("what is true of the network and asks for no action; in the same form")
    def facts(self) -> tuple[Remark, ...]:
        """What is true of the network and asks for no action."""
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
        return as_text([*lines, *(f"note: {note}" for note in self.notes)])
