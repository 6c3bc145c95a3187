"""CIFAR-10: ResNet-20, 20 epochs, trained in every way; trained on a GPU, measured anywhere.

python -m experiments.control.cifar --out OUT            every setting, judged on 5,000 training images held out, then
                                                         three seeds of no control, of the best rival and of ours
python -m experiments.control.cifar --out OUT --measure  certified radii of the finalists on five images, on the CPU
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from experiments.control.graphed import Stepper
from experiments.control.jobs import Job, Results, job_name, run_jobs
from experiments.control.measuring import attacked_accuracy, certified
from experiments.control.methods import OURS, RIVALS, plain, start
from normgauge.lab.zoo import cifar10, cifar_resnet
from normgauge.lab.zoo.split import Split

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.25, 0.25, 0.25)  # one scale for all channels: radii are those of the pixels ×4
EPOCHS, SIZE, DECAY, HELD = 20, 512, 0.05, 5000
EVERY = {"cap": 8, "cap_at_once": 8}  # steps between two projections; penalties are worked out on one step in four
GRID: dict[str, tuple[tuple[float, float], ...]] = {  # (strength, learning rate)
    "none": ((0.0, 6e-3), (0.0, 3e-3), (0.0, 1.2e-2)),
    "penalty": ((0.06, 6e-3), (0.2, 6e-3), (0.02, 6e-3), (0.02, 1.2e-2), (0.01, 1.2e-2)),
    "unfolded_log": ((0.1, 6e-3), (0.3, 6e-3), (0.1, 1.2e-2), (0.03, 1.2e-2), (0.01, 1.2e-2)),
    "layers": ((0.06, 6e-3), (0.2, 6e-3)),
    "unfolded": ((0.1, 6e-3), (1.0, 6e-3), (0.01, 1.2e-2)),
    "decay": ((0.2, 6e-3), (0.8, 6e-3)),
    "spectral": ((0.0, 6e-3), (0.0, 1.2e-2)),
    "muon": ((6e-3, 6e-3), (2e-2, 6e-3)),
    "bounded_penalty": ((0.06, 6e-3),),
}
LATE: tuple[tuple[str, float, float], ...] = (  # the slowest, last, and no finalists
    ("muon_penalty", 0.02, 1.2e-2),
    ("cap", 7.0, 1.2e-2),
    ("layers", 0.02, 1.2e-2),
    ("cap", 6.0, 1.2e-2),
    ("cap_at_once", 5.0, 6e-3),
)
SLACK = 0.005
KEYS = ("method", "strength", "lr", "epochs", "limit")


@functools.cache
def loaded(place: torch.device, limit: int | None) -> tuple[Split, Split, Split]:
    """Training images, those held out, and test images, on the device."""
    whole, test = (cifar10(half, limit=limit).normalized(MEAN, STD) for half in ("train", "test"))
    held = min(HELD, len(whole) // 10)
    x, y = whole.inputs.to(place), whole.labels.to(place)
    return Split(x[held:], y[held:]), Split(x[:held], y[:held]), Split(test.inputs.to(place), test.labels.to(place))


def augmented(x: Tensor, draw: torch.Generator) -> Tensor:
    """Images mirrored at random and shifted by up to four pixels, each by itself."""
    count, reach = len(x), torch.arange(32, device=x.device)
    shifts = torch.randint(0, 9, (2, count, 1), device=x.device, generator=draw)
    mirrored = torch.rand(count, 1, device=x.device, generator=draw) < 0.5
    rows, columns = shifts[0] + reach, shifts[1] + torch.where(mirrored, reach.flip(0), reach)
    images, channels = torch.arange(count, device=x.device), torch.arange(3, device=x.device)
    padded = F.pad(x, (4, 4, 4, 4))
    return padded[images[:, None, None, None], channels[:, None, None], rows[:, None, :, None], columns[:, None, None]]


def network(method: str) -> nn.Module:
    """The network of a way: GroupNorm stands where normalizers are bounded."""
    return cifar_resnet(20, norm="group" if method.startswith("bounded") else "batch")


def trained(job: Job, train: Split, place: torch.device) -> tuple[nn.Module, str]:
    """One network, with a cosine schedule behind a warm-up of two epochs, and why its steps were not captured."""
    torch.manual_seed(job["seed"])
    draw = torch.Generator(place).manual_seed(job["seed"])
    model = network(job["method"]).to(place)
    model = model.to(memory_format=torch.channels_last) if place.type == "cuda" else model
    size = min(SIZE, len(train))
    with torch.no_grad():
        model(train.inputs[:size])
    every = EVERY.get(job["method"], 4)
    training = start(model.eval(), train.inputs[:2], job["method"], job["strength"], job["lr"], DECAY, every)
    training.model.train()
    steps, each = max(1, int(job["epochs"] * (len(train) // size))), len(train) // size

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(training.model(x), y)

    first = train.inputs[:size].contiguous(memory_format=torch.channels_last)
    take = Stepper(training, loss, first, train.labels[:size])
    for step in range(steps):
        if step % each == 0:
            order = torch.randperm(len(train), device=place, generator=draw)
            images, labels = augmented(train.inputs[order], draw), train.labels[order]
        rows = slice(step % each * size, (step % each + 1) * size)
        training.rate(min(1.0, 10 * step / steps + 1e-2) * 0.5 * (1 + math.cos(math.pi * step / steps)))
        take(images[rows], labels[rows])
    training.done()
    return plain(training.model).eval(), take.why


def judged(model: nn.Module, split: Split) -> float:
    """Accuracy, in the precision of the weights."""
    with torch.no_grad():
        right = [model(x).argmax(1) == y for x, y in zip(split.inputs.split(500), split.labels.split(500), strict=True)]
    return float(torch.cat(right).float().mean())


def do_job(job: Job) -> tuple[Job, dict[str, Any]]:
    """Train with tensor cores; judge, attack and bound without."""
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, valid, test = loaded(place, job["limit"])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model, why = trained(job, train, place)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    row = job | {"valid": judged(model, valid), "test": judged(model, test), "not_captured": why}
    few = test.first(1000)
    row |= {f"pgd_{radius}": attacked_accuracy(model, few.inputs, few.labels, radius) for radius in (0.5, 1.0)}
    with torch.no_grad():
        top = model(valid.inputs[:1000]).topk(2).values
        row["margin"] = float((top[:, 0] - top[:, 1]).median())
    model = model.cpu().to(memory_format=torch.contiguous_format)
    row["log10_cap"] = ng.cap(model, valid.inputs[:2].cpu(), log10=1e3)()  # proved, from above
    return row, model.state_dict()


def score(row: Job) -> float:
    """Log10 of the median margin over the proved bound: what settings are chosen by."""
    bad = not math.isfinite(row["log10_cap"]) or not row["margin"] > 0
    return -math.inf if bad else math.log10(row["margin"]) - row["log10_cap"]


def chosen(rows: list[Job]) -> dict[str, Job]:
    """For each way the largest margin over bound among its settings within `SLACK` of the best without control.

    The same for rivals and for ours; where no setting is that accurate, the most accurate one.
    """
    rows = [row for row in rows if row["part"] == "tune" and "error" not in row]
    goal = max((row["valid"] for row in rows if row["method"] == "none"), default=0.0) - SLACK
    best = {}
    for method in {row["method"]: None for row in rows}:
        own = [row for row in rows if row["method"] == method]
        near = [row for row in own if row["valid"] >= goal]
        best[method] = max(near, key=score) if near else max(own, key=lambda r: r["valid"])
    return best


def finalists(picked: dict[str, Job]) -> list[str]:
    """No control, the best rival and the best of ours: the accurate ones first, then by score."""
    goal = picked["none"]["valid"] - SLACK

    def rank(method: str) -> tuple[bool, float]:
        near = picked[method]["valid"] >= goal
        return near, score(picked[method]) if near else picked[method]["valid"]

    rivals, ours = ([m for m in picked if m in names and m != "none"] for names in (RIVALS, OURS))
    return ["none", *(max(names, key=rank) for names in (rivals, ours) if names)]


def final_jobs(rows: list[Job]) -> list[Job]:
    """Three seeds that tuning has not seen of each finalist."""
    picked = chosen(rows)
    if "none" not in picked:
        return []
    settings = [{k: picked[m][k] for k in KEYS} for m in finalists(picked)]
    seeds = [row | {"part": "seeds", "seed": seed} for seed in (1, 2, 3) for row in settings]
    late = {"part": "tune", "seed": 0, "epochs": settings[0]["epochs"], "limit": settings[0]["limit"]}
    return seeds + [late | {"method": m, "strength": strength, "lr": lr} for m, strength, lr in LATE]


def measure(results: Results, ways: Sequence[str], images: int, into: Path) -> None:
    """Certified radii and attacks of the first seed of some ways, an image a row; those that are there are left out."""
    test, weights = cifar10("test", limit=images).normalized(MEAN, STD), results.weights()
    measured = Results(into, "cifar-radii")
    known = {(row["method"], row["image"]) for row in measured.rows}
    first = {row["method"]: row for row in reversed(results.rows) if row["part"] == "seeds"}
    for image, method in ((i, m) for i in range(images) for m in ways):
        if (method, image) in known:
            continue
        model, begun = network(method), time.process_time()
        model.load_state_dict(weights[job_name(first[method])])
        one = Split(test.inputs[image : image + 1], test.labels[image : image + 1])
        found = certified(model.eval(), one, 1, 0.5, effort="quick")
        row = {"method": method, "seed": first[method]["seed"], "image": image, "radius": found["radii"][0]}
        measured.add(row | {"attack": found["attacks"][0], "cpu": time.process_time() - begun}, None)
        print(json.dumps(measured.rows[-1]), flush=True)


def main() -> None:
    """Train every job, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results"))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--ways", nargs="*", default=["none", "unfolded_log", "penalty"])
    parser.add_argument("--into", type=Path, default=Path("experiments/control/results"), help="where radii go")
    parser.add_argument("--epochs", type=float, default=EPOCHS)
    parser.add_argument("--limit", type=int, help="read only so many images")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--images", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(given.out, "cifar")
    if given.measure:
        measure(results, given.ways, given.images, given.into)
        return
    size = {"seed": 0, "epochs": given.epochs, "limit": given.limit}
    jobs: list[Job] = [
        {"part": "tune", "method": m, "strength": strength, "lr": lr} | size
        for m, settings in GRID.items()
        for strength, lr in settings
    ]
    run_jobs(do_job, jobs, results, given.workers, given.seconds, final_jobs)


if __name__ == "__main__":
    main()
