"""What the project says about itself agrees: version, date, extras, templates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import normgauge

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version_and_one_date():
    newest = re.search(r"^## \[([^\]]+)\] - (\d{4}-\d\d-\d\d)$", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == normgauge.__version__
    cited = dict(re.findall(r"^(version|date-released): (\S+)$", text("CITATION.cff"), re.MULTILINE))
    assert cited == {"version": newest[1], "date-released": newest[2]}


def test_releases_are_dated_and_in_order():
    found = re.findall(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (\S+)$", text("CHANGELOG.md"), re.MULTILINE)
    versions, dates = [tuple(map(int, row[:3])) for row in found], [row[3] for row in found]
    assert len(found) >= 2
    assert versions == sorted(versions, reverse=True) and dates == sorted(dates, reverse=True)


def test_one_floor_of_torch_everywhere():
    (floor,) = re.findall(r'"torch>=([\d.]+)"', text("pyproject.toml"))
    for name in ("README.md", "docs/install.md"):
        assert f"torch {floor} or newer" in text(name)


def test_a_release_tries_what_the_front_page_shows():
    script = text(".ci/release")
    for command in ("normgauge gauge", "normgauge verify", "normgauge report", "ci/gate.sh", "--version"):
        assert command in script


def test_every_extra_is_in_the_table_of_installation():
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`[^|]+) \|", text("docs/install.md"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(extras)


def test_links_of_the_front_pages_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text(name)):
            assert (ROOT / target).exists(), f"{name} points to {target}"
