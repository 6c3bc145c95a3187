"""Runs as one self-contained page: is the training healthy, which layer if not, and everything behind that.

The page of runs that still grow has the same sections, exchanged as they change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from normgauge.render.document import document, fact_list, listing
from normgauge.render.markup import Content, Markup, markup, sentence_markup, tag
from normgauge.render.numbers import plural
from normgauge.render.runs_curves import COLOURS, curves
from normgauge.render.runs_data import LabelledRun, run_notes, step_span
from normgauge.render.runs_heat import heat_maps
from normgauge.render.runs_incidents import followed_sentence, layer_phrase, run_incidents
from normgauge.render.runs_table import run_layer_table
from normgauge.render.runs_words import healthy, run_sentences
from normgauge.render.table import Grid, html_table

LISTED = 60
TITLE = "normgauge watch"
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


def runs_html(items: Sequence[LabelledRun], title: str, after: Content = None) -> str:
    """Return the page as HTML.

    Args:
        items: the runs.
        title: heading of the page.
        after: what follows, such as readings.
    """
    return document(title, subtitle(items), markup(_sections(page_sections(items)), after), ("page", "runs"))


def live_page(shown: Mapping[str, str], beside: str, version: str, state: str) -> str:
    """The whole page as it is first sent; its script asks the server it came from for more, and nobody else."""
    line = tag("p", state, class_="live", id="live", data_version=version)
    first, *rest = shown  # the cause of an incident comes before everything else
    parts = (_sections({first: shown[first]}), line, _sections({key: shown[key] for key in rest}))
    return document(TITLE, beside, markup(parts), ("page", "runs", "live"), "'self'")


def _sections(shown: Mapping[str, str]) -> Markup:
    return markup(tag("section", content, id=key, data_piece=True) for key, content in shown.items())


def subtitle(items: Sequence[LabelledRun]) -> str:
    """What is shown, in a few words."""
    if not items:
        return "no run yet"
    if len(items) > 1:
        return f"{plural(len(items), 'run')} side by side"
    header = items[0].run.header
    model = header.get("model")
    name = model.get("name", "") if isinstance(model, Mapping) else ""
    return f"{items[0].label}: {name}, {plural(len(header['layers']), 'layer')}, {header.get('device', '')}"


def page_sections(items: Sequence[LabelledRun], waiting: str = "") -> dict[str, Markup]:
    """The sections by their ids, all of them at any time, so that a page opened early can be filled later.

    Args:
        items: the runs; a live page exchanges the sections that changed.
        waiting: what to say while there is none.
    """
    return {
        "piece-verdict": _verdict(items) if items else tag("p", waiting, class_="verdict"),
        "piece-curves": curves(items) if items else Markup(),
        "piece-maps": _maps(items),
        "piece-layers": _layers(items),
        "piece-notes": _notes(items) if items else Markup(),
    }


def _swatch(index: int) -> Markup:
    return tag("span", class_=f"swatch c{index % COLOURS}", aria_hidden="true")


def _verdict(items: Sequence[LabelledRun]) -> Markup:
    several = len(items) > 1
    told = []
    for i, item in enumerate(items):
        name = (_swatch(i), tag("b", item.label), ": ") if several else None
        bad = ("look here", "badge bad") if item.run.steps else ("nothing read yet", "badge")
        badge = ("no alarm", "badge good") if healthy(item) else bad
        state = tag("span", badge[0], class_=badge[1])
        first, *rest = run_sentences(item)
        told.append(tag("p", state, " ", name, sentence_markup(first), class_="verdict"))
        told.append(_consequences(item))
        told.append(tag("p", sentence_markup(" ".join(rest)), class_="rest") if rest else Markup())
        told.append(_noted(item, 1 if several else NOTED))
    return markup(told, _alarms(items))


def _consequences(item: LabelledRun) -> Markup:
    """What followed from the first incident, and the settings beside it, folded."""
    first = run_incidents(item.run)[:1]
    both = (
        ("consequence", [words for incident in first for words in incident.consequences]),
        ("suspect", [words for incident in first for words in incident.suspects]),
    )
    told = (tag("details", tag("summary", plural(len(found), of)), listing(found)) for of, found in both if found)
    return markup(*told)


def _noted(item: LabelledRun, most: int) -> Markup:
    """The latest notes, where nobody has to look for them."""
    found = run_notes(item.run)
    if not found:
        return Markup()
    link = tag("a", f"{len(found) - most} more below", href="#piece-notes")
    more = (" ", link) if len(found) > most else None
    return tag("p", tag("span", "note", class_="badge note"), " ", " ".join(found[-most:]), more, class_="noted")


def _alarms(items: Sequence[LabelledRun]) -> Markup:
    found = [(item.label, group) for item in items for group in run_incidents(item.run)]
    found.sort(key=lambda pair: pair[1].first)
    if not found:
        return Markup()
    rows = tuple(
        (
            f"{w.began:,}",
            layer_phrase(w.layer) or "the network",
            w.alarm,
            " ".join((w.sentence, w.advice, followed_sentence(w))).strip(),
            str(w.times),
            f"{w.last:,}",
            label,
        )
        for label, w in found[:LISTED]
    )
    more = f", the first {LISTED} of {len(found)}" if len(found) > LISTED else ""
    headers = ("since step", "layer", "cause", "what", "times", "last", "run")
    grid = Grid(f"Incidents{more}", headers, rows, frozenset({4, 5}))
    return tag("div", html_table(grid if len(items) > 1 else grid.without("run")), class_="alarms")


def _maps(items: Sequence[LabelledRun]) -> Markup:
    drawn = [
        tag("div", tag("h3", title), figures, class_="choice", data_name=title)
        for title, figures in heat_maps(items, step_span(items))
    ]
    return markup(tag("h2", "Layers over time"), tag("div", drawn, class_="choices", id="maps")) if drawn else Markup()


def _layers(items: Sequence[LabelledRun]) -> Markup:
    several = len(items) > 1
    tables = [run_layer_table(item, f"r{i}-", len(items)) for i, item in enumerate(items)]
    return markup(
        (tag("h2", (_swatch(i), f"Layers of {items[i].label}") if several else "Layers"), table)
        for i, table in enumerate(tables)
        if table
    )


def _notes(items: Sequence[LabelledRun]) -> Markup:
    told = []
    for item in items:
        name = f"{item.label}: " if len(items) > 1 else ""
        told += [f"{name}resumed at step {r.get('step')}." for r in item.run.resumes[-LISTED:]]
        found = run_notes(item.run)
        told += [f"{name}{plural(len(found) - LISTED, 'earlier note')} left out."] if len(found) > LISTED else []
        told += [f"{name}{sentence}" for sentence in found[-LISTED:]]
    return markup((tag("h2", "Notes"), listing(told)) if told else None, tag("h2", "Words"), fact_list(TERMS))
