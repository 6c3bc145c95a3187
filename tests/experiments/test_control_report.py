"""The tables of docs/control.md come from the committed results, and say what those say."""

from __future__ import annotations

import json
import statistics

import pytest

from experiments.control import blind, cifar, language, report

PAGE = (report.DOCS / "control.md").read_text()


def between(name: str) -> str:
    return PAGE.split(f"<!-- {name} -->")[1].split(f"<!-- end {name} -->")[0].strip()


def found(name: str) -> list[dict[str, object]]:
    return json.loads((report.HERE / "results" / name).read_text())


def test_page_holds_the_tables_of_the_results() -> None:
    assert between("cifar") == report.cifar_table(report.read_lines("cifar.jsonl"))
    assert between("language") == report.language_table(report.read_lines("language.jsonl"))
    assert between("blind") == report.blind_table(found("blind.json"))


def test_finalists_have_three_fresh_seeds_each_at_the_chosen_setting() -> None:
    rows = report.read_lines("cifar.jsonl")
    seeds = [row for row in rows if row["part"] == "seeds"]
    assert {row["seed"] for row in seeds} == {1, 2, 3} and len(seeds) == 9
    picked = cifar.chosen(rows)
    assert all(row["strength"] == picked[row["method"]]["strength"] for row in seeds)
    cells = [line.split(" | ") for line in between("cifar").splitlines()[2:]]
    rival = next(line for line in cells if "log σ" in line[0])
    own = [row["test"] for row in seeds if row["method"] == "unfolded_log"]
    assert rival[4] == f"{100 * statistics.fmean(own):.1f} %" and rival[3] == "3"


def test_language_chooses_within_a_hundredth_of_the_loss_without_control() -> None:
    rows = report.read_lines("language.jsonl")
    picked = language.chosen(rows)
    assert picked["layers"]["valid"] <= 1.01 * picked["none"]["valid"] < picked["muon"]["valid"]
    assert language.survivors(rows, "none", 0.0) == [3e-4, 1e-3, 3e-3]


def row(method: str, setting: float, valid: float, radius: float, part: str = "tune", seed: int = 100) -> blind.Row:
    made = {"part": part, "method": method, "setting": setting, "lr": setting, "seed": seed}
    return made | {"valid": valid, "global_radius": radius}


def test_the_search_is_the_same_for_every_way() -> None:
    rows = [row("none", lr, 0.9, 0.1) for lr in blind.RATES]
    rows += [row("penalty", s, 0.9 - 0.1 * (s > 1), s) for s in blind.STRENGTHS]
    search = blind.Search(rows)
    assert [setting for setting, _ in search.settings("penalty")][4:] == pytest.approx([0.1**0.5, 10**0.5])
    assert len(list(search.settings("cap"))) == 6 and {lr for _, lr in search.settings("cap")} == {1e-4, 1e-5}
    assert search.best("penalty")["setting"] == 1.0
    first = next(search.jobs())
    assert first[:2] == ("tune", "none") and first[2] not in blind.RATES


def test_committed_search_used_its_settings_once_each() -> None:
    rows = found("blind.json")
    search = blind.Search(rows)
    ways = {r["method"] for r in rows}
    assert ways >= set(blind.WAYS) - set(blind.BY_BUDGET)
    for method in ways:
        tuned = [(r["setting"], r["lr"]) for r in search.of(method)]
        assert len(tuned) == 6 and tuned == list(search.settings(method))
        best = search.best(method)
        assert {(r["setting"], r["lr"]) for r in search.of(method, "seeds")} <= {(best["setting"], best["lr"])}
