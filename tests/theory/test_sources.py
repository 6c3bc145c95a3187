"""The page that goes through the sources: whole, fresh, and every command on it runs something."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from docs import sources
from normgauge.cli import build_parser
from normgauge.core.claim import Entry, Verdict
from normgauge.theory import SECTIONS, find_claims
from normgauge.theory.sections import read_section
from tests.theory.texts import reproducible

TEXT = sources.PAGE.read_text(encoding="utf-8")


def test_the_page_is_fresh():
    assert sources.page() == TEXT, "run `make docs`"


def test_every_published_claim_stands_in_a_section():
    assert sources.lost() == []


def test_a_section_has_claims_or_says_why_not():
    assert len({section.source for section in SECTIONS}) == 4
    for section in SECTIONS:
        assert sources.found(section) or section.empty, f"{section.source}, {section.title}"


def test_every_command_names_what_exists():
    commands = set(re.findall("`normgauge (.*?)`", TEXT))
    there = reproducible()
    assert len(commands) > 60
    parser = build_parser()
    for command in commands:
        args = parser.parse_args(shlex.split(command))
        assert args.name in there if command.startswith("reproduce") else find_claims(args.claims)


@pytest.mark.parametrize(
    ("title", "told", "at", "here"),
    [
        ("4.1 Batch normalization", {}, "section 4.1", True),
        ("4.1 Batch normalization", {"holds": "Proposition 4.1"}, "proposition 4.1, corrected", True),
        ("4.1 Batch normalization", {}, "proposition 4.1", False),
        ("4.1 Batch normalization", {}, "sections 2.3 and 4.1", True),
        ("4.1 Batch normalization", {}, "section 3.2, last (before section 4.1)", False),
        ("4.1 Batch normalization", {}, "appendix A.4.1", False),
        ("4.1 Batch normalization", {}, "section 4.10", False),
        ("6 Conclusion", {}, "sections 1.4, 3.2, 4 and 6", True),
        ("6 Conclusion", {}, "section 6.1", False),
        ("6 Conclusion", {}, "Theorem 6", False),
        ("5 Impact, 5.1 Equations", {}, "§5.1, first list", True),
        ("3.2 Layer normalization", {"holds": "Eqs. (2) and (3)"}, "Eqs. 2-3", True),
        ("3.2 Layer normalization", {"holds": "Eqs. (2) and (3)"}, "Eqs. 23-24", False),
        ("3.2 Layer normalization", {"holds": "Eqs. (2) and (3)"}, "Corollary 10 (2)", False),
        ("References", {"empty": "a list"}, "anything", False),
        ("Abstract", {"words": ["abstract"], "empty": "elsewhere"}, "abstract, last sentence", True),
    ],
)
def test_a_place_is_in_its_section(title, told, at, here):
    section = read_section("Than 2025", title, told)
    entry = Entry("T.x", "Than 2025", at, "a reading", Verdict.HOLDS)
    assert section.has(entry) is here and not section.has(replace(entry, source="Akbar"))
