"""Certified radii: how far each sample may be moved before its prediction could change, and where an attack did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from normgauge.core.bound import Evidence
from normgauge.core.checker import digest
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.fields import Seconds, Share, Size, Stored, Told
from normgauge.core.version import __version__

SCHEMA = 1
HOLDS = (Evidence.PROVED, Evidence.COMPUTED)
ALREADY_WRONG = "already wrong"
TIED = "two classes are equal"


@dataclass(frozen=True, slots=True)
class SampleRadius(Stored):
    """One sample: the radius within which its class provably stays, and the distance at which an attack changed it."""

    index: Annotated[int, Told("its place in the batch")]
    label: Annotated[int | None, Told("the class it should have; `null` where none was given")]
    predicted: Annotated[int, Told("the class the network names")]
    margin: Annotated[
        float,
        Told(
            "output of the label (without one, of the class named) less the largest other; negative where it is wrong"
        ),
    ]
    rounding: Annotated[Size, Told("how far float64 may have left the output, as a length; taken off every margin")]
    radius: Annotated[Size, Told("no change of at most this l2 length changes the class; 0 where nothing is certified")]
    method: Annotated[str, Told("the bound that gave the radius; empty where none did")]
    evidence: Annotated[
        Evidence,
        Told(
            "how the radius is known: `proved`; `computed` where the rounding of the output is measured instead of "
            "enclosed; `estimated` where the network was not measured in float64; `refuted` where an attack succeeded "
            "inside; `unknown` where there is no bound"
        ),
    ]
    attacked: Annotated[
        Size | None, Told("length of the smallest change found that changes the class; `null` for none")
    ]
    reason: Annotated[str, Told("why nothing is certified, where that is so")] = ""

    def __post_init__(self) -> None:
        if not self.radius >= 0 or (self.attacked is not None and not self.attacked > 0):
            raise InputError(
                f"sample {self.index}: expected a radius of 0 or more and a distance above 0, "
                f"got {self.radius} and {self.attacked}"
            )
        if self.radius and self.attacked is not None and self.attacked <= self.radius:
            raise InputError(
                f"sample {self.index}: a radius of {self.radius} is no certificate where a change of {self.attacked} "
                "changes the class; it is refuted"
            )

    @property
    def right(self) -> bool:
        """Whether the class named is the label, by a positive margin; of a sample without one, that it has a margin."""
        return self.margin > 0 and self.label in (None, self.predicted)

    @property
    def certified(self) -> bool:
        """Whether some radius is certified."""
        return self.radius > 0 and self.evidence in HOLDS


def judged_radius(radius: float, attacked: float | None, **known: Any) -> SampleRadius:
    """The sample, its radius held against the attack: one that succeeded inside takes the radius back."""
    if attacked is None or attacked > radius or not radius:
        return SampleRadius(radius=radius, attacked=attacked, **known)
    reason = (
        f"REFUTED: {known['method']} certified {radius:.6g}, and a change of {attacked:.6g} changes the class; one of "
        "the bounds used is wrong, please report it"
    )
    return SampleRadius(radius=0.0, attacked=attacked, **{**known, "evidence": Evidence.REFUTED, "reason": reason})


@dataclass(frozen=True, slots=True)
class CertifiedRadii(Stored):
    """The radii of all samples of a batch."""

    schema: ClassVar[Annotated[int, Told(f"{SCHEMA}")]] = SCHEMA
    kind: ClassVar[Annotated[str, Told("`radii`")]] = "radii"
    model: Annotated[str, Told("class name of the network")]
    classes: Annotated[int, Told("outputs of the network")]
    samples: Annotated[tuple[SampleRadius, ...], Told("one for each sample, see below")]
    failure_probability: Annotated[
        Share, Told("chance that any of the radii is wrong: norms proved from random starts, their chances added up")
    ] = 0.0
    attack: Annotated[Mapping[str, int], Told("`restarts`, `steps` and `seed` of the attack; empty without one")] = (
        field(default_factory=dict)
    )
    weights: Annotated[str, Told("SHA-256 of the weights, as in a reading", key="weights_digest")] = ""
    version: Annotated[str, Told("the version that wrote it", key="normgauge")] = __version__
    notes: Annotated[tuple[str, ...], Told("what a reader must know")] = ()
    seconds: Annotated[Seconds, Told("CPU time")] = 0.0
    digest: ClassVar[Annotated[str, Told("of everything else, as in a reading", absent="")]] = ""

    @property
    def refuted(self) -> tuple[SampleRadius, ...]:
        """The samples whose certificate an attack broke; none, unless something is wrong with a bound."""
        return tuple(sample for sample in self.samples if sample.evidence is Evidence.REFUTED)

    def verified_accuracy(self, radius: float) -> float:
        """Share of samples that are right and provably stay so within ``radius``.

        Raises:
            InputError: for a radius that is no number from 0 on.
        """
        return self._share(radius, lambda s: s.certified and s.radius >= radius)

    def attacked_accuracy(self, radius: float) -> float:
        """Share of samples that are right and that the attack left so within ``radius``: the truth is at most this.

        Raises:
            InputError: for a radius that is no number from 0 on.
        """
        return self._share(radius, lambda s: s.attacked is None or s.attacked > radius)

    def _share(self, radius: float, stays: Callable[[SampleRadius], bool]) -> float:
        if not radius >= 0:
            raise InputError(f"radius: expected a number from 0 on, got {radius}")
        return sum(s.right and stays(s) for s in self.samples) / len(self.samples) if self.samples else math.nan

    def to_json(self) -> dict[str, Any]:
        """As strict JSON, with the digest of its content."""
        data = Stored.to_json(self)
        return {**data, "digest": digest(data)}

    @classmethod
    def from_json(cls, data: Any) -> CertifiedRadii:
        """The inverse of `to_json`.

        Raises:
            ReadingError: for another schema, a field that is missing or of the wrong kind, an edited file, or a radius
                that the attack stored beside it contradicts.
        """
        told = data if isinstance(data, Mapping) else {}
        if told.get("kind") != cls.kind or told.get("schema") != SCHEMA:
            got = f"{told.get('kind')!r} of schema {told.get('schema')!r}"
            raise ReadingError(f"expected certified radii of schema {SCHEMA}, got {got}")
        if told.get("digest") != digest(told):
            raise ReadingError("the content is not what its digest says: the file was edited; measure again")
        try:
            made = super(CertifiedRadii, cls).from_json(data)
        except InputError as error:
            raise ReadingError(str(error)) from None
        return made

    def __str__(self) -> str:
        from normgauge.render.certified import radii_blocks
        from normgauge.render.console import as_text

        return as_text(radii_blocks(self))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from normgauge.render.certified import radii_notebook

        return radii_notebook(self)
