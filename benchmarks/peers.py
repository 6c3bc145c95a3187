"""What other tools say about the same networks and layers, beside normgauge's bracket.

    pip install --target DIR --no-deps eclipse-nn==0.1.7 weightwatcher==0.7.7 orthogonium==0.0.4
    pip install --target DIR cvxpy pandas matplotlib powerlaw
    PYTHONPATH=DIR python -m benchmarks.peers [--json FILE]

A peer that is not installed is named and left out. CPU seconds are those of one thread, all in one run.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import importlib
import io
import json
import math
import platform
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

import normgauge as ng
from benchmarks.semidefinite import semidefinite_value
from normgauge.instrument.spectral.conv import ConvSpec, conv_norm
from normgauge.lab.training import model_accuracy, train
from normgauge.lab.zoo import digits

Row = dict[str, Any]
PEERS = ("eclipse-nn", "cvxpy", "weightwatcher", "orthogonium")


def installed(peer: str) -> str | None:
    """Its version, None where it cannot be imported."""
    try:
        quiet(importlib.import_module, peer.replace("-", "_"))
        return version(peer)
    except (ImportError, PackageNotFoundError):
        return None


def quiet(run: Callable[..., Any], *arguments: Any) -> Any:
    """The result without what the peer prints on its way."""
    with redirect_stdout(io.StringIO()):
        return run(*arguments)


class Residual(nn.Module):
    """x + f(x) and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down, self.head = nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, 8) of a batch (N, 16)."""
        return self.head(x + self.down(self.act(self.up(x))))


def small_networks() -> dict[str, tuple[nn.Module, Tensor]]:
    """Networks with one part a purely linear tool does not see, and a batch for each."""
    torch.manual_seed(0)
    x = 0.3 * torch.randn(64, 16)
    layer = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8))
    batch = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
    with torch.no_grad():
        for _ in range(100):
            batch(0.3 * torch.randn(64, 16))  # statistics of the data
    return {"LayerNorm": (layer.eval(), x), "BatchNorm": (batch.eval(), x), "residual": (Residual().eval(), x)}


def plain_networks() -> dict[str, tuple[nn.Module, Tensor]]:
    """Multilayer perceptrons, where the peers are at home: two trained on digits, one random."""
    found: dict[str, tuple[nn.Module, Tensor]] = {}
    raw = digits("train").inputs.flatten(1)
    mean, spread = raw.mean(0), raw.std(0) + 0.05  # each pixel by itself, as scikit-learn's examples have it
    learn, test = (
        dataclasses.replace(part, inputs=(part.inputs.flatten(1) - mean) / spread)
        for part in (digits("train"), digits("test"))
    )
    for sizes in ((64, 32, 10), (64, 32, 32, 10)):
        torch.manual_seed(0)
        model = stack(sizes)
        train(model, learn, epochs=20, lr=3e-3)
        name = f"digits {'-'.join(map(str, sizes))}"
        print(f"{name}: test accuracy {100 * model_accuracy(model, test):.1f} %")
        found[name] = (model.eval(), test.inputs[:200])
    torch.manual_seed(0)
    return found | {"random 6 x 64": (stack((64,) * 7), torch.randn(50, 64))}


def stack(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear maps with ReLU between them."""
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def steepest(model: nn.Module, x: Tensor) -> float:
    """The largest Jacobian norm at the samples, by autograd in float64 and without normgauge."""
    twin = copy.deepcopy(model).double().requires_grad_(False)
    rows = (torch.autograd.functional.jacobian(lambda row: twin(row[None])[0], row) for row in x.double())
    return max(float(torch.linalg.matrix_norm(jacobian, 2)) for jacobian in rows)


