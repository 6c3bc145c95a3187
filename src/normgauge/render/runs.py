"""Runs as one self-contained page: is the training healthy, which layer if not, and everything behind that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from normgauge.errors import InputError, StoreError
from normgauge.render import parts
from normgauge.render.numbers import plural
from normgauge.render.page import document
from normgauge.render.runs_curves import curves
from normgauge.render.runs_data import Labelled, called, labelled, noted, span, warned
from normgauge.render.runs_heat import heat_maps
from normgauge.render.runs_plots import COLOURS
from normgauge.render.runs_table import layer_table
from normgauge.render.runs_verdict import healthy, sentences
from normgauge.render.table import Grid
from normgauge.store import Run

LISTED = 60
NOTED = 2  # notes on the first screen
TERMS = (
    ("folded product", "The product over layers of the norm of a linear map together with the normalizer behind it. "
     "The scale of weights in front of a normalizer leaves it alone; a rescaling across a ReLU, or of γ against the "
     "next layer, moves it. It is a product over layers, not a bound through skips."),
    ("norm", "The operator norm of a layer, from its lower to its upper end. Lines, maps and trends show the lower "
     "end, which is tight; the upper end has slack between two proofs."),
    ("P_w, Π1/σ", "The product of the layers' operator norms, and of the inverse standard deviations. Both depend on "
     "the gauge; they move while the network computes the same function."),
    ("band", "Both ends of what is known: the truth of a norm lies inside it. For Π1/σ, from the largest to the "
     "smallest σ of each normalizer."),
    ("‖w‖·‖∇‖", "The gradient's size, free of the scale of the weights."),
    ("effective lr", "Learning rate over ‖w‖²: the step a scale-free group of weights really takes."),
    ("proved, estimated, observed", "Proved: the number is a bound whatever happens. Estimated: from below, close. "
     "Observed: met on the batches seen."),
)  # fmt: skip


def report_runs(runs: Sequence[Run], path: str | Path, *, title: str = "normgauge runs") -> Path:
    """Write one HTML page about one or more runs.

    Args:
        runs: what to show, in this order.
        path: the file to write.
        title: heading of the page.

    Returns:
        The path written.

    Raises:
        StoreError: when there is nothing to show.
        InputError: when the file cannot be written.
    """
    if not runs:
        raise StoreError("a page of runs needs at least one run, got none")
    page = Path(path)
    try:
        page.write_text(html(labelled(runs), title), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {page}: {error.strerror}; give a file in a folder that exists") from None
    return page


def html(items: Sequence[Labelled], title: str, after: str = "") -> str:
    """The page as a string.

    Args:
        items: the runs.
        title: heading of the page.
        after: HTML that follows, such as readings.
    """
    return document(title, subtitle(items), body(items) + after, ("page", "runs"))


def subtitle(items: Sequence[Labelled]) -> str:
    """What is shown, in a few words."""
    if len(items) > 1:
        return f"{plural(len(items), 'run')} side by side"
    header = items[0].run.header
    model = header.get("model")
    name = model.get("name", "") if isinstance(model, Mapping) else ""
    return f"{items[0].label}: {name}, {plural(len(header['layers']), 'layer')}, {header.get('device', '')}"


def body(items: Sequence[Labelled]) -> str:
    """Everything between heading and end."""
    return "".join(f'<section id="{key}" data-piece>{content}</section>' for key, content in pieces(items).items())


def pieces(items: Sequence[Labelled]) -> dict[str, str]:
    """The sections by their ids; a live page exchanges those that changed."""
    return {
        "piece-verdict": _verdict(items),
        "piece-curves": curves(items),
        "piece-maps": _maps(items),
        "piece-layers": _layers(items),
        "piece-notes": _notes(items),
    }


def _swatch(index: int) -> str:
    return f'<span class="swatch c{index % COLOURS}" aria-hidden="true"></span>'


def _verdict(items: Sequence[Labelled]) -> str:
    told = []
    for i, item in enumerate(items):
        name = f"{_swatch(i)}<b>{escape(item.label)}</b>: " if len(items) > 1 else ""
        good = healthy(item)
        state = f'<span class="badge {"good" if good else "bad"}">{"no alarm" if good else "look here"}</span>'
        told.append(f'<p class="verdict">{state} {name}{parts.words(" ".join(sentences(item)))}</p>')
        told.append(_noted(item, NOTED if len(items) == 1 else 1))
    return "".join(told) + _alarms(items)


def _noted(item: Labelled, most: int) -> str:
    """The latest notes, where nobody has to look for them."""
    found = noted(item.run)
    if not found:
        return ""
    more = f' <a href="#piece-notes">{len(found) - most} more below</a>' if len(found) > most else ""
    return f'<p class="noted"><span class="badge note">note</span> {escape(" ".join(found[-most:]))}{more}</p>'


def _alarms(items: Sequence[Labelled]) -> str:
    found = [(item.label, group) for item in items for group in warned(item.run)]
    found.sort(key=lambda pair: pair[1].first)
    if not found:
        return ""
    rows = tuple(
        (f"{w.first:,}", called(w.layer) or "the network", w.alarm, w.sentence, str(w.times), f"{w.last:,}", label)
        for label, w in found[:LISTED]
    )
    more = f", the first {LISTED} of {len(found)}" if len(found) > LISTED else ""
    headers = ("step", "layer", "alarm", "what", "times", "last", "run")
    kept = len(headers) if len(items) > 1 else len(headers) - 1
    grid = Grid(f"Alarms{more}", headers[:kept], tuple(row[:kept] for row in rows), frozenset({4, 5}))
    return f'<div class="alarms">{parts.html_table(grid)}</div>'


def _maps(items: Sequence[Labelled]) -> str:
    drawn = "".join(
        f'<div class="choice" data-name="{escape(title)}"><h3>{escape(title)}</h3>{figures}</div>'
        for title, figures in heat_maps(items, span(items))
    )
    return f'<h2>Layers over time</h2><div class="choices" id="maps">{drawn}</div>' if drawn else ""


def _layers(items: Sequence[Labelled]) -> str:
    tables = []
    for i, item in enumerate(items):
        table = layer_table(item, f"r{i}-", len(items))
        if table:
            name = f"Layers of {escape(item.label)}" if len(items) > 1 else "Layers"
            tables.append(f"<h2>{_swatch(i) if len(items) > 1 else ''}{name}</h2>{table}")
    return "".join(tables)


def _notes(items: Sequence[Labelled]) -> str:
    told = []
    for item in items:
        name = f"{item.label}: " if len(items) > 1 else ""
        told += [f"{name}resumed at step {r.get('step')}." for r in item.run.resumes[-LISTED:]]
        found = noted(item.run)
        told += [f"{name}{plural(len(found) - LISTED, 'earlier note')} left out."] if len(found) > LISTED else []
        told += [f"{name}{sentence}" for sentence in found[-LISTED:]]
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in told)
    notes = f"<h2>Notes</h2><ul>{listed}</ul>" if told else ""
    terms = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(words)}</dd></div>" for term, words in TERMS)
    return f'{notes}<h2>Words</h2><dl class="facts">{terms}</dl>'
