"""Every claim of the theory, with a verdict and a check that can fail.

claims/: what the sources say and their sections, one file each, data alone; checks/: functions that draw and compare.
lookup: claims by id, place or words; wording: how names are written; sections: which claims stand where.
claim: the words checks are written in; draw, nets, losses, jacobians: what they draw and how they measure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module, resources
from typing import Any

from normgauge.core.claim import Entry, Ledger, Verdict
from normgauge.instrument.rules import REGISTRY
from normgauge.lab.training import one_thread
from normgauge.theory.claim import Claim
from normgauge.theory.lookup import Lookup
from normgauge.theory.sections import read_section

SOURCES = ("than2025", "slides", "summary", "akbar", "own")


def load_claims(name: str) -> tuple[dict[str, Any], list[Claim]]:
    """A source and its claims in its order; what a rule says by itself stands with the rule alone."""
    text = resources.files(__package__).joinpath("claims", f"{name}.toml").read_text(encoding="utf-8")
    told = tomllib.loads(text)
    source, shared = told.pop("source"), told.pop("rules", {})
    given = {key: {"at": "rules", "check": check, **_said(key)} for key, check in shared.items()}
    return source, [_claim(key, source["name"], fields) for key, fields in {**given, **told}.items()]


def _said(claim: str) -> dict[str, str]:
    rules = [rule for rule in REGISTRY.entries() if rule.claim == claim]
    read = (" ".join((rule.summary, rule.formula)) for rule in rules)
    return {"reading": "; ".join(read), "instead": "Holds " + "; ".join(dict.fromkeys(rule.holds for rule in rules))}


def _claim(name: str, source: str, given: dict[str, Any]) -> Claim:
    module, _, function = given.pop("check", "").partition(".")
    check = getattr(import_module(f"{__package__}.checks.{module}"), function) if module else None
    backs = (*given.pop("backs", ()), *(rule.id for rule in REGISTRY.entries() if rule.claim == name))
    verdict, published = Verdict(given.pop("verdict", "holds")), tuple(given.pop("published", ()))
    return Claim(Entry(name, source, verdict=verdict, published=published, backs=backs, **given), check)


_LOADED = [load_claims(source) for source in SOURCES]
CLAIMS: dict[str, Claim] = {claim.id: claim for _, claims in _LOADED for claim in claims}
SECTIONS = tuple(
    read_section(source["name"], title, told)
    for source, _ in _LOADED
    for title, told in source.get("sections", {}).items()
)
ABOUT = tuple(f"{source['name']}: {source['about']}" for source, _ in _LOADED if "about" in source)


def find_claims(names: Sequence[str]) -> list[Claim]:
    """The claims that ``names`` ask for, quoted together or word by word; all where no name is given.

    What is of one kind adds up, what differs in kind narrows: a claim is found that has one of the places or ids
    (``Lemmas 1 and 3``, ``T.L1``, ``A.P4``), one of the sources (``Than 2025``, ``T``), one of the verdicts (``wrong``)
    and the words (``LayerNorm gains``), of which a comma, "and" or "or" sets alternatives apart.

    At a place are all that name it; a section has what stands in it and in its sub-sections. What stands elsewhere and
    is wrong by the same error, or only has the id of the place, is not among them: `look_up` names it. The marks and
    small words of a question are left out; one that asks whether a place has a verdict gets all that is there.

    Raises:
        InputError: for a name that nothing has, with what may be meant, and where no claim has all.
    """
    return look_up(names)[0]


def look_up(names: Sequence[str]) -> tuple[list[Claim], list[str]]:
    """What `find_claims` finds, and lines of what else is at the place, and of what belongs to it elsewhere."""
    return Lookup(CLAIMS, SECTIONS, ABOUT).find(names)


def check_claims(
    claims: Sequence[Claim], seed: int = 0, progress: Callable[[str, float], None] | None = None
) -> Ledger:
    """Run the checks of ``claims`` on instances drawn from ``seed``.

    Args:
        claims: which ones; `find_claims` finds them.
        seed: another seed, other instances.
        progress: called with the id of each claim before it, and how far all have come.

    Returns:
        What was found.
    """
    outcomes = []
    with one_thread():
        for done, claim in enumerate(claims):
            if progress:
                progress(claim.id, done / len(claims))
            outcomes.append(claim.run(seed))
    return Ledger(tuple(outcomes), ABOUT)
