"""CIFAR-10: ResNet-20, 20 epochs, trained in every way; trained on a GPU, measured anywhere.

python -m experiments.control.cifar --out OUT --train tune     every setting, judged on 5,000 training images held out
python -m experiments.control.cifar --out OUT --train seeds    seeds 1 and 2 of no control, the best rival and ours
python -m experiments.control.cifar --out OUT --measure        bounds and radii of what `--chosen` names, on the CPU
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
from experiments.control.measuring import attacked_accuracy, certified
from experiments.control.methods import RIVALS, plain, start
from normgauge.lab.zoo import cifar10, cifar_resnet
from normgauge.lab.zoo.split import Split

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.25, 0.25, 0.25)  # one scale for all channels: radii are those of the pixels ×4
EPOCHS, SIZE, DECAY = 20, 256, 0.05
GRID: dict[str, tuple[tuple[float, float], ...]] = {  # (strength, learning rate): three each
    "none": ((0.0, 3e-3), (0.0, 6e-3), (0.0, 1.2e-2)),
    "decay": ((0.2, 6e-3), (0.8, 6e-3), (3.0, 6e-3)),
    "spectral": ((0.0, 3e-3), (0.0, 6e-3), (0.0, 1.2e-2)),
    "unfolded": ((0.01, 6e-3), (0.03, 6e-3), (0.1, 6e-3)),
    "unfolded_log": ((0.03, 6e-3), (0.1, 6e-3), (0.3, 6e-3)),
    "muon": ((3e-3, 6e-3), (1e-2, 6e-3), (3e-2, 6e-3)),
    "penalty": ((0.02, 6e-3), (0.06, 6e-3), (0.2, 6e-3)),
    "layers": ((0.02, 6e-3), (0.06, 6e-3), (0.2, 6e-3)),
    "cap": ((5.0, 6e-3), (6.0, 6e-3), (7.0, 6e-3)),
}
SLACK = 0.005


def loaded(place: torch.device) -> tuple[Split, Split, Split]:
    """Training images, the 5,000 held out, and test images, on the device."""
    whole, test = (cifar10(half).normalized(MEAN, STD) for half in ("train", "test"))
    parts = (Split(s.inputs.to(place), s.labels.to(place)) for s in (whole, test))
    whole, test = next(parts), next(parts)
    train, valid = (Split(whole.inputs[rows], whole.labels[rows]) for rows in (slice(5000, None), slice(5000)))
    return train, valid, test


def augmented(x: Tensor) -> Tensor:
    """Images mirrored at random and shifted by up to four pixels, a batch at a time."""
    padded = F.pad(x, (4, 4, 4, 4))
    rows = torch.randint(0, 9, (2,)).tolist()
    x = padded[:, :, rows[0] : rows[0] + 32, rows[1] : rows[1] + 32]
    mirrored = torch.rand(len(x), device=x.device) < 0.5
    return torch.where(mirrored[:, None, None, None], x.flip(3), x)


def trained(job: dict[str, Any], train: Split, place: torch.device) -> nn.Module:
    """One network, with a cosine schedule behind a warm-up of two epochs."""
    torch.manual_seed(job["seed"])
    model = cifar_resnet(20).to(place)
    with torch.no_grad():
        model(train.inputs[:SIZE])
    training = start(model.eval(), train.inputs[:2], job["method"], job["strength"], job["lr"], DECAY, every=4)
    each = len(train) // SIZE
    for step in range(int(job["epochs"] * each)):
        if step % each == 0:
            order = torch.randperm(len(train), device=place)
        rows = order[step % each * SIZE :][:SIZE]
        done = step / (job["epochs"] * each)
        training.rate(min(1.0, 10 * done + 1e-2) * 0.5 * (1 + math.cos(math.pi * done)))
        training.model.train()
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            loss = F.cross_entropy(training.model(augmented(train.inputs[rows])).float(), train.labels[rows])
        training.step(loss)
    training.done()
    return plain(training.model).eval()


def judged(model: nn.Module, split: Split) -> float:
    """Accuracy, in the precision of the weights."""
    with torch.no_grad():
        right = [model(x).argmax(1) == y for x, y in zip(split.inputs.split(500), split.labels.split(500), strict=True)]
    return float(torch.cat(right).float().mean())


def do_job(job: dict[str, Any], out: Path) -> None:
    """Train, judge, attack, and keep the weights."""
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, valid, test = loaded(place)
    model = trained(job, train, place)
    row = job | {"valid": judged(model, valid), "test": judged(model, test)}
    few = (test.inputs[:1000], test.labels[:1000]) if place.type == "cuda" else (test.inputs[:20], test.labels[:20])
    row |= {f"pgd_{radius}": attacked_accuracy(model, *few, radius) for radius in (0.5, 1.0)}
    with torch.no_grad():
        top = model(valid.inputs[:1000]).topk(2).values
        row["margin"] = float((top[:, 0] - top[:, 1]).median())
    row["log10_folded_cap"] = ng.cap(model, valid.inputs[:2], log10=1e3)()  # proved, from above
    torch.save(model.cpu().state_dict(), out / f"{job_name(job)}.pt")
    (out / f"{job_name(job)}.json").write_text(json.dumps(row) + "\n")


def chosen(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each way the largest margin over bound among its settings within `SLACK` of the best without control."""
    goal = max((row["valid"] for row in rows if row["method"] == "none"), default=0.0) - SLACK
    best = {}
    for method in {row["method"]: None for row in rows}:
        own = [row for row in rows if row["method"] == method and math.isfinite(row["log10_folded_cap"])]
        near = [row for row in own if row["valid"] >= goal]
        if own:
            key = (lambda r: math.log10(r["margin"]) - r["log10_folded_cap"]) if near else (lambda r: r["valid"])
            best[method] = max(near or own, key=key)
    return best


