"""The numbers of one epoch, all taken on the device the run lives on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from experiments.than2025.data import EVAL, Data
from experiments.than2025.layers import Site, gain, modes, observe, running_sigma, survey
from experiments.than2025.power import Power

SAMPLES = 64  # test images whose Jacobian is taken
BATCH = 512  # training images on which σ is measured
CHUNK = 2_000
FLOOR = 1e-300


class Gauge:
    """Measures one network again and again; keeps what the next time can use.

    Attributes:
        names: of the linear maps and of the sites, in the order they run; every list in a record follows it.
    """

    def __init__(self, model: nn.Module, data: Data) -> None:
        self.model, self.data = model, data
        self.power = Power()
        self.probe = data.real(data.test[:SAMPLES])
        self.batch = data.real(data.train[:BATCH])
        with exact():
            self.matrices, self.sites = survey(model, self.probe[:2])
        self.names = {"matrices": [m.name for m in self.matrices], "sites": [s.name for s in self.sites]}
        self.names["normalizers"] = [s.name for s in self.sites if s.normalizes]

    def record(self) -> dict[str, Any]:
        """Everything measured at the end of an epoch; decimal logs where the key says so."""
        with exact():
            norms = [self.power.norm(m) for m in self.matrices]
            frobenius = [m.module.weight.detach().double().norm() for m in self.matrices]
            columns, totals = self.normalizers(norms)
            columns |= {"norm": _numbers(norms), "frobenius": _numbers(frobenius)}
            slopes = self.slopes()
            train = self.scores(self.data.train[:EVAL], self.data.labels[:EVAL])
            test = self.scores(self.data.test, self.data.test_labels)
        more: dict[str, float | None] = {
            "log10_P_w": _log10(columns["norm"]),
            "log10_P_w_frobenius": _log10(columns["frobenius"]),
            "jacobian_max": float(slopes.max()),
            "jacobian_median": float(slopes.median()),
            "weights": float(torch.stack(frobenius).norm()),
            "gradient": self.gradient(),
        }
        return {"train": train, "test": test, "totals": totals | more, "columns": columns}

    def normalizers(self, norms: list[torch.Tensor]) -> tuple[dict[str, list[Any]], dict[str, float]]:
        """σ at every site, and the products over the normalizers."""
        on_batch = observe(self.model, self.sites, self.batch, train=True)
        deployed = observe(self.model, self.sites, self.batch, train=False)
        folded, rows = list(norms), []
        for site, seen, as_run in zip(self.sites, on_batch, deployed, strict=True):
            running = running_sigma(site.module)
            used = as_run if running is None else running
            gamma = gain(site.module).to(used.device)
            l2, most = _products(site, gamma, used)
            rows.append(torch.stack([*_three(seen), *_three(used), l2, most, gamma.max()]))
            if site.normalizes:
                self._fold(site, gamma, used, most, folded)
        table = torch.stack(rows).tolist() if rows else []  # one transfer
        columns = {
            "sigma": [row[:3] for row in table],
            "running": [row[3:6] for row in table],
            "gamma_over_sigma": [row[6:8] for row in table],
            "gamma_max": [row[8] for row in table],
        }
        normal = [row for site, row in zip(self.sites, table, strict=True) if site.normalizes]
        return columns, _totals(normal) | {"log10_folded": _log10(_numbers(folded))}

    def _fold(
        self, site: Site, gamma: torch.Tensor, used: torch.Tensor, most: torch.Tensor, folded: list[torch.Tensor]
    ) -> None:
        """The normalizer's gain into the matrix before it: exactly for BatchNorm, by its largest value otherwise."""
        if site.source is None:
            folded.append(most)
        elif running_sigma(site.module) is not None:
            folded[site.source] = self.power.norm(self.matrices[site.source], gamma / used)
        else:
            folded[site.source] = folded[site.source] * most

    def slopes(self) -> torch.Tensor:
        """‖J(x)‖ at each probe image, exactly: the largest singular value of the Jacobian of the logits, eval mode."""
        with modes(self.model, normalizers_train=False), torch.enable_grad():
            x = self.probe.clone().requires_grad_()
            logits = self.model(x)
            rows = [
                torch.autograd.grad(logits[:, k].sum(), x, retain_graph=True)[0].flatten(1)
                for k in range(logits.shape[1])
            ]
        jacobian = torch.stack(rows, 1).double()  # (samples, classes, pixels)
        if not jacobian.isfinite().all():
            return torch.full((len(jacobian),), math.inf)
        largest = torch.linalg.eigvalsh(jacobian @ jacobian.mT)[:, -1]
        return largest.clamp_min(0).sqrt()

    @torch.no_grad()
    def scores(self, images: torch.Tensor, labels: torch.Tensor) -> list[float]:
        """Loss and accuracy in eval mode."""
        loss = hits = torch.zeros((), device=images.device)
        with modes(self.model, normalizers_train=False):
            for some, right in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
                logits = self.model(self.data.real(some))
                loss = loss + F.cross_entropy(logits, right, reduction="sum")
                hits = hits + (logits.argmax(-1) == right).sum()
        return [float(loss) / len(labels), float(hits) / len(labels)]

    def gradient(self) -> float | None:
        """Norm of the last step's gradient; None before the first."""
        grads = [p.grad.norm() for p in self.model.parameters() if p.grad is not None]
        return float(torch.stack(grads).norm()) if grads else None


@contextmanager
def exact() -> Iterator[None]:
    """float32 products without TF32, and no trial of algorithms for shapes used once, while measuring."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    cuda.allow_tf32 = cudnn.allow_tf32 = cudnn.benchmark = False
    try:
        yield
    finally:
        cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def _three(values: torch.Tensor) -> list[torch.Tensor]:
    """Smallest, root mean square, largest."""
    return [values.min(), values.square().mean().sqrt(), values.max()]


def _products(site: Site, gamma: torch.Tensor, sigma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """‖γ/σ‖₂ (the slide's) and max γ/σ (the true constant); per-sample normalizers: rms and smallest σ of the batch."""
    if running_sigma(site.module) is not None or not site.normalizes:
        ratio = gamma.double() / sigma
        return ratio.norm(), ratio.max()
    return gamma.double().norm() / sigma.square().mean().sqrt(), gamma.max() / sigma.min()


def _totals(rows: list[list[float]]) -> dict[str, float]:
    """Products over the normalizers, rows as in ``Gauge.normalizers``."""
    totals: dict[str, float] = {}
    for k, how in enumerate(("min", "rms", "max")):
        totals[f"log10_prod_inv_sigma_{how}"] = 0.0 - _log10([row[3 + k] for row in rows])
        totals[f"log10_prod_inv_sigma_batch_{how}"] = 0.0 - _log10([row[k] for row in rows])
    totals["log10_prod_l2"] = _log10([row[6] for row in rows])
    totals["log10_prod_max"] = _log10([row[7] for row in rows])
    totals["below_one"] = sum(row[4] < 1 for row in rows)
    return totals


def _log10(values: list[float]) -> float:
    """Sum of decimal logs."""
    return math.fsum(math.log10(max(v, FLOOR)) if math.isfinite(v) else v for v in values)


def _numbers(scalars: list[torch.Tensor]) -> list[float]:
    """Scalars in one transfer."""
    numbers: list[float] = torch.stack([scalar.detach().double() for scalar in scalars]).tolist()
    return numbers
