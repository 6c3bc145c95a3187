"""Is this training healthy, and which layer if not: a run in a few sentences."""

from __future__ import annotations

import math

from normgauge.render.numbers import plural
from normgauge.render.runs_data import Labelled, evidence, losses, warned

MOVED = 0.1  # decades below which a total is said to stay where it is


def healthy(item: Labelled) -> bool:
    """No alarm, and the last loss is a number."""
    return not item.run.alarms and all(math.isfinite(value) for _, value in losses(item.run)[-1:])


def sentences(item: Labelled) -> list[str]:
    """The state of a run: alarms first, then loss, then capacity, then whether it goes on."""
    if not item.run.steps:
        return ["The run has a header and no step yet."]
    return [sentence for sentence in (_alarms(item), _loss(item), _capacity(item), _state(item)) if sentence]


def _alarms(item: Labelled) -> str:
    groups = warned(item.run)
    if not groups:
        return f"No alarm up to step {item.last:,}."
    first = groups[0]
    where = f" in {first.layer}" if first.layer else ""
    said = f"{plural(len(item.run.alarms), 'alarm')}, the first at step {first.first:,}{where}: {first.sentence}"
    layers = dict.fromkeys(group.layer for group in groups[1:] if group.layer and group.layer != first.layer)
    more = f" Later also {', '.join(list(layers)[:3])}{' and others' if len(layers) > 3 else ''}." if layers else ""
    return said.rstrip(". ") + "." + more


def _loss(item: Labelled) -> str:
    series = losses(item.run)
    if not series:
        return "No loss was given."
    gone = next((step for step, value in series if not math.isfinite(value)), None)
    if gone is not None:
        return f"The loss is not finite at step {gone:,}."
    (first, start), (_, now) = series[0], series[-1]
    if start == now:
        return f"The loss is {now:.3g}."
    return f"The loss {'fell' if now < start else 'rose'} from {start:.3g} at step {first:,} to {now:.3g}."


def _capacity(item: Labelled) -> str:
    folded = [(step, value) for step, value in item.run.total("log10_folded") if math.isfinite(value)]
    if not folded:
        return ""
    start, now = folded[0][1], folded[-1][1]
    known = evidence(item.run, "log10_folded")
    if abs(now - start) < MOVED:
        return f"The folded capacity stays near 10^{now:.2f} ({known})."
    return f"The folded capacity {'grew' if now > start else 'fell'} from 10^{start:.2f} to 10^{now:.2f} ({known})."


def _state(item: Labelled) -> str:
    end = item.run.end
    if end is None:
        return "The run has no end yet: it is still being written, or it was killed."
    share = end.get("share")
    spent = f" Measuring took {share:.1%} of its time." if isinstance(share, float) else ""
    return f"The run ended at step {end.get('step', item.last):,}.{spent}"
