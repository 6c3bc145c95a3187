"""Readings made by hand, for tests of what happens to a reading after it was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from normgauge.core.bound import Evidence, Scope
from normgauge.core.interval import LogInterval
from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import LN10


def layer(name: str, kind: str, log10_gain: float, depth: int, **changes: Any) -> LayerRecord:
    gain = log10_gain * LN10
    record = LayerRecord(
        name=name,
        kind=kind,
        rule=f"made.{kind.lower()}",
        claim="T.L1",
        gain=LogInterval(gain - 0.5 * depth, gain),
        depth=depth,
        log_folded=gain / 2,
        log_balanced=gain / 3,
        log_cumulative=gain * (depth + 1),
        log_slack=0.5 * depth,
    )
    return replace(record, **changes)


def reading(**changes: Any) -> Reading:
    sigma = {"min": 0.25, "rms": 1.5, "max": 4.0, "gamma_max": 1.25, "eps": 1e-5}
    made = Reading(
        model="MLP",
        mode="eval",
        scope=Scope.parse("point"),
        evidence=Evidence.PROVED,
        log_upper=2 * LN10,
        log_folded=2.5 * LN10,
        log_lower=1.25 * LN10,
        layers=(
            layer("f.0", "Linear", 1.0, 0, log_spectral=LogInterval(1.0, 1.1), log_frobenius=1.5),
            layer("f.1", "BatchNorm1d", -0.5, 1, sigma=sigma, note="2 channels at the ε floor"),
            layer("head", "Linear", 0.75, 2, log_weight_lipschitz=1.0, log_to_output=0.0),
        ),
        published={"log10_P_w": 0.8, "log10_prod_inv_sigma": {"min": -1.0, "rms": 0.5, "max": math.inf}},
        samples=({"index": 0, "log10_lower": 1.25, "log10_upper": 2.0},),
        loss={"cross_entropy": 2.15},
        gauges=("BatchNorm scale of f.0",),
        notes=("Dropout is off in eval mode.",),
        seconds={"trace": 0.01},
    )
    return replace(made, **changes)
