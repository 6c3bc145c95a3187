"""The state of a run in sentences: the first incident, the loss, the products, and whether the run goes on."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from normgauge.core.store.numbers import read_number
from normgauge.render.numbers import log_enclosure
from normgauge.render.runs_data import LabelledRun, loss_series, total_evidence
from normgauge.render.runs_incidents import incident_sentence, run_incidents
from normgauge.render.runs_loss import loss_sentence, relapse, relapse_sentence

RISEN = 2.0  # factor from which a learning rate that still rises is worth a word
MOVED = 0.1  # decades below which a total is said to stay where it is
PATIENCE, RHYTHM = 60.0, 20.0  # seconds, and usual times between two lines, after which a run is not being written
SLACK = 1.05  # factor over the budget that is not worth a word
LOOKED = 50  # lines from which the usual time is taken


def healthy(item: LabelledRun) -> bool:
    """No alarm, and a last loss that is a number near its lowest; where nothing was read it is not known."""
    return (
        bool(item.run.steps)
        and not item.run.alarms
        and relapse(item.run) is None
        and all(math.isfinite(value) for _, value in loss_series(item.run)[-1:])
    )


def run_sentences(item: LabelledRun) -> list[str]:
    """The state of a run: the first incident, then loss, then the products, then whether it goes on."""
    if not item.run.steps:
        return ["The run has a header and no step yet."]
    return [
        sentence
        for sentence in (_incidents(item), loss_sentence(item), _rate(item), _folded(item), _norms(item), _state(item))
        if sentence
    ]


def _incidents(item: LabelledRun) -> str:
    found = run_incidents(item.run)
    if found:
        return incident_sentence(found)
    return f"No alarm up to step {item.last:,}. {relapse_sentence(item.run)}".strip()


def _rate(item: LabelledRun) -> str:
    """Where the learning rate came to, if it never stopped rising: a warm-up without an end looks like that."""
    rates = item.run.total("lr")
    values = [value for _, value in rates]
    if len(rates) < 3 or max(RISEN * values[0], *values[:-1]) >= values[-1]:
        return ""
    (first, start), (last, now) = rates[0], rates[-1]
    rose = "rises" if item.run.end is None else "rose"
    return (
        f"The learning rate {rose} to the last step read: from {start:.3g} at step {first:,} to {now:.3g} at {last:,}."
    )


def _folded(item: LabelledRun) -> str:
    """The folded product as far as it was a number, and since when it is none."""
    pairs = item.run.total("log10_folded")
    folded = [(step, value) for step, value in pairs if math.isfinite(value)]
    if not folded:
        return ""
    (first, start), (last, now) = folded[0], folded[-1]
    known, values = total_evidence(item.run, "log10_folded"), [value for _, value in folded]
    # weights are read after a step: what the first one did to them shows in neither number
    said = f"After step {first:,} the folded product was 10^{start:.2f}"
    if last > first and max(values) - min(values) < MOVED:
        until = "on" if last == item.last else f"to {last:,}"
        stays = "stays" if last == item.last else "stayed"
        said = f"From step {first:,} {until} the folded product {stays} near 10^{now:.2f}"
    elif last > first:
        said += f", after step {last:,} 10^{now:.2f}"
    lost = next((step for step, _ in pairs if step > last), None)
    later = "" if last == item.last else "; it was not read later"
    return f"{said} ({known}){later if lost is None else f'; when next read, at step {lost:,}, it was not finite'}."


def _norms(item: LabelledRun) -> str:
    """The product of the layers' norms with both its ends: the upper one has slack between two proofs."""
    last = item.run.steps[-1]["totals"]
    ends = [read_number(last.get(name)) for name in ("log10_P_w_lower", "log10_P_w")]
    if not any(end is not None and math.isfinite(end) for end in ends):
        return ""
    known = total_evidence(item.run, "log10_P_w")
    return f"The log10 of P_w is {log_enclosure(*ends)} ({known}; depends on the gauge)."


def _state(item: LabelledRun) -> str:
    end = item.run.end
    if end is None:
        return "The run has no end: " + _going_on(item)
    share, step = end.get("share"), end.get("step")
    spent = f" Measuring took {_spent(share)}{_beyond(item, share)}." if isinstance(share, float) else ""
    return f"The run ended at step {step if isinstance(step, int) else item.last:,}.{spent}"


def _spent(share: float) -> str:
    """A share of the seconds since the first step; what the first one took is in the share and not in those.

    >>> _spent(0.0213), _spent(1.186)
    ('2.1% of the time since its first step', '118.6% of the time since its first step (counting what that one took)')
    """
    counted = " (counting what that one took)" if share > 1.0 else ""
    return f"{share:.1%} of the time since its first step{counted}"


def _beyond(item: LabelledRun, share: float) -> str:
    """Why that is more than the budget, where it is."""
    config = item.run.header.get("config")
    told = config if isinstance(config, dict) else {}
    budget = told.get("budget")
    if told.get("every") is not None or not isinstance(budget, float) or share <= SLACK * budget:
        return ""
    return f"; the budget of {budget:.1%} does not hold for the first steps and odd ones, which weigh in a short run"


def is_over(item: LabelledRun) -> bool:
    """Whether a run has ended, or stands still.

    Its writer holds a lock as long as it lives. Beside that it is judged by time: whether the last line is older than
    the run's lines usually are apart, with patience.
    """
    written = item.run.written
    if item.run.end is not None or item.run.held is False or written is None:
        return item.run.end is not None or item.run.held is False
    times = [t for step in item.run.steps[-LOOKED:] if (t := step.number("time")) is not None]
    usual = median([b - a for a, b in pairwise(times)]) if len(times) > 1 else 0.0
    patience = max(PATIENCE, RHYTHM * usual if math.isfinite(usual) else 0.0)
    return time.time() - written > patience


def _going_on(item: LabelledRun) -> str:
    written = item.run.written
    if written is None:
        return "it is still being written, or it was killed."
    if not is_over(item):
        return "it is still being written."
    try:
        since = datetime.fromtimestamp(written, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):  # a file from beyond the calendar
        since = "long ago"
    if item.run.held is False:
        return f"no process writes it since {since}; it ended without close(), by an error perhaps, or was killed."
    return f"nothing was written since {since}; it was killed, or it stands still."
