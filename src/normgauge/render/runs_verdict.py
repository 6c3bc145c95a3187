"""Is this training healthy, and which layer if not: a run in a few sentences."""

from __future__ import annotations

import math

from normgauge.render.numbers import log_enclosure, plural
from normgauge.render.runs_data import Labelled, called, losses, total_evidence, warned
from normgauge.store.numbers import number

MOVED = 0.1  # decades below which a total is said to stay where it is


def healthy(item: Labelled) -> bool:
    """No alarm, and the last loss is a number."""
    return not item.run.alarms and all(math.isfinite(value) for _, value in losses(item.run)[-1:])


def sentences(item: Labelled) -> list[str]:
    """The state of a run: alarms first, then loss, then the products, then whether it goes on."""
    if not item.run.steps:
        return ["The run has a header and no step yet."]
    return [
        sentence for sentence in (_alarms(item), _loss(item), _folded(item), _norms(item), _state(item)) if sentence
    ]


def _alarms(item: Labelled) -> str:
    groups = warned(item.run)
    if not groups:
        return f"No alarm up to step {item.last:,}."
    first = groups[0]
    where = f" in {called(first.layer)}" if first.layer else ""
    said = f"{plural(len(item.run.alarms), 'alarm')}, the first at step {first.first:,}{where}: {first.sentence}"
    layers = dict.fromkeys(group.layer for group in groups[1:] if group.layer and group.layer != first.layer)
    more = (
        f" Later also {', '.join(map(called, list(layers)[:3]))}{' and others' if len(layers) > 3 else ''}."
        if layers
        else ""
    )
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


def _folded(item: Labelled) -> str:
    folded = [(step, value) for step, value in item.run.total("log10_folded") if math.isfinite(value)]
    if not folded:
        return ""
    start, now = folded[0][1], folded[-1][1]
    known = total_evidence(item.run, "log10_folded")
    if abs(now - start) < MOVED:
        return f"The folded product stays near 10^{now:.2f} ({known})."
    return f"The folded product {'grew' if now > start else 'fell'} from 10^{start:.2f} to 10^{now:.2f} ({known})."


def _norms(item: Labelled) -> str:
    """The product of the layers' norms with both its ends: the upper one has slack between two proofs."""
    last = item.run.steps[-1]["totals"]
    ends = [number(last.get(name)) for name in ("log10_P_w_lower", "log10_P_w")]
    if not any(end is not None and math.isfinite(end) for end in ends):
        return ""
    known = total_evidence(item.run, "log10_P_w")
    return f"The log10 of P_w is {log_enclosure(*ends)} ({known}; depends on the gauge)."


def _state(item: Labelled) -> str:
    end = item.run.end
    if end is None:
        return "The run has no end yet: it is still being written, or it was killed."
    share = end.get("share")
    spent = f" Measuring took {share:.1%} of its time." if isinstance(share, float) else ""
    return f"The run ended at step {end.get('step', item.last):,}.{spent}"
