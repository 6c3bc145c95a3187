"""The bound of the loop transformation: build the mid network, choose weights, prove one norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.interval import INF, LogInterval
from normgauge.core.rounding import log_above, size_up
from normgauge.instrument.balance import Balanced
from normgauge.instrument.compose import Composition, compose
from normgauge.instrument.loop.loop_descent import descend_loop, price
from normgauge.instrument.loop.mid_network import MidNetwork, mid_network
from normgauge.instrument.loop.uncertain import sample_rows
from normgauge.instrument.loop.weighted_loop import WeightedLoop, group_counts, loop_sizes, normal_error, product_errors
from normgauge.instrument.one_map import is_one_map
from normgauge.instrument.rules.flow import CHANCE, Context, SamplesMixed
from normgauge.instrument.session import Session
from normgauge.instrument.spectral.dense import dense_norm
from normgauge.instrument.spectral.enclosure import Enclosure
from normgauge.instrument.spectral.random_start import (
    STARTS,
    KrylovFacts,
    ends_from,
    krylov_facts,
    steps_for,
    weight_seed,
)
from normgauge.instrument.trace.again import tensors_alike
from normgauge.instrument.trace.same_path import same_numbers

MOST_NUMBERS = 130_000_000
"""Of the Krylov basis: a gigabyte in float64, and as much again for its images."""

DENSE_LIMIT = 800  # entries up to which the whole matrix costs less than a proof with random starts
FARTHEST = 1e6  # how far above what it saw a first look may put the norm: that it is finite is what counts
LEAST_STEPS = 12  # of the proof: with fewer it would say nothing
SAFE = 60.0  # log γ up to which the weights, and their squares, fit into float32
FIRST_LOOKS, ROUNDS = (1, 2, 3, 5, 9, 17, 33), 2
"""Steps after which a norm is looked at that bounds the rounding of the next, and how often the last is repeated."""


SEED_STEPS = 2.0**20  # of the largest entry: what a seed sees of a product


@dataclass(frozen=True, slots=True)
class LoopEffort:
    """How much is spent.

    Attributes:
        steps: of the descent on the weights.
        width: of the log of the bound, that its proof may cost.
        most_work: multiplications of one sample's way through the network up to which it is worth it.
    """

    steps: int = 200
    width: float = 0.15
    most_work: float = 5e8


@dataclass(frozen=True, slots=True)
class LoopBound:
    """A proved bound on the whole map.

    Attributes:
        total: its log.
        chance: that it is too small, at most.
        log_norm: log of the proved norm N of the weighted loop, which the bound is made of.
        depth: the most activations on one way, and one.
        weights: (log γ, log D).
    """

    total: float
    chance: float
    log_norm: float
    depth: int
    weights: Tensor


def loop_bound(
    session: Session,
    parts: Composition,
    known: Balanced,
    effort: LoopEffort | None = None,
    given: Tensor | None = None,
) -> LoopBound | None:
    """A bound from the ranges of slopes, by the loop transformation; the caller takes the smaller of it and ``known``.

    Args:
        session: the traced model.
        parts: its composition over all inputs.
        known: the bound that is there already.
        effort: how much to spend.
        given: (log γ, log D) to prove it with; looked for where there are none.

    Returns:
        The bound, or None where a step is neither affine nor of one input with a finite constant, where the program
        depends on the data or draws random numbers, or where rounding would drown the proof.
    """
    effort = effort or LoopEffort()
    nets = loop_networks(session, parts, known, effort)
    if nets is None or (given is not None and len(given) != sum(group_counts(nets[0]))):
        return None
    return weighted_bound(parts, *nets, effort, known.total, given)


def loop_networks(
    session: Session, parts: Composition, known: Balanced, effort: LoopEffort
) -> tuple[MidNetwork, MidNetwork] | None:
    """The mid network in float64, and in what its weights are looked for with; None where `loop_bound` is."""
    if not math.isfinite(known.total) or not _is_plain(session, parts) or not is_one_map(session):
        return None
    side_by_side = side_by_side_parts(session, parts)
    if side_by_side is None:
        return None
    net = mid_network(side_by_side, parts, torch.float64)
    if net is None or not net.uncertain or not keeps_apart(net):
        return None
    if LEAST_STEPS * STARTS * sum(net.entered) > MOST_NUMBERS or net.work > effort.most_work:
        return None
    rough = mid_network(side_by_side, parts, torch.float32) if known.total < SAFE else net
    assert rough is not None
    return net, rough


def weighted_bound(
    parts: Composition,
    net: MidNetwork,
    rough: MidNetwork,
    effort: LoopEffort,
    known: float = INF,
    given: Tensor | None = None,
) -> LoopBound | None:
    """The bound with weights given or found by descent; its chance counts where it is below the log ``known``."""
    theta = descend_loop(rough, first_weights(net), effort.steps) if given is None else given
    found = proved_loop(net, theta, effort)
    if found is not None and found.total < known:
        parts.ctx.accepted(Enclosure(LogInterval(-INF, found.log_norm), "random starts", chance=found.chance))
    return found


def _is_plain(session: Session, parts: Composition) -> bool:
    trace = parts.trace
    plain = session.exact and session.options.mode == "eval" and parts.ctx.scope.kind == "global"
    random = trace.draws or any(step.random is not None or step.trouble for step in trace.steps)
    flat = all(out.tensor.ndim for step in trace.steps for out in step.outputs)
    return plain and flat and len(trace.sources) == 1 and not random and not trace.path_dependent


def side_by_side_parts(session: Session, parts: Composition) -> Composition | None:
    """The composition of a trace of as many samples as the proof has starts.

    A single sample that the model takes alone stays what it is. None where samples interact, or another batch goes
    another way.
    """
    x, count = parts.trace.sources[0].tensor, session.samples
    options, native = session.options, session.native
    if x.ndim < 2:
        return parts
    try:
        trace = session.retrace(torch.cat([x] * -(-STARTS // count))[:STARTS])
        ctx = Context(parts.ctx.scope, STARTS, options.width, session.cache, False, native)
        found = compose(trace, options.registry, ctx)
    except (SamplesMixed, RuntimeError, ValueError, IndexError, TypeError):
        return parts if count == 1 else None
    if [s.target for s in trace.steps] != [s.target for s in parts.trace.steps] or trace.output is None:
        return None
    if not all(map(same_numbers, trace.steps, parts.trace.steps)):
        return None
    axis = found.flows[trace.end.index].axis
    whole, part = parts.trace.end.tensor, trace.end.tensor
    if whole.ndim != part.ndim or whole.shape[axis] % count:
        return None
    rows = torch.cat([sample_rows(whole, axis, count)] * -(-STARTS // count))[:STARTS]
    return found if tensors_alike(sample_rows(part, axis, STARTS), rows) else None


def keeps_apart(net: MidNetwork) -> bool:
    """Whether what enters in one sample stays in it, all the way."""
    if net.samples == 1:
        return True
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(net.samples, sum(net.entered), generator=generator, dtype=torch.float64)
    rows[1:] = 0.0
    return not bool(net.push(rows)[1:].any())


def first_weights(net: MidNetwork) -> Tensor:
    """log weights of the layers from products of gains: √(way out/way in), the Perron scaling of a chain."""
    ahead, behind = {net.source: 0.0}, {net.end: 0.0}
    for node, gains in zip(net.nodes, net.gains, strict=True):
        for out in node.step.outputs:
            arriving = [_log(g) + ahead[v] for (made, v), g in gains.items() if made == out.index]
            ahead[out.index] = _summed(arriving)
    for gains in reversed(net.gains):
        for (made, value), gain in gains.items():
            if made in behind:
                behind[value] = _summed([behind.get(value, -INF), _log(gain) + behind[made]])
    total = ahead[net.end]
    logs = [total]
    for node in net.uncertain:
        before, after = node.step.inputs[0].index, node.step.outputs[0].index
        logs.append((behind.get(after, 0.0) - ahead[before] + total) / 2)
    each = torch.tensor(logs, dtype=torch.float64).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return torch.repeat_interleave(each, torch.tensor(group_counts(net)))


def _log(gain: float) -> float:
    return math.log(gain) if gain > 0 else -INF


def _summed(logs: list[float]) -> float:
    return float(torch.logsumexp(torch.tensor(logs, dtype=torch.float64), 0))


def proved_loop(net: MidNetwork, theta: Tensor, effort: LoopEffort) -> LoopBound | None:
    """The bound for given weights: γ·N^depth, or γ·N where N ≤ 1, N the proved norm of the weighted loop."""
    loop, depth = WeightedLoop(net, theta), net.levels()[-1]
    small = sum(net.entered) <= DENSE_LIMIT
    upper = dense_loop_norm(loop) if small else random_loop_norm(loop, theta, effort.width / depth)
    if not math.isfinite(upper):
        return None
    log_norm = log_above(math.log(upper)) if upper > 0 else -INF
    log_gamma = log_above(float(loop.into[0].log()))
    total = log_above(log_gamma + price(log_norm, depth))
    return LoopBound(total, 0.0 if small else CHANCE, log_norm, depth, theta)


def dense_loop_norm(loop: WeightedLoop) -> float:
    """N from the whole matrix: its columns are off by E each, and so is it by √columns·E."""
    unit = torch.eye(sum(loop.net.entered), dtype=torch.float64)
    norm = float(torch.tensor(dense_norm(loop.push(unit)).log.hi, dtype=torch.float64).exp())
    upper = INF
    for _ in range(ROUNDS):
        error = product_errors(loop, loop_sizes(loop, upper))[0]
        upper = min(upper, size_up(norm + math.sqrt(len(unit)) * error))
    return upper


def random_loop_norm(loop: WeightedLoop, theta: Tensor, width: float) -> float:
    """N by Lanczos with random starts, but for the chance.

    A bound on N bounds the rounding of the products, which bounds N: begun with the product of all gains, each look
    proves the next.
    """
    size = sum(loop.net.entered)
    steps = min(steps_for(size, CHANCE, width), MOST_NUMBERS // (STARTS * size))
    generator = torch.Generator().manual_seed(loop_seed(loop.net, theta))
    start = torch.randn(1, STARTS, size, generator=generator, dtype=torch.float64)
    return _sharpened(loop, krylov_facts(loop.normal, start, steps))


def _sharpened(loop: WeightedLoop, facts: KrylovFacts) -> float:
    """The smallest N found: with more steps of the run, and with rounding bounded by the N found before."""
    sizes, upper = loop_sizes(loop), INF
    for steps in sorted({*(k for k in FIRST_LOOKS if k < facts.steps), facts.steps}) + [facts.steps] * ROUNDS:
        if not math.isfinite(sizes.norm):
            break
        better = math.sqrt(float(ends_from(facts, CHANCE, normal_error(loop, sizes), steps, FARTHEST).upper))
        if better < upper:
            upper = better
            sizes = loop_sizes(loop, upper)
    return upper


def loop_seed(net: MidNetwork, theta: Tensor) -> int:
    """A seed that follows from the weights of the loop and from what the network does to a fixed vector.

    Of the latter twenty bits count, so that sums in another order, on another machine, begin a proof in the same way.
    """
    mark = torch.arange(1, sum(net.entered) + 1, dtype=torch.float64).sin().expand(net.samples, -1)
    image = net.push(mark)[0]
    size = 2.0 ** (math.frexp(float(image.abs().max()))[1] - 1)
    return weight_seed(torch.cat([theta, (image / size * SEED_STEPS).round() + 0.0]))
