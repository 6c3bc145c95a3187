"""One reading on the page or in a notebook: its verdict, its figures, and everything behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from normgauge.core.bound import Evidence
from normgauge.core.first_notes import measured_output, padding_notes
from normgauge.core.reading import Finding, Reading
from normgauge.core.spelled import LN10
from normgauge.render import verdict
from normgauge.render.bracket import BracketRow, bracket_figure
from normgauge.render.console import printed_products
from normgauge.render.document import fact_list, fragment, listing, paragraphs
from normgauge.render.judgement import WORDS, next_steps
from normgauge.render.layertable import reading_layer_table, reading_layers
from normgauge.render.markup import Content, Markup, markup, sentence_markup, tag
from normgauge.render.numbers import DOWN, UP, format_decades, format_factor, scope_words
from normgauge.render.sigma import sigma_ranges
from normgauge.render.svg import both_shapes, captioned_figure
from normgauge.render.table import Grid, bare_table, html_table
from normgauge.render.waterfall import waterfall

SHOWN = 8
NO_SCORES = ("embedding", "hidden_state", "pooler_output")  # ends of names of outputs that no loss is taken of
PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]+")
EVIDENCE = {
    Evidence.PROVED: "proved: holds for all inputs of the scope, in exact arithmetic on the stored weights",
    Evidence.COMPUTED: "computed: holds up to the rounding of float64, which is not enclosed",
    Evidence.ESTIMATED: "estimated: a proof was possible only in part, see the notes",
    Evidence.OBSERVED: "observed on actual inputs only",
    Evidence.REFUTED: "refuted: a slope was found above it, so it is wrong and taken back",
    Evidence.UNKNOWN: "unknown: a step has no bound, or the trace is not the model; nothing is proved",
}
MODES = {"eval": "eval: as it predicts", "train": "train: the map of the whole batch, with the batch's own statistics"}


def panel(reading: Reading, rows: Sequence[BracketRow], key: str, level: int, *, opened: bool, heading: bool) -> Markup:
    """Return everything about one reading, as a section of the page.

    Args:
        reading: what to show.
        rows: of the bracket beside its waterfall.
        key: begins every id in it.
        level: of its headings.
        opened: the parts below the figures are open.
        heading: it is one of several scopes and says which.
    """
    below = f"h{level + 1 if heading else level}"
    parts = (
        tag("details", tag("summary", tag(below, name)), content, class_=f"part {name.split()[0].lower()}", open=opened)
        for name, content in _parts(reading, f"{key}-")
        if content
    )
    drawn = (
        None
        if verdict.edit_contradicts(reading)
        else (
            captioned_figure("Gain by depth", both_shapes(lambda shape: waterfall(reading, shape, f"{key}-"))),
            bracket_figure(rows),
        )
    )
    return tag(
        "section",
        _title(reading, key, level) if heading else None,
        _opening(reading),
        (tag("div", drawn, class_="top"), _words()) if drawn else None,
        parts,
        class_="panel scoped" if heading else "panel",
        aria_labelledby=key if heading else None,
    )


def _title(reading: Reading, key: str, level: int) -> Markup:
    """The scope in words, and in fewer words for its tab."""
    full = scope_words(reading.scope).capitalize()
    short = full.removesuffix(" of the samples")
    return tag(f"h{level}", full, class_="scope", id=key, data_tab=short, data_scope=str(reading.scope))


def _opening(reading: Reading) -> Content:
    troubles = [s for s in verdict.trouble_sentences(reading) if s not in reading.notes]
    return (
        paragraphs([*verdict.opening_sentences(reading), *padding_notes(reading.notes)], "warn"),
        paragraphs(filter(None, [verdict.bracket_line(reading)]), "verdict"),
        paragraphs(troubles, "warn"),
        tag(
            "div",
            paragraphs(filter(None, [verdict.judgement(reading), verdict.standing_sentence(reading)])),
            tag("div", tag("b", "What to do next"), listing(next_steps(reading)), class_="next"),
            class_="judgement",
        ),
    )


def _words() -> Markup:
    """The words that need a sentence, beside the figures that use them first."""
    told = [(tag("b", word), f": {meaning}{'; ' if word != WORDS[-1][0] else '.'}") for word, meaning in WORDS]
    return tag("p", told, class_="words")


def reading_notebook(reading: Reading) -> Markup:
    """The reading as HTML that may stand among other output: verdict, waterfall and the most active layers."""
    grid = reading_layers(reading)
    table = tag("details", tag("summary", grid.title), bare_table(grid), tag("p", grid.footer))
    head = f", mode {reading.mode}, scope {reading.scope}. {verdict.verdict_line(reading)}"
    return fragment(
        tag("p", tag("b", reading.model), head),
        tag("p", verdict.judgement(reading)),
        (tag("p", sentence) for sentence in verdict.trouble_sentences(reading)),
        waterfall(reading),
        tag("p", tag("small", "; ".join(f"{word}: {meaning}" for word, meaning in WORDS), ".")),
        table if reading.layers else None,
    )


def _parts(reading: Reading, key: str) -> Iterator[tuple[str, Markup]]:
    yield "Notes", paragraphs([*reading.notes, *filter(None, [verdict.balance_sentence(reading)])])
    yield "Layers", reading_layer_table(reading, key) if reading.layers else Markup()
    yield "σ by layer", captioned_figure("", both_shapes(lambda shape: sigma_ranges(reading, shape, key)))
    yield "Most sensitive samples", sensitive_samples(reading)
    yield "Losses", loss_section(reading)
    products = html_table(printed_products(reading)) if reading.published else Markup()
    yield "Published products: they depend on the gauge", products
    yield "What was assumed", fact_list(_facts(reading))


def sensitive_samples(reading: Reading) -> Markup:
    """The most sensitive samples, with their pictures where there are any."""
    ranked = sorted(reading.samples, key=lambda s: -float(s.get("log10_lower") or 0.0))[:SHOWN]
    if not ranked:
        return Markup()
    count = verdict.sample_count(reading)
    told, start = f"All {count}, the steepest slope found first.", ""
    if len(reading.samples) > SHOWN:
        told = f"The {SHOWN} of {count} with the steepest slopes found."
    if reading.scope.kind == "global":
        told, start = f"Of {count} those from which the search met the steepest slopes, away from them.", "met from "
    cards = (_card(sample, None if reading.together else start) for sample in ranked)
    return markup(
        tag("p", told) if len(ranked) > 1 or (start and not reading.together) else None,
        tag("ul", cards, class_="cards"),
    )


def _card(sample: Mapping[str, Any], start: str | None) -> Markup:
    name = f"{start}sample {sample.get('index', '')}" if start is not None else "the whole batch"
    picture = sample.get("picture")
    shown = isinstance(picture, str) and PICTURE.fullmatch(picture)
    bounds = [
        (tag("br"), f"{end} ", sentence_markup(format_factor(float(sample[key]) * LN10, way)))
        for end, key, way in (("found", "log10_lower", DOWN), ("at most", "log10_upper", UP))
        if sample.get(key) is not None
    ]
    return tag("li", tag("img", src=picture, alt=name) if shown else None, tag("b", name), bounds)


def loss_section(reading: Reading) -> Markup:
    """Constants of usual losses in the input; none of an output that holds no scores."""
    if measured_output(reading.notes).endswith(NO_SCORES):
        return Markup()
    rows = tuple((name, format_decades(value * LN10, way=UP)) for name, value in reading.loss.items())
    title = "How fast a loss of one sample can change with the input: upper bound times the loss's own constant"
    return html_table(Grid(title, ("loss", "log10"), rows, frozenset({1}))) if rows else Markup()


def used_rules(readings: Sequence[Reading]) -> Markup:
    """Formula, validity and source of every rule used."""
    texts = {name: text for reading in readings for name, text in reading.rules.items()}
    items = [
        tag(
            "div",
            tag("dt", name),
            tag("dd", text.get("formula", ""), class_="formula"),
            (tag("dd", f"{key}: {text[key]}") for key in ("holds", "source") if text.get(key)),
            data_rule=name,
        )
        for name, text in sorted(texts.items())
    ]
    return tag("dl", items, class_="rules") if items else Markup()


def _facts(reading: Reading) -> Iterator[tuple[str, Sequence[str]]]:
    yield "network", [reading.model]
    yield "mode", [MODES.get(reading.mode, reading.mode)]
    yield "scope", [f"{reading.scope}: {scope_words(reading.scope)}"]
    output = measured_output(reading.notes) or "the output"
    yield "measured", [f"from {reading.input_name} to {output}, {verdict.sample_count(reading)}"]
    contradicted = verdict.edit_contradicts(reading)
    known = "none: this file was edited, and its numbers contradict each other"
    yield "upper bound", [known if contradicted else EVIDENCE[reading.evidence], *verdict.bound_conditions(reading)]
    seen = reading.witness
    how = (
        "" if seen is None else f"the input moved by {seen.input_change:.3g} and the output by {seen.output_change:.3g}"
    )
    yield "found slope", ["observed on actual inputs" if seen is None else f"observed {seen.where}: {how}"]
    moved = reading.displacement
    yield (
        "output moves by",
        [] if moved is None else [f"at most {format_factor(moved, UP)} while the input stays in the ball"],
    )
    yield "minimised over", reading.gauges
    yield "unknown", _named(reading.unknown)
    yield "unbounded", _named(reading.unbounded)
    yield "no bound found", _named(reading.no_bound)
    yield "notes", reading.notes
    yield "CPU seconds", [", ".join(f"{part} {spent:.2g}" for part, spent in reading.seconds.items())]
    yield "traced in", [reading.precision] if reading.precision else []
    yield "weights", [reading.weights] if reading.weights else []
    yield "normgauge", [reading.version]


def _named(findings: Sequence[Finding]) -> list[str]:
    return [f"{finding.name}: {finding.why}" for finding in findings]
