"""Are the predicted equilibria those of networks? Norms and angles of a BatchNorm net under five optimizers.

    python benchmarks/dynamics.py [--steps 12000] [--seed 0] [--only SGD] [--json FILE]

A BatchNorm MLP learns scikit-learn's digits; in each step a fifth of the labels is drawn at random, so that gradients
do not die out and there is a stationary state; then the same without. Predictions are made from the settings, the mean
of ‖w‖²‖∇L‖² and the radial part: for SGD what ε leaves by the identity of THEORY 11.2, for AdamW the measured mean of
w·(g/√v̂). These are means over the same steps: what is tested is the balance, and for the angle of SGD at small ε the
settings alone. Errors are (measured − predicted)/predicted in percent, of root mean squares over the second half of the
run: of the layer, the median and the worst channel. The plain mean of the angle is beside it (median channel): theory
is about the root mean square, and where gradients come in bursts the mean is far below. Then a synthetic gradient, and
SGD beside SphereSGD.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tangent_noise import TangentNoise
from torch import Tensor, nn

from normgauge.geometry.dynamics import (
    Equilibrium,
    RadialIdentity,
    ScaleFree,
    SphereSGD,
    adam_equilibrium,
    adamw_equilibrium,
    angle,
    gradients,
    sgd_equilibrium,
    snapshot,
    vectors,
)
from normgauge.lab.zoo import digits, mlp

RESULTS = Path(__file__).parent / "results" / "dynamics.json"
SIZES = (64, 64, 64, 10)
GROUPS = [ScaleFree((f"layers.{k}.linear.weight",), SIZES[k + 1]) for k in range(len(SIZES) - 2)]
NORMS = [f"layers.{k}.norm" for k in range(len(GROUPS))]
Make = Callable[[Any], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class Case:
    """An optimizer with its settings, and what it should settle at given the means of one channel."""

    make: Make
    predict: Callable[[dict[str, Tensor], int], Equilibrium]


def sgd(lr: float, decay: float, **more: Any) -> Case:
    def predict(mean: dict[str, Tensor], row: int) -> Equilibrium:
        gradient = float(mean["scale_free"][row].sum()) ** 0.5
        return sgd_equilibrium(lr, decay, gradient, radial=float(mean["radial"][row]), **more)

    return Case(lambda p: torch.optim.SGD(p, lr=lr, weight_decay=decay, **more), predict)


def adamw(lr: float, decay: float) -> Case:
    def predict(mean: dict[str, Tensor], row: int) -> Equilibrium:
        active = int((mean["scale_free"][row] > 0).sum())
        return adamw_equilibrium(lr, decay, active, radial=float(mean["normalized"][row]))

    return Case(lambda p: torch.optim.AdamW(p, lr=lr, weight_decay=decay), predict)


def adam(lr: float, decay: float) -> Case:
    def predict(mean: dict[str, Tensor], row: int) -> Equilibrium:
        return adam_equilibrium(lr, decay, mean["scale_free"][row].sqrt().tolist())

    return Case(lambda p: torch.optim.Adam(p, lr=lr, weight_decay=decay), predict)


CASES = {
    "SGD": sgd(0.1, 5e-3),
    "SGD, momentum 0.9": sgd(0.01, 5e-3, momentum=0.9),
    "SGD, Nesterov 0.9": sgd(0.01, 5e-3, momentum=0.9, nesterov=True),
    "AdamW": adamw(1e-3, 0.5),
    "Adam, coupled": adam(1e-3, 1e-3),
}


def batches(noise: float, seed: int = 0, size: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    split, generator = digits(), torch.Generator().manual_seed(seed)
    x, y = split.inputs.double().flatten(1), split.labels
    while True:
        chosen = torch.randint(len(x), (size,), generator=generator)
        wrong = torch.rand(size, generator=generator) < noise
        yield x[chosen], torch.where(wrong, torch.randint(10, (size,), generator=generator), y[chosen])


def normalized(optimizer: torch.optim.Optimizer, p: Tensor) -> Tensor:
    """g/√v̂ after a step of Adam; zeros for an optimizer without v."""
    state = optimizer.state[p]
    if "exp_avg_sq" not in state:
        return torch.zeros_like(p)
    group = optimizer.param_groups[0]
    corrected = state["exp_avg_sq"] / (1 - group["betas"][1] ** float(state["step"]))
    assert p.grad is not None
    return p.grad / (corrected.sqrt() + group["eps"])


def watch(case: Case, steps: int, noise: float, seed: int) -> list[dict[str, Tensor]]:
    """Trains, and takes means over the second half, a table of tensors for each layer."""
    torch.manual_seed(seed)
    net = mlp(SIZES, "batch").double()
    optimizer, named = case.make(net.parameters()), dict(net.named_parameters())
    sums: list[dict[str, Tensor]] = [{} for _ in GROUPS]
    for step, (x, y) in zip(range(steps), batches(noise, seed), strict=False):
        optimizer.zero_grad()
        with RadialIdentity(net, NORMS) as identity:
            F.cross_entropy(net(x), y).backward()
        before, slopes = snapshot(net), gradients(net)
        optimizer.step()
        for group, norm, total in zip(GROUPS, NORMS, sums, strict=True) if step >= steps // 2 else ():
            w, g, after = (vectors(group, tensors).detach() for tensors in (before, slopes, named))
            squared = w.square().sum(1, keepdim=True)
            pushed = vectors(group, {name: normalized(optimizer, named[name]) for name in group.parameters})
            for key, value in {
                "squared": squared.flatten(), "turned": angle(w, after).square(), "angle": angle(w, after),
                "scale_free": squared * g.square(),
                "radial": identity.predicted[norm], "normalized": (w * pushed).sum(1),
            }.items():  # fmt: skip
                total[key] = total.get(key, 0) + value
    return [{key: value / (steps - steps // 2) for key, value in total.items()} for total in sums]


def row(measured: Tensor, predicted: Tensor) -> dict[str, float]:
    """Errors in percent of root mean squares: of the layer, the median and the worst channel."""
    off = 100 * (measured / predicted - 1)
    layer = 100 * (float(measured.norm() / predicted.norm()) - 1)
    return {"predicted": float(predicted.square().mean().sqrt()), "layer": layer, "median": float(off.median()),
            "worst": float(off[off.abs().argmax()])}  # fmt: skip


def judge(case: Case, steps: int, noise: float, seed: int) -> list[dict[str, Any]]:
    rows = []
    for mean in watch(case, steps, noise, seed):
        settled = [case.predict(mean, r) for r in range(len(mean["squared"]))]
        plain = [case.predict({**mean, "radial": 0 * mean["radial"], "normalized": 0 * mean["normalized"]}, r)
                 for r in range(len(mean["squared"]))]  # fmt: skip
        column = {
            name: torch.tensor([getattr(e, name) for e in settled], dtype=torch.float64) for name in ("norm", "angle")
        }
        bare = torch.tensor([e.norm for e in plain], dtype=torch.float64)
        rows.append({
            "norm": row(mean["squared"].sqrt(), column["norm"]), "angle": row(mean["turned"].sqrt(), column["angle"]),
            "mean angle": row(mean["angle"], column["angle"]),
            "norm without the radial part": row(mean["squared"].sqrt(), bare),
            "time constant": settled[0].time_constant,
        })  # fmt: skip
    return rows


def synthetic(make: Make, size: list[float], settled: Equilibrium, steps: int) -> dict[str, float]:
    """Forty vectors under noise of constant size; errors in percent over the second half."""
    w = nn.Parameter(torch.randn(40, len(size), generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    w.data *= 1.05 * settled.norm / w.data.norm(dim=1, keepdim=True)
    optimizer, noise, squares, turns = make([w]), TangentNoise(size), [], []
    for _ in range(steps):
        w.grad, before = noise(w), w.detach().clone()
        optimizer.step()
        squares.append(float(before.square().sum(1).mean()))
        turns.append(float(angle(before, w.detach()).square().mean()))
    half = steps // 2
    norm, turn = (math.sqrt(sum(values[half:]) / half) for values in (squares, turns))
    return {"norm": 100 * (norm / settled.norm - 1), "angle": 100 * (turn / settled.angle - 1)}


def synthetic_table() -> dict[str, dict[str, float]]:
    even, uneven = [0.1] * 100, (0.1 * torch.logspace(-0.5, 0.5, 100)).tolist()
    total = math.sqrt(sum(g * g for g in even))
    torch_sgd, table = torch.optim.SGD, {}
    for name, more in {"SGD": {}, "SGD, momentum 0.9": {"momentum": 0.9},
                       "SGD, momentum 0.9, dampening 0.5": {"momentum": 0.9, "dampening": 0.5},
                       "SGD, Nesterov 0.9": {"momentum": 0.9, "nesterov": True}}.items():  # fmt: skip
        settled = sgd_equilibrium(0.1, 0.02, total, **more)  # type: ignore[arg-type]
        table[name] = synthetic(lambda p, m=more: torch_sgd(p, lr=0.1, weight_decay=0.02, **m), even, settled, 3000)  # type: ignore[misc]
    for name, size in {"AdamW": even, "AdamW, uneven gradients": uneven}.items():
        settled = adamw_equilibrium(0.01, 0.5, 100)
        table[name] = synthetic(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5), size, settled, 3000)
    for name, size in {"Adam, coupled": even, "Adam, coupled, uneven gradients": uneven}.items():
        settled = adam_equilibrium(0.01, 0.05, size)
        table[name] = synthetic(lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.05), size, settled, 6000)
    return table


def matched(lr: float, walk: Any, steps: int = 100) -> dict[str, float]:
    """SGD without decay, and SphereSGD at η/‖w‖² channel by channel: largest angle between them on the way."""
    torch.manual_seed(0)
    free = mlp(SIZES, "batch", eps=1e-12).double()
    bound = copy.deepcopy(free)
    plain = torch.optim.SGD(free.parameters(), lr=lr)
    sphere = SphereSGD(bound.named_parameters(), GROUPS, lr=lr, walk=walk)
    start, apart = snapshot(free), 0.0
    for _, (x, y) in zip(range(steps), batches(0.0), strict=False):
        for i, group in enumerate(GROUPS):
            sphere.param_groups[i]["lr"] = lr / vectors(group, snapshot(free)).square().sum(1)
        for net, optimizer in ((free, plain), (bound, sphere)):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        both = snapshot(free), snapshot(bound)
        apart = max(apart, *(float(angle(*(vectors(g, named) for named in both)).max()) for g in GROUPS))
    gone = torch.cat([angle(vectors(g, start), vectors(g, snapshot(free))) for g in GROUPS])
    grown = torch.cat([vectors(g, snapshot(free)).norm(dim=1) / vectors(g, start).norm(dim=1) for g in GROUPS])
    return {"apart": apart, "gone (median)": float(gone.median()), "norm grew by (largest)": float(grown.max())}


def trained_table(names: list[str], steps: int, seed: int) -> dict[str, Any]:
    """Prints a line a layer as it comes."""
    print("errors in %, measured against predicted                 norm                          angle a step")
    print(f"{'optimizer, noise in labels':28}{'layer':>6} {'of layer':>12}{'median':>8}{'worst':>8}"
          f" {'of layer':>12}{'median':>8}{'worst':>8} {'mean angle':>12} {'no radial part':>15}")  # fmt: skip
    table: dict[str, Any] = {}
    for title, case, noise in ((f"{n}, {share:.0%}", CASES[n], share) for share in (0.2, 0.0) for n in names):
        table[title] = judge(case, steps, noise, seed)
        for k, r in enumerate(table[title]):
            parts = "".join(
                f" {r[key]['layer']:12.2f}{r[key]['median']:8.2f}{r[key]['worst']:8.2f}" for key in ("norm", "angle")
            )
            rest = f" {r['mean angle']['median']:12.2f} {r['norm without the radial part']['layer']:15.2f}"
            print(f"{title:28}{k:6}{parts}{rest}", flush=True)
    return table


def main() -> None:
    """Prints the tables; writes them with the environment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=CASES, help="this optimizer on the network and nothing else")
    parser.add_argument("--json", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    names = list(CASES) if chosen.only is None else [chosen.only]
    environment = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    result: dict[str, Any] = {"environment": environment, "steps": chosen.steps, "seed": chosen.seed}
    result["trained"] = trained_table(names, chosen.steps, chosen.seed)
    if chosen.only is None:
        result["synthetic"] = synthetic_table()
        for name, errors in result["synthetic"].items():
            print(f"synthetic: {name:36} norm {errors['norm']:6.2f} %   angle {errors['angle']:6.2f} %")
        ways = [(walk, lr) for walk in ("projection", "exponential") for lr in (0.1, 0.01)]
        result["matched"] = {f"{walk}, lr {lr}": matched(lr, walk) for walk, lr in ways}
        for name, path in result["matched"].items():
            print(f"matched: {name:24}" + ", ".join(f"{key} {value:.2e}" for key, value in path.items()))
    chosen.json.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
