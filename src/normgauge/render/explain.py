"""One layer of a reading, explained: its rule, the formula with its numbers put in, and its place in the network."""

from __future__ import annotations

import difflib
import math
import textwrap

from normgauge.core.errors import ReadingError
from normgauge.core.reading import LayerRecord, Reading
from normgauge.core.spelled import LN10
from normgauge.render.levels import followed_direction
from normgauge.render.markup import clean
from normgauge.render.numbers import DOWN, UP, format_factor, scope_words
from normgauge.render.verdict import refutation_sentence

WIDTH = 80
MARGIN = 11  # the column the texts begin in
LISTED = 8


def explain(reading: Reading, name: str) -> str:
    """Everything the reading knows about one layer, as lines of at most 80 columns.

    Raises:
        ReadingError: when there is no such layer; the nearest names are suggested.
    """
    record = find_layer(reading, name)
    title = record.name if _base(record) == record.kind else f"{record.name} ({record.kind})"  # a function is its kind
    rule = "no rule" if record.rule == "none" else f"rule {record.rule}"
    filled = textwrap.TextWrapper(WIDTH, subsequent_indent=" " * MARGIN, break_long_words=False, break_on_hyphens=False)
    told = [f"{title}: {rule}, claim {record.claim}" if record.claim else f"{title}: {rule}"]
    for label, text in explanation_items(reading, record):
        filled.initial_indent = f"  {label}".ljust(MARGIN)
        told.append(filled.fill(text))
    return clean("\n".join(told))


def explanation_items(reading: Reading, record: LayerRecord) -> list[tuple[str, str]]:
    """The explanation as sentences, each under a label."""
    refuted = ("refuted", "" if reading.log_refuted is None else refutation_sentence(reading))
    told = [refuted, *_rule_items(reading, record), *_numbers(reading, record), ("to do", _advice(reading, record))]
    return [(label, text) for label, text in told if text]


def find_layer(reading: Reading, name: str) -> LayerRecord:
    """Return the record of the layer called ``name``.

    Raises:
        ReadingError: when there is none, with the names that come nearest, and for what is no name.
    """
    names = [record.name for record in reading.layers]
    if not isinstance(name, str):
        raise ReadingError(f"expected the name of a layer as text, such as {str(name)!r}, got {name!r}")
    if name in names:
        return reading.layers[names.index(name)]
    inside = [other for other in names if other.startswith(f"{name}.")]
    within = [other for other in names if f".{name}." in f".{other}."]  # a part of their names
    near = difflib.get_close_matches(name, names, 3, 0.5)
    if inside:
        hint = f"it is a block of {len(inside)} layers: {_some(inside)}"
    elif within:
        hint = f"it is a part of {len(within)} names: {_some(within)}"
    elif near:
        hint = f"did you mean {' or '.join(near)}? It has {len(names)} layers: {_some(names)}"
    else:
        hint = f"it has {len(names)} layers: {_some(names)}"
    raise ReadingError(f"no layer {name!r} in this reading; {hint}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")


def _base(record: LayerRecord) -> str:
    """The name without the number of the run."""
    return record.name.rpartition("#")[0] or record.name


def _rule_items(reading: Reading, record: LayerRecord) -> list[tuple[str, str]]:
    """What the rule says; a reading of an older version has no texts of its rules."""
    texts = reading.rules.get(record.rule, {})
    mode = "the map of the whole batch in train mode" if reading.mode == "train" else "in eval mode"
    twins = [other.name for other in reading.layers if _base(other) == _base(record) and other is not record]
    return [
        ("formula", texts.get("formula", "")),
        ("here", record.worked),
        ("holds", texts.get("holds", "")),
        ("source", texts.get("source", "")),
        ("measured", f"{scope_words(reading.scope)}, {mode}."),
        ("also", f"the same name runs {len(twins) + 1} times: see {_some(twins)}." if twins else ""),
    ]


