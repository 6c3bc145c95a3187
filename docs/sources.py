"""Writes docs/sources.md: for every section of the four sources the command that runs it, and what came out."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

from normgauge.core.claim import OWN, Verdict
from normgauge.theory import CLAIMS, SECTIONS
from normgauge.theory.claim import Claim
from normgauge.theory.sections import Section

PAGE = Path(__file__).parent / "sources.md"
HEAD = """# The sources, section by section

Written by `make docs` from [the ledger](theory.md). A claim stands in every section that its place names; where nothing
in it can be computed it was read, not run. Figures come from committed results, `--train` trains [anew](reproduce.md).
"""
EMPTY = "not run: "


def found(section: Section) -> list[Claim]:
    """The claims of a section."""
    return [claim for claim in CLAIMS.values() if section.has(claim.entry)]


def lost() -> list[str]:
    """Published claims that stand in no section."""
    there = {claim.id for section in SECTIONS for claim in found(section)}
    return [f"{c.id}: {c.entry.at}" for c in CLAIMS.values() if c.entry.source != OWN and c.id not in there]


def row(section: Section) -> str:
    """A section, its commands and what came out."""
    claims = found(section)
    if not claims:
        return f"| {section.title} | | {EMPTY}{section.empty} |"
    trained = dict.fromkeys(claim.entry.experiment for claim in claims if claim.entry.experiment)
    commands = [f"theory {' '.join(claim.id for claim in claims)}", *(f"reproduce {name}" for name in trained)]
    counts = Counter(claim.entry.verdict for claim in claims)
    told = {verdict: f"{verdict}: {counts[verdict]}" for verdict in Verdict if counts[verdict]}
    if Verdict.WRONG in told:
        told[Verdict.WRONG] += f" ({', '.join(c.id for c in claims if c.entry.verdict is Verdict.WRONG)})"
    read = sum(claim.check is None for claim in claims)
    came = "; ".join([*told.values(), *([f"read, not run: {read} of these"] if read else [])])
    return f"| {section.title} | {'<br>'.join(f'`normgauge {command}`' for command in commands)} | {came} |"


def page() -> str:
    """The page as a string."""
    lines = [HEAD]
    for source, sections in groupby(SECTIONS, lambda section: section.source):
        head = [f"## {source}", "", "| section | command | what came out |", "| --- | --- | --- |"]
        lines += [*head, *map(row, sections), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
