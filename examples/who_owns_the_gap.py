"""Find the layer that owns the gap between the balanced bound and the slope found.

A trained network gets one defect: a hidden unit that never fires on the data but has large outgoing weights. No
output changes, yet the bound must allow for the unit, since nothing in the rules knows that it is silent. The slack
of each layer (what its gain allows over what it did along the steepest direction found) points at the place.
"""

from __future__ import annotations

import math

import torch

import normgauge as ng
from normgauge.lab.training import train
from normgauge.lab.zoo import digits, mlp


def show(title: str, reading: ng.Reading) -> None:
    """The bracket and the three layers with the largest slack."""
    owner = reading.gap_owner()
    capacity = reading.log_balanced or 0.0  # what the layers' gains add up to; at a point log_upper is exact
    print(f"{title}: between {math.exp(reading.log_lower):.2f} and {math.exp(capacity):.2f}, ", end="")
    gap = (capacity - reading.log_lower) / math.log(10)
    print(f"a gap of {gap:.2f} decades, owned by {owner.name if owner else 'no layer'}")
    ranked = sorted((r for r in reading.layers if r.log_slack is not None), key=lambda r: -(r.log_slack or 0.0))
    for record in ranked[:3]:
        print(f"    {record.name:17} {record.kind:8} slack {(record.log_slack or 0.0) / math.log(10):.2f} decades")


def main() -> None:
    """Measure before and after a defect is planted, and after it is taken out."""
    images = digits("train").inputs
    torch.manual_seed(0)
    model = mlp((64, 48, 48, 48, 10))
    train(model, digits("train"), epochs=10, lr=3e-3)
    first, second = model.layers[1].linear, model.layers[2].linear
    x = images[:50]
    with torch.no_grad():
        outputs = model(images)
    show("as trained", ng.gauge(model, x, scope="point"))

    with torch.no_grad():
        first.bias[7] = -100.0  # silent on every image ...
        first.weight[7] *= 3.0
        before = model(images)
        second.weight[:, 7] *= 300.0  # ... and loud if it ever spoke
    print("the planted weights change no output:", bool(torch.equal(model(images), before)))
    show("with a silent unit", ng.gauge(model, x, scope="point"))

    with torch.no_grad():
        silent = (first(model.layers[0](images)).amax(0) <= 0).nonzero().flatten().tolist()
        second.weight[:, silent] = 0.0
        change = float((model(images) - outputs).abs().max())
    print(f"silent units of layers.1: {silent}; their outgoing weights are set to 0")
    print(f"largest change of an output against the trained network: {change:.2g}")
    show("without them", ng.gauge(model, x, scope="point"))


if __name__ == "__main__":
    main()
