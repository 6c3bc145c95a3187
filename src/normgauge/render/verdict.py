"""What a reading says, in plain sentences."""

from __future__ import annotations

import math

from normgauge.core.bound import Evidence
from normgauge.core.reading import Reading
from normgauge.render.numbers import decades, factor, plural, power, where

LISTED = 4


def verdict(reading: Reading) -> list[str]:
    """The reading in a few sentences: the bound, the bracket, then whatever a reader must not miss."""
    return [upper_sentence(reading), bracket_sentence(reading), *trouble_sentences(reading)]


def upper_sentence(reading: Reading) -> str:
    """What the upper bound says."""
    place = where(reading.scope)
    if reading.unknown:
        return f"No upper bound is known {place}: {plural(len(reading.unknown), 'operation')} without a rule."
    if math.isinf(reading.log_upper) and reading.log_upper > 0:
        return f"No finite bound holds {place}."
    subject = "the whole batch" if reading.mode == "train" else "the input"
    return (
        f"A small change of {subject} changes the output by at most {factor(reading.log_upper)} times as much "
        f"{place} ({reading.evidence})."
    )


def bracket_sentence(reading: Reading) -> str:
    """Where the truth lies: the largest slope found, the gap, and the layer that owns most of it."""
    if reading.log_lower == -math.inf:
        return "No slope above zero was found."
    found = f"A slope of {factor(reading.log_lower)} was found"
    if math.isinf(reading.gap):
        return f"{found}; above it nothing is ruled out."
    owner = reading.gap_owner()
    blame = f", most of it owned by {owner.name} ({owner.kind})" if owner is not None and reading.gap > 0.05 else ""
    return f"{found}, so the truth lies within {reading.gap:.2f} decades{blame}."


def trouble_sentences(reading: Reading) -> list[str]:
    """Unknown and unbounded parts, then the notes."""
    sentences = []
    for findings, what in ((reading.unknown, "Unknown"), (reading.unbounded, "Unbounded, provably")):
        if findings:
            named = "; ".join(f"{f.name}: {f.why}" for f in findings[:LISTED])
            rest = f"; and {len(findings) - LISTED} more" if len(findings) > LISTED else ""
            sentences.append(f"{what}: {named}{rest}.".replace("..", "."))
    if reading.evidence not in (Evidence.PROVED, Evidence.UNKNOWN):
        sentences.append(f"The upper number is {reading.evidence}, not proved.")
    return sentences + list(reading.notes)


def balance_sentence(reading: Reading) -> str | None:
    """What weights and normalizers each contribute, layer by layer; None without a normalizer."""
    norms = [r.gain.hi for r in reading.layers if r.sigma is not None]
    rest = [r.gain.hi for r in reading.layers if r.sigma is None]
    if not norms or any(math.isinf(g) for g in norms + rest):
        return None
    return (
        f"Taken one by one, the layers multiply to {power(sum(rest))} and the {plural(len(norms), 'normalizer')} "
        f"to {power(sum(norms))}; folded and balanced together they allow {power(reading.log_upper)}."
    )


def gap_line(reading: Reading) -> str:
    """Upper, folded, lower and gap on one line, in decades."""
    gap = "inf" if math.isinf(reading.gap) else f"{reading.gap:.2f}"
    return (
        f"log10 upper {decades(reading.log_upper)} (folded {decades(reading.log_folded)}), "
        f"lower {decades(reading.log_lower)}, gap {gap} decades"
    )
