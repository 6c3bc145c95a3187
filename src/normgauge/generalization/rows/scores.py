"""One row a score; larger predicts worse generalization, and nothing is promised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from normgauge.core.certificate import Row
from normgauge.core.reading import Reading
from normgauge.generalization.case import Case
from normgauge.generalization.scores import SCORES, Ground
from normgauge.generalization.scores.ground import Effort


def rows(
    case: Case,
    *,
    reading: Reading | None = None,
    local: Reading | None = None,
    initial: nn.Module | Mapping[str, Tensor] | None = None,
    lipschitz_term: float | None = None,
    effort: Effort = "quick",
) -> Iterator[Row]:
    """Every score of the catalogue, in its order; those the network does not fit say why.

    Args:
        case: the network and its data; the network is left as it is.
        reading: of the network over all inputs, for the capacities over margin.
        local: a reading of scope point at training samples, for the local capacity over margin.
        initial: what the training started from, a state dict or a network.
        lipschitz_term: of Theorem 20, where it was worked out.
        effort: "quick" measures noise and slopes on up to 500 training samples, "full" on up to 5,000 with more draws.

    Yields:
        Rows of the family ``score``.
    """
    ground = Ground(case, reading=reading, local=local, initial=initial, lipschitz_term=lipschitz_term, effort=effort)
    for done, score in enumerate(SCORES):
        case.progress("scores", done / len(SCORES))
        yield score.row(ground)
    case.progress("scores", 1.0)
