"""The loss of a run in a sentence: its first and last step, where it was lowest, how far it rose, and when it broke."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from normgauge.core.store import Run
from normgauge.render.runs_data import LabelledRun, Pairs, loss_series

HARDLY, STANDING = 0.02, 100  # part of a loss by which it comes hardly lower, and steps to tell
BACK = 0.05  # part by which the last losses lie above the lowest where that is worth a word
PEAK = 1.5  # factor of a step's loss over the lowest before it, and over the last, likewise
FAR, LOST = 1.5, 0.5  # factor over the lowest mean, and part of what was gained by it, that make a relapse
STEPS = 8  # of which the mean is taken at least, since single ones are noisy


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean loss of some steps."""

    first: int
    last: int
    value: float

    @property
    def count(self) -> int:
        """How many steps that are."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Relapse:
    """A loss far above its lowest, to which it did not come back.

    Attributes:
        low, now: the lowest mean and the last.
        since: first of the steps whose loss, or whose line's mean, lies nearer to what it is now.
        read: the last step read before it.
    """

    low: Mean
    now: Mean
    since: int
    read: int


def relapse(run: Run) -> Relapse | None:
    """Where a loss that had fallen lost most of it again; None for one that goes below 0, which is no distance."""
    means, series = _means(run), _steps(run)
    if len(means) < 2 or not series:
        return None
    (_, start), low, now = series[0], min(means, key=lambda mean: mean.value), means[-1]
    gained = start - low.value
    if low.value <= 0.0 or now.value <= FAR * low.value or not now.value - low.value > LOST * gained > 0.0:
        return None
    middle, since = (low.value + now.value) / 2, now.first
    for part in reversed(list(_parts(run))):
        if not part.value > middle or part.last <= low.last:
            break
        since = part.first
    return Relapse(low, now, since, max((line.step for line in run.steps if line.step < since), default=0))


def relapse_sentence(run: Run) -> str:
    """What is said of it beside that there is no alarm; empty where there is none."""
    found = relapse(run)
    if found is None:
        return ""
    low, now = found.low, found.now
    unread = (
        f"; no step between {found.read:,} and {found.since:,} was read, and every=1 reads all"
        if found.read + 1 < found.since
        else ""
    )
    return (
        f"But the loss is far above its lowest since step {found.since:,}: its mean is {now.value:.3g} in steps "
        f"{now.first:,} to {now.last:,} and was {low.value:.3g} in steps {low.first:,} to {low.last:,}. No sign that "
        f"was read explains it{unread}."
    )


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
    way = "rose" if now >= start else "went" if relapse(run) else "fell"
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
    means = _means(run)
    if means:
        low = min(means, key=lambda mean: mean.value)
        near = next(mean.last for mean in means if mean.value <= low.value + HARDLY * abs(low.value))
        if means[-1].value > low.value + BACK * abs(low.value) and low.value < min(start, now):
            yield f"its mean, line by line, was lowest in steps {low.first:,} to {low.last:,} ({low.value:.3g})"
        elif means[-1].last - near > last / 2 and last > STANDING:
            yield f"since step {near:,} it came hardly lower (by means of {STEPS} steps or more)"
    peak = _peak(run.total("loss_max") or loss_series(run), means, start)
    if peak is not None and peak[1] > PEAK * now > 0.0:
        yield f"it rose to {peak[1]:.3g} by step {peak[0]:,}"


def _means(run: Run) -> list[Mean]:
    """The mean loss up to each line, over as few parts as hold enough steps."""
    found, window = [], deque[Mean]()
    for part in _parts(run):
        window.append(part)
        while sum(mean.count for mean in window) - window[0].count >= STEPS:
            window.popleft()
        count = sum(mean.count for mean in window)
        value = sum(mean.count * mean.value for mean in window) / count
        if count >= STEPS and math.isfinite(value):
            found.append(Mean(window[0].first, part.last, value))
    return found


def _parts(run: Run) -> Iterator[Mean]:
    """The mean since the line before; of a line whose losses were calm at first, up to there and behind it."""
    whole, series = bool(run.total("loss_mean")), loss_series(run)
    calm, quiet = dict(run.total("calm")), dict(run.total("loss_calm"))
    for (before, _), (step, value) in pairwise([(series[0][0] - 1, 0.0), *series] if series else []):
        first, last = before + 1 if whole else step, int(calm.get(step, 0))
        if first <= last < step and step in quiet:
            known = Mean(first, last, quiet[step])
            yield known
            value = (value * (step - before) - known.value * known.count) / (step - last)
            first = last + 1
        yield Mean(first, step, value)


def _peak(highest: Pairs, means: Sequence[Mean], start: float) -> tuple[int, float] | None:
    """The highest loss against the lowest level before it, where it is far above that; None for losses below 0."""
    level, left, found, most = start, list(reversed(means)), None, PEAK
    for (before, _), (step, value) in pairwise(highest):
        while left and left[-1].last <= before:
            level = min(level, left.pop().value)
        if level <= 0.0:
            return None
        if most * level < value < math.inf:
            most, found = value / level, (step, value)
    return found
