"""The arithmetic from the layers' gains to the total, written down so that anyone can do it again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from normgauge.core.spelled import LN10, to_log10

Logs = float | tuple[float, ...]  # one for all samples, or one each


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One step of the network, as the composition sees it.

    slope(output) = Σ_k gain_k · slope(input_k), or √Σ (gain_k · slope(input_k))² where ``disjoint``.

    Attributes:
        layer: name of its layer record; empty for a step without one (a change of shape).
        output: number of the value it makes.
        inputs: numbers of the values it reads that depend on the network's input.
        disjoint: the inputs reach disjoint parts of the output.
        folded: log gain from each input, with maps and normalizers folded.
        balanced: the same in the gauge of the balanced bound.
        radius: log of how far its output moves at most while the input moves in the scope; −inf at a point.
        everywhere: log of the step's own gain over all inputs; in the scope global that is its gain.
    """

    layer: str
    output: int
    inputs: tuple[int, ...]
    disjoint: bool
    folded: tuple[Logs, ...]
    balanced: tuple[Logs, ...]
    radius: float = math.inf
    everywhere: float = math.inf

    def to_json(self) -> dict[str, Any]:
        """With decimal logarithms."""
        return {
            "layer": self.layer,
            "output": self.output,
            "inputs": list(self.inputs),
            "disjoint": self.disjoint,
            "log10_folded": [_out(logs) for logs in self.folded],
            "log10_balanced": [_out(logs) for logs in self.balanced],
            "log10_radius": to_log10(self.radius),
            "log10_everywhere": to_log10(self.everywhere),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProofStep:
        """The inverse of `to_json`."""
        return cls(
            layer=data["layer"],
            output=data["output"],
            inputs=tuple(data["inputs"]),
            disjoint=data["disjoint"],
            folded=tuple(_in(logs) for logs in data["log10_folded"]),
            balanced=tuple(_in(logs) for logs in data["log10_balanced"]),
            radius=_log(data.get("log10_radius", "inf")),
            everywhere=_log(data.get("log10_everywhere", "inf")),
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """The whole graph. A sample's upper bound is the smaller of its two totals, the reading's that of its worst sample.

    Attributes:
        samples: how many are composed side by side.
        sources: numbers of the values the measured input enters by; their slope is 1.
        output: number of the value measured.
        steps: in order of execution.
        radii: log of how far each source moves in the scope; empty in readings of schema 1.
    """

    samples: int
    sources: tuple[int, ...]
    output: int
    steps: tuple[ProofStep, ...]
    radii: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """With decimal logarithms."""
        return {
            "samples": self.samples,
            "sources": list(self.sources),
            "log10_radii": [to_log10(radius) for radius in self.radii],
            "output": self.output,
            "steps": [step.to_json() for step in self.steps],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Proof:
        """The inverse of `to_json`."""
        steps = tuple(ProofStep.from_json(step) for step in data["steps"])
        radii = tuple(_log(radius) for radius in data.get("log10_radii", ()))
        return cls(data["samples"], tuple(data["sources"]), data["output"], steps, radii)


def _out(logs: Logs) -> Any:
    return [to_log10(log) for log in logs] if isinstance(logs, tuple) else to_log10(logs)


def _in(data: Any) -> Logs:
    return tuple(_log(item) for item in data) if isinstance(data, list) else _log(data)


def _log(value: float | str) -> float:
    return float(value) * LN10
