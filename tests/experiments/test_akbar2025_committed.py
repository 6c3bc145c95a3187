"""Akbar 2025: committed results, figures, tables, verdicts and words belong together."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from experiments import study
from experiments.akbar2025 import figures, plan, reproduce, results, run, table, verdicts
from experiments.akbar2025.findings import FINDINGS
from experiments.akbar2025.results import Result

EXPECTED = json.loads(Path(plan.__file__).with_name("expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def committed() -> dict[str, Result]:
    return results.load()


def test_every_unit_of_the_plan_is_committed_with_its_settings(committed: dict[str, Result]) -> None:
    assert {u.name for u in plan.load()} == set(committed) != set()
    assert all(run.done(u, results.FOLDER, run.SEEDS) for u in plan.load())
    assert sum(path.stat().st_size for path in results.FOLDER.glob("*.json")) < 3 * 2**20


def test_committed_verdicts_are_as_expected(committed: dict[str, Result]) -> None:
    rows = {row.id: row for row in [*table.published(committed), *table.text(committed)]}
    assert set(rows) == set(EXPECTED)
    for name, wanted in EXPECTED.items():
        assert rows[name].verdict == wanted["verdict"], (name, rows[name].verdict, rows[name].value)
        low, high = wanted.get("least", -math.inf), wanted.get("most", math.inf)
        assert low <= rows[name].value <= high, (name, rows[name].value)


def test_committed_figures_are_those_of_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(FINDINGS) == set(figures.ALL)
    for name in figures.ALL:
        assert reproduce.main([name, "--out", str(tmp_path)]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["runs"] and not told["trained"]
        drawn, kept = Path(told["figure"]).read_text(encoding="utf-8"), figures.FIGURES / f"{name}.svg"
        assert kept.read_text(encoding="utf-8") == drawn, f"python -m experiments.akbar2025.figures --only {name}"
        assert len(FINDINGS[name]) < 87, "wider than two panels"
        assert kept.stat().st_size < 150_000


def test_committed_tables_are_those_of_the_results(committed: dict[str, Result]) -> None:
    text = fresh = table.README.read_text(encoding="utf-8")
    for name, made in table.tables(committed).items():
        fresh = study.between(fresh, name, made)
    assert fresh == text, "python -m experiments.akbar2025.table"
    words = {verdicts.YES: "7 are confirmed", verdicts.PART: "6 in part", verdicts.NO: "5 are not reproduced"}
    counts = Counter(row.verdict for row in table.published(committed))
    assert set(counts) == {*words, verdicts.OURS} and "Of 18 results" in text
    assert sum(counts[verdict] for verdict in words) == 18
    for verdict, said in words.items():
        assert str(counts[verdict]) in said and said in text