def _numbers(reading: Reading, record: LayerRecord) -> list[tuple[str, str]]:
    """The layer alone, its shares of the totals, its place and what was seen to happen in it."""
    shares = [
        ("folded", record.log_folded, reading.log_folded),
        ("balanced", record.log_balanced, reading.log_capacity),
    ]
    reach = [("from the input to its output", record.log_cumulative), ("from there to the end", record.log_to_output)]
    place = ", ".join(f"{words} {_most(log)}" for words, log in reach if log is not None)
    moves = record.log_weight_lipschitz
    sigma = ", ".join(f"{key} {value:.3g}" for key, value in (record.sigma or {}).items())
    return [
        ("alone", _alone(reading, record)),
        *(
            (label, f"a factor of {format_factor(share, UP)} in the {label} bound, {format_factor(total, UP)}.")
            for label, share, total in shares
            if share is not None and share < math.inf
        ),
        ("place", f"{place} (layer by layer, before folding)." if place else ""),
        ("seen", _seen(reading, record)),
        (
            "weights",
            "" if moves is None else f"the output moves with its weights, from where they are, {_most(moves)}.",
        ),
        ("sigma", f"its σ = √(variance + ε): {sigma}." if sigma else ""),
        ("note", record.note.rstrip(".") + "." if record.note else ""),
    ]


def _most(log: float) -> str:
    return "without a finite bound" if log == math.inf else f"by at most {format_factor(log, UP)}"


def _alone(reading: Reading, record: LayerRecord) -> str:
    gain = record.gain
    if gain.hi == math.inf and not _provably(reading, record):
        return "no bound is known for what it does to a small change."
    surely = math.isfinite(gain.lo) and math.isfinite(gain.hi) and record.log_stretch - gain.lo > 0.01 * LN10
    somewhere = f", and somewhere by {format_factor(gain.lo, DOWN)} or more" if surely else ""
    several = any(len(s.inputs) > 1 for s in reading.proof.steps if s.layer == record.name) if reading.proof else False
    what = "a small change of one of its inputs" if several else "a small change"
    if record.log_gain_reaching is not None:
        of_all = f"the bound counts {format_factor(gain.hi, UP)}, since rows that do not reach it stretch more"
        return f"it stretches {what} {_most(record.log_stretch)}{somewhere}, where that reaches the output; {of_all}."
    return f"it stretches {what} {_most(gain.hi)}{somewhere}."


def _seen(reading: Reading, record: LayerRecord) -> str:
    """What became of the direction that was followed, and how much more the bound allows."""
    parts = []
    if record.log_reached is not None:
        grown = f"{format_factor(record.log_reached, DOWN)} times as long as at the input"
        before = _before(reading, record)
        if before is not None and record.log_reached > -math.inf:
            grown += f", and {format_factor(record.log_reached - before[1])} times as long as behind {before[0]}"
        parts.append(f"{followed_direction(reading)} is here {grown}")
    if record.log_slack is not None and record.gain.hi < math.inf:
        more = f"{format_factor(record.log_slack)} times" if record.log_slack > 0.005 else "just"
        parts.append(f"in the weights of the balanced bound, its share allows {more} what was seen")
    return f"{'; '.join(parts)}." if parts else ""


def _before(reading: Reading, record: LayerRecord) -> tuple[str, float] | None:
    """Where a layer with a single input gets it from, and how much the direction had grown there."""
    if reading.proof is None:
        return None
    makers = {step.output: step for step in reading.proof.steps}
    step = next((step for step in reading.proof.steps if step.layer == record.name), None)
    while step is not None and len(step.inputs) == 1:
        (value,) = step.inputs
        if value in reading.proof.sources:
            return None  # "as long as at the input" is said already
        step = makers.get(value)
        if step is not None and step.layer:
            log = reading.layer(step.layer).log_reached
            return (step.layer, log) if log is not None and log > -math.inf else None
    return None


def _provably(reading: Reading, record: LayerRecord) -> bool:
    """Whether its infinite gain is a proof rather than the want of a rule."""
    return any(f.name in (_base(record), record.name) for f in reading.unbounded)


def _advice(reading: Reading, record: LayerRecord) -> str:
    """What to do about a layer without a finite bound."""
    if record.gain.hi < math.inf:
        return ""
    if _provably(reading, record):
        smaller = {"global": "a ball or a point", "ball": "a smaller ball or a point"}.get(reading.scope.kind)
        advice = f"measure in a smaller scope ({smaller}), or bound" if smaller else "bound"
        return (
            f"{advice} its input: a normalizer or a clamp before it does. A step that jumps has no slope in any scope: "
            "replace it, or measure the network from behind it."
        )
    if any(f.name in (_base(record), record.name) for f in reading.no_bound):
        return (
            "no finite bound was found for it, though there may be one. Bound its input, or give it a rule of your own."
        )
    if record.rule == "none":
        return "nothing is known of it. Give it a rule: gauge(..., rules=REGISTRY.extended({target: rule}))."
    return "its rule does not cover this use. Change the use, or give a rule of your own by REGISTRY.extended."
