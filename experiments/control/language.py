"""Text: a GPT of 6 blocks of width 384 on tinyshakespeare, trained in several ways at several learning rates.

python -m experiments.control.language --out OUT          every setting at every rate, judged on text held out
python -m experiments.control.language --out OUT --table  what came out
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from experiments.control.graphed import Stepper
from experiments.control.jobs import Job, Results, job_name, run_jobs
from experiments.control.methods import OURS, RIVALS, plain, start
from normgauge.lab.zoo import gpt, tinyshakespeare

CONTEXT, SIZE, STEPS, DECAY = 128, 64, 1000, 0.1
GRID: tuple[tuple[str, float, float], ...] = (  # way, strength and learning rate; Muon's strength is its weight decay
    *(("none", 0.0, lr) for lr in (1e-3, 3e-3, 3e-4)),
    *(("decay", 0.5, lr) for lr in (1e-3, 3e-3)),
    *(("muon", 0.1, lr) for lr in (1e-3, 3e-3)),
    *(("layers", 0.01, lr) for lr in (1e-3, 3e-3)),
    *(("penalty", 0.01, lr) for lr in (1e-3, 3e-3, 3e-4)),
    ("layers", 0.001, 1e-3),
    ("muon", 0.1, 3e-4),
    ("layers", 0.003, 1e-3),
    ("none", 0.0, 1e-2),
    ("layers", 0.003, 1e-2),
    ("decay", 2.0, 1e-3),
    ("none", 0.0, 3e-2),
    ("layers", 0.003, 3e-2),
    ("penalty", 0.001, 1e-3),
    ("decay", 0.5, 1e-2),
    ("muon", 0.1, 1e-2),
    ("decay", 0.5, 3e-2),
    ("muon", 0.1, 3e-2),
    ("decay", 1.0, 1e-3),
    ("layers", 0.002, 1e-3),
    ("penalty", 0.002, 1e-3),
)
SEEDS = (1, 2, 3)
ALIVE = 2.0  # nats a character: a training that ends above has not survived its rate; a bigram table reaches 2.45
WORSE = 1.01  # times the loss without control: what a way may give up for a smaller bound


@functools.cache
def texts(place: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Training text, the tenth of it that is held out, and the test text."""
    whole, test = (tinyshakespeare(half, context=1).inputs.flatten().to(place) for half in ("train", "test"))
    cut = len(whole) * 9 // 10
    return whole[:cut], whole[cut:], test


