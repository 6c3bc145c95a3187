"""CIFAR-10: ResNet-20, 20 epochs, trained in every way; trained on a GPU, measured anywhere.

python -m experiments.control.cifar --out OUT            three settings a way, judged on 5,000 training images held out,
                                                         then three fresh seeds of no control, of the rivals and of ours
python -m experiments.control.cifar --out OUT --measure  certified radii of the finalists on five images, on the CPU,
                                                         beside the training or after it

Run again with the same OUT it goes on from where it stopped.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
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
RATES = (6e-3, 1.2e-2, 2.4e-2)  # of AdamW without control, and of Muon
STRENGTHS = (0.006, 0.015, 0.04)  # of every penalty, at its optimizer's best rate
DECAYS = (0.1, 0.4, 1.6)
BY_RATE, BY_STRENGTH = ("none", "muon"), ("decay", "unfolded_log", "penalty", "layers", "muon_penalty", "muon_layers")
LATE = (("spectral", 0.0), ("unfolded", 0.01), ("bounded_penalty", 0.04), ("cap", 7.0))  # one setting, and no finalists
SLACK = 0.005
SEEDS = (1, 2, 3)


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
    return row, model.state_dict() if job["part"] == "seeds" else None


def score(row: Job) -> float:
    """Log10 of the median margin over the proved bound: what settings are chosen by."""
    bad = not math.isfinite(row["log10_cap"]) or not row["margin"] > 0
    return -math.inf if bad else math.log10(row["margin"]) - row["log10_cap"]


def of(rows: list[Job], *methods: str) -> list[Job]:
    """The rows of tuning of some ways that came to an end."""
    return [row for row in rows if row["part"] == "tune" and row["method"] in methods and "error" not in row]


def accurate(rows: list[Job]) -> Job:
    """The most accurate setting on the images held out."""
    return max(rows, key=lambda row: row["valid"])


def widest(rows: list[Job], goal: float) -> Job:
    """The largest margin over bound within `SLACK` of an accuracy; where none is that accurate, the most accurate."""
    near = [row for row in rows if row["valid"] >= goal - SLACK]
    return max(near, key=score) if near else accurate(rows)


def chosen(rows: list[Job]) -> dict[str, Job]:
    """For each way the widest setting near the best accuracy without control."""
    rows = [row for row in rows if row["part"] == "tune" and "error" not in row]
    goal = max((row["valid"] for row in rows if row["method"] == "none"), default=0.0)
    return {method: widest(of(rows, method), goal) for method in {row["method"]: None for row in rows}}


def finalists(rows: list[Job]) -> dict[str, Job]:
    """Who is trained again on fresh seeds, all chosen on held out images.

    No control and the best rival by accuracy, the widest rival near that rival, and the widest of ours near it.
    """
    tuned = (*BY_RATE[1:], *BY_STRENGTH)
    rivals, own = (of(rows, *(m for m in tuned if m in names)) for names in (RIVALS, OURS))
    best = accurate(rivals)
    return {
        "none": accurate(of(rows, "none")),
        "rival": best,
        "wide rival": widest(rivals, best["valid"]),
        "ours": widest(own, best["valid"]),
    }


def tuning(rows: list[Job], size: Job) -> list[Job]:
    """Three settings a way: rates first, then strengths at the best rate of their optimizer, as soon as it is known."""
    whole = {"part": "tune", "seed": 0} | size
    jobs: list[Job] = [
        whole | {"method": method, "strength": lr if method == "muon" else 0.0, "lr": lr}
        for method in BY_RATE
        for lr in RATES
    ]
    rates = {m: [row for row in rows if row["part"] == "tune" and row["method"] == m] for m in BY_RATE}
    for index, method in ((i, m) for i in range(len(STRENGTHS)) for m in BY_STRENGTH):
        base = "muon" if method.startswith("muon") else "none"
        if len(rates[base]) >= len(RATES) and of(rows, base):
            strength = (DECAYS if method == "decay" else STRENGTHS)[index]
            jobs.append(whole | {"method": method, "strength": strength, "lr": accurate(of(rows, base))["lr"]})
    return jobs


def all_jobs(rows: list[Job], size: Job) -> list[Job]:
    """Tuning; once all of it was tried the fresh seeds of the finalists, and the ways with one setting."""
    jobs = tuning(rows, size)
    tried = {job_name(row) for row in rows}
    if len(jobs) < len(STRENGTHS) * len(BY_RATE + BY_STRENGTH) or not tried.issuperset(map(job_name, jobs)):
        return jobs
    settings = {(r["method"], r["strength"], r["lr"]): None for r in finalists(rows).values()}
    parts = [("seeds", seed, *setting) for seed in SEEDS for setting in settings]
    rate = accurate(of(rows, "none"))["lr"]
    parts += [("tune", 0, method, strength, rate) for method, strength in LATE]
    names = ("part", "seed", "method", "strength", "lr")
    return jobs + [dict(zip(names, part, strict=True)) | size for part in parts]


def radius_job(job: Job) -> tuple[Job, None]:
    """The certified radius and the shortest attack of one network at one test image."""
    test = cifar10("test", limit=job["image"] + 1).normalized(MEAN, STD)
    model, begun = network(job["method"]), time.process_time()
    model.load_state_dict(torch.load(job["weights"], weights_only=True)[job["name"]])
    one = Split(test.inputs[-1:], test.labels[-1:])
    found = certified(model.eval(), one, 1, 0.5, effort="quick")
    row = {name: value for name, value in job.items() if name not in ("weights", "name")}
    return row | {"radius": found["radii"][0], "attack": found["attacks"][0], "cpu": time.process_time() - begun}, None


def radius_jobs(out: Path, size: Job, images: int) -> tuple[list[Job], int]:
    """The first images on the finalists' first seed, as far as that is trained, and how many there will be in all."""
    rows, jobs = Results(out, "cifar").rows, []
    wanted = {job_name(j): j for j in all_jobs(rows, size) if j["part"] == "seeds" and j["seed"] == SEEDS[0]}
    for path in sorted(out.glob("cifar-weights-*.pt")):
        for name in wanted.keys() & torch.load(path, weights_only=True).keys():
            setting = {k: wanted[name][k] for k in ("method", "strength", "lr", "seed")}
            jobs += [
                {"part": "radius", "image": i, "weights": str(path), "name": name} | setting for i in range(images)
            ]
    return sorted(jobs, key=lambda job: (job["image"], job["name"])), len(wanted) * images


def measure(out: Path, size: Job, images: int, workers: int, seconds: float) -> None:
    """Certified radii on the CPU of the networks that are there, and of those that come while there is time."""
    begun, results = time.monotonic(), Results(out, "cifar-radii")
    while (left := seconds - (time.monotonic() - begun)) > 1:
        ready, wanted = radius_jobs(out, size, images)
        if {job_name(job) for job in ready} - {job_name(row) for row in results.rows}:
            run_jobs(radius_job, lambda rows: radius_jobs(out, size, images)[0], results, workers, left)
        elif wanted and len(ready) == wanted:
            return
        time.sleep(min(5.0, left))


def main() -> None:
    """Train every job, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results"))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--epochs", type=float, default=EPOCHS)
    parser.add_argument("--limit", type=int, help="read only so many images")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--images", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    size: Job = {"epochs": given.epochs, "limit": given.limit}
    if given.measure:
        measure(given.out, size, given.images, given.workers, given.seconds)
        return
    run_jobs(do_job, lambda rows: all_jobs(rows, size), Results(given.out, "cifar"), given.workers, given.seconds)


if __name__ == "__main__":
    main()
