"""Hill climbing of ‖J(x)‖ from every sample at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.instrument.probe.corners import corner_points
from normgauge.instrument.probe.domain import Domain
from normgauge.instrument.probe.jacobian import AGAIN_OUTPUTS, TopPair, pair_from, random_rows, top_pair
from normgauge.instrument.probe.linearize import SampleMap, row_norms, unit_rows

MOVES = ("gradient", "noise", "gradient", "right", "gradient", "sparse", "gradient", "mix")
CORNERED = ("gradient", "corner", "gradient", "noise", "gradient", "corner", "gradient", "mix")  # of a widened map
FIRST_SCALE = {"gradient": 0.1, "noise": 0.3, "right": 0.3, "sparse": 0.5, "mix": 0.5}
GROW, SHRINK, SMALLEST = 1.6, 0.85, 1e-5
REFINE_EVERY, REFINE_STEPS = 8, 3


@dataclass(slots=True)
class Chains:
    """The state of the climb, one row a chain; replaced piece by piece as better points are found.

    Attributes:
        points: the best points so far, (samples, inputs).
        pair: singular pair at them.
        slope: gradient of log‖Jᵀu‖ there, None once the network turned out to have none.
        origin: the sample each chain began at.
        scale: length of each kind of move, (samples,), as a part of the domain's unit step.
    """

    points: Tensor
    pair: TopPair
    slope: Tensor | None
    origin: Tensor
    scale: dict[str, Tensor]

    @classmethod
    def begin(cls, points: Tensor, pair: TopPair) -> Chains:
        """Chains that stand at ``points``."""
        rows = torch.arange(len(points), device=points.device)
        scale = {kind: torch.full_like(pair.sigma, first) for kind, first in FIRST_SCALE.items()}
        return cls(points, pair, torch.zeros_like(points), rows, scale)

    def offer(self, points: Tensor, pair: TopPair, slope: Tensor | None = None) -> Tensor:
        """Move every chain for which ``points`` are steeper, and return which ones moved."""
        better = pair.sigma > self.pair.sigma
        rows = better[:, None]
        self.points = torch.where(rows, points, self.points)
        self.pair = TopPair(
            torch.where(better, pair.sigma, self.pair.sigma),
            torch.where(rows, pair.left, self.pair.left),
            torch.where(rows, pair.right, self.pair.right),
        )
        if slope is not None and self.slope is not None:
            self.slope = torch.where(rows, slope, self.slope)
        return better

    def keep(self, rows: Tensor) -> None:
        """Let chain k go on from where chain ``rows[k]`` stands."""
        self.points, self.origin = self.points[rows], self.origin[rows]
        self.pair = TopPair(self.pair.sigma[rows], self.pair.left[rows], self.pair.right[rows])
        self.slope = None if self.slope is None else self.slope[rows]
        self.scale = {kind: scale[rows] for kind, scale in self.scale.items()}

    def spread(self, copies: int) -> None:
        """Let ``copies`` chains go on from where each stands, and begin there."""
        self.keep(torch.arange(len(self.points), device=self.points.device).repeat(copies))
        self.origin = torch.arange(len(self.points), device=self.points.device)

    def concentrate(self) -> None:
        """Let the less steep half go on from where the steeper half stands: for a search that may go anywhere."""
        order = self.pair.sigma.argsort(descending=True, stable=True)
        half = len(order) // 2
        rows = torch.arange(len(order), device=order.device)
        rows[order[len(order) - half :]] = order[:half]
        self.keep(rows)


def direction(chains: Chains, kind: str, noise: Tensor) -> Tensor:
    """Unit directions of a move; ``noise`` is Gaussian, (samples, inputs)."""
    if kind == "gradient" and chains.slope is not None:
        return unit_rows(chains.slope)
    if kind == "right":
        return unit_rows(noise[:, :1].sign() * chains.pair.right + 0.1 * unit_rows(noise))
    if kind == "sparse":
        # Few coordinates: flips few units of a piecewise linear network.
        return unit_rows(noise * (noise.abs() >= noise.abs().amax(1, keepdim=True) / 2))
    if kind == "mix" and len(noise) > 2:
        return unit_rows(chains.points.roll(1, 0) - chains.points.roll(2, 0))
    return unit_rows(noise)


def refine_chains(network: SampleMap, chains: Chains) -> None:
    """Improve the singular pairs at the chains' points and take fresh gradients."""
    here = network.at(chains.points)
    pair = top_pair(here, chains.pair.right, exact_outputs=AGAIN_OUTPUTS, steps=REFINE_STEPS)
    chains.offer(chains.points, pair)
    if chains.slope is not None:
        _, slope = here.climb(chains.pair.left)
        chains.slope = slope if slope is not None and bool((row_norms(slope) > 0).any()) else None


def move_chains(network: SampleMap, domain: Domain, chains: Chains, kind: str, generator: torch.Generator) -> None:
    """One step: propose a point for every chain, score it by ‖J(x')ᵀu‖ with the chain's own u, keep what is steeper.

    Args:
        network: the network.
        domain: where to stay.
        chains: changed in place.
        kind: of move, one of `MOVES`.
        generator: of the random directions.
    """
    noise = random_rows(chains.points, generator)
    length = chains.scale[kind] * domain.unit_step[chains.origin]
    points = domain.project(chains.points + length[:, None] * direction(chains, kind, noise))
    here = network.at(points)
    left, slope = chains.pair.left, None
    if chains.slope is None:
        pulled = here.pull(left)
    else:
        pulled, slope = here.climb(left)
    better = chains.offer(points, pair_from(left, pulled, network.rounding), slope)
    rates = chains.scale[kind].new_tensor((SHRINK, GROW), dtype=torch.float32)  # whatever torch's default is
    scale = chains.scale[kind] * rates[better.long()]
    chains.scale[kind] = torch.where(scale < SMALLEST, FIRST_SCALE[kind], scale)


def turn_corners(network: SampleMap, domain: Domain, chains: Chains, turn: int, generator: torch.Generator) -> None:
    """One step to the corners of random units (`corner_points`), with the best u there: another piece has another one.

    Args:
        network: the network.
        domain: where to stay.
        chains: changed in place.
        turn: number of the step.
        generator: of the random choices.
    """
    points = corner_points(network, domain, chains.points, domain.unit_step[chains.origin], turn, generator)
    if points is not None:
        here = network.at(points)
        pair = top_pair(here, chains.pair.right, steps=REFINE_STEPS)
        chains.offer(points, pair, here.climb(pair.left)[1])


def kind_of(step: int, chains: Chains, wide: bool = False) -> str:
    """Return the kind of a numbered move: every second one follows the gradient, where there is one."""
    if wide:
        return CORNERED[step % len(CORNERED)]
    kind = MOVES[step % len(MOVES)]
    return MOVES[(step + 1) % len(MOVES)] if kind == "gradient" and chains.slope is None else kind
