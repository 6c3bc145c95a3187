"""What a reading says, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from normgauge.core import reference
from normgauge.core.bound import Evidence, Known
from normgauge.core.first_notes import measured_output
from normgauge.core.interval import LogInterval
from normgauge.core.reading import Reading
from normgauge.core.refute import Contradiction, contradictions
from normgauge.core.spelled import LN10
from normgauge.render.levels import followed_direction
from normgauge.render.numbers import (
    CLOSE,
    DOWN,
    NEAR,
    UP,
    format_chance,
    format_decades,
    format_factor,
    known_decimals,
    known_digits,
    plural,
    scope_words,
    shortened_names,
)

LISTED = 4
TOKENS = "input_ids"
METHODS = {
    "jacobian": "by the Jacobian there",
    "open units": "by the slopes left open there",
    "loop": "by one weighted norm",
    "everywhere": "by that over all inputs",
}
CLOSED = 0.05  # decades: no gap to speak of
TIGHT, USEFUL, LOOSE = 0.125, 1.0, 3.0  # decades from the slope found up to the bound: by a third, 10, 1,000 times


def verdict_line(reading: Reading) -> str:
    """The verdict as it stands in the terminal, on the page and in the JSON form: refuted or not, found, at most."""
    return " ".join(filter(None, [*opening_sentences(reading), bracket_line(reading)]))


def found_words(reading: Reading) -> str:
    """The slope found, rounded down; in more digits where the bound is close to it."""
    return format_factor(reading.log_lower, DOWN, known_digits(reading.gap * LN10))


def most_words(reading: Reading) -> str:
    """The bound, rounded up; in more digits where it is close to the slope found."""
    return format_factor(reading.log_upper, UP, known_digits(reading.gap * LN10))


def bracket_line(reading: Reading) -> str:
    """Both ends: what was found, and the bound; empty where an edit has put the one above the other."""
    return "" if edit_contradicts(reading) else f"{bracket_sentence(reading)} {upper_sentence(reading)}"


def judgement(reading: Reading) -> str:
    """Whether the bound is of use, and how steep the network is at most samples."""
    return " ".join(filter(None, [use_sentence(reading), typical_sentence(reading)]))


def opening_sentences(reading: Reading) -> list[str]:
    """What must be said before anything else: that the bound is refuted, where it is."""
    return [] if reading.log_refuted is None else [refutation_sentence(reading)]


def edit_contradicts(reading: Reading) -> bool:
    """Whether a slope stands above a bound in a file that was edited: that tells of the edit, and of no rule."""
    return reading.edited and reading.log_refuted is not None


def refutation_sentence(reading: Reading) -> str:
    """What refutes a bound, in a sentence; in a file that was edited, that its numbers contradict each other."""
    seen = next(contradictions(reading), None)
    if reading.edited:
        return (
            f"EDITED {scope_words(reading.scope)}: this file was changed after it was written, and its numbers "
            f"contradict each other{_contradiction(seen)}. Nothing follows from it; measure again."
        )
    if seen is None:  # a file that says no more
        return (
            f"REFUTED {scope_words(reading.scope)}: a slope was found above the bound, which is wrong and taken back."
        )
    at = f" at {seen.where}" if seen.where else ""
    doubt = "another path of the data is steeper, or a rule is wrong" if reading.path_dependent else "a rule is wrong"
    return (
        f"REFUTED {scope_words(reading.scope)}: a slope of {format_factor(seen.slope, DOWN)} was found{at}, where at "
        f"most {format_factor(seen.bound, UP)} had been computed. No bound is left: {doubt}; please report the network."
    )


def _contradiction(seen: Contradiction | None) -> str:
    if seen is None:
        return ""
    slope, bound = format_factor(seen.slope, DOWN), format_factor(seen.bound, UP)
    return f": a slope of {slope}{f' at {seen.where}' * bool(seen.where)} stands beside a bound of {bound}"


def evidence_words(reading: Reading | Known) -> str:
    """The evidence in a few words, with what it is subject to."""
    if isinstance(reading, Reading) and edit_contradicts(reading):
        return "none, file edited"
    path = " on the same path" if reading.path_dependent and reading.evidence is not Evidence.UNKNOWN else ""
    chance = reading.failure_probability
    edited = ", file edited" if isinstance(reading, Reading) and reading.edited else ""
    return f"{reading.evidence}{path}" + (f", fails with p ≤ {format_chance(chance)}" if chance else "") + edited


def bound_conditions(reading: Reading) -> list[str]:
    """What the upper bound is subject to."""
    told = []
    if reading.path_dependent and math.isfinite(reading.log_upper):
        told.append("The path through the model depends on the data: the bound holds where they take the path traced.")
    if reading.failure_probability:
        chance = format_chance(reading.failure_probability)
        told.append(f"It rests on random starts, which fail with probability {chance} at most.")
    return told


def upper_sentence(reading: Reading) -> str:
    """What the upper bound says."""
    place = scope_words(reading.scope)
    if reading.evidence is Evidence.REFUTED:
        return f"No upper bound holds {place} any more."
    if reading.unknown:
        return f"No upper bound is known {place}: nothing is known of {plural(len(reading.unknown), 'part')}."
    if reading.no_bound and math.isinf(reading.log_upper):
        return f"No finite bound was found {place}; there may be one."
    if math.isinf(reading.log_upper) and reading.log_upper > 0:
        return f"No finite bound holds {place}."
    subject = "the whole batch" if reading.mode == "train" else "the input"
    return (
        f"A small change of {subject} changes the output by at most {most_words(reading)} times as much "
        f"{place} ({evidence_words(reading)})."
    )


def bracket_sentence(reading: Reading) -> str:
    """Where the truth lies: the largest slope found, the gap, and the layer to look at."""
    if reading.log_lower == -math.inf:
        return "No slope above zero was found."
    at_point = reading.scope.kind == "point"
    kind = "Jacobian norm" if at_point else "slope"
    found = f"The largest {kind} found {scope_words(reading.scope)} is {found_words(reading)}"
    if math.isinf(reading.gap):
        return f"{found}; above it nothing is ruled out."
    layer = _slackest_layer(reading) if reading.gap > CLOSED else ""
    return f"{found}, so the truth {_known_to(reading)}{layer or _steepest_layer(reading)}."


def _known_to(reading: Reading) -> str:
    """How well the truth is known, between the slope found and the bound."""
    if reading.gap * LN10 <= NEAR:
        return f"is known to {_near_part(reading)}"
    return f"lies within {format_decades(reading.gap * LN10, 2, UP)} decades"


def _near_part(reading: Reading) -> str:
    """A gap too small for decades, as a part of the slope."""
    return "0.001 %" if reading.gap * LN10 <= CLOSE else "0.1 %"


def _slackest_layer(reading: Reading) -> str:
    """The layer with the most slack, told against what it is a part of; empty where no direction was followed.

    Slack is what the gains of the balanced bound allow over what they did to one direction. That is a part of the gap
    only where the direction is the steepest one found and the balanced bound the smallest: elsewhere it is told beside
    the slack of all layers, and where it was measured.
    """
    owner = reading.gap_owner()
    if owner is None or not owner.log_slack_reaching:
        return ""
    name, slack = f"{owner.name} ({owner.kind})", format_decades(owner.log_slack_reaching, 2, UP)
    if reading.scope.kind == "point" and owner.log_slack_reaching <= reading.gap * LN10:
        return f"; {name} has the most slack, {slack} decades beyond what it did"
    whole = format_decades(math.fsum(layer.log_slack_reaching for layer in reading.layers), 2, UP)
    return (
        f". Along {followed_direction(reading)} the slack of all layers adds up to {whole} decades, of which {name} "
        f"has the most, {slack}"
    )


def _steepest_layer(reading: Reading) -> str:
    """The layer whose own bound is the largest, where there are several; empty elsewhere."""
    if len(reading.layers) < 2:
        return ""
    steep = max(reading.layers, key=lambda layer: layer.log_stretch)
    most = format_factor(steep.log_stretch, UP)
    return f"; {steep.name} ({steep.kind}) has the largest bound of a layer by itself, at most {most} times"


def steepest_sample(reading: Reading) -> str:
    """At which sample the steepest slope was met, or from which one it was found; empty where there is one sample."""
    known = math.isfinite(reading.log_lower) and not edit_contradicts(reading)
    if reading.together or len(reading.samples) < 2 or not known:
        return ""
    worst = max(reading.samples, key=lambda row: row["log10_lower"])
    where = {"point": "was met at", "ball": "was met around"}.get(reading.scope.kind, "was found by a search from")
    return f"The steepest {where} sample {worst['index']} of {len(reading.samples)} (the first is 0)."


def use_sentence(reading: Reading) -> str:
    """Whether the bound is of use, by how far it lies above a slope found; empty where there is none to judge."""
    if edit_contradicts(reading):
        return ""
    if math.isinf(reading.log_upper):
        return f"The bound is of no use here. {_beyond(reading)}" if reading.log_lower > -math.inf else ""
    if math.isinf(reading.gap):
        return ""
    if reading.gap * LN10 <= NEAR:
        return f"The bound is tight: the slope found comes within {_near_part(reading)} of it."
    factor = format_factor(reading.gap * LN10, UP)
    if reading.gap <= TIGHT:
        return f"The bound is tight: at most {factor} times what was found."
    if reading.gap <= USEFUL:
        return f"The bound is of use: at most {factor} times what was found."
    if reading.gap <= LOOSE:
        return f"The bound is loose, up to {factor} times what was found: a ceiling, not an estimate."
    return f"The bound is of no practical use here, {factor} times what was found. {_beyond(reading)}"


def _beyond(reading: Reading) -> str:
    """What the slope found is worth where the bound is not."""
    if reading.scope.kind == "point":
        return "Go by the slope found."
    smaller = ", and a smaller radius may have a bound of use" if reading.scope.kind == "ball" else ""
    return f"Nothing steeper was found, which does not rule it out: the readings at the samples say more{smaller}."


def typical_sentence(reading: Reading) -> str:
    """The median slope of the samples beside the steepest one, where they are enough to have one; empty elsewhere."""
    told = "" if edit_contradicts(reading) else median_words(reading)
    return f"That is about the steepest of {len(reading.samples)} samples; the median is {told}." if told else ""


def median_words(reading: Reading) -> str:
    """The median slope of the samples, or what it lies between where slopes are only roughly known."""
    return "" if reading.log_median is None else interval_words(reading.log_median)


def interval_words(ends: LogInterval, rough: str = " (rough)") -> str:
    """A slope that was seen: one number where its two ends are near, elsewhere what it lies between, roughly or not.

    >>> interval_words(LogInterval(2.2, 2.2 + 1e-9)), interval_words(LogInterval(2.2, 2.4))
    ('9.0250', 'between 9.02 and 11.03 (rough)')
    """
    if ends.width <= NEAR:  # a value that is seen, not a bound
        return format_factor((ends.lo + ends.hi) / 2, digits=known_digits(ends.width))
    low = format_factor(ends.lo, DOWN)
    high = f"between {low} and {format_factor(ends.hi, UP)}" if math.isfinite(ends.hi) else f"at least {low}"
    return high + rough * (ends.width > CLOSED * LN10)


def open_words(reading: Reading) -> str:
    """What is said of a bound that is infinite: whether there is none, or none is known."""
    return "no finite bound" if reading.evidence in (Evidence.PROVED, Evidence.COMPUTED) else "no known bound"


def bracket_encloses(reading: Reading) -> bool:
    """Whether the truth lies between found and at most: the bound is none, or is known to hold."""
    sure = reading.evidence in (Evidence.PROVED, Evidence.COMPUTED)
    return (sure or reading.log_upper == math.inf) and not reading.edited


def sample_count(reading: Reading) -> str:
    """At how much was measured: so many samples, or a whole batch as one point."""
    return "a whole batch" if reading.together else plural(len(reading.samples), "sample")


def apart_sentence(place: str) -> str:
    """Why readings are not compared."""
    return f"Measured on different samples: {place} they cannot be compared. With the same --batch they can."


def unsure_sentence(readings: Sequence[Reading]) -> str:
    """That samples may be different ones, where not all readings at samples say on which they were made."""
    unsure = any(not reading.batch for reading in readings if reading.scope.kind != "global")
    return "Whether these are the same samples is not known." if unsure else ""


def version_sentence(named: Mapping[str, Sequence[Reading]]) -> str:
    """Which readings were made by which version; empty where all were by one."""
    versions: dict[str, dict[str, None]] = {}
    for name, readings in named.items():
        for reading in readings:
            versions.setdefault(reading.version, {})[name] = None
    if len(versions) < 2:
        return ""
    told = "; ".join(f"{shortened_names(list(names), LISTED)} by {version}" for version, names in versions.items())
    return f"Measured by different versions of normgauge, which may prove different bounds of one network: {told}."


def other_weights(readings: Sequence[Reading]) -> bool:
    """Whether the readings are known to be of weights that all differ."""
    digests = {reading.weights for reading in readings} - {""}
    return len(digests) == len(readings) > 1


def ends_of(reading: Reading) -> tuple[str, str]:
    """Names of the measured input and output, the latter where there were several."""
    return reading.input_name, measured_output(reading.notes)


def ends_tell(ends: tuple[str, str]) -> bool:
    """Whether these ends say what was measured: of tokens, an output without a name is scores, or anything."""
    return ends[0] != TOKENS or bool(ends[1])


def standing_sentence(reading: Reading) -> str:
    """Where the slope found stands among other networks with such ends, at the scale of their own data."""
    ends = ends_of(reading)
    every = reference.standings(str(reading.scope))
    known = [one for one in every if one.ends == ends and one.weights != reading.weights]
    if not every or not math.isfinite(reading.log_lower) or edit_contradicts(reading):
        return ""
    if not known or not ends_tell(ends):
        return "No other reference network has such inputs and outputs, and slopes of others are on other scales."
    own = reading.log_lower / LN10
    below, above = ([one for one in known if (one.lower <= own) == under] for under in (True, False))
    near = [f"above {below[-1].title} ({format_factor(below[-1].lower * LN10, DOWN)})"] if below else []
    near += [f"below {above[0].title} ({format_factor(above[0].lower * LN10, DOWN)})"] if above else []
    place = " and ".join(near)
    told = f"{len(below)} of them {'has' if len(below) == 1 else 'have'} a smaller slope found"
    have = "has such an input and output" if len(known) == 1 else "have such inputs and outputs"
    return (
        f"Of {plural(len(every), 'reference network')} {len(known)} {have}, each on data of its own size and scale: "
        f"{told}, and it is {place}."
    )


def trouble_sentences(reading: Reading) -> list[str]:
    """Parts without a bound, what the bound is subject to, then the notes."""
    sentences = finding_sentences(reading)
    if reading.evidence not in (Evidence.PROVED, Evidence.UNKNOWN, Evidence.REFUTED):
        sentences.append(f"The upper number is {reading.evidence}, not proved.")
    sentences += bound_conditions(reading)
    if reading.edited and not edit_contradicts(reading):
        sentences.append("The file this reading came from was edited after it was written.")
    return sentences + list(reading.notes)


def finding_sentences(reading: Reading) -> list[str]:
    """The steps for which no bound stands: nothing is known, there is none, or none was found."""
    sentences = []
    for findings, what in (
        (reading.unknown, "Unknown"),
        (reading.unbounded, "Unbounded, provably"),
        (reading.no_bound, "No finite bound found"),
    ):
        if findings:
            named = "; ".join(f"{f.name}: {f.why}" for f in findings[:LISTED])
            rest = f"; and {len(findings) - LISTED} more" if len(findings) > LISTED else ""
            sentences.append(f"{what}: {named}{rest}.".replace("..", "."))
    return sentences


def balance_sentence(reading: Reading) -> str | None:
    """What weights and normalizers each contribute, layer by layer; None without a normalizer."""
    norms = [r.gain.hi for r in reading.layers if r.sigma is not None]
    rest = [r.gain.hi for r in reading.layers if r.sigma is None]
    if not norms or any(math.isinf(g) for g in (*norms, *rest, reading.log_capacity)):
        return None
    others, own = format_factor(sum(rest), UP), format_factor(sum(norms), UP)
    return (
        f"The gains of all layers, branches side by side included, multiply to {others} without the "
        f"{plural(len(norms), 'normalizer')}, theirs to {own}; the balanced bound is "
        f"{format_factor(reading.log_capacity, UP)}."
    )


def method_words(reading: Reading) -> str:
    """What gave the upper bound."""
    return METHODS.get(reading.method, f"by {reading.method}")


def gap_line(reading: Reading) -> str:
    """Upper, folded, lower and gap on one line, in decades."""
    digits = known_decimals(reading.gap * LN10)
    gap = format_decades(reading.gap * LN10, digits, UP)  # as the sentence above it has it
    other = reading.log_upper < reading.log_capacity
    balanced = f"balanced {format_decades(reading.log_capacity, way=UP)}, "
    balanced = balanced if reading.options.get("balance", True) else ""
    method = f"{method_words(reading)}; {balanced}" if other else ""
    upper, folded = format_decades(reading.log_upper, digits, UP), format_decades(reading.log_folded, way=UP)
    lower = format_decades(reading.log_lower, digits, DOWN)
    return f"log10 upper {upper} ({method}folded {folded}), lower {lower}, gap {gap} decades"
