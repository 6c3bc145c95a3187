"""Whose change it is: the change of a composed bound, divided among the layers so that the parts add up."""

from __future__ import annotations

import math

from normgauge.core.proof import Proof
from normgauge.core.reading import Reading

POINTS = 16  # of the midpoint rule along the way from A to B; a chain needs one
Arms = list[tuple[float, ...]]


def attribute(a: Reading, b: Reading) -> dict[str, float] | None:
    """By layer name, its part in the change of the balanced bound from a to b; steps without a layer stand under "".

    The bound of the worst sample is log U(g) for the log gains g of all steps. On the straight way from A's gains to
    B's, d log U = Σ w_k dg_k, and w_k is the part of U that flows through gain k: 1 everywhere in a chain, where the
    parts are the changes of the gains themselves. Two networks of other structure are divided if both are chains: a
    layer that only one of them has counts with its whole gain. Nothing is divided where names do not tell which layers
    are the same: one is of another kind in each, as where the places in a row have moved on, or hardly any is in both.

    Holds:  exactly for chains; within the error of the midpoint rule elsewhere.
    Source: Aumann & Shapley 1974, the value of a non-atomic game along its diagonal.

    Returns:
        None where the structure differs and is no chain or its names have moved, a gain is infinite, or a reading has
        no proof.
    """
    if a.proof is None or b.proof is None:
        return None
    first, second = _at_worst(a.proof), _at_worst(b.proof)
    if not all(math.isfinite(gain) for arms in (*first, *second) for gain in arms):
        return None
    if _structure(a.proof) == _structure(b.proof):
        return _along(a.proof, first, second)
    if not _is_chain(a.proof) or not _is_chain(b.proof) or names_moved(a, b):
        return None
    return _sums([(b.proof, second, 1.0), (a.proof, first, -1.0)])


def _at_worst(proof: Proof) -> Arms:
    """The gains that make the bound: those of the worst sample, in whichever column gives it the smaller total."""
    best: tuple[float, Arms] | None = None
    for sample in range(proof.samples):
        columns = [
            [tuple(g[sample] if isinstance(g, tuple) else g for g in getattr(step, column)) for step in proof.steps]
            for column in ("balanced", "folded")
        ]
        total, arms = min(((_flow(proof, gains)[0], gains) for gains in columns), key=lambda pair: pair[0])
        if best is None or total > best[0]:
            best = total, arms
    return [] if best is None else best[1]


def _flow(proof: Proof, gains: Arms) -> tuple[float, Arms]:
    """The total, and for each step the part of its output that comes by each of its inputs."""
    slope = dict.fromkeys(proof.sources, 0.0)
    parts: Arms = []
    for step, arms in zip(proof.steps, gains, strict=True):
        power = 2 if step.disjoint else 1
        logs = [math.inf if math.inf in (g, slope[i]) else g + slope[i] for g, i in zip(arms, step.inputs, strict=True)]
        top = max(logs)
        sizes = [1.0 if log == top else math.exp(power * (log - top)) for log in logs]
        slope[step.output] = top + math.log(math.fsum(sizes)) / power
        parts.append(tuple(size / math.fsum(sizes) for size in sizes))
    return slope[proof.output], parts


def _along(proof: Proof, first: Arms, second: Arms) -> dict[str, float]:
    """∫ Σ w_k dg_k from the first gains to the second, by layer."""
    shares: dict[str, float] = {}
    points = 1 if _is_chain(proof) else POINTS
    for point in range(points):
        t = (point + 0.5) / points
        between = [
            tuple(x + t * (y - x) for x, y in zip(a, b, strict=True)) for a, b in zip(first, second, strict=True)
        ]
        _, parts = _flow(proof, between)
        reach = {proof.output: 1.0}
        for step, part, a, b in reversed(list(zip(proof.steps, parts, first, second, strict=True))):
            through = reach.get(step.output, 0.0)
            for value, share, x, y in zip(step.inputs, part, a, b, strict=True):
                reach[value] = reach.get(value, 0.0) + through * share
                shares[step.layer] = shares.get(step.layer, 0.0) + through * share * (y - x) / points
    return shares


def _sums(sides: list[tuple[Proof, Arms, float]]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for proof, gains, sign in sides:
        for step, arms in zip(proof.steps, gains, strict=True):
            shares[step.layer] = shares.get(step.layer, 0.0) + sign * arms[0]
    return shares


def names_moved(a: Reading, b: Reading) -> bool:
    """Whether a name that both have is of another kind in each, or most of the smaller one's are not in the other."""
    first, second = ({layer.name: layer.kind for layer in reading.layers} for reading in (a, b))
    both = first.keys() & second.keys()
    return any(first[name] != second[name] for name in both) or 2 * len(both) < min(len(first), len(second))


def _structure(proof: Proof) -> object:
    steps = [(step.layer, step.output, step.inputs, step.disjoint) for step in proof.steps]
    return proof.sources, proof.output, steps


def _is_chain(proof: Proof) -> bool:
    """Every step reads what the one before it made."""
    values = [proof.sources[0], *(step.output for step in proof.steps)]
    read = [step.inputs for step in proof.steps]
    return len(proof.sources) == 1 and read == [(value,) for value in values[:-1]] and proof.output == values[-1]
