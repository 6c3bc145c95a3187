"""Rules and claims name each other: both ends of every tie are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pkgutil import resolve_name

import pytest

from normgauge.cli import main
from normgauge.instrument.rules import REGISTRY
from normgauge.theory import CLAIMS
from normgauge.theory.claim import Claim

RULES = {rule.id: rule.claim for rule in REGISTRY.entries()}


def loose_ends(rules: Mapping[str, str | None], claims: Mapping[str, Claim]) -> list[str]:
    """What is wrong with the ties, in words."""
    found = []
    for rule, claim in rules.items():
        if claim is None:
            found.append(f"{rule} names no claim")
        elif claim not in claims:
            found.append(f"{rule} names {claim}, which does not exist")
        elif rule not in claims[claim].entry.backs:
            found.append(f"{rule} names {claim}, which does not back it")
    for claim in claims.values():
        for name in claim.entry.backs:
            if name in rules:
                if rules[name] != claim.id:
                    found.append(f"{claim.id} backs {name}, which names {rules[name]}")
            elif not exists(name):
                found.append(f"{claim.id} backs {name}, which is neither a rule nor a name of this package")
    return found


def exists(name: str) -> bool:
    try:
        resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return name.startswith("normgauge.")


def test_every_rule_rests_on_a_claim_that_backs_it_and_the_other_way_round():
    assert loose_ends(RULES, CLAIMS) == []


def test_the_claims_behind_rules_are_checked_here():
    named = [claim for claim in RULES.values() if claim]
    assert len(named) == len(RULES) >= 50 and all(CLAIMS[claim].check is not None for claim in named)


@pytest.mark.parametrize("broken", ["nothing", "unknown", "another"])
def test_a_rule_with_a_loose_end_is_seen(broken):
    claim = {"nothing": None, "unknown": "X.nowhere", "another": "T.L1"}[broken]
    ends = loose_ends({**RULES, "affine.linear": claim}, CLAIMS)
    assert any("affine.linear" in end for end in ends)


@pytest.mark.parametrize("name", ["affine.linear", "normgauge.instrument.rules.nowhere", "math.sqrt", "nonsense"])
def test_a_claim_with_a_loose_end_is_seen(name):
    entry = CLAIMS["T.L3"].entry
    odd = Claim(replace(entry, backs=(*entry.backs, name)))
    assert any("T.L3 backs" in end for end in loose_ends(RULES, {**CLAIMS, "T.L3": odd}))


def test_the_list_of_rules_shows_the_claims(capsys):
    assert main(["rules", "avg_pool"]) == 0
    assert "X.pool.average" in capsys.readouterr().out
