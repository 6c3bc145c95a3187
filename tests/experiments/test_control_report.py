"""The tables of docs/control.md come from the committed results, and say what those say."""

from __future__ import annotations

import json

import pytest

from experiments.control import blind, cifar, language, report

PAGE = (report.DOCS / "control.md").read_text()


def between(name: str) -> str:
    return PAGE.split(f"<!-- {name} -->")[1].split(f"<!-- end {name} -->")[0].strip()


def found(name: str) -> list[dict[str, object]]:
    return json.loads((report.HERE / "results" / name).read_text())


def test_page_holds_the_tables_of_the_results() -> None:
    assert between("cifar") == report.cifar_table(
        report.read_lines("cifar.jsonl"), report.read_lines("cifar-radii.jsonl")
    )
    assert between("language") == report.language_table(report.read_lines("language.jsonl"))
    assert between("blind") == report.blind_table(found("blind.json"))


def test_finalists_follow_from_the_tuning_and_have_fresh_seeds() -> None:
    rows = report.read_lines("cifar.jsonl")
    picked = cifar.finalists(rows)
    assert {role: row["method"] for role, row in picked.items()} == {
        "none": "none",
        "rival": "muon",
        "wide rival": "muon",
        "ours": "muon_penalty",
    }
    for row in picked.values():
        own = [r for r in rows if r["part"] == "seeds" and all(r[k] == row[k] for k in ("method", "strength", "lr"))]
        assert sorted(r["seed"] for r in own) == [1, 2, 3]
    tuned = [row["method"] for row in rows if row["part"] == "tune"]
    assert {tuned.count(method) for method in cifar.BY_RATE + cifar.BY_STRENGTH} == {len(cifar.RATES)}


def test_certified_radii_lie_below_attacks() -> None:
    radii = report.read_lines("cifar-radii.jsonl")
    wrong = [row for row in radii if row["attack"] == 0]  # the answer is wrong before any attack
    assert [(row["method"], row["lr"], row["image"], row["radius"]) for row in wrong] == [("muon", 0.024, 3, 0.0)]
    assert all(0 < row["radius"] < row["attack"] for row in radii if row not in wrong)
    images = {report._setting(row): [] for row in radii}
    for row in radii:
        images[report._setting(row)].append(row["image"])
    assert len(images) == 4 and all(sorted(own) == list(range(report.IMAGES)) for own in images.values())


def test_language_chooses_within_a_hundredth_of_the_loss_without_control() -> None:
    rows = report.read_lines("language.jsonl")
    picked = language.chosen(rows)
    assert picked["layers"]["valid"] <= 1.01 * picked["none"]["valid"] < picked["muon"]["valid"]
    assert language.survivors(rows, "none", 0.0) == [3e-4, 1e-3, 3e-3]
    for row in language.finalists(rows):
        own = [r for r in rows if r["part"] == "seeds" and all(r[k] == row[k] for k in ("method", "strength", "lr"))]
        assert sorted(r["seed"] for r in own) == [1, 2, 3]


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
