"""Problems of residual streams: one that grows with depth, and a branch that adds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from normgauge.advice.remark import Remark
from normgauge.advice.thresholds import GROWN_STREAM, NOTHING
from normgauge.advice.view import TraceView
from normgauge.instrument.trace.step import Step, Value

SUMS = {"add", "add_", "__add__", "__iadd__", "__radd__", "iadd"}


@dataclass(frozen=True, slots=True)
class Join:
    """A sum of a stream and a branch.

    Attributes:
        step: the sum.
        stream: the value that was there first.
        branch: what is added to it, made by learned weights from the stream.
    """

    step: Step
    stream: Value
    branch: Value


def joins(view: TraceView) -> list[Join]:
    """The sums at which a branch of learned layers comes back to the stream it left, in order of execution."""
    found = []
    for step in view.session.trace.steps:
        if step.kind not in SUMS or len(step.inputs) != 2:
            continue
        shape = step.outputs[0].tensor.shape
        stream, branch = sorted(step.inputs, key=lambda value: -1 if value.step is None else value.step.index)
        same = all(value.tensor.shape == shape for value in step.inputs)
        if same and _learned(view, branch, -1 if stream.step is None else stream.step.index):
            found.append(Join(step, stream, branch))
    return found


def _learned(view: TraceView, branch: Value, after: int) -> bool:
    """Whether a weight made the branch, behind the step at which the stream was made."""
    waiting, seen = [branch], set[int]()
    while waiting:
        step = waiting.pop().step
        if step is None or step.index <= after or step.index in seen:
            continue
        if view.weight(step) is not None:
            return True
        seen.add(step.index)
        waiting.extend(step.inputs)
    return False


def growing_stream(view: TraceView) -> Iterator[Remark]:
    """A stream that is a thousand times larger at its last sum than before its first: later branches drown in it."""
    found = joins(view)
    if len(found) < 2:
        return
    start, end = view.size[found[0].stream.index], view.size[found[-1].step.outputs[0].index]
    if start <= NOTHING or end - start < GROWN_STREAM:
        return
    jumps = [view.size[join.step.outputs[0].index] - view.size[join.stream.index] for join in found]
    worst = max(range(len(found)), key=jumps.__getitem__)
    yield view.remark(
        found[worst].step,
        "growing stream",
        f"adds most ({10 ** jumps[worst]:,.3g} times) to a residual stream that grows {10 ** (end - start):,.2g} times "
        f"over {len(found)} sums, so that later branches hardly count. Begin with the last layer of each branch scaled "
        "by 1/√(number of sums), put a normalizer at the end of the branches, or lower the learning rate.",
        {"log10_growth": end - start, "sums": len(found)},
    )


def dead_branch(view: TraceView) -> Iterator[Remark]:
    """A branch that is 0 for every sample while most are not; where half of them are, they were begun so on purpose."""
    found = joins(view)
    dead = [join for join in found if view.size[join.branch.index] <= NOTHING < view.size[join.stream.index]]
    if 2 * len(dead) >= len(found):
        return
    for join in dead:
        maker = join.branch.step or join.step
        yield view.remark(
            maker,
            "dead branch",
            f"is 0 for every sample, while other branches are not: what it ends adds nothing to "
            f"{view.names[join.step.index]}. Look for a gain or last weight that is 0, whether its parameters are in "
            "the optimizer, and for a ReLU that died inside; begin the branch anew, or take it out.",
            {"sums": len(found)},
        )
