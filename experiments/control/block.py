"""A pre-LN transformer block on the rows of digits, with LayerNorm and with bounded normalizers.

python -m experiments.control.block [--seeds 5] [--out experiments/control/results/block.json]

The settings were chosen on every fifth training image, with other seeds. Run again it goes on from where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.lab.zoo import digits
from normgauge.lab.zoo.parts import NormFactory
from normgauge.lab.zoo.transformer import Attention, FeedForward, TransformerBlock

SETTINGS = (("LayerNorm", math.inf, 0.0), ("bounded", 4.0, 0.0), ("bounded with a penalty", 4.0, 0.03))
"""A name, the constant of every normalizer, and the strength of the penalty."""
WIDTH, STEPS, RATE = 32, 2400, 3e-3


class Rows(nn.Module):
    """An image's eight rows as tokens, one block, a mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.place = nn.Linear(8, WIDTH), nn.Parameter(0.5 * torch.randn(8, WIDTH))
        attention = Attention(WIDTH, 4, causal=False, dropout=0.0)
        feed = FeedForward(WIDTH, 2 * WIDTH, "gelu")
        self.block = TransformerBlock(attention, feed, NormFactory("layer", "tokens"), "pre", 0.0)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def tokens(self, x: Tensor) -> Tensor:
        """What the block reads."""
        return self.given(x.view(-1, 8, 8)) + self.place

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.norm(self.block(self.tokens(x))).mean(1))


def run(name: str, constant: float, strength: float, seed: int) -> dict[str, Any]:
    """Train one network; its accuracy, and both ends of its block's global constant."""
    torch.manual_seed(seed)
    train, test = digits("train"), digits("test")
    model: Any = Rows() if math.isinf(constant) else ng.bounded(Rows(), constant=constant, floor=0.5)
    term = ng.penalty(model, train.inputs[:8], by="layer", every=2)
    training, draw = torch.optim.AdamW(model.parameters(), RATE), torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        training.param_groups[0]["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        rows = torch.randint(0, len(train), (64,), generator=draw)
        training.zero_grad()
        loss = F.cross_entropy(model(train.inputs[rows]), train.labels[rows])
        (loss + strength * term() if strength else loss).backward()
        training.step()
    term.close()
    with torch.no_grad():
        right = float((model.eval()(test.inputs).argmax(1) == test.labels).float().mean())
        tokens = model.tokens(test.inputs[:4])
    reading = ng.gauge(model.block, tokens, scope="global", pictures=False)
    bounds = {"log10_upper": reading.log10_upper, "log10_found": reading.log10_lower}
    return {"name": name, "seed": seed, "test": right} | bounds


def main() -> None:
    """Every setting with a few seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results/block.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    known = {(row["name"], row["seed"]) for row in rows}
    for seed in range(given.seeds):
        for setting in SETTINGS:
            if (setting[0], seed) in known:
                continue
            rows.append(run(*setting, seed))
            print(json.dumps(rows[-1]), flush=True)
            given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
