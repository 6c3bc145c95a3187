"""Embeddings: a discrete input has no Lipschitz constant; what can be said of the table instead."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.core.rounding import house_down, house_up
from normgauge.instrument.rules.flow import INF, Context, Flow, Gain, Transfer
from normgauge.instrument.rules.registry import Family
from normgauge.instrument.rules.worked import JUMPS, equal
from normgauge.instrument.spectral.dense import dense_norm
from normgauge.instrument.trace.step import Step, Value

rules = Family("embedding")

PAIRS_LIMIT = 1500
"""Up to this many tokens all pairs are compared."""

ROWS = 4096
"""Rows of a table that are looked at together."""


@rules.add(
    nn.Embedding, nn.EmbeddingBag, F.embedding, F.embedding_bag, torch.embedding, torch.embedding_bag, claim="X.jump"
)
def embedding(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
    """Table lookup by an index computed from the input.

    no constant exists: a small change of the input flips the index and moves the output by ‖E_i − E_j‖

    Holds:  everywhere. An integer input of the network itself is measured from its embedding on.
    Source: a discrete input has no slope; `embedding_facts` gives max‖E_i − E_j‖ and ‖E‖.
    """
    gains = tuple(Gain(ctx.full(INF)) for _ in incoming)
    if any(isinstance(v, Value) and v.tensor.is_floating_point() for v in step.inputs):
        return Transfer(gains, unknown="an embedding whose table or weights depend on the input")
    worked = equal(f"the index jumps: {JUMPS}", *(g.log for g in gains))
    return Transfer(gains, no_bound="the index of an embedding is discrete", worked=worked)


def embedding_facts(weight: Tensor) -> dict[str, Any]:
    """How far apart the tokens of an embedding table lie, and its norm.

    max_{i≠j}‖E_i − E_j‖ exactly for small vocabularies, else between the largest distance to the row farthest from
    the mean and twice that row's distance from the mean; ‖E‖₂ with respect to one-hot input.

    Args:
        weight: (vocabulary, dimension).

    Returns:
        vocabulary, dimension, max_distance (lower, upper), exact, and log_spectral, a LogInterval.
    """
    table = weight.detach().double()
    lengths = _distances(table, table.mean(0))
    exact = len(table) <= PAIRS_LIMIT
    if exact:
        lower = upper = max(float(_distances(table, row).max()) for row in table)
    else:
        lower = float(_distances(table, table[lengths.argmax()]).max())
        upper = 2 * float(lengths.max())
    return {
        "vocabulary": table.shape[0],
        "dimension": table.shape[1],
        "max_distance": (house_down(lower), house_up(upper)),
        "exact": exact,
        "log_spectral": dense_norm(weight).log,
    }


def _distances(table: Tensor, point: Tensor) -> Tensor:
    """How far each row of a table is from a point, some rows at a time."""
    return torch.cat([torch.linalg.vector_norm(some - point, dim=1) for some in table.split(ROWS)])
