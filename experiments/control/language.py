"""Text: a GPT of 6 blocks of width 384 on tinyshakespeare, trained in three ways at several learning rates.

python -m experiments.control.language --out OUT --train tune     settings and learning rates
python -m experiments.control.language --out OUT --table          what came out
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
from experiments.control.jobs import job_name, results, run_jobs
from experiments.control.methods import plain, start
from normgauge.lab.zoo import gpt, tinyshakespeare

CONTEXT, SIZE, STEPS, DECAY = 128, 64, 1500, 0.1
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
GRID: dict[str, tuple[float, ...]] = {
    "none": (0.0,),
    "decay": (1.0,),
    "muon": (0.0,),  # its rate is the one tried
    "penalty": (0.01, 0.03),
    "layers": (0.01, 0.03),
}


def batches(text: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Windows drawn at random from the text, and the same one character later."""
    begins = torch.randint(0, len(text) - CONTEXT - 1, (SIZE,), generator=generator)
    rows = begins[:, None] + torch.arange(CONTEXT)
    return text[rows], text[rows + 1]


def trained(job: dict[str, Any], text: Tensor, place: torch.device) -> tuple[nn.Module, float]:
    """One model and its mean training loss at the end; it stops where the loss is no number."""
    torch.manual_seed(job["seed"])
    model = gpt(width=job["width"], depth=job["depth"], heads=6, context=CONTEXT).to(place)
    draw = torch.Generator().manual_seed(job["seed"])
    x, _ = batches(text, draw)
    strength = job["lr"] if job["method"] == "muon" else job["strength"]
    lr = 1e-3 if job["method"] == "muon" else job["lr"]
    training = start(model, x[:2, :32].to(place), job["method"], strength, lr, DECAY, every=4)
    kept = []
    for step in range(job["steps"]):
        x, y = (part.to(place, non_blocking=True) for part in batches(text, draw))
        done = step / job["steps"]
        training.rate(min(1.0, 20 * done + 1e-2) * (0.55 + 0.45 * math.cos(math.pi * done)))
        training.model.train()
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            logits = training.model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        training.step(loss)
        if step % 50 == 0 or step == job["steps"] - 1:
            kept.append(float(loss.detach()))
            if not math.isfinite(kept[-1]):
                break
    training.done()
    return plain(training.model).eval(), kept[-1]


@torch.no_grad()
def held_loss(model: nn.Module, place: torch.device) -> float:
    """Mean loss on the last tenth of the text."""
    test = tinyshakespeare("test", context=CONTEXT)
    losses = []
    for x, y in zip(test.inputs.split(64), test.labels.split(64), strict=True):
        losses.append(F.cross_entropy(model(x.to(place)).flatten(0, 1), y.to(place).flatten(), reduction="sum"))
    return float(torch.stack(losses).sum()) / test.labels.numel()


def do_job(job: dict[str, Any], out: Path) -> None:
    """Train, judge, and measure the decades of each block at given text."""
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = tinyshakespeare("train", context=1).inputs.flatten()
    model, last = trained(job, text, place)
    row: dict[str, Any] = job | {"train_loss": last, "test_loss": held_loss(model, place)}
    if math.isfinite(row["test_loss"]):
        few = tinyshakespeare("test", context=32, limit=2).inputs.to(place)
        reading = ng.gauge(model, few, scope="point", search=False, pictures=False, balance=False, effort="quick")
        row |= {"log10_folded": reading.log10_folded, "log10_upper": reading.log10_upper}
        row["per_block"] = reading.log10_folded / job["depth"]
        penalty = ng.penalty(model, few)
        row["log10_observed"] = penalty.log10()
        penalty.close()
    (out / f"{job_name(job)}.json").write_text(json.dumps(row) + "\n")


def table(out: Path) -> None:
    """Print the best learning rate of each setting, and which survive."""
    rows = results(out)
    for key in sorted({(row["method"], row["strength"]) for row in rows}):
        own = sorted((r for r in rows if (r["method"], r["strength"]) == key), key=lambda r: r["lr"])
        alive = [r for r in own if math.isfinite(r["test_loss"]) and r["test_loss"] < 2.2]
        best = min(alive or own, key=lambda r: r["test_loss"])
        told = {k: best.get(k) for k in ("lr", "test_loss", "log10_folded", "per_block", "log10_observed")}
        print(key, told, "survive:", [r["lr"] for r in alive])


def main() -> None:
    """Train one job, all of them, or show what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results/language"))
    parser.add_argument("--job", type=json.loads)
    parser.add_argument("--train", choices=("tune",))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=570)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.job:
        do_job(given.job, given.out)
    if given.train:
        size = {"steps": given.steps, "width": given.width, "depth": given.depth}
        jobs = [
            {"part": "tune", "method": m, "strength": s, "lr": lr, "seed": 0} | size
            for lr in RATES
            for m, strengths in GRID.items()
            for s in strengths
        ]
        run_jobs("experiments.control.language", jobs, given.out, given.workers, given.seconds)
    if given.table:
        table(given.out)


if __name__ == "__main__":
    main()
