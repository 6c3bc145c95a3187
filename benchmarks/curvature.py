"""How right the curvature is and what it costs: products, top eigenvalues, outliers, tracking, trace.

OMP_NUM_THREADS=1 python benchmarks/curvature.py --json benchmarks/results/curvature.json      some ten minutes
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.geometry.hessian import Product, Tracker, eigenvalues, estimate_trace, spectral_density
from normgauge.geometry.hessian.lanczos import LanczosBasis, gaussian
from normgauge.geometry.hessian.operator import Operator, dense_matrix, of_matrix
from normgauge.lab import zoo

STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))  # first derivative, eighth order
STEP = 0.002
Batch = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Two heads with the residual and LayerNorm of a transformer block, in smooth parts."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x + self.attend(x, x, x, need_weights=False)[0]).mean(1))


class Fused(nn.Module):
    """`scaled_dot_product_attention` called by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.head = (nn.Linear(4, n) for n in (4, 4, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (layer(x).unsqueeze(1) for layer in (self.query, self.key, self.value))  # one head
        return self.head(F.scaled_dot_product_attention(query, key, value).squeeze(1).mean(1))


def dense_net(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), norm, nn.Tanh(), nn.Linear(6, 3))


def conv_net(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), norm, nn.Tanh(), nn.Flatten(), nn.Linear(36, 3))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "BatchNorm1d, train": (lambda: dense_net(nn.BatchNorm1d(6)), (4,), "train"),
    "BatchNorm1d, eval": (lambda: dense_net(nn.BatchNorm1d(6)), (4,), "eval"),
    "BatchNorm2d, train": (lambda: conv_net(nn.BatchNorm2d(4)), (1, 3, 3), "train"),
    "LayerNorm": (lambda: dense_net(nn.LayerNorm(6)), (4,), "train"),
    "GroupNorm": (lambda: conv_net(nn.GroupNorm(2, 4)), (1, 3, 3), "train"),
    "InstanceNorm2d, train": (lambda: conv_net(nn.InstanceNorm2d(4, affine=True)), (1, 3, 3), "train"),
    "InstanceNorm2d, tracked, eval": (
        lambda: conv_net(nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
        (1, 3, 3),
        "eval",
    ),
    "RMSNorm": (lambda: dense_net(nn.RMSNorm(6, eps=1e-5)), (4,), "train"),
    "attention, train": (Attention, (5, 4), "train"),
    "attention, eval": (Attention, (5, 4), "eval"),
    "fused attention": (Fused, (5, 4), "train"),
}


def case(name: str) -> tuple[nn.Module, Batch, str]:
    """A small smooth network with weights, gains and statistics away from their defaults, in float64."""
    build, shape, mode = NETS[name]
    torch.manual_seed(0)
    model = build().double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        for key, buffer in model.named_buffers():
            if "running" in key:
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(8, *shape, generator=generator, dtype=torch.float64)
    return model.train(mode == "train"), (x, torch.randint(0, 3, (8,), generator=generator)), mode


