"""A small transformer with and without normalization.

Softmax attention has no finite constant over all inputs: long queries and keys make it as steep as one likes. A
normalizer in front bounds the length of every token and with it the attention. So the global bound is finite with
LayerNorm or RMSNorm and provably infinite without, and the reading says which step is to blame.
"""

from __future__ import annotations

import math

import torch

import normgauge as ng
from normgauge.lab.zoo import vit


def main() -> None:
    """Three vision transformers on random 16 x 16 images."""
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    for norm in ("layer", "rms", None):
        torch.manual_seed(0)
        model = vit(image=16, width=32, depth=2, norm=norm)
        for reading in ng.readings(model, images, ("point", "global"), search=False):
            lower, upper = (value / math.log(10) for value in (reading.log_lower, reading.log_upper))
            bracket = f"log10 between {lower:6.2f} and {upper:6.2f}"
            print(f"norm={norm!s:5} {reading.scope!s:6} {bracket} ({reading.evidence})")
        for finding in (*reading.unbounded, *reading.no_bound)[:1]:
            print(f"    {finding.name}: {finding.why}")


if __name__ == "__main__":
    main()
