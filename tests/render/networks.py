"""Readings with a graph, made by hand: a residual net, a very deep one, and one whose every text is an attack."""

from __future__ import annotations

import math
from dataclasses import replace

from normgauge.core.bound import Scope
from normgauge.core.interval import LogInterval
from normgauge.core.proof import Proof, ProofStep
from normgauge.core.reading import Finding, LayerRecord, Reading, Witness
from normgauge.core.spelled import LN10
from normgauge.render.png import COLOUR, png_address
from tests.made import layer, reading

SIGMA = {"min": 0.25, "rms": 1.5, "max": 4.0, "gamma_max": 1.25, "eps": 1e-5}
WEIGHT = {"log_spectral": LogInterval(0.1, 0.2), "log_frobenius": 0.5}
ATTACK = "</script><img src=x onerror=alert(1)>"
PIXEL = png_address([bytes([200, 30, 30])], 1, COLOUR)
RULES = {
    "made.linear": {"formula": "‖J‖ = ‖W‖", "holds": "everywhere", "source": "linear algebra"},
    "made.batchnorm1d": {"formula": "‖J‖ = max |γ|/σ", "holds": "in eval mode", "source": "its definition"},
}


def step(name: str, output: int, *inputs: int) -> ProofStep:
    zeros = tuple(0.0 for _ in inputs)
    return ProofStep(name, output, inputs, False, zeros, zeros)


def residual(**changes: object) -> Reading:
    """Stem (to 1), a branch of norm and linear (1 → 0.4 → 2), a sum with the skip (2.1), a flatten, a head (1.8)."""

    def at(name: str, kind: str, gain: float, depth: int, level: float, reached: float, **more: object) -> LayerRecord:
        return layer(
            name, kind, gain, depth, log_cumulative=level * LN10, log_reached=reached * LN10, claim="T.L1", **more
        )

    layers = (
        at("stem", "Linear", 1.0, 0, 1.0, 0.6, worked="‖W‖ = 10", **WEIGHT),
        at("block.norm", "BatchNorm1d", -0.6, 1, 0.4, 0.2, sigma=SIGMA, worked="1.25/0.25 = 5"),
        at("block.linear", "Linear", 1.6, 2, 2.0, 0.9, **WEIGHT),
        at("add", "add", 0.0, 3, 2.1, 1.3),
        at("head", "Linear", -0.3, 4, 1.8, 1.25, note="a note of its own", **WEIGHT),
    )
    steps = (
        step("stem", 1, 0),
        step("block.norm", 2, 1),
        step("block.linear", 3, 2),
        step("add", 4, 1, 3),
        step("", 5, 4),  # a change of shape has no record
        step("head", 6, 5),
    )
    sample = {"index": 3, "log10_lower": 1.25, "log10_upper": 1.6, "picture": PIXEL}
    made = reading(
        model="Residual",
        layers=layers,
        log_upper=1.6 * LN10,
        log_folded=1.7 * LN10,
        proof=Proof(1, (0,), 6, steps),
        rules=RULES,
        samples=(sample, {"index": 4, "log10_lower": 0.5, "log10_upper": 1.5}),
        witness=Witness("between two samples", 0.01, 0.178),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def scopes(**changes: object) -> list[Reading]:
    """The residual net at the samples, around them and everywhere."""
    return [
        residual(**changes),
        residual(scope=Scope.parse("ball:0.1"), log_upper=2.4 * LN10, log_folded=2.6 * LN10, **changes),
        residual(scope=Scope.parse("global"), log_upper=5.5 * LN10, log_folded=5.9 * LN10, **changes),
    ]


def long_names(**changes: object) -> Reading:
    """The residual net in a deep hierarchy with a talkative author."""
    made = residual(**changes)
    layers = tuple(replace(r, name=f"{'transformer.encoder.' * 4}{r.name}", note="note " * 30) for r in made.layers)
    return replace(made, model="A" * 90, layers=layers, proof=None, notes=("n" * 300,))


def endless() -> Reading:
    """The residual net with a norm that has no finite gain."""
    layers = list(residual().layers)
    layers[1] = replace(layers[1], gain=LogInterval(-math.inf, math.inf), log_cumulative=math.inf, sigma=None)
    layers[2:] = [replace(record, log_cumulative=math.inf) for record in layers[2:]]
    unbounded = (Finding("block.norm", "no ε, and σ may vanish"),)
    return residual(layers=tuple(layers), log_upper=math.inf, log_folded=math.inf, unbounded=unbounded)


def deep(count: int = 1000) -> Reading:
    """Blocks of linear, norm, relu and dropout, five hundred decades up and down again."""
    kinds = (("linear", "Linear", 1.0), ("norm", "BatchNorm1d", -0.9), ("act", "ReLU", 0.0), ("drop", "Dropout", 0.0))
    layers, steps, level = [], [], 0.0
    for i in range(count):
        part, kind, gain = kinds[i % 4]
        level += gain
        more = {"sigma": SIGMA} if part == "norm" else WEIGHT if part == "linear" else {}
        name = f"blocks.{i // 4}.{part}"
        told = f"‖W_{i}‖ = 10^{gain}, by a formula with numbers of about this length"
        layers.append(
            layer(name, kind, gain, i, log_cumulative=level * LN10, log_reached=0.01 * i, worked=told, **more)
        )
        steps.append(step(name, i + 1, i))
    return reading(
        model="Deep", layers=tuple(layers), log_upper=20 * LN10, log_folded=22 * LN10, log_lower=4 * LN10,
        proof=Proof(1, (0,), count, tuple(steps)), rules=RULES,
    )  # fmt: skip


def hostile(text: str = ATTACK) -> Reading:
    """Every text of the reading is ``text``."""
    layers = tuple(
        replace(r, name=f"{text}{i}", kind=text, rule=text, claim=text, note=text, worked=text)
        for i, r in enumerate(residual().layers)
    )
    findings = (Finding(text, text),)
    sample = {"index": text, "log10_lower": 1.0, "log10_upper": 2.0, "picture": f'{PIXEL}"{text}'}
    return residual(
        model=text, mode=text, input_name=text, layers=layers, notes=(text,), gauges=(text,), unbounded=findings,
        unknown=findings, samples=(sample,), published={text: 1.0, "x": {text: 2.0}}, loss={text: 1.0}, version=text,
        seconds={text: 1.0}, witness=Witness(text, 1.0, 1.0), proof=None,
        rules={text: {"formula": text, "holds": text, "source": text}},
    )  # fmt: skip
