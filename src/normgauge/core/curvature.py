"""The curvature of a loss, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from normgauge.core.fields import FieldForm, Seconds, Stored, Told


@dataclass(frozen=True, slots=True)
class Eigenvalue(Stored):
    """One eigenvalue of the Hessian, with how far it can be trusted."""

    value: Annotated[float, Told("as found")]
    residual: Annotated[
        float,
        Told("‖Hv − λv‖ with the vector it was found with: an eigenvalue of the matrix is at most that far away"),
    ]
    error: Annotated[
        float,
        Told("what is expected of it: residual²/gap, or the residual where that is smaller; an estimate"),
    ]


VALUE_ALONE = FieldForm("number", lambda found: found.value, lambda value: Eigenvalue(value, math.nan, math.nan))


@dataclass(frozen=True, slots=True)
class TraceEstimate(Stored):
    """A trace, estimated with random vectors."""

    value: Annotated[float, Told("the mean over them")]
    standard_error: Annotated[float, Told("of that mean")]
    products: Annotated[int, Told("with the Hessian: how many it took")]


@dataclass(frozen=True, slots=True)
class LayerCurvature(Stored):
    """The diagonal block of one layer's parameters."""

    name: Annotated[str, Told("module path")]
    parameters: Annotated[int, Told("their number")]
    trace: Annotated[TraceEstimate, Told("of the block")]
    top: Annotated[Eigenvalue | None, Told("its largest eigenvalue; `null` where it was not asked for")]


@dataclass(frozen=True, slots=True)
class Density(Stored):
    """Where the eigenvalues lie: nodes with weights, and single eigenvalues that are known."""

    size: Annotated[int, Told("rows of the matrix")]
    nodes: Annotated[tuple[float, ...], Told("of the quadrature")]
    weights: Annotated[tuple[float, ...], Told("of the nodes; with 1/size for each spike they sum to 1")]
    spikes: Annotated[tuple[float, ...], Told("eigenvalues known one by one")]
    probes: Annotated[int, Told("random vectors; none where all eigenvalues were computed")]
    steps: Annotated[int, Told("of Lanczos for each of them")]
    products: Annotated[int, Told("with the Hessian: what it cost")]
    outliers: Annotated[int, Told("eigenvalues above the largest gap, as a ratio; 0 where no gap reaches 1.5")]
    gap: Annotated[float, Told("that ratio")]

    def points(self) -> list[tuple[float, float]]:
        """Every value with its share of the spectrum."""
        return [*zip(self.nodes, self.weights, strict=True), *((v, 1 / self.size) for v in self.spikes)]

    def count(self, above: float) -> float:
        """How many eigenvalues lie above a value: exact among the spikes, an estimate among the rest."""
        return self.size * math.fsum(w for v, w in self.points() if v > above)

    @property
    @Told("Σ\\|λ<0\\| / Σ\\|λ\\|, of the whole spectrum")
    def negative_mass(self) -> float:
        """Σ|λ<0| / Σ|λ|, of the whole spectrum."""
        total = math.fsum(abs(v) * w for v, w in self.points())
        return math.fsum(-v * w for v, w in self.points() if v < 0) / total if total else 0.0

    def curve(self, at: Sequence[float], width: float) -> list[float]:
        """The density at some values, each node a Gaussian of this width."""
        scale = 1 / (width * math.sqrt(2 * math.pi))
        near = [(v, w * scale) for v, w in self.points() if w > 0]
        return [math.fsum(w * math.exp(-(((x - v) / width) ** 2) / 2) for v, w in near) for x in at]


@dataclass(frozen=True, slots=True)
class Condition(Stored):
    """λ_max over the smallest |λ| that is at least ``cutoff``·λ_max; without a cut-off it is infinite or noise."""

    value: Annotated[float, Told("the ratio; at most 1/cutoff")]
    cutoff: Annotated[float, Told("relative to λ_max")]
    kept: Annotated[int, Told("how many eigenvalues are at least that large")]


@dataclass(frozen=True, slots=True)
class Curvature(Stored):
    """What is known about the Hessian of a loss."""

    schema: ClassVar[Annotated[int, Told("1")]] = 1
    kind: ClassVar[Annotated[str, Told("`curvature`")]] = "curvature"
    model: Annotated[str, Told("class name of the network")]
    mode: Annotated[str, Told("`eval` or `train`")]
    precision: Annotated[str, Told("the floating-point type it was measured in")]
    parameters: Annotated[int, Told("their number")]
    samples: Annotated[int, Told("of the data")]
    batches: Annotated[int, Told("they came in")]
    loss: Annotated[float, Told("at the weights measured")]
    gradient_norm: Annotated[float, Told("there")]
    eigenvalues: Annotated[
        tuple[Eigenvalue, ...], Told("the largest, counted algebraically, in descending order; see below")
    ]
    smallest: Annotated[Eigenvalue, Told("the smallest one found; the true one is not above it")]
    trace: Annotated[TraceEstimate, Told("of the whole Hessian, see below")]
    sharpness_scale_free: Annotated[
        Eigenvalue,
        VALUE_ALONE,
        Told("λ_max(DHD), D = ‖w_l‖ on the entries of each parameter tensor l"),
    ]
    layers: Annotated[tuple[LayerCurvature, ...], Told("each layer's block, see below")] = ()
    density: Annotated[Density | None, Told("the spectrum, where asked for, see below")] = None
    condition: Annotated[Condition | None, Told("with its cut-off, where all eigenvalues were computed, see below")] = (
        None
    )
    converged: Annotated[bool, Told("whether the eigenvalues met the tolerance within the products allowed")] = True
    products: Annotated[Mapping[str, int], Told("Hessian-vector products, by what they were for")] = field(
        default_factory=dict
    )
    notes: Annotated[tuple[str, ...], Told("what a reader must know")] = ()
    seconds: Annotated[Seconds, Told("CPU time")] = 0.0

    @property
    @Told("the residual of that eigenvalue")
    def sharpness_scale_free_residual(self) -> float:
        """The residual ‖DHDv − λv‖ of the scale-free sharpness."""
        return self.sharpness_scale_free.residual

    def __str__(self) -> str:
        from normgauge.render.console import as_text
        from normgauge.render.curvature import curvature_blocks

        return as_text(curvature_blocks(self))
