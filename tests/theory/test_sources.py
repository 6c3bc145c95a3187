"""The page that goes through the sources: whole, fresh, and every command on it runs something."""

from __future__ import annotations

import re
import shlex

import pytest

from docs import sources
from normgauge.cli import build_parser
from normgauge.theory import find_claims
from tests.theory.texts import reproducible

TEXT = sources.PAGE.read_text(encoding="utf-8")


def test_the_page_is_fresh():
    assert sources.page() == TEXT, "run `make docs`"


def test_every_published_claim_stands_in_a_section():
    assert sources.lost() == []


def test_a_section_has_claims_or_says_why_not():
    assert len(sources.SECTIONS) > 1 and all(map(sources.found, sources.SECTIONS))
    for source, sections in sources.SECTIONS.items():
        for title, claims in sources.found(source).items():
            assert claims or sources.EMPTY in sections[title], f"{source}, {title}"


def test_every_command_names_what_exists():
    commands = set(re.findall("`normgauge (.*?)`", TEXT))
    there = reproducible()
    assert len(commands) > 60
    parser = build_parser()
    for command in commands:
        args = parser.parse_args(shlex.split(command))
        assert args.name in there if command.startswith("reproduce") else find_claims(args.claims)


@pytest.mark.parametrize(
    ("title", "more", "at", "here"),
    [
        ("4.1 Batch normalization", "", "section 4.1", True),
        ("4.1 Batch normalization", "", "proposition 4.1, corrected", True),
        ("4.1 Batch normalization", "", "corollary 4.1.1", True),
        ("4.1 Batch normalization", "", "sections 2.3 and 4.1", True),
        ("4.1 Batch normalization", "", "appendix A.4.1", False),
        ("4.1 Batch normalization", "", "section 4.10", False),
        ("6 Conclusion", "", "sections 1.4, 3.2, 4 and 6", True),
        ("6 Conclusion", "", "section 6.1", False),
        ("6 Conclusion", "", "Theorem 6", False),
        ("3.2 Layer normalization", sources.eq("[23]"), "Eqs. 2-3", True),
        ("3.2 Layer normalization", sources.eq("[23]"), "Eqs. 23-24", False),
        ("2.2 Notations", "not run: notation", "not run: notation", False),
        ("References", "not run: a list", "anything", False),
        ("Abstract", "abstract|not run: elsewhere", "abstract, last sentence", True),
        ("Abstract", "abstract|not run: elsewhere", "anything", False),
    ],
)
def test_a_place_is_in_its_section(title, more, at, here):
    assert bool(sources.places(title, more).search(at)) is here
