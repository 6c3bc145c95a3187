"""A LayerNorm network at its samples, in balls around them, and everywhere.

LayerNorm divides by the spread of its input. At a sample the spread is known. In a ball it can only shrink by the
radius over √n. Over all inputs nothing but ε is left, and each layer may multiply by 1/√ε = 316. All these bounds are
proved; they answer different questions.
"""

from __future__ import annotations

import math

import torch
from torch import nn

import normgauge as ng

SCOPES = ("point", "ball:0.0001", "ball:0.001", "ball:0.01", "global")


def build() -> nn.Sequential:
    """Eight layers of width 32 with weights N(0, 4/32)."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(8):
        linear = nn.Linear(32, 32, bias=False)
        nn.init.normal_(linear.weight, std=math.sqrt(4 / 32))
        layers += [linear, nn.LayerNorm(32), nn.ReLU()]
    return nn.Sequential(*layers)


def main() -> None:
    """One line a scope."""
    model, batch = build(), torch.randn(8, 32)
    print("scope         log10 lower   log10 upper   output moves by at most   layers at the ε floor")
    for reading in ng.readings(model, batch, SCOPES):
        floored = sum("ε floor" in record.note for record in reading.layers)
        shown = "all, by definition" if reading.scope.kind == "global" else floored
        lower, upper = (value / math.log(10) for value in (reading.log_lower, reading.log_upper))
        moved = "-" if reading.displacement is None else f"{math.exp(reading.displacement):.3g}"
        print(f"{reading.scope!s:12} {lower:12.2f} {upper:13.2f} {moved:>25}   {shown}")
    print(
        "Near the samples no slope above 4 was found. Elsewhere there are inputs that make a LayerNorm divide by almost"
    )
    print("nothing: a slope of 10^9 was found there.")


if __name__ == "__main__":
    main()
