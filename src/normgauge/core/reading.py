"""The result of a measurement: floats and strings, and their JSON form."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normgauge.checker import SCHEMA, digest
from normgauge.core.bound import Evidence, Scope
from normgauge.core.interval import LogInterval
from normgauge.core.kinds import check_kinds
from normgauge.core.proof import Proof
from normgauge.core.refute import judged
from normgauge.core.spelled import LN10, from_log10, spell, to_log10
from normgauge.core.stored import read_items
from normgauge.errors import ReadingError
from normgauge.version import __version__


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of the model that has no bound, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Witness:
    """Where the largest slope was found, and the two lengths that show it.

    Attributes:
        where: in words.
        input_change: how far the input moved.
        output_change: how far the output did, along the direction asked about and less its rounding error.
    """

    where: str
    input_change: float
    output_change: float


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """One layer's numbers. Every ``log_…`` field is a natural logarithm, or None where it does not apply.

    Attributes:
        name: module path, or the module path and function for a functional step.
        kind: class or function name.
        rule: id of the rule, ``family.name``.
        claim: id of the claim the rule rests on.
        gain: the layer's own constant in the reading's scope (largest over the samples).
        log_folded: its share after folding with its neighbours (an upper bound).
        log_balanced: its share in the balanced bound.
        log_cumulative: constant from the network's input to this layer's output, layer by layer, nothing folded.
        log_reached: how much the steepest direction found at a sample had grown by this layer's output (observed).
        log_to_output: constant from this layer's output to the network's output.
        log_weight_lipschitz: constant of the network's output in this layer's weights.
        log_spectral: enclosure of the operator norm of the weights, where there are any.
        log_frobenius: Frobenius norm of the weights.
        log_slack: how much further its gain reaches than what it did along the worst direction found: its share
            of the gap.
        sigma: for a normalizer {"min", "rms", "max", "gamma_max", "eps"} of its √(variance + ε), else None.
        depth: position in the order of execution.
        note: what a reader should know (σ at the ε floor, an unknown op, ...).
        worked: the rule's formula with this layer's numbers put in.
    """

    name: str
    kind: str
    rule: str
    gain: LogInterval
    depth: int
    claim: str | None = None
    log_folded: float | None = None
    log_balanced: float | None = None
    log_cumulative: float | None = None
    log_reached: float | None = None
    log_to_output: float | None = None
    log_weight_lipschitz: float | None = None
    log_spectral: LogInterval | None = None
    log_frobenius: float | None = None
    log_slack: float | None = None
    sigma: Mapping[str, float] | None = None
    note: str = ""
    worked: str = ""

    def to_json(self) -> dict[str, Any]:
        """The record with decimal logarithms."""
        spectral = self.log_spectral
        return {
            "name": self.name,
            "kind": self.kind,
            "rule": self.rule,
            "claim": self.claim,
            "depth": self.depth,
            "log10_gain": {"lower": to_log10(self.gain.lo), "upper": to_log10(self.gain.hi)},
            "log10_folded": to_log10(self.log_folded),
            "log10_balanced": to_log10(self.log_balanced),
            "log10_cumulative": to_log10(self.log_cumulative),
            "log10_reached": to_log10(self.log_reached),
            "log10_to_output": to_log10(self.log_to_output),
            "log10_weight_lipschitz": to_log10(self.log_weight_lipschitz),
            "log10_spectral": None
            if spectral is None
            else {"lower": to_log10(spectral.lo), "upper": to_log10(spectral.hi)},
            "log10_frobenius": to_log10(self.log_frobenius),
            "log10_slack": to_log10(self.log_slack),
            "sigma": None if self.sigma is None else {k: spell(v) for k, v in self.sigma.items()},
            "note": self.note,
            "worked": self.worked,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LayerRecord:
        """Rebuild a record; the inverse of `to_json`."""
        return cls(
            name=data["name"],
            kind=data["kind"],
            rule=data["rule"],
            claim=data["claim"],
            depth=data["depth"],
            gain=_interval(data["log10_gain"]),
            log_folded=from_log10(data["log10_folded"]),
            log_balanced=from_log10(data["log10_balanced"]),
            log_cumulative=from_log10(data["log10_cumulative"]),
            log_reached=from_log10(data.get("log10_reached")),
            log_to_output=from_log10(data["log10_to_output"]),
            log_weight_lipschitz=from_log10(data["log10_weight_lipschitz"]),
            log_spectral=None if data["log10_spectral"] is None else _interval(data["log10_spectral"]),
            log_frobenius=from_log10(data["log10_frobenius"]),
            log_slack=from_log10(data["log10_slack"]),
            sigma=None if data["sigma"] is None else {k: float(v) for k, v in data["sigma"].items()},
            note=data["note"],
            worked=data.get("worked", ""),
        )


def _findings(found: tuple[Finding, ...]) -> list[dict[str, str]]:
    return [{"name": finding.name, "why": finding.why} for finding in found]


def _found(data: Iterable[Mapping[str, str]]) -> tuple[Finding, ...]:
    return tuple(Finding(item["name"], item["why"]) for item in data)


def _witness(data: Mapping[str, Any]) -> Witness:
    return Witness(data["where"], data["input_change"], data["output_change"])


def _interval(ends: Mapping[str, Any]) -> LogInterval:
    lo, hi = _number(ends["lower"]), _number(ends["upper"])
    return LogInterval(min(lo, hi), hi)


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement of one network in one scope. Upper, folded and lower are natural logarithms.

    Attributes:
        model: class name of the network.
        mode: ``eval`` or ``train``.
        scope: where the upper bound holds.
        evidence: how the upper bound is known; the lower one is always found, never more.
        failure_probability: that of a proof with a random start; 0 where none is part of it.
        path_dependent: the model looked at its data, and the bound holds if they take the same path.
        log_upper: the balanced bound, the number to quote.
        log_folded: the bound with linear maps folded into their normalizers, before balancing.
        log_lower: the largest slope found.
        log_refuted: the upper bound a slope was found above; None where none was.
        unknown: operations without a rule, or a trace whose second run differed (the upper bound is infinite).
        unbounded: parts that provably have no finite constant in this scope.
        no_bound: parts for which no finite bound was found, where one may exist (the upper bound is infinite).
        published: the papers' gauge-dependent quantities, as decimal logarithms, keyed as in the JSON form.
        layers: in the order of execution.
        samples: per sample {"index", "log10_lower", "log10_upper"}; upper is None for the global scope. The most
            sensitive ones may have a "picture", a PNG as a data URI. In a refuted reading "log10_refuted" is the bound.
        together: the samples influence each other, and the whole batch is measured as one point.
        precision: the floating-point type the model was traced in.
        options: what else was asked for, so that it can be measured again: input, output, balance, search, width.
        loss: decimal logarithm of the constant of each named loss in the input.
        displacement: log of the largest proved ‖f(x) − f(x0)‖ over the ball, None outside the ball scope.
        gauges: the rescalings the balanced bound was minimised over, in words.
        notes: assumptions and warnings in plain words.
        seconds: CPU seconds of each part of the measurement.
        witness: where the largest slope was found; None where none was.
        rules: {"formula", "holds", "source"} of every rule used, by its id.
        proof: the composition, for `normgauge verify`; None in a reading made before there was one.
        weights: digest of the names, shapes, types and bytes of all parameters and buffers; empty where not known.
        edited: it was loaded from a file whose content is not what was written.
        version: of the normgauge that measured it.
    """

    model: str
    mode: str
    scope: Scope
    evidence: Evidence
    log_upper: float
    log_folded: float
    log_lower: float
    unknown: tuple[Finding, ...] = ()
    unbounded: tuple[Finding, ...] = ()
    published: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[LayerRecord, ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    loss: Mapping[str, float] = field(default_factory=dict)
    displacement: float | None = None
    gauges: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    input_name: str = "input"
    seconds: Mapping[str, float] = field(default_factory=dict)
    witness: Witness | None = None
    rules: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    proof: Proof | None = None
    failure_probability: float = 0.0
    path_dependent: bool = False
    no_bound: tuple[Finding, ...] = ()
    log_refuted: float | None = None
    together: bool = False
    precision: str = "float64"
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: str = ""
    edited: bool = False
    version: str = __version__

    @property
    def log10_upper(self) -> float:
        """The upper bound in decades."""
        return self.log_upper / LN10

    @property
    def log10_folded(self) -> float:
        """The bound before balancing, in decades."""
        return self.log_folded / LN10

    @property
    def log10_lower(self) -> float:
        """The largest slope found, in decades."""
        return self.log_lower / LN10

    @property
    def certain(self) -> bool:
        """Whether the upper bound is proved without a condition: no chance of failure, no path to be kept."""
        return self.evidence is Evidence.PROVED and not self.path_dependent and self.failure_probability == 0

    @property
    def gap(self) -> float:
        """Decades between upper and lower bound."""
        if math.isinf(self.log_upper) or math.isinf(self.log_lower):
            return 0.0 if self.log_upper == self.log_lower else math.inf
        return (self.log_upper - self.log_lower) / LN10

    def layer(self, name: str) -> LayerRecord:
        """The record of the layer called ``name``.

        Raises:
            ReadingError: when there is none.
        """
        for record in self.layers:
            if record.name == name:
                return record
        known = ", ".join(r.name for r in self.layers[:8])
        raise ReadingError(f"no layer {name!r} in this reading; it has {len(self.layers)}: {known}, ...")

    def gap_owner(self) -> LayerRecord | None:
        """The layer whose gain reaches furthest beyond what it did along the worst direction found."""
        scored = [record for record in self.layers if record.log_slack is not None]
        return max(scored, key=lambda record: record.log_slack or 0.0, default=None)

    def __str__(self) -> str:
        from normgauge.render.console import text

        return text(self)

    def _repr_html_(self) -> str:
        from normgauge.render.notebook import fragment

        return fragment(self)

    def explain(self, name: str) -> str:
        """Everything known about the layer called ``name``, in words.

        Raises:
            ReadingError: when there is no such layer.
        """
        from normgauge.render.explain import explain

        return explain(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Reading.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Any]:
        """The reading as the JSON contract has it."""
        data = {
            "schema": SCHEMA,
            "normgauge": self.version,
            "model": self.model,
            "mode": self.mode,
            "scope": str(self.scope),
            "evidence": str(self.evidence),
            "failure_probability": self.failure_probability,
            "path_dependent": self.path_dependent,
            "log10_upper": to_log10(self.log_upper),
            "log10_folded": to_log10(self.log_folded),
            "log10_lower": to_log10(self.log_lower),
            "log10_refuted": to_log10(self.log_refuted),
            "unknown": _findings(self.unknown),
            "unbounded": _findings(self.unbounded),
            "no_bound": _findings(self.no_bound),
            "published": _spelled(self.published),
            "layers": [r.to_json() for r in self.layers],
            "samples": [_spelled(s) for s in self.samples],
            "together": self.together,
            "precision": self.precision,
            "options": dict(self.options),
            "log10_loss": _spelled(self.loss),
            "log10_displacement": to_log10(self.displacement),
            "gauges": list(self.gauges),
            "notes": list(self.notes),
            "input": self.input_name,
            "seconds": dict(self.seconds),
            "witness": None if self.witness is None else dataclasses.asdict(self.witness),
            "rules": {name: dict(texts) for name, texts in self.rules.items()},
            "proof": None if self.proof is None else self.proof.to_json(),
            "weights_digest": self.weights,
            "edited": self.edited,
        }
        return {**data, "digest": digest(data)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reading:
        """Rebuild a reading; the inverse of `to_json`. One of schema 1 says less, and its evidence is taken over.

        Raises:
            ReadingError: for another schema, and for a field that is missing or of the wrong kind, which is named.
        """
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema not in (1, SCHEMA):
            raise ReadingError(
                f"expected a reading of schema 1 or {SCHEMA}, got schema {schema!r} written by {_writer(data)}; "
                f"open it with that version, or measure again with normgauge {__version__}"
            )
        check_kinds(data)
        later: Mapping[str, Any] = data if schema == SCHEMA else {}  # what came with schema 2
        reading = cls(
            model=data["model"],
            mode=data["mode"],
            scope=Scope.parse(data["scope"]),
            evidence=Evidence(data["evidence"]),
            log_upper=_number(data["log10_upper"]),
            log_folded=_number(data["log10_folded"]),
            log_lower=_number(data["log10_lower"]),
            unknown=_found(data["unknown"]),
            unbounded=_found(data["unbounded"]),
            published=_unspelled(data["published"]),
            layers=tuple(LayerRecord.from_json(r) for r in data["layers"]),
            samples=tuple(_unspelled(s) for s in data["samples"]),
            loss=_unspelled(data["log10_loss"]),
            displacement=from_log10(data["log10_displacement"]),
            gauges=tuple(data["gauges"]),
            notes=tuple(data["notes"]),
            input_name=data["input"],
            seconds=data["seconds"],
            witness=None if data.get("witness") is None else _witness(data["witness"]),
            rules=data.get("rules", {}),
            proof=None if data.get("proof") is None else Proof.from_json(data["proof"]),
            failure_probability=later.get("failure_probability", 0.0),
            path_dependent=later.get("path_dependent", False),
            no_bound=_found(later.get("no_bound", ())),
            log_refuted=from_log10(later.get("log10_refuted")),
            together=later.get("together", False),
            precision=later.get("precision", ""),
            options=later.get("options", {}),
            weights=later.get("weights_digest", ""),
            edited=bool(later) and (later["edited"] or later["digest"] != digest(data)),
            version=data.get("normgauge", "0.1.0"),
        )
        return judged(reading)

    def save(self, path: str | Path) -> None:
        """Write the reading as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), allow_nan=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Reading:
        """Read what `save` wrote, or the first of several readings in one file.

        Raises:
            ReadingError: for a file that cannot be read or is no reading.
        """
        return cls.from_json(read_items(path)[0])


def _writer(data: Any) -> str:
    version = data.get("normgauge") if isinstance(data, Mapping) else None
    return f"normgauge {version}" if isinstance(version, str) else "something that is not normgauge, or a cut file"


def _number(value: float | str) -> float:
    return float(value) * LN10


def _spelled(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: _spelled(v) if isinstance(v, Mapping) else spell(v) if isinstance(v, float) else v for k, v in table.items()
    }


def _unspelled(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: _unspelled(v) if isinstance(v, Mapping) else float(v) if v in ("inf", "-inf") else v
        for k, v in table.items()
    }