def final_jobs(out: Path) -> list[dict[str, Any]]:
    """Two seeds more of no control, of the best rival and of our best."""
    picked = chosen(results(out, "tune"))
    score = {m: math.log10(row["margin"]) - row["log10_folded_cap"] for m, row in picked.items()}
    ours = max((m for m in picked if m in ("penalty", "layers", "cap")), key=score.__getitem__)
    rival = max((m for m in picked if m in RIVALS and m != "none"), key=score.__getitem__)
    keys = ("method", "strength", "lr", "epochs")
    rows = [{k: picked[m][k] for k in keys} for m in ("none", rival, ours)]
    return [row | {"part": "seeds", "seed": seed} for row in rows for seed in (1, 2)]


def measure(out: Path, part: str, images: int) -> None:
    """Bounds by the gauge and radii on a few images, for the chosen settings of the tuning and for all seeds."""
    test = cifar10("test", limit=images).normalized(MEAN, STD)
    rows = [*chosen(results(out, "tune")).values(), *results(out, "seeds")]
    for row in rows:
        path = out / f"measured-{job_name(row)}.json"
        if path.exists() or not (out / f"{job_name(row)}.pt").exists() or (part and part != row["method"]):
            continue
        model = cifar_resnet(20)
        model.load_state_dict(torch.load(out / f"{job_name(row)}.pt", weights_only=True))
        reading = ng.gauge(model.eval(), test.inputs[:1], scope="global", search=False, pictures=False)
        found = row | {"log10_upper": reading.log10_upper, "log10_folded": reading.log10_folded}
        found |= certified(model, test, images, 0.5)
        path.write_text(json.dumps(found) + "\n")
        print(json.dumps({k: v for k, v in found.items() if k not in ("radii", "attacks")}), flush=True)


def main() -> None:
    """Train one job, all of them, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments/control/results/cifar"))
    parser.add_argument("--job", type=json.loads)
    parser.add_argument("--train", choices=("tune", "seeds"))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--method", default="")
    parser.add_argument("--epochs", type=float, default=EPOCHS)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--images", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if given.job:
        do_job(given.job, given.out)
    if given.train == "tune":
        jobs = [
            {"part": "tune", "method": m, "strength": s, "lr": lr, "seed": 0, "epochs": given.epochs}
            for m, settings in GRID.items()
            for s, lr in settings
        ]
        run_jobs("experiments.control.cifar", jobs, given.out, given.workers, given.seconds)
    elif given.train == "seeds":
        run_jobs("experiments.control.cifar", final_jobs(given.out), given.out, given.workers, given.seconds)
    if given.measure:
        measure(given.out, given.method, given.images)


if __name__ == "__main__":
    main()