def flat_loss(model: nn.Module, batch: Batch) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The loss as a function of all parameters in one vector."""
    named = {name: p.detach() for name, p in model.named_parameters()}
    sizes = [p.numel() for p in named.values()]
    buffers = {name: b.detach().clone() for name, b in model.named_buffers()}

    def loss(flat: Tensor) -> Tensor:
        pieces = zip(named.items(), flat.split(sizes), strict=True)
        parameters = {name: piece.view(p.shape) for (name, p), piece in pieces}
        state = {name: b.clone() for name, b in buffers.items()}
        return F.cross_entropy(functional_call(model, {**parameters, **state}, (batch[0],)), batch[1])

    return loss, torch.cat([p.reshape(-1) for p in named.values()])


def truth(loss: Callable[[Tensor], Tensor], at: Tensor, step: float = STEP) -> Tensor:
    """The Hessian by differences of the gradient, eighth order, and nothing but first derivatives of torch."""

    def gradient(w: Tensor) -> Tensor:
        w = w.clone().requires_grad_()
        return torch.autograd.grad(loss(w), w)[0]

    units = torch.eye(len(at), dtype=at.dtype)
    columns = [
        sum(c * (gradient(at + k * step * u) - gradient(at - k * step * u)) for k, c in STENCIL) / step for u in units
    ]
    return torch.stack(columns, 1)


def ways(name: str) -> dict[str, float | str]:
    """Relative errors of four ways against differences, and the error those have themselves."""
    model, batch, mode = case(name)
    loss, at = flat_loss(model, batch)
    with sdpa_kernel(SDPBackend.MATH):
        wanted = truth(loss, at)
        row: dict[str, float | str] = {"parameters": len(at)}
        ours = dense_matrix(Product(model, F.cross_entropy, [batch], mode=mode), symmetric=False)
        row["normgauge"] = off(ours, wanted)
        row["torch.func.hessian"] = tried(lambda: hessian(loss)(at), wanted)
        row["jvp(grad)"] = tried(
            lambda: torch.stack([jvp(grad(loss), (at,), (u,))[1] for u in torch.eye(len(at), dtype=at.dtype)], 1),
            wanted,
        )
        row["the differences themselves"] = off(truth(loss, at, STEP / 2), wanted)
    return row


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def tried(make: Callable[[], Tensor], wanted: Tensor) -> float | str:
    try:
        return off(make(), wanted)
    except RuntimeError as error:
        return f"raises: {str(error).partition('.')[0][:60]}"


def digits() -> tuple[Tensor, Tensor]:
    data = zoo.digits("train")
    return data.inputs.flatten(1), data.labels


NORMS = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": lambda width: nn.Identity()}


def trained(norm: str, width: int, steps: int, lr: float = 0.05) -> nn.Module:
    """Two hidden layers on digits."""
    torch.manual_seed(0)
    make = NORMS[norm]
    model = nn.Sequential(
        nn.Linear(64, width), make(width), nn.ReLU(), nn.Linear(width, width), make(width), nn.ReLU(),
        nn.Linear(width, 10),
    )  # fmt: skip
    for _ in training(model, lr, steps):
        pass
    return model


def training(model: nn.Module, lr: float, steps: int, momentum: float = 0.0) -> Any:
    x, y = digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    generator = torch.Generator().manual_seed(2)
    for step in range(steps):
        chosen = torch.randint(len(y), (128,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model.train()(x[chosen]), y[chosen]).backward()
        optimizer.step()
        yield step


def top_five(norm: str, mode: str, width: int = 960, seeds: int = 5) -> dict[str, Any]:
    """The five largest eigenvalues of a million parameters; the truth is the same method run on to 1e-12."""
    model, (x, y) = trained(norm, width, 60), digits()
    batch = [(x[:256], y[:256])]
    exact = Product(model, F.cross_entropy, batch, mode=mode, dtype=torch.float64)
    wanted, _ = eigenvalues(exact, 5, tolerance=1e-12, seed=99)
    row: dict[str, Any] = {"parameters": exact.size, "eigenvalues": wanted.values.tolist()}
    for dtype in (torch.float64, torch.float32):
        product = Product(model, F.cross_entropy, batch, mode=mode, dtype=dtype)
        found, _ = eigenvalues(product, 5)
        errors = ((found.values - wanted.values) / wanted.values).abs()
        name = str(dtype).removeprefix("torch.")
        row |= {f"products, {name}": found.products, f"largest error, {name}": float(errors.max())}
    row |= by_scipy(exact, wanted.values)
    runs = [eigenvalues(exact, 5, seed=seed)[0] for seed in range(1, 1 + seeds)]
    row["products, float64, other seeds"] = [run.products for run in runs]
    row["largest error, float64, other seeds"] = [float((r.values / wanted.values - 1).abs().max()) for r in runs]
    return row


def by_scipy(exact: Product, wanted: Tensor) -> dict[str, Any]:
    try:
        from scipy.sparse.linalg import LinearOperator, eigsh
    except ImportError:
        return {"scipy": "not installed"}
    before = exact.count
    operator = LinearOperator(
        (exact.size, exact.size), matvec=lambda v: exact.hvp(torch.from_numpy(v.ravel())).numpy(), dtype="float64"
    )
    start = gaussian(exact, torch.Generator().manual_seed(0)).numpy()
    values = torch.from_numpy(eigsh(operator, 5, which="LA", v0=start, tol=1e-6)[0].copy()).flip(0)
    errors = ((values - wanted) / wanted).abs()
    return {"products, scipy eigsh": exact.count - before, "largest error, scipy eigsh": float(errors.max())}


def outlier_matrix(size: int = 1000, outliers: tuple[float, ...] = (30.0, 22.0, 15.0, 9.0, 8.0, 5.0)) -> Tensor:
    """A symmetric matrix: a bulk in −0.5 to 1 with a dense edge and a few eigenvalues far above it."""
    generator = torch.Generator().manual_seed(3)
    bulk = torch.rand(size - len(outliers), generator=generator, dtype=torch.float64) * 1.5 - 0.5
    values = torch.cat([torch.tensor(outliers, dtype=torch.float64), bulk])
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    return (basis * values) @ basis.T


def plain_lanczos(operator: Operator, steps: int, seed: int) -> Tensor:
    """Ritz values of the textbook recurrence, which forgets: the ghosts we avoid."""
    v = gaussian(operator, torch.Generator().manual_seed(seed))
    v, old, beta = v / v.norm(), torch.zeros_like(v), 0.0
    alphas, betas = [], []
    for _ in range(steps):
        w = operator.hvp(v) - beta * old
        alphas.append(float(w @ v))
        w = w - alphas[-1] * v
        beta = float(w.norm())
        betas.append(beta)
        old, v = v, w / beta
    small = torch.diag(torch.tensor(alphas)) + torch.diag(torch.tensor(betas[:-1]), 1)
    return torch.linalg.eigvalsh(small.double(), UPLO="U")


def single_runs(operator: Operator, above: float) -> dict[str, list[int]]:
    """How many values above a limit four runs of 60 steps find, ours and the textbook's."""
    ours = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        krylov = LanczosBasis(operator, gaussian(operator, generator), generator, 60)
        for _ in range(60):
            krylov.grow()
        ours.append(int((krylov.spectrum()[0] > above).sum()))
    plain = [int((plain_lanczos(operator, 60, seed) > above).sum()) for seed in range(4)]
    return {"found by runs of 60 steps": ours, "by plain Lanczos": plain}


