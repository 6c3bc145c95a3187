"""The arithmetic from the layers' gains to the total, written down so that anyone can do it again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from normgauge.core.fields import Log, Stored, Told

Logs = tuple[Log, ...] | Log  # one each of the samples, or one for all


@dataclass(frozen=True, slots=True)
class ProofStep(Stored):
    """One step of the network, as the composition sees it.

    slope(output) = Σ_k gain_k · slope(input_k), or √Σ (gain_k · slope(input_k))² where ``disjoint``.
    """

    layer: Annotated[
        str, Told("name of its layer; empty for a step that has no row under `layers`, such as a change of shape")
    ]
    output: Annotated[int, Told("number of the value it makes")]
    inputs: Annotated[tuple[int, ...], Told("numbers of the values it reads that depend on the network's input")]
    disjoint: Annotated[
        bool,
        Told(
            "`false`: slope(output) = Σ gain·slope(input). `true`: the inputs reach disjoint parts of the output and "
            "add in squares, √Σ(gain·slope)²"
        ),
    ]
    folded: Annotated[
        tuple[Logs, ...],
        Told(
            "for each input its gain with maps and normalizers folded: one number, or a list with one a sample",
            key="log10_folded",
        ),
    ]
    balanced: Annotated[
        tuple[Logs, ...],
        Told("the same with the channel weights of the balanced bound", key="log10_balanced", varies=True),
    ]
    radius: Annotated[
        Log,
        Told('how far its output moves at most in the scope; `"-inf"` at a point', key="log10_radius", absent=math.inf),
    ] = math.inf
    everywhere: Annotated[
        Log,
        Told(
            "the step's own gain over all inputs; in the scope `global` that is its gain",
            key="log10_everywhere",
            absent=math.inf,
        ),
    ] = math.inf


@dataclass(frozen=True, slots=True)
class Proof(Stored):
    """The whole graph. A sample's upper bound is the smaller of its two totals, the reading's that of its worst one."""

    samples: Annotated[int, Told("how many are composed side by side")]
    sources: Annotated[tuple[int, ...], Told("numbers of the values the measured input enters by; their slope is 1")]
    radii: Annotated[
        tuple[Log, ...],
        Told(
            'how far each source moves in the scope: `"-inf"` at a point, the radius of a ball, `"inf"`',
            key="log10_radii",
            absent=(),
        ),
    ] = field(default=(), kw_only=True)
    output: Annotated[int, Told("number of the value measured")]
    steps: Annotated[tuple[ProofStep, ...], Told("in order of execution, see below")]
