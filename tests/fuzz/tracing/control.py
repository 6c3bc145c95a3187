"""Control flow that looks at data, whichever way the data leave the tensors."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.fuzz.oracle import went
from tests.fuzz.tracing.trick import Told, Trick, below, steep, trick


def counted_up(x: Tensor) -> Tensor:
    return torch.arange(x.numel()).to(x).reshape(x.shape)


CONDITIONS: dict[str, tuple[Callable[[Tensor], object], Callable[[Tensor], Tensor]]] = {
    "bool": (lambda x: bool(x.sum() > 0.5 * x.numel()), lambda x: x.abs() + 1),
    "and": (lambda x: bool((x > 0).all() and x.max() > 0.1), torch.abs),
    "equal": (lambda x: torch.equal(x.relu(), x), torch.abs),
    "Tensor.equal": (lambda x: x.abs().equal(x), torch.abs),
    "allclose": (lambda x: torch.allclose(x, torch.zeros_like(x), atol=0.1), below(0.01)),
    "Tensor.allclose": (lambda x: x.allclose(x.mean(), atol=0.1), below(0.01)),
    "is_nonzero": (lambda x: torch.is_nonzero((x > 0).all()), torch.abs),
    "in": (lambda x: 5.0 in x.round(), below(5.2)),
    "int of item": (lambda x: int(x.sum().round().long().item()) > 3, below(5.0)),
    "item": (lambda x: x.max().item() < 0, lambda x: -x.abs()),
    "float": (lambda x: float(x.flatten()[0]) > 1.5, below(2.0)),
    "numel of a mask": (lambda x: x[x > 0].numel() == x.numel(), torch.abs),
    "shape of a mask": (lambda x: x[x > 0].shape[0] == x.numel(), torch.abs),
    "size of masked_select": (lambda x: x.masked_select(x > 0).size(0) == x.numel(), torch.abs),
    "len of nonzero": (lambda x: len((x > 0).nonzero()) == x.numel(), torch.abs),
    "where of one": (lambda x: torch.where(x > 0)[0].numel() == x.numel(), torch.abs),
    "count_nonzero": (lambda x: int(torch.count_nonzero(x > 0)) == x.numel(), torch.abs),
    "unique": (lambda x: x.round().unique().numel() == 1, below(2.0)),
    "tolist": (lambda x: min(x.flatten().tolist()) > 0, torch.abs),
    "iteration": (lambda x: all(v > 0 for v in x.flatten()), torch.abs),
    "python max": (lambda x: float(max(x.flatten())) < 0, lambda x: -x.abs()),
    "argmax": (lambda x: int(x.flatten().argmax()) == 0, lambda x: -counted_up(x)),
    "format": (lambda x: float(f"{x.flatten()[0]:.3f}") > 1.5, below(2.0)),
    "repr": (lambda x: "-" not in repr(x), torch.abs),
    "numpy": (lambda x: bool((x.detach().numpy() > 0).all()), torch.abs),
    "asarray": (lambda x: bool(np.asarray(x.detach()).min() > 0), torch.abs),
    "isfinite of log": (lambda x: bool(torch.isfinite(x.log()).all()), torch.abs),
    "bincount": (lambda x: torch.bincount(x.clamp(0, 4).long().flatten()).numel() > 3, below(4.0)),
    "a shape of zeros": (lambda x: torch.zeros(int((x > 0).sum())).numel() == x.numel(), torch.abs),
    "length of split": (lambda x: len(torch.arange(9).split(1 + int(x.sum() > 3))) == 5, below(4.0)),
    "hash of storage": (lambda x: x.detach().clone().untyped_storage()[7] < 128, torch.abs),
    "bits": (lambda x: bool((x.detach().double().view(torch.int64) >= 0).all()), torch.abs),
    "sort order": (lambda x: x.flatten().sort().indices.tolist()[0] == 0, lambda x: counted_up(x)),
}  # fmt: skip


@trick
def condition(rng: Random, width: int) -> Trick:
    name = rng.choice(list(CONDITIONS))
    ask, hint = CONDITIONS[name]
    factor = steep(rng)

    def forward(m: Any, x: Tensor) -> Tensor:
        return factor * x if went(ask(x)) else x * 1.0

    return Trick(Told(f"{name} decides, times {factor}", forward), hint=hint)


@trick
def condition_of_layers(rng: Random, width: int) -> Trick:
    name = rng.choice(list(CONDITIONS))
    ask, hint = CONDITIONS[name]
    plain, other = nn.Linear(width, width), nn.Linear(width, width)
    with torch.no_grad():
        other.weight.mul_(steep(rng))

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.other(x) if went(ask(x)) else m.plain(x)

    return Trick(Told(f"{name} chooses a layer", forward, plain=plain, other=other), hint=hint)


@trick
def loop(rng: Random, width: int) -> Trick:
    def halving(m: Any, x: Tensor) -> Tensor:
        while went(bool(x.norm() > 2)):
            x = x / 2
        return x

    def growing(m: Any, x: Tensor) -> Tensor:
        for _ in range(int(went(min(4, int(x.abs().max()))))):
            x = 3 * x
        return x

    def trying(m: Any, x: Tensor) -> Tensor:
        try:
            torch.linalg.cholesky(torch.diag(x.flatten()[:2]))
        except RuntimeError:
            went("failed")
            return x * 1.0
        return 20 * x

    chosen = rng.choice([halving, growing, trying])
    return Trick(Told(chosen.__name__, chosen), hint=rng.choice([torch.abs, below(3.3)]))


@trick
def chosen_index(rng: Random, width: int) -> Trick:
    table = torch.tensor([1.0, steep(rng), 2.0, 0.5], dtype=torch.float64)
    kind = rng.choice(["item", "index", "list", "getitem", "gather", "bucketize"])

    def forward(m: Any, x: Tensor) -> Tensor:
        at = (x.sum().abs().long() % 4).clamp(0, 3)
        if kind == "item":
            return x * m.table[went(int(at))]
        if kind == "list":
            return x * [1.0, 30.0, 2.0, 0.5][went(int(at))]
        if kind == "getitem":
            return x * m.table[at]
        if kind == "gather":
            return x * m.table.gather(0, at.reshape(1))
        if kind == "bucketize":
            return x * m.table[torch.bucketize(x.sum(), torch.tensor([-1.0, 0.0, 1.0]).to(x))]
        return x * m.table.index_select(0, at.reshape(1))

    return Trick(Told(f"table by {kind}", forward, table=table), hint=below(0.6))
