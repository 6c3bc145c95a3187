"""Corollary 22 on MNIST: published constants against folded ones, global against certified local ones.

Run ``NORMGAUGE_DATA=... python benchmarks/corollary22.py``: it trains one MLP of 4 x 256 for each normalizer, certifies
it and writes results/corollary22.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

import normgauge as ng
from normgauge.lab.training import train
from normgauge.lab.zoo.data import mnist

NORMS = {"none": None, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
KEYS = ("batch", "global", "none", "published", "local")


def network(norm: type[nn.Module] | None) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for before in (784, 256, 256, 256):
        layers += [nn.Linear(before, 256), *([] if norm is None else [norm(256)]), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def main() -> None:
    data, test = mnist("train"), mnist("test")
    found = {}
    for name, norm in NORMS.items():
        torch.manual_seed(0)
        model = network(norm)
        train(model, data, epochs=5, batch_size=128)
        certificate = ng.certify(model, data, test, epochs=0)
        rows = {key: certificate.row(f"corollary22.{key}") for key in KEYS}
        found[name] = {
            "hold-out": certificate.row("holdout.clopper_pearson").value,
            "rows": {k: {"kind": str(r.kind), "value": r.value, "terms": dict(r.terms)} for k, r in rows.items()},
            "facts": dict(certificate.facts),
            "curve": [curve.to_json() for curve in certificate.curves],
        }
        print(name, json.dumps(found[name]["rows"]))
        for curve in certificate.curves:
            for label, line in curve.lines:
                print(f"  {label:32}", " ".join(f"{value:9.3g}" for value in line))
    target = Path(__file__).with_name("results") / "corollary22.json"
    target.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
