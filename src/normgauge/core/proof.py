"""The arithmetic from the layers' gains to the total, written down so that anyone can do it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from normgauge.core.spelled import from_log10, to_log10

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
    """

    layer: str
    output: int
    inputs: tuple[int, ...]
    disjoint: bool
    folded: tuple[Logs, ...]
    balanced: tuple[Logs, ...]

    def to_json(self) -> dict[str, Any]:
        """With decimal logarithms."""
        return {
            "layer": self.layer,
            "output": self.output,
            "inputs": list(self.inputs),
            "disjoint": self.disjoint,
            "log10_folded": [_out(logs) for logs in self.folded],
            "log10_balanced": [_out(logs) for logs in self.balanced],
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
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """The whole graph. A sample's upper bound is the smaller of its two totals, the reading's that of its worst sample.

    Attributes:
        samples: how many are composed side by side.
        sources: numbers of the values the measured input enters by; their slope is 1.
        output: number of the value measured.
        steps: in order of execution.
    """

    samples: int
    sources: tuple[int, ...]
    output: int
    steps: tuple[ProofStep, ...]

    def to_json(self) -> dict[str, Any]:
        """With decimal logarithms."""
        return {
            "samples": self.samples,
            "sources": list(self.sources),
            "output": self.output,
            "steps": [step.to_json() for step in self.steps],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Proof:
        """The inverse of `to_json`."""
        steps = tuple(ProofStep.from_json(step) for step in data["steps"])
        return cls(data["samples"], tuple(data["sources"]), data["output"], steps)


def _out(logs: Logs) -> Any:
    return [to_log10(log) for log in logs] if isinstance(logs, tuple) else to_log10(logs)


def _in(data: Any) -> Logs:
    if isinstance(data, list):
        return tuple(float(from_log10(item)) for item in data)  # type: ignore[arg-type]
    return float(from_log10(data))  # type: ignore[arg-type]
