"""`curvature`: all numbers about the Hessian of a loss, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.answers import TOO_MANY, answered
from normgauge.core.curvature import Condition, Curvature, Density, Eigenvalue, LayerCurvature
from normgauge.core.errors import InputError
from normgauge.geometry.hessian.graph import Loss, as_batches, size_of
from normgauge.geometry.hessian.lanczos import eigenvalues, solve
from normgauge.geometry.hessian.operator import dense_matrix
from normgauge.geometry.hessian.product import Product, by_layer, scale_free, zero_tensors
from normgauge.geometry.hessian.refusals import abridged_names
from normgauge.geometry.hessian.stochastic import (
    PROBES,
    SAMPLES,
    STEPS,
    estimate_trace,
    exact_density,
    spectral_density,
)

SMALL = 1000  # parameters: up to here all eigenvalues are computed
CUTOFF = 1e-6
SEARCH = 60  # further products for the smallest eigenvalue
ROUGH = 1e-2  # tolerance of the smallest eigenvalue and of blocks
Report = Callable[[str, float], None]
FLOAT32_NOTE = "computed in float32: the network's own rounding is not part of the errors; float64 has less of it"


@answered({TOO_MANY: "inputs and targets go together: curvature(model, loss, (inputs, targets))"})
def curvature(
    model: nn.Module,
    loss: Loss | None = None,
    batches: Any = (),
    *,
    objective: Callable[[nn.Module, Any], Tensor] | None = None,
    mode: str = "eval",
    dtype: torch.dtype | None = None,
    top: int = 5,
    density: bool = False,
    layers: bool = True,
    tolerance: float = 1e-6,
    samples: int = SAMPLES,
    probes: int = PROBES,
    steps: int = STEPS,
    cutoff: float = CUTOFF,
    keep: bool | None = None,
    seed: int = 0,
    progress: Report | None = None,
) -> Curvature:
    """The curvature of a loss at the model's weights; the model is left as it was.

    Args:
        model: any module.
        loss: called as ``loss(output, target)``; must return a scalar, the mean over the batch.
        batches: batches ``(input, target)``, one such pair, a loader or a data set.
        objective: instead of ``loss``, called as ``objective(model, batch)``, for batches of any other form.
        mode: ``eval`` or ``train``.
        dtype: precision; the model's own by default.
        top: how many of the largest eigenvalues.
        density: estimate the whole spectrum too, for ``probes`` times ``steps`` products. Up to 1000 parameters all
            eigenvalues are computed instead, asked for or not.
        layers: the largest eigenvalue of each layer's block too.
        tolerance: relative, of the eigenvalues.
        samples: random vectors of the trace.
        probes: random vectors of the density.
        steps: products each of them takes.
        cutoff: eigenvalues below this share of the largest do not count for the condition number.
        keep: as for `Product`.
        seed: of all random vectors.
        progress: called with a stage and the fraction of it done.

    Returns:
        Plain numbers, each with its error.

    Raises:
        InputError: for a model, loss or batch that cannot be measured; the message says which and why.
    """
    if top < 1:
        raise InputError(f"top: expected at least 1 eigenvalue, got {top}")
    begun = time.process_time()
    stage = partial(partial, progress or (lambda stage, fraction: None))  # a callback for each stage
    data = as_batches(batches)
    product = Product(model, loss, data, objective=objective, mode=mode, dtype=dtype, keep=keep, seed=seed)
    made: dict[str, int] = {}

    def booked(what: str) -> None:  # products made since the last call
        if new := product.count - sum(made.values()):
            made[what] = new

    found, krylov = eigenvalues(product, top, tolerance=tolerance, seed=seed, progress=stage("largest eigenvalues"))
    booked("eigenvalues")
    bottom = solve(krylov, 0, 1, tolerance=ROUGH, products=SEARCH, progress=stage("smallest eigenvalue"))
    booked("smallest")
    blocks = by_layer(product.names)
    places = torch.arange(product.size, device=product.device)
    parts = {layer: torch.cat([places[product.blocks[name]] for name in names]) for layer, names in blocks.items()}
    total, each = estimate_trace(product, samples, krylov=krylov, parts=parts, seed=seed + 1, progress=stage("trace"))
    booked("trace")
    sharp, _ = eigenvalues(scale_free(product), 1, tolerance=ROUGH * tolerance**0.5, seed=seed + 2)
    booked("scale-free sharpness")
    tops = _block_tops(product, blocks, seed + 3, stage("layers")) if layers else {}
    booked("layers")
    spectrum: Density | None = None
    condition: Condition | None = None
    if product.size <= SMALL:
        values = torch.linalg.eigvalsh(dense_matrix(product).double()).flip(0).tolist()
        spectrum, condition = exact_density(values), condition_number(values, cutoff)
    elif density:
        spectrum = spectral_density(
            product, found, probes=probes, steps=steps, seed=seed + 4, progress=stage("density")
        )
    booked("density")
    return Curvature(
        model=type(model).__name__,
        mode=mode,
        precision=str(product.dtype).removeprefix("torch."),
        parameters=product.size,
        samples=sum(size_of(batch, i) for i, batch in enumerate(data)),
        batches=len(data),
        loss=product.loss,
        gradient_norm=float(product.gradient.double().norm()),
        eigenvalues=tuple(found.eigenvalue(i) for i in range(len(found.values))),
        smallest=bottom.eigenvalue(0),
        trace=total,
        sharpness_scale_free=sharp.eigenvalue(0),
        layers=tuple(LayerCurvature(name, parts[name].numel(), each[name], tops.get(name)) for name in blocks),
        density=spectrum,
        condition=condition,
        converged=found.converged,
        products=made,
        notes=(*product.notes, *_notes(product)),
        seconds=time.process_time() - begun,
    )


def _block_tops(
    product: Product, blocks: Mapping[str, tuple[str, ...]], seed: int, report: Callable[[float], None]
) -> dict[str, Eigenvalue]:
    found = {}
    for i, (name, names) in enumerate(blocks.items()):
        pair, _ = eigenvalues(product.block(names), 1, tolerance=ROUGH, products=SEARCH, seed=seed)
        found[name] = pair.eigenvalue(0)
        report((i + 1) / len(blocks))
    return found


def condition_number(values: Sequence[float], cutoff: float = CUTOFF) -> Condition:
    """λ_max over the smallest |λ| of at least ``cutoff``·λ_max; needs all eigenvalues.

    Raises:
        InputError: for a cut-off outside 0 to 1.
    """
    if not 0 < cutoff < 1:
        raise InputError(f"cutoff: expected a share of the largest eigenvalue between 0 and 1, got {cutoff}")
    largest = max(abs(value) for value in values)
    kept = [abs(value) for value in values if abs(value) >= cutoff * largest and value != 0]
    return Condition(largest / min(kept) if kept else 1.0, cutoff, len(kept))


def _notes(product: Product) -> list[str]:
    notes = [FLOAT32_NOTE] if product.dtype == torch.float32 else []
    zero = zero_tensors(product)
    if zero:
        notes.append(
            f"tensors that are zero have no scale and drop out of the scale-free sharpness: {abridged_names(zero)}"
        )
    return notes
