"""The curvature of a loss, in plain numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normgauge.core.spelled import spell
from normgauge.errors import InputError


@dataclass(frozen=True, slots=True)
class Eigenvalue:
    """One eigenvalue.

    Attributes:
        value: as found.
        residual: ‖Hv − λv‖ with the vector it was found with: an eigenvalue of the matrix is at most that far away.
        error: what is expected of it: residual²/gap, or the residual where that is smaller; an estimate.
    """

    value: float
    residual: float
    error: float

    def to_json(self) -> dict[str, Any]:
        """This eigenvalue as strict JSON."""
        return {"value": self.value, "residual": self.residual, "error": self.error}


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace, estimated with random vectors."""

    value: float
    standard_error: float
    products: int

    def to_json(self) -> dict[str, Any]:
        """This trace as strict JSON."""
        return {"value": self.value, "standard_error": self.standard_error, "products": self.products}


@dataclass(frozen=True, slots=True)
class LayerCurvature:
    """The diagonal block of one layer's parameters; ``top`` is None where it was not asked for."""

    name: str
    parameters: int
    trace: Trace
    top: Eigenvalue | None

    def to_json(self) -> dict[str, Any]:
        """This block as strict JSON."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "trace": self.trace.to_json(),
            "top": None if self.top is None else self.top.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Density:
    """Where the eigenvalues lie: nodes with weights, and single eigenvalues that are known.

    Attributes:
        size: rows of the matrix.
        nodes, weights: of the quadrature; with 1/size for each spike the weights sum to 1.
        spikes: eigenvalues known one by one.
        probes, steps, products: what it cost; no probes where all eigenvalues were computed.
        outliers: eigenvalues above the largest gap, as a ratio; 0 where no gap reaches 1.5.
        gap: that ratio.
    """

    size: int
    nodes: tuple[float, ...]
    weights: tuple[float, ...]
    spikes: tuple[float, ...]
    probes: int
    steps: int
    products: int
    outliers: int
    gap: float

    def points(self) -> list[tuple[float, float]]:
        """Every value with its share of the spectrum."""
        return [*zip(self.nodes, self.weights, strict=True), *((v, 1 / self.size) for v in self.spikes)]

    def count(self, above: float) -> float:
        """How many eigenvalues lie above a value: exact among the spikes, an estimate among the rest."""
        return self.size * math.fsum(w for v, w in self.points() if v > above)

    @property
    def negative_mass(self) -> float:
        """Σ|λ<0| / Σ|λ|, of the whole spectrum."""
        total = math.fsum(abs(v) * w for v, w in self.points())
        return math.fsum(-v * w for v, w in self.points() if v < 0) / total if total else 0.0

    def curve(self, at: Sequence[float], width: float) -> list[float]:
        """The density at some values, each node a Gaussian of this width."""
        scale = 1 / (width * math.sqrt(2 * math.pi))
        near = [(v, w * scale) for v, w in self.points() if w > 0]
        return [math.fsum(w * math.exp(-(((x - v) / width) ** 2) / 2) for v, w in near) for x in at]

    def to_json(self) -> dict[str, Any]:
        """This density as strict JSON."""
        return {
            "size": self.size,
            "nodes": list(self.nodes),
            "weights": list(self.weights),
            "spikes": list(self.spikes),
            "probes": self.probes,
            "steps": self.steps,
            "products": self.products,
            "outliers": self.outliers,
            "gap": spell(self.gap),
            "negative_mass": self.negative_mass,
        }


@dataclass(frozen=True, slots=True)
class Condition:
    """λ_max over the smallest |λ| that is at least ``cutoff``·λ_max; without a cut-off it is infinite or noise.

    Attributes:
        value: the ratio; at most 1/cutoff.
        cutoff: relative to λ_max.
        kept: how many eigenvalues are at least that large.
    """

    value: float
    cutoff: float
    kept: int

    def to_json(self) -> dict[str, Any]:
        """This number as strict JSON."""
        return {"value": spell(self.value), "cutoff": self.cutoff, "kept": self.kept}


@dataclass(frozen=True, slots=True)
class Curvature:
    """What is known about the Hessian of a loss.

    Attributes:
        model, mode, precision: what was measured, and how.
        parameters, samples, batches: its size, and that of the data.
        loss, gradient_norm: at the weights measured.
        eigenvalues: the largest, counted algebraically, in descending order.
        smallest: the smallest one found; the true one is not above it.
        trace: of the whole Hessian.
        sharpness_scale_free: λ_max(DHD), D = ‖w_l‖ on the entries of each parameter tensor l.
        layers: each layer's block.
        density: the spectrum, where asked for.
        condition: with its cut-off, where all eigenvalues were computed.
        converged: whether the eigenvalues met the tolerance within the products allowed.
        products: Hessian-vector products, by what they were for.
        notes: what a reader must know.
        seconds: CPU time.
    """

    model: str
    mode: str
    precision: str
    parameters: int
    samples: int
    batches: int
    loss: float
    gradient_norm: float
    eigenvalues: tuple[Eigenvalue, ...]
    smallest: Eigenvalue
    trace: Trace
    sharpness_scale_free: Eigenvalue
    layers: tuple[LayerCurvature, ...] = ()
    density: Density | None = None
    condition: Condition | None = None
    converged: bool = True
    products: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """This measurement as strict JSON; ``eigenvalues``, ``trace`` and ``sharpness_scale_free`` are a contract."""
        return {
            "schema": 1,
            "kind": "curvature",
            "model": self.model,
            "mode": self.mode,
            "precision": self.precision,
            "parameters": self.parameters,
            "samples": self.samples,
            "batches": self.batches,
            "loss": self.loss,
            "gradient_norm": self.gradient_norm,
            "eigenvalues": [value.to_json() for value in self.eigenvalues],
            "smallest": self.smallest.to_json(),
            "trace": self.trace.to_json(),
            "sharpness_scale_free": self.sharpness_scale_free.value,
            "sharpness_scale_free_residual": self.sharpness_scale_free.residual,
            "layers": [layer.to_json() for layer in self.layers],
            "density": None if self.density is None else self.density.to_json(),
            "condition": None if self.condition is None else self.condition.to_json(),
            "converged": self.converged,
            "products": dict(self.products),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
        }

    def save(self, path: str | Path) -> None:
        """Write `to_json` to a file.

        Raises:
            InputError: when it cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.to_json(), allow_nan=False, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; give a file in a folder that exists") from None

    def __str__(self) -> str:
        from normgauge.render.curvature import text

        return text(self)