def outliers() -> dict[str, Any]:
    """Outliers counted by our density, by plain Lanczos and by all eigenvalues, for a matrix and for a network."""
    matrix = of_matrix(outlier_matrix())
    rows: dict[str, Any] = {
        "matrix": {
            "true": 6,
            "counted": spectral_density(matrix, probes=4, steps=60).outliers,
            **single_runs(matrix, 2.0),
        }
    }
    for norm, mode in (("batch", "eval"), ("none", "eval")):
        model, (x, y) = trained(norm, 24, 150), digits()
        product = Product(model, F.cross_entropy, [(x[:400], y[:400])], mode=mode, dtype=torch.float64)
        found, _ = eigenvalues(product, 12)
        shape = spectral_density(product, found, probes=4, steps=60)
        values = torch.linalg.eigvalsh(dense_matrix(product)).flip(0)
        ratios = (values[:-1] / values[1:])[: int((values >= 0.05 * values[0]).sum())]
        rows[f"{norm} norm, {mode}"] = {
            "parameters": product.size,
            "true": int(ratios.argmax()) + 1 if float(ratios.max()) >= 1.5 else 0,
            "largest": values[:14].tolist(),
            "ten largest": single_runs(product, float(values[9] + values[10]) / 2),
            "counted": shape.outliers,
            "gap, true": float(ratios.max()),
            "gap, counted": shape.gap,
            "above 1 % of the largest, true": int((values > 0.01 * values[0]).sum()),
            "above 1 % of the largest, estimated": shape.count(0.01 * float(values[0])),
            "negative mass, true": float(-values[values < 0].sum() / values.abs().sum()),
            "negative mass, estimated": shape.negative_mass,
        }
    return rows