def batches(text: Tensor, draw: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
    """Windows drawn at random from the text, and the same one character later."""
    begins = torch.randint(0, len(text) - CONTEXT - 1, (size, 1), generator=draw, device=text.device)
    rows = begins + torch.arange(CONTEXT, device=text.device)
    return text[rows], text[rows + 1]


def trained(job: Job, text: Tensor) -> tuple[nn.Module, float, str]:
    """One model, its last training loss, and why its steps were not captured."""
    torch.manual_seed(job["seed"])
    place, is_muon = text.device, job["method"] == "muon"
    draw = torch.Generator(place).manual_seed(job["seed"])
    model = gpt(width=job["width"], depth=job["depth"], heads=6, context=CONTEXT).to(place)
    x, y = batches(text, draw, job["size"])
    strength, lr, decay = (job["lr"], 1e-3, job["strength"]) if is_muon else (job["strength"], job["lr"], DECAY)
    training = start(model, x[:2, :32], job["method"], strength, lr, decay, every=4)
    training.model.train()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(training.model(x).flatten(0, 1), y.flatten())

    take = Stepper(training, loss, x, y)
    for step in range(job["steps"]):
        done = step / job["steps"]
        training.rate(min(1.0, 20 * done + 1e-2) * (0.55 + 0.45 * math.cos(math.pi * done)))
        take(*batches(text, draw, job["size"]))
        if step % 100 == 99 and not math.isfinite(float(take.last)):
            break
    training.done()
    return plain(training.model).eval(), float(take.last), take.why


@torch.no_grad()
def held_loss(model: nn.Module, text: Tensor) -> float:
    """Mean loss on windows that do not overlap."""
    count = (len(text) - 1) // CONTEXT
    inputs, labels = (text[k : k + count * CONTEXT].view(count, CONTEXT) for k in (0, 1))
    sums = [
        F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        for x, y in zip(inputs.split(64), labels.split(64), strict=True)
    ]
    return float(torch.stack(sums).sum()) / labels.numel()


def do_job(job: Job) -> tuple[Job, None]:
    """Train with tensor cores, judge, and measure the decades at given text."""
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text, valid, test = (part[: job["limit"]] for part in texts(place))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model, last, why = trained(job, text)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    row: Job = job | {"train_loss": last, "valid": held_loss(model, valid), "test": held_loss(model, test)}
    row |= {"not_captured": why}
    if math.isfinite(row["valid"]):
        row |= decades(model.cpu(), test[:64].view(2, 32).cpu())
    return row, None


def decades(model: nn.Module, few: Tensor) -> Job:
    """log10 of the folded bound and of the Jacobian's at given text, and of the folded bound as the penalty sees it."""
    reading = ng.gauge(model, few, scope="point", search=False, pictures=False, balance=False, effort="quick")
    penalty = ng.penalty(model, few)
    found = {"log10_folded": reading.log10_folded, "log10_upper": reading.log10_upper, "log10_seen": penalty.log10()}
    penalty.close()
    return found


def survivors(rows: list[Job], method: str, strength: float) -> list[float]:
    """The learning rates at which a setting's training ends well, on the seed of tuning."""
    own = [row for row in rows if (row["part"], row["method"], row["strength"]) == ("tune", method, strength)]
    return sorted(row["lr"] for row in own if math.isfinite(row["valid"]) and row["valid"] < ALIVE)


def chosen(rows: list[Job]) -> dict[str, Job]:
    """For each way the fewest decades among settings within `WORSE` of the loss without control, else the best loss."""
    rows = [row for row in rows if row["part"] == "tune" and "error" not in row and math.isfinite(row["valid"])]
    goal = WORSE * min((row["valid"] for row in rows if row["method"] == "none"), default=0.0)
    best = {}
    for method in {row["method"]: None for row in rows}:
        own = [row for row in rows if row["method"] == method]
        near = [row for row in own if row["valid"] <= goal]
        best[method] = min(near, key=lambda r: r["log10_folded"]) if near else min(own, key=lambda r: r["valid"])
    return best


def finalists(rows: list[Job]) -> list[Job]:
    """No control, and of the rivals and of ours the fewest decades within `WORSE` of its loss; all by held out text."""
    picked = chosen(rows)
    goal = WORSE * picked["none"]["valid"]

    def rank(row: Job) -> tuple[bool, float]:
        return (False, row["log10_folded"]) if row["valid"] <= goal else (True, row["valid"])

    rivals, ours = ([row for m, row in picked.items() if m in names and m != "none"] for names in (RIVALS, OURS))
    return [picked["none"], min(rivals, key=rank), *sorted(ours, key=rank)]


def all_jobs(rows: list[Job], shape: Job) -> list[Job]:
    """The grid; once all of it was tried, fresh seeds of the finalists."""
    jobs: list[Job] = [
        {"part": "tune", "method": m, "strength": strength, "lr": lr, "seed": 0} | shape for m, strength, lr in GRID
    ]
    if not {job_name(row) for row in rows}.issuperset(map(job_name, jobs)):
        return jobs
    settings = [{k: row[k] for k in ("method", "strength", "lr")} for row in finalists(rows)]
    return jobs + [{"part": "seeds", "seed": seed} | row | shape for seed in SEEDS for row in settings]


def main() -> None:
    """Train every job, or show what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--limit", type=int, help="read only so many characters")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=500)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(given.out, "language")
    if given.table:
        for method, row in chosen(results.rows).items():
            print(method, json.dumps(row), "survive:", survivors(results.rows, method, row["strength"]))
        return
    shape = {name: getattr(given, name) for name in ("steps", "width", "depth", "size", "limit")}
    run_jobs(do_job, lambda rows: all_jobs(rows, shape), results, given.workers, given.seconds)


if __name__ == "__main__":
    main()
