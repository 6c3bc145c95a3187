"""Runs made up by hand: plausible numbers, no training, the same every time."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from normgauge.core import store

WHAT = {
    "norm_lower": "proved", "norm_upper": "proved", "frobenius": "observed", "gradient": "observed",
    "scale_free_gradient": "observed", "radial": "observed", "update": "observed", "effective_lr": "observed",
    "sigma_min": "observed", "sigma_rms": "observed", "sigma_max": "observed", "gamma_max": "observed",
    "folded": "estimated",
}  # fmt: skip
TOTALS = {
    "log10_P_w": "proved", "log10_P_w_lower": "proved", "log10_prod_inv_sigma_min": "observed",
    "log10_prod_inv_sigma_rms": "observed", "log10_prod_inv_sigma_max": "observed", "log10_folded": "estimated",
    "gradient": "observed",
}  # fmt: skip


def header(blocks: int = 3, **more: Any) -> dict[str, Any]:
    """A network of blocks, each a matrix and a normalizer, and a head."""
    layers = []
    for i in range(blocks):
        layers.append(_layer(f"blocks.{i}.linear", "Linear", "matrix", [32, 32]))
        layers.append(_layer(f"blocks.{i}.norm", "BatchNorm1d", "norm", [32]))
    layers.append(_layer("head", "Linear", "matrix", [10, 32]))
    return {
        "created": "2026-01-31T12:00:00+00:00", "versions": {"normgauge": "0.3.0", "torch": "2.13.0"}, "device": "cpu",
        "world": 1, "model": {"name": "MLP", "parameters": 3466}, "layers": layers,
        "columns": {name: {"evidence": e, "what": name} for name, e in WHAT.items()},
        "totals": {name: {"evidence": e, "what": name} for name, e in TOTALS.items()},
        "config": {"budget": 0.03, "user": {}}, **more,
    }  # fmt: skip


def _layer(name: str, kind: str, role: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "type": kind, "role": role, "shape": shape, "parameters": math.prod(shape), "tied": None}


def step(number: int, layers: int = 7, seed: int = 0) -> dict[str, Any]:
    """A step line: norms grow slowly, gradients fall, σ wobbles."""
    chance = random.Random(f"{seed} {number}")
    grown = 1 + 0.4 * math.log1p(number / 50)
    norm = [i % 2 == 1 and i < layers - 1 for i in range(layers)]

    def column(value: float, of_norm: bool | None) -> list[float | None]:
        return [
            value * (1 + 0.1 * i) * chance.uniform(0.97, 1.03) if of_norm in (None, norm[i]) else None
            for i in range(layers)
        ]

    upper = column(2 * grown, False)
    columns = {
        "norm_lower": [None if u is None else 0.98 * u for u in upper], "norm_upper": upper,
        "frobenius": column(6 * grown, None), "gradient": column(0.1 / grown, None),
        "scale_free_gradient": column(0.6, None), "radial": column(0.001, None), "update": column(0.006, None),
        "effective_lr": column(1e-3 / grown**2, False), "sigma_min": column(0.4, True), "sigma_rms": column(0.8, True),
        "sigma_max": column(1.6, True), "gamma_max": column(1.1, True), "folded": column(2.2, False),
    }  # fmt: skip
    logs = sum(math.log10(u) for u in upper if u is not None)
    totals = {
        "log10_P_w": logs, "log10_P_w_lower": logs - 0.03, "log10_prod_inv_sigma_min": 1.2,
        "log10_prod_inv_sigma_rms": 0.3 + 0.1 * grown, "log10_prod_inv_sigma_max": -0.6,
        "log10_folded": 1.0 + 0.2 * grown,        "gradient": 0.3, "seconds": 0.001, "share": 0.02,
    }  # fmt: skip
    loss = 2.3 * math.exp(-number / 400) * chance.uniform(0.9, 1.1)
    return {
        "kind": "step", "step": number, "time": 0.03 * number, "loss": loss, "lr": 0.001,
        "fresh": list(range(layers)), "totals": totals, "columns": columns,
    }  # fmt: skip


def alarm(number: int, layer: str = "blocks.1.norm", **more: Any) -> dict[str, Any]:
    sentence = f"σ of {layer} fell to 0.0001, a hundredth of what it was"
    return {
        "kind": "alarm", "step": number, "alarm": "sigma_collapse", "layer": layer, "sentence": sentence,
        "value": 0.0001, "threshold": 0.01, **more,
    }  # fmt: skip


def written(
    path: Path,
    steps: int = 60,
    blocks: int = 3,
    seed: int = 0,
    alarms: tuple[int, ...] = (),
    end: bool = True,
    **more: Any,
) -> Path:
    """Write a run; the file."""
    writer = store.create(path, header(blocks, **more))
    for number in range(1, steps + 1):
        writer.append(step(number, 2 * blocks + 1, seed))
        if number in alarms:
            writer.append(alarm(number))
    if end:
        writer.append({"kind": "end", "step": steps, "share": 0.021})
    writer.close()
    return writer.path