TRAININGS = (("batch", 0.1, 0.0), ("batch", 0.05, 0.9), ("layer", 0.03, 0.0), ("none", 0.1, 0.0), ("layer", 0.1, 0.0))


def tracking(norm: str, lr: float, momentum: float, steps: int, after: int = 0) -> dict[str, Any]:
    """λ_max read after every step of a training, against eigenvalues from a cold start."""
    model, (x, y) = trained(norm, 64, after), digits()
    tracker, batch, errors = Tracker(model, F.cross_entropy), [(x[:256], y[:256])], []
    for _ in training(model, lr, steps, momentum):
        found = tracker.read(batch)
        exact, _ = eigenvalues(Product(model, F.cross_entropy, batch, mode="train"), 1, tolerance=1e-4, products=80)
        errors.append(abs(found.value / float(exact.values[0]) - 1))
    warm, made = torch.tensor(errors[1:]), torch.tensor(tracker.products[1:], dtype=torch.float64)
    flagged = [r.residual > 0.02 * r.value for r in tracker.readings[1:]]
    return {
        "readings": len(warm),
        "products, first": tracker.products[0],
        "products, mean of the others": float(made.mean()),
        "products, most": int(made.max()),
        "within 1 %": float((warm <= 0.01).double().mean()),
        "largest error": float(warm.max()),
        "residual too large, said so": sum(flagged),
        "last value": tracker.readings[-1].value,
    }


def traces() -> dict[str, Any]:
    """The trace of a small network: estimate, standard error and truth, with and without the known directions."""
    model, (x, y) = trained("batch", 24, 150), digits()
    product = Product(model, F.cross_entropy, [(x[:400], y[:400])], mode="train", dtype=torch.float64)
    wanted = float(dense_matrix(product).trace())
    _, krylov = eigenvalues(product, 10)
    rows = {}
    for name, known in (("random signs", None), ("known directions taken out", krylov)):
        found, _ = estimate_trace(product, 16, krylov=known)
        rows[name] = {
            "true": wanted,
            "estimate": found.value,
            "standard error": found.standard_error,
            "off, in standard errors": abs(found.value - wanted) / found.standard_error,
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--steps", type=int, default=300, help="of each training that is tracked")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table: dict[str, Any] = {"torch": torch.__version__}

    def note(section: str, name: str, row: Any) -> None:
        table.setdefault(section, {})[name] = row
        print(section, "|", name, row, flush=True)

    for name in NETS:
        note("relative error of the Hessian", name, ways(name))
    for norm, mode in (("batch", "train"), ("batch", "eval"), ("layer", "train"), ("none", "train")):
        note("five largest of a million parameters", f"{norm} norm, {mode}", top_five(norm, mode))
    for name, row in outliers().items():
        note("outliers", name, row)
    for norm, lr, momentum in TRAININGS:
        note("tracking", f"{norm} norm, lr {lr}, momentum {momentum}", tracking(norm, lr, momentum, options.steps))
    for name, row in traces().items():
        note("trace", name, row)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))
    worst = max(float(row["normgauge"]) for row in table["relative error of the Hessian"].values())
    if worst > 1e-10:
        raise SystemExit(f"a product is off by {worst:.1e}")


if __name__ == "__main__":
    main()
