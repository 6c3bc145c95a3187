"""Small problems for the rows that train, perturb or compare."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normgauge.certificates.case import Case
from normgauge.certificates.facts.cells import k_means, one_cell
from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.facts.space import CellSpace, in_cells, ramps
from normgauge.certificates.gibbs.posterior import Gaussian
from normgauge.certificates.rows.holdout import holdout_rows
from normgauge.core.certificate import Row
from normgauge.lab.training import train
from normgauge.lab.zoo import Split, mlp

WIDTH = 6
DELTA = 0.05


def points(count: int, seed: int, *, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Gaussian inputs with the class of a fixed linear map; a share ``noise`` of the labels is flipped."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, WIDTH, generator=draw)
    labels = (inputs[:, 0] + inputs[:, 1] > 0).long()
    flipped = torch.rand(count, generator=draw) < noise
    return inputs, torch.where(flipped, 1 - labels, labels)


def small(norm: str | None = "batch", seed: int = 0) -> nn.Module:
    """An untrained network for these points."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return mlp((WIDTH, 8, 2), norm=norm)


def case_of(model: nn.Module, train_data: tuple[Tensor, Tensor], **options: object) -> Case:
    """The case of a network and its training points."""
    sample = DataSample.of(train_data, "train")
    return Case(model.eval(), sample, model_outputs(model.eval(), sample), **options)  # type: ignore[arg-type]


def cut(scale: float = 1.0) -> nn.Module:
    """The map that made the classes of `points`, as two outputs −w·x and w·x with ‖w‖ = scale."""
    with torch.random.fork_rng(devices=[]):
        linear = nn.Linear(WIDTH, 2, bias=False)
    with torch.no_grad():
        linear.weight.zero_()
        linear.weight[:, :2] = scale / math.sqrt(2) * torch.tensor([[-1.0, -1.0], [1.0, 1.0]])
    return linear


def held_out(model: nn.Module, holdout: tuple[Tensor, Tensor], **options: object) -> tuple[Case, Row]:
    """The case of a network with these hold-out points, and its row by Clopper and Pearson."""
    fresh = DataSample.of(holdout, "holdout")
    case = case_of(model, points(20, 10_000), holdout=fresh, holdout_logits=model_outputs(model, fresh), **options)
    return case, next(iter(holdout_rows(case)))


def trained(data: tuple[Tensor, Tensor], norm: str | None = "batch", epochs: int = 3, seed: int = 0) -> nn.Module:
    """A network fitted to them."""
    model = small(norm, seed)
    train(model, Split(*data), epochs=epochs, batch_size=64, lr=1e-2, seed=seed)
    return model.eval()


def blobs(m: int, seed: int = 0, width: float = 0.02) -> DataSample:
    """Two tight clusters at ±1 on a line in the plane, one a class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(m) % 2
    centres = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    return DataSample(centres[labels] + width * torch.randn(m, 2, generator=generator), labels)


def space_of(sample: DataSample, *, slope: float = 1.0, name: str = "inputs", cells: int = 1) -> CellSpace:
    """These points in cells, the margin the distance to the line between the clusters."""
    assert sample.labels is not None and sample.inputs is not None
    partition = one_cell() if cells == 1 else k_means(blobs(400, seed=9).take(range(400)), cells)
    crossed, spread = in_cells(sample, 2, partition)
    margins = sample.inputs[:, 0].double() * torch.where(
        sample.labels == 1, 1.0, -1.0
    )  # distance to the boundary x = 0
    return CellSpace(
        name,
        sample,
        2,
        partition,
        crossed,
        spread,
        margins,
        slope,
        "",
        1.0,
        "error",
        ramps(margins, slope),
    )


def gaussians() -> tuple[Gaussian, Gaussian]:
    """A posterior and a prior over two tensors."""
    draw = torch.Generator().manual_seed(0)
    sizes = {"a": (3, 4), "b": (5,)}
    mean = {name: torch.randn(size, generator=draw) for name, size in sizes.items()}
    width = {name: torch.rand(size, generator=draw) + 0.1 for name, size in sizes.items()}
    start = {name: torch.randn(size, generator=draw) for name, size in sizes.items()}
    return Gaussian(mean, width), Gaussian(start, {"a": torch.tensor(0.7), "b": torch.tensor(2.0)})
