"""The loss of a run in a sentence: its first and last step, where it was lowest, how far it rose, and when it broke."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from normgauge.core.store import Run
from normgauge.render.runs_data import LabelledRun, Pairs, loss_series

HARDLY, STANDING = 0.02, 100  # part of a loss by which it comes hardly lower, and steps to tell
BACK = 0.05  # part by which the last losses lie above the lowest where that is worth a word
PEAK = 1.5  # factor of a step's loss over the lowest before it, and over the last, likewise
LINES = 5  # of which the middle loss is taken, since single ones are noisy


def loss_sentence(item: LabelledRun) -> str:
    """What the loss did; every number is that of the step or the lines named beside it."""
    series = _steps(item.run)
    if not series and not loss_series(item.run):
        return "No loss was given."
    last = item.last_loss
    if last is not None and (not series or last[0] > series[-1][0]):
        series = [*series, last]
    gone, fine = _broke(item.run, series), [pair for pair in series if math.isfinite(pair[1])]
    if not fine or not math.isfinite(series[-1][1]):
        return gone
    way = _way(item.run, fine)
    return f"{gone} {way}".strip()


def _way(run: Run, fine: Pairs) -> str:
    """From the first finite loss to the last, and what lies between."""
    (first, start), (last, now) = fine[0], fine[-1]
    if len(fine) == 1:
        return f"The loss is {now:.3g} at step {last:,}."
    between = " and ".join(_between(run, start, now, last))
    way = "fell" if now < start else "rose"
    said = (
        f"is {now:.3g} at step {last:,}, as at step {first:,}"
        if f"{start:.3g}" == f"{now:.3g}"
        else f"{way} from {start:.3g} at step {first:,} to {now:.3g} at step {last:,}"
    )
    return f"The loss {said}{f'; {between}' if between else ''}."


def _steps(run: Run) -> Pairs:
    """The loss of each step that has a line; of a file that has means alone, these."""
    return run.total("loss") or loss_series(run)


def _broke(run: Run, series: Pairs) -> str:
    """The first loss that is not finite, by its step where it has a line, else by the lines around it."""
    own = dict(series)
    lines = dict([*loss_series(run), *(pair for pair in series if not math.isfinite(pair[1]))])
    before = 0
    for step, value in sorted(lines.items()):
        if not math.isfinite(own.get(step, 0.0)):
            return f"The loss is not finite at step {step:,}."
        if not math.isfinite(value):
            return f"A loss between steps {before + 1:,} and {step:,} is not finite."
        before = step
    return ""


def _between(run: Run, start: float, now: float, last: int) -> Iterator[str]:
    """Where it was lowest, if it did not stay there, or since when it came hardly lower; and how far it rose."""
    series = [pair for pair in loss_series(run) if math.isfinite(pair[1])]
    middles = [
        (series[i + LINES // 2][0], median([value for _, value in series[i : i + LINES]]), series[i + LINES - 1][0])
        for i in range(len(series) - LINES + 1)
    ]
    if middles:
        lowest, low, _ = min(middles, key=lambda middle: middle[1])
        near = next(step for step, value, _ in middles if value <= low + HARDLY * abs(low))
        if middles[-1][1] > low + BACK * abs(low) and low < start:
            yield f"it was lowest about step {lowest:,} ({low:.3g}, the median of {LINES} lines)"
        elif middles[-1][0] - near > last / 2 and last > STANDING:
            yield f"since step {near:,} it came hardly lower (by medians of {LINES} lines)"
    peak = _peak(run.total("loss_max") or series, [(end, value) for _, value, end in middles], start)
    if peak is not None and peak[1] > PEAK * now > 0.0:
        yield f"it rose to {peak[1]:.3g} by step {peak[0]:,}"


def _peak(highest: Pairs, middles: Sequence[tuple[int, float]], start: float) -> tuple[int, float] | None:
    """The highest loss against the lowest level before it, where it is far above that; None for losses below 0."""
    level, left, found, most = start, list(reversed(middles)), None, PEAK
    for (before, _), (step, value) in pairwise(highest):
        while left and left[-1][0] <= before:
            level = min(level, left.pop()[1])
        if level <= 0.0:
            return None
        if most * level < value < math.inf:
            most, found = value / level, (step, value)
    return found
