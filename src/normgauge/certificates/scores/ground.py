"""What the scores of one network are taken from, each fact measured once and only when a score asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from normgauge.certificates.case import Case
from normgauge.certificates.facts.cells import Partition, k_means
from normgauge.certificates.facts.sample import DataSample, device_of
from normgauge.certificates.scores import function, norms
from normgauge.certificates.scores.flatness import Search, score_noise
from normgauge.certificates.scores.fold import folded_model
from normgauge.core.errors import InputError
from normgauge.core.reading import Reading
from normgauge.instrument.trace.copied import copied

T = TypeVar("T")
SAMPLES, FEWEST = 500, 50  # of D, for what costs a pass through the network
WORK = 2e9  # multiplications in a pass of these samples: larger networks see fewer
HEAVY = 3e7  # multiplications a sample from which searches are shorter
SEARCH, ROUGH = Search(8, 5), Search(6, 3)
PRODUCTS, FEW_PRODUCTS = 60, 20
CELLS, PER_CELL = 100, 10
CLUSTERED = 5000  # unlabeled points the cells are made from


class Fact(Generic[T]):
    """A property that is computed once; a failure is remembered too."""

    def __init__(self, measure: Callable[[Any], T]) -> None:
        self.measure, self.name, self.__doc__ = measure, measure.__name__, measure.__doc__

    def __get__(self, ground: Ground, owner: type) -> T:
        if self.name not in ground.known:
            try:
                ground.known[self.name] = self.measure(ground)
            except InputError as error:
                ground.known[self.name] = error
        found = ground.known[self.name]
        if isinstance(found, InputError):
            raise InputError(str(found))
        return found


@dataclass(frozen=True)
class Ground:
    """Facts of one case.

    Attributes:
        case: the network and its data.
        reading: of the network over all inputs, for the capacities over margin.
        local: of scope point at training samples, for the local capacity over margin.
        initial: the state dict the training started from.
        lipschitz_term: of Theorem 20, where it was worked out.
        partition: the cells of the cell sensitivity; None takes k-means cells of the unlabeled data.
        known: the facts so far.
    """

    case: Case
    reading: Reading | None = None
    local: Reading | None = None
    initial: Mapping[str, Tensor] | None = None
    lipschitz_term: float | None = None
    partition: Partition | None = None
    known: dict[str, Any] = field(default_factory=dict)

    @Fact
    def example(self) -> Tensor:
        """Two samples on the device of the network, to trace it with."""
        return self.case.train.take(range(min(2, self.case.m))).to(device_of(self.case.model))

    @Fact
    def work(self) -> float:
        """How many multiplications one sample costs."""
        return norms.multiplications(self.folded, self.example)

    @Fact
    def search(self) -> Search:
        """How hard to look for the noise the network bears."""
        return SEARCH if self.work < HEAVY else ROUGH

    @Fact
    def places(self) -> Tensor:
        """The places in D of the training samples that are looked at, evenly spread."""
        count = min(SAMPLES, max(FEWEST, int(WORK / max(1.0, self.work))), self.case.m)
        return torch.linspace(0, self.case.m - 1, count).round().long()

    @Fact
    def inputs(self) -> Tensor:
        """The inputs at ``places``."""
        return self.case.train.take(self.places)

    @Fact
    def labels(self) -> Tensor:
        """The labels at ``places``."""
        return self.case.train.truth[self.places]

    @Fact
    def folded(self) -> nn.Module:
        """The network with BatchNorm folded.

        Raises:
            InputError: for a network without parameters.
        """
        found = folded_model(self.case.model, self.example)
        if not list(found.parameters()):
            raise InputError("the network has no parameters")
        return found

    @Fact
    def weights(self) -> dict[str, Tensor]:
        """The weight matrices of the folded network, by name."""
        return norms.weight_matrices(self.folded)

    @Fact
    def moved(self) -> dict[str, Tensor]:
        """Its matrices minus those the training started from, folded as well.

        Raises:
            InputError: when these are not known or do not fit.
        """
        if self.initial is None:
            raise InputError("needs the weights the training started from; give initial=")
        start = copied(self.case.model)
        try:
            start.load_state_dict(self.initial)
        except RuntimeError as error:
            raise InputError("the initial weights do not fit the network; give a state dict of its own") from error
        return norms.weight_changes(self.weights, norms.weight_matrices(folded_model(start, self.example)))

    @Fact
    def spectral(self) -> list[float]:
        """‖W‖₂² of each weight, flattened to a matrix."""
        return norms.spectral_squares(self.weights)

    @Fact
    def frobenius(self) -> list[float]:
        """‖W‖_F² of each weight."""
        return norms.frobenius_squares(self.weights)

    @Fact
    def circular(self) -> list[float]:
        """The squared norm of each map, by the circular FFT formula."""
        return norms.convolved_squares(self.folded, self.example, circular=True)

    @Fact
    def true(self) -> list[float]:
        """The squared norm of each map as it runs."""
        return norms.convolved_squares(self.folded, self.example, circular=False)

    @Fact
    def path(self) -> float:
        """The path norm of the folded network."""
        return norms.score_path_norm(self.folded, self.example)

    @Fact
    def margin(self) -> float:
        """The 10th percentile of the margins of D."""
        return function.score_margin(self.case.logits, self.case.train.truth)

    @Fact
    def sigma(self) -> float:
        """The largest noise that costs 0.1 of the accuracy."""
        return score_noise(self.folded, self.inputs, self.labels, search=self.search)

    @Fact
    def aware(self) -> float:
        """The largest noise, in proportion to each weight, that costs 0.1 of the accuracy."""
        return score_noise(self.folded, self.inputs, self.labels, aware=True, search=self.search)

    @Fact
    def sharpness(self) -> float:
        """The largest curvature by relative changes of the weights."""
        products = PRODUCTS if self.work < HEAVY else FEW_PRODUCTS
        return function.score_spherical_sharpness(self.folded, self.inputs, self.labels, products=products)

    @Fact
    def gradient(self) -> float:
        """The mean slope of the margin."""
        return function.score_input_gradient(self.folded, self.inputs, self.labels)

    @Fact
    def cells(self) -> tuple[float, float]:
        """Cell sensitivity, and the share of D it speaks about.

        Raises:
            InputError: without unlabeled data.
        """
        fresh = self.case.unlabeled
        if fresh is None:
            raise InputError("needs unlabeled data that the training did not see; give unlabeled=")
        partition = self.partition or cells_of(fresh, seed=self.case.seed)
        train, said = (self.case.train, self.case.logits), self.case.answers(fresh)
        return function.score_cell_sensitivity(train, (fresh, said), partition)


def cells_of(fresh: DataSample, *, seed: int = 0) -> Partition:
    """100 k-means cells of unlabeled points, or one for every ten of them where there are fewer."""
    places = torch.linspace(0, len(fresh) - 1, min(CLUSTERED, len(fresh))).round().long()
    return k_means(fresh.take(places), max(1, min(CELLS, len(fresh) // PER_CELL)), seed=seed)