def ours(model: nn.Module, x: Tensor) -> Row:
    """The bracket at the samples, and the same over all inputs."""
    row = {}
    for scope in ("point", "global"):
        reading, seconds = timed(ng.gauge, model, x, scope=scope)
        row[f"{scope}_upper"], row[f"{scope}_lower"] = map(math.exp, (reading.log_upper, reading.log_lower))
        row[f"{scope}_cpu"], row[f"{scope}_own_cpu"] = seconds, reading.seconds["local"]
        row[f"{scope}_method"] = reading.method
    return row | {"balanced": math.exp(reading.log_balanced)}


def timed(run: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """The result, and CPU seconds."""
    start = time.process_time()
    found = run(*arguments, **options)
    return found, round(time.process_time() - start, 3)


def eclipse(model: nn.Module) -> Row:
    """ECLipsE's global bounds, as its documentation calls them."""
    from eclipse_nn import LipConstEstimator

    estimator, row = LipConstEstimator(copy.deepcopy(model)), {}
    for key, name in (("eclipse_fast", "ECLipsE_Fast"), ("eclipse", "ECLipsE")):
        found, row[f"{key}_cpu"] = timed(estimator.estimate, name)
        row[key] = float(found)
    return row


def local(model: nn.Module, x: Tensor, radius: float) -> Row:
    """Bounds within ``radius`` of one sample: ECLipsE's local variant and normgauge's ball."""
    from eclipse_nn import LipConstEstimator

    estimator = LipConstEstimator(copy.deepcopy(model))
    reading, seconds = timed(ng.gauge, model, x[None], scope=f"ball:{radius}")
    row = {"upper": math.exp(reading.log_upper), "lower": math.exp(reading.log_lower), "cpu": seconds}
    for algorithm in ("CF", "Fast", "Acc"):
        key, centre = f"eclipse_local_{algorithm.lower()}", x.double().numpy()
        (found, _, code), row[f"{key}_cpu"] = timed(estimator.estimate_gen_local, centre, radius, "relu", algorithm)
        row[key] = float(found) if code == 0 else None
    return row


def product(model: nn.Module) -> float:
    """The product of the spectral norms of all linear maps."""
    maps = [m.weight.detach().double() for m in model.modules() if isinstance(m, nn.Linear)]
    return math.prod(float(torch.linalg.matrix_norm(w, 2)) for w in maps)


def networks(peers: Row) -> dict[str, Row]:
    """One row a network."""
    rows = {}
    for name, (model, x) in {**small_networks(), **plain_networks()}.items():
        row: Row = {"jacobian_at_samples": steepest(model, x), "product": product(model), **ours(model, x)}
        if peers["eclipse-nn"]:
            row |= quiet(eclipse, model)
        if peers["cvxpy"] and name.startswith("digits"):
            row |= semidefinite_value(model)
        rows[name] = row
        show(name, row)
        if peers["eclipse-nn"] and name.startswith("digits"):
            for radius in (0.1, 1.0):
                title = f"{name}, within {radius} of the first image"
                rows[title] = quiet(local, model, x[0], radius)
                show(title, rows[title])
    return rows


def show(title: str, row: Row) -> None:
    """Two lines for one row."""
    print(f"{title}\n    " + "  ".join(f"{key} {told(value)}" for key, value in row.items() if value is not None))


def told(value: float | str) -> str:
    """A number in five digits, a word as it is."""
    return value if isinstance(value, str) else f"{value:.5g}"


def conv_truth(weight: Tensor, size: int, groups: int = 1) -> float:
    """The norm of the zero-padded convolution by Lanczos iteration in float64."""
    w, pad = weight.detach().double(), weight.shape[-1] // 2
    shape = (1, w.shape[1] * groups, size, size)

    def gram(v: np.ndarray) -> np.ndarray:
        y = F.conv2d(torch.from_numpy(v).reshape(shape), w, padding=pad, groups=groups)
        return F.conv_transpose2d(y, w, padding=pad, groups=groups).reshape(-1).numpy()

    count = math.prod(shape)
    operator = LinearOperator((count, count), matvec=gram, dtype=np.float64)
    return math.sqrt(eigsh(operator, k=1, v0=np.ones(count), tol=1e-10, return_eigenvectors=False)[0])


def enclosure(weight: Tensor, size: int, groups: int = 1) -> Row:
    """normgauge's lower and upper end for the layer as it runs."""
    pad = weight.shape[-1] // 2
    found = conv_norm(weight.detach(), ConvSpec((size, size), padding=((pad, pad), (pad, pad)), groups=groups)).log
    return {"true": conv_truth(weight, size, groups), "lower": math.exp(found.lo), "upper": math.exp(found.hi)}


def circular(weight: Tensor, size: int) -> float:
    """The common shortcut: the largest norm of the kernel's transform at the size of the input."""
    symbol = torch.fft.fft2(weight.detach().double(), s=(size, size)).permute(2, 3, 0, 1)
    return float(torch.linalg.matrix_norm(symbol, 2).max())


def convolutions(peers: Row) -> dict[str, Row]:
    """One row a layer."""
    torch.manual_seed(0)
    normal = nn.utils.parametrizations.spectral_norm(nn.Conv2d(64, 64, 3, padding=1, bias=False), n_power_iterations=50)
    grouped = nn.Conv2d(64, 64, 3, padding=1, groups=32, bias=False)
    plain = nn.Conv2d(16, 16, 3, padding=1, bias=False)
    with torch.no_grad():
        grouped.weight.mul_(0.55)
    kernel = torch.outer(*(torch.tensor([1.0, -1.0, 1.0]),) * 2)[None, None]  # steepest between the circle's waves
    rows: dict[str, Row] = {
        "torch spectral_norm, 64x64x3x3 @16": {"claimed": 1.0, **enclosure(normal.weight, 16)},
        "circular formula, 3x3 @5": {"claimed": circular(kernel, 5), **enclosure(kernel, 5)},
        "groups=32, 64x64x3x3 @8": enclosure(grouped.weight, 8, 32),
        "Gram iteration for zero padding, 16x16x3x3 @16": enclosure(plain.weight, 16),
    }
    if peers["orthogonium"]:
        from orthogonium.layers.conv.singular_values import get_conv_sv

        for name, layer in (
            ("groups=32, 64x64x3x3 @8", grouped),
            ("Gram iteration for zero padding, 16x16x3x3 @16", plain),
        ):
            rows[name]["claimed"] = float(get_conv_sv(layer, n_iter=4, return_stab_rank=False))
    for name, row in rows.items():
        show(name, row)
    return rows


def weight_watcher() -> dict[str, Row]:
    """Its column `spectral_norm` beside the norms of the same layers, and what it does with normalizers."""
    import weightwatcher

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(4096, 100))
    details = weightwatcher.WeightWatcher(model=model).analyze(plot=False)
    told = {int(row["longname"]): float(row["spectral_norm"]) for _, row in details.iterrows()}
    dense = float(torch.linalg.matrix_norm(model[3].weight.detach().double(), 2))
    return {
        "weightwatcher spectral_norm, dense 100x4096": {"claimed": told[3], "true": dense, "true_squared": dense**2},
        "weightwatcher spectral_norm, conv 64x64x3x3 @8": {"claimed": told[0], **enclosure(model[0].weight, 8)},
        "weightwatcher, normalizers in its table": {"named": sum(i == 1 for i in told), "in_the_model": 1},
    }


def main() -> None:
    """Prints everything; writes it with the versions where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    peers: Row = {peer: installed(peer) for peer in PEERS}
    for peer, found in peers.items():
        print(f"{peer}: {found or 'not installed, left out'}")
    results = {"networks": networks(peers), "layers": convolutions(peers)}
    if peers["weightwatcher"]:
        results["weightwatcher"] = quiet(weight_watcher)
        for name, row in results["weightwatcher"].items():
            show(name, row)
    if chosen.json is not None:
        versions = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "normgauge": ng.__version__,
            **peers,
        }
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"versions": versions, **results}, indent=1, allow_nan=False)
        chosen.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
