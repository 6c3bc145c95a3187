"""The largest slope that can be found in a scope with a given amount of work."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normgauge.core.errors import InputError
from normgauge.instrument.probe.chains import (
    CORNERED,
    REFINE_EVERY,
    REFINE_STEPS,
    Chains,
    kind_of,
    move_chains,
    refine_chains,
    turn_corners,
)
from normgauge.instrument.probe.corners import CORNER
from normgauge.instrument.probe.domain import Domain, landmarks
from normgauge.instrument.probe.jacobian import (
    AGAIN_OUTPUTS,
    CONVERGED,
    NEARLY,
    TopPair,
    random_rows,
    top_pair,
    top_pair_runs,
)
from normgauge.instrument.probe.linearize import Function, Progress, Quick, SampleMap, row_norms, unit_rows
from normgauge.instrument.probe.secant import HALVINGS, SecantSlopes, confirmed_slopes, secant_slopes
from normgauge.instrument.probe.stand import Stand
from normgauge.instrument.probe.work import CLIMB, GRAPH, KINKED_CLIMB, PULL

MOST_STEPS, MOST_KINKED, MOST_WIDE = 512, 256, 128  # moves; of networks with kinks; of many chains at once
FEWEST_KINKED = 4  # of the longest runs, where a move with a gradient costs what two without it do
CORNERS = CORNERED.count("corner")
WIDE_BUDGET = 0.12  # seconds of counted work for many chains at once
LANDMARK_STEPS, BRIEF_STEPS = 6, 2
NEARER = (1e-2, 1e-4, 0.0)  # of the way from a sample to a mark, what is left
SECANTS, FEWEST_HALVINGS = 1.0, 2  # seconds of counted work in which secants are halved
SHOWN = 1.1  # times a difference quotient: what a slope that is known otherwise may be said to be
RUNAWAY = 600.0  # seconds after which a climb is cut short: the work counted was no guide at all


@dataclass(frozen=True, slots=True)
class Found:
    """Lower bounds, as natural logarithms.

    Attributes:
        log_lower: float64 (samples,), the steepest slope found from each sample; −inf where none was.
        log_best: the largest of them.
        witness: where the largest was found, in words.
        calls: how often the function ran.
        steps: moves of the search; the same number and seed give the same result.
        lengths: how far the input moved and how far the output did, where the largest was found; None where none was.
        cut: whether the clock ended the search before all its moves: another run may find something else.
        steepest: the most sensitive sample, and the direction, a unit vector, in which it is most sensitive itself.
    """

    log_lower: Tensor
    log_best: float
    witness: str
    calls: int
    steps: int
    lengths: tuple[float, float] | None = None
    cut: bool = False
    steepest: tuple[int, Tensor] | None = None

    def __post_init__(self) -> None:
        # one number a sample is what travels; every bound that it meets lies in main memory
        object.__setattr__(self, "log_lower", self.log_lower.cpu())


def affordable_moves(budget: float, cost: float, most: int = MOST_STEPS, fewest: int = REFINE_EVERY) -> int:
    """The largest power of two, 8 to 512, of moves of ``cost`` seconds that fit ``budget``; 0 without a budget."""
    if budget <= 0:
        return 0
    count = int(min(most, budget / cost))
    return max(fewest, 1 << max(count, 1).bit_length() - 1)


def affordable_halvings(run: float) -> int:
    """How often a secant is halved, 2 to 14 times, where one run of the network is ``run`` seconds of counted work."""
    return max(FEWEST_HALVINGS, min(HALVINGS, int(SECANTS / run)))


def search(
    function: Function,
    x: Tensor,
    samples: int,
    radius: float,
    *,
    budget: float = 2.0,
    seed: int = 0,
    progress: Progress | None = None,
    output_axis: int = 0,
    steps: int | None = None,
    quick: Quick | None = None,
    alone: bool = False,
    brief: bool = False,
    marks: Tensor | None = None,
    first: Tensor | None = None,
    floor: Tensor | None = None,
) -> Found:
    """Look for the steepest slope of ``function`` at, around or away from the samples of ``x``.

    lower(x₀) = max ‖J(x)ᵀu‖ / ‖u‖ over the points x tried with ‖x − x₀‖ ≤ radius, each moved by a random 1e-9 so that
    no unit sits on its kink, and confirmed by a difference quotient; or a secant slope less its rounding error. With
    radius 0 the smaller of the values at x₀ itself and 1e-9 beside it.

    The number of moves is the largest power of two, at most 512, that the work of a move (`probe.work`) lets into the
    budget. The work is counted, so the same network and samples get the same moves and the same result everywhere.
    Moves: ascent along the gradient of log‖J(x)ᵀu‖ where the network has second derivatives or kinks (`probe.kinks`);
    random, sparse and singular directions with adaptive lengths; corners of linear pieces (`probe.corners`).

    Holds:  below the Lipschitz constant on the scope, up to rounding; nothing is said about how far below.
    Source: mean value theorem; the adaptive lengths follow I. Rechenberg's success rule, 1973.

    Args:
        function: float64 tensor of x's shape to a tensor; samples do not influence each other.
        x: the points, sample after sample along axis 0. With samples = 1 the whole tensor is one point.
        samples: number of samples.
        radius: 0 for the points themselves, inf for anywhere, else of the L2 ball around every sample.
        budget: seconds of counted work, no clock's; the Jacobians at the samples are computed whatever they cost.
        seed: of all random choices; the global generator is left alone.
        progress: called with a stage and the fraction done.
        output_axis: axis of the output along which the samples lie.
        steps: fixed number of moves in place of one that fits the budget.
        quick: opens the same function in single precision, which then says where to look; every slope that is
            returned is computed and confirmed by ``function`` itself.
        alone: whether ``function`` may be given more samples than ``x`` holds; a small network with kinks is then
            searched from many copies of each, and what they find is computed and confirmed on ``x``'s own shape.
        brief: half the budget, no secants where a large network has slopes without them, and one look at a mark.
        marks: further points to look at, one a sample, like ``x``; the way to them is looked at too.
        first: directions to begin with, (samples, inputs), where they are known to be steep.
        floor: logs of slopes that the network is known to have at the samples, (samples,).

    Returns:
        What was found. Where the output's axis cannot be divided among the samples, one value for the whole tensor.

    Raises:
        InputError: for a negative radius, or a batch that is not float64 or does not hold that many samples.
    """
    if not radius >= 0:
        raise InputError(f"radius: expected 0, a positive number or inf, got {radius}")
    tell = progress or (lambda stage, fraction: None)
    network = SampleMap(function, x, samples, output_axis)
    domain = Domain(network.start, float(radius))
    network.reach = domain.room
    budget = budget / (1 + brief)
    generator = torch.Generator().manual_seed(seed)
    points = domain.jitter(network.start, random_rows(network.start, generator))
    tell("jacobians", 0.0)
    with network.scouted(quick) as scout:
        here = scout.at(points)
        start = random_rows(points, generator)
        if first is not None and first.shape == start.shape and bool(first.isfinite().all()):
            start = torch.where(first.any(1, keepdim=True), first.to(start), start)
        chains = Chains.begin(points, top_pair(here, start, settled=NEARLY if brief else CONVERGED))
        stands, tracked = [Stand.of(chains, network.samples)], here.tracked
        del here  # a graph of the whole network
        taken, cut = 0, False
        if radius > 0:
            if marks is not None:
                stands += _visit_marks(scout, domain, chains, generator, marks.reshape(network.start.shape), brief)
            budget = _visit_landmarks(scout, domain, chains, generator, budget, steps)
            many = scout.widened() if alone else scout
            budget = min(budget, WIDE_BUDGET / (1 + brief)) if many.samples > samples else budget
            taken, cut = _climb(many, Domain(many.start, domain.radius), chains, generator, budget, steps, tell, stands)
            network.calls += many.calls if many is not scout else 0
    stood = stands[0] if scout is network else stands[0].again(network)
    if radius == 0:
        if not tracked:
            return _untracked(network)
        return _with_direction(_at_points(network, points, stood.pair, floor), stood)
    met = [confirmed_slopes(network, points, stood.pair)]
    reached = met[0].slope
    likely = (1 - network.rounding) / (1 - scout.rounding) / (1 + 32 * scout.eps)  # of what the scout saw
    for stand in reversed(stands[1:]):  # the last are the steepest, and often leave nothing to the others
        if bool((stand.pair.sigma * likely > reached[stand.origin]).any()):
            shown = stand if many is network else stand.again(network)
            met.append(confirmed_slopes(network, shown.points, shown.pair))
            reached = reached.scatter_reduce(0, stand.origin, met[-1].slope, "amax")
    known = bool((met[0].slope > 0).all())
    halvings = affordable_halvings(network.work.seconds) if known else HALVINGS
    if brief and known and halvings < HALVINGS:
        met.append(met[0])
    else:  # Where autograd's slopes are confirmed, secants rarely add to them: long runs halve less often.
        # Some noise, since a step function has no steepest direction.
        along = unit_rows(stood.pair.right + 0.1 * unit_rows(random_rows(points, generator)))
        far = domain.project(points + domain.unit_step[:, None] * along)
        met.append(secant_slopes(network, points, far, halvings))
    return _with_direction(replace(_conclude(met, reached, network.calls, taken), cut=cut), stood)


def _untracked(network: SampleMap) -> Found:
    nothing = torch.full((network.samples,), -math.inf, dtype=torch.float64)
    why = "none at the samples: autograd does not follow the output (does the forward run under torch.no_grad?)"
    return Found(nothing, -math.inf, why, network.calls, 0)


def _with_direction(found: Found, start: Stand) -> Found:
    """What was found, with the direction at its most sensitive sample."""
    worst = int(found.log_lower.argmax())
    return replace(found, steepest=(worst, start.pair.right[worst]))


def _at_points(network: SampleMap, points: Tensor, pair: TopPair, floor: Tensor | None = None) -> Found:
    """The Jacobians at the samples: never more than at the exact point, never more than beside it.

    On a kink autograd's value at the exact point may exceed the truth; beside it, a normalizer of a nearly constant
    sample may be steeper than the upper bound at the exact point allows. What rounding takes from a slope is given back
    where a ``floor`` knows better.
    """
    exact = row_norms(network.at(network.start, once=True).pull(pair.left)) * (1 - network.rounding)
    sigma = torch.minimum(pair.sigma, torch.where(exact.isfinite(), exact, 0.0))
    shown = confirmed_slopes(network, points, pair)
    sigma = torch.minimum(sigma, shown.slope)
    if floor is not None and len(floor) == len(sigma):
        known = torch.minimum(floor.exp().to(sigma), SHOWN * shown.slope)
        sigma = torch.maximum(sigma, known)
    best = int(sigma.argmax())
    where = f"jacobian at sample {best}"
    lengths = (float(shown.run[best]), float(shown.rise[best])) if sigma[best] > 0 else None
    return Found(sigma.log(), float(sigma[best].log()), where, network.calls, 0, lengths)


def _visit_landmarks(
    network: SampleMap, domain: Domain, chains: Chains, generator: torch.Generator, budget: float, steps: int | None
) -> float:
    """Offer the chains what fits the budget of the places where networks are often steep; returns what is left of it.

    With a fixed number of moves all of them are visited.
    """
    run = network.work.seconds
    budget -= run * (2 + top_pair_runs(network))  # for the Jacobians at the samples, and to confirm them
    visit = run * top_pair_runs(network, LANDMARK_STEPS, AGAIN_OUTPUTS)
    for mark in landmarks(network.start, random_rows(network.start, generator)):
        if steps is None and visit > budget:
            break
        points = domain.project(domain.jitter(mark, random_rows(mark, generator)))
        start = chains.pair.right + 0.1 * random_rows(mark, generator)
        pair = top_pair(network.at(points), start, exact_outputs=AGAIN_OUTPUTS, steps=LANDMARK_STEPS)
        chains.offer(points, pair)
        budget -= visit
    return budget


def _visit_marks(
    network: SampleMap, domain: Domain, chains: Chains, generator: torch.Generator, marks: Tensor, brief: bool
) -> list[Stand]:
    """Offer the chains the points asked for; on the way there slopes are smaller, and easier to confirm."""
    stands, steps = [], BRIEF_STEPS if brief else LANDMARK_STEPS
    for short in NEARER[-1:] if brief else NEARER:
        mark = domain.project(marks + short * (network.start - marks))
        points = domain.project(domain.jitter(mark, random_rows(mark, generator)))
        start = chains.pair.right + 0.1 * random_rows(mark, generator)
        chains.offer(points, top_pair(network.at(points), start, exact_outputs=AGAIN_OUTPUTS, steps=steps))
        stands.append(Stand.of(chains, network.samples))
    return stands


def _climb(
    network: SampleMap, domain: Domain, chains: Chains, generator: torch.Generator, budget: float, steps: int | None,
    tell: Progress, stands: list[Stand],
) -> tuple[int, bool]:  # fmt: skip
    """Make ``steps`` moves, or what fits the budget; ``stands`` grows by the places found.

    Returns:
        The number of moves, and whether the clock ended them.
    """
    begun, samples = time.monotonic(), len(chains.points)
    wide = network.samples > samples
    if wide:
        chains.spread(network.samples // samples)
    if steps or (steps is None and budget > 0):
        refine_chains(network, chains)  # which tells whether there are second derivatives, and what a move takes
    planned = _planned_moves(network, chains, budget, wide) if steps is None else steps
    if not planned and torch.equal(chains.points, stands[0].points):  # all that is known of them is known already
        return 0, False
    taken = 0
    while taken < planned and time.monotonic() - begun < RUNAWAY:
        if taken and taken % REFINE_EVERY == 0:
            refine_chains(network, chains)
        kind = kind_of(taken, chains, wide)
        if kind == "corner":
            turn_corners(network, domain, chains, taken * CORNERS // len(CORNERED), generator)
        else:
            move_chains(network, domain, chains, kind, generator)
        taken += 1
        if domain.anywhere and taken * 4 % planned == 0:
            stands.append(Stand.of(chains, samples))
            chains.concentrate()
        tell("search", taken / planned)
    chains.slope = None  # nothing follows it any more
    refine_chains(network, chains)
    stands.append(Stand.of(chains, samples))
    return taken, taken < planned


def _planned_moves(network: SampleMap, chains: Chains, budget: float, wide: bool) -> int:
    """How many moves fit the budget: fewer where one is longer, or has a direction or many chains to it."""
    refine = top_pair_runs(network, REFINE_STEPS, AGAIN_OUTPUTS)
    climb = KINKED_CLIMB if network.work.kinks else CLIMB
    move = (GRAPH + PULL if chains.slope is None else climb) + refine / REFINE_EVERY
    if wide:
        move += CORNERS / len(CORNERED) * (CORNER + refine)
        return affordable_moves(budget, move * network.work.seconds, MOST_WIDE)
    kinked = network.work.kinks > 0 and chains.slope is not None
    fewest = FEWEST_KINKED if kinked else REFINE_EVERY
    planned = affordable_moves(budget, move * network.work.seconds, MOST_STEPS, fewest)
    return MOST_KINKED if kinked and planned > MOST_KINKED and not network.curved else planned


def _conclude(met: list[SecantSlopes], reached: Tensor, calls: int, steps: int) -> Found:
    """Make the result; ``met`` begins with the slopes at the samples and ends with the secants."""
    at_start, secants = met[0].slope, met[-1].slope
    lower = torch.maximum(reached, secants)
    best = int(lower.argmax())
    if secants[best] > reached[best]:
        witness = f"secant from sample {best}"
    elif reached[best] > at_start[best]:
        witness = f"jacobian found by ascent from sample {best}"
    else:
        witness = f"jacobian at sample {best}"
    return Found(lower.log(), float(lower[best].log()), witness, calls, steps, _lengths(met))


def _lengths(met: list[SecantSlopes]) -> tuple[float, float] | None:
    """Return run and rise of the steepest slope met; None without one."""
    steepest = max(met, key=lambda slopes: float(slopes.slope.max()))
    best = int(steepest.slope.argmax())
    return (float(steepest.run[best]), float(steepest.rise[best])) if steepest.slope[best] > 0 else None
