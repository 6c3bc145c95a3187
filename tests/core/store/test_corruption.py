"""Run files damaged at random: no number changes unsaid, and what is lost is said."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from normgauge.core import store
from tests.core.store.corruption import CORRUPTIONS, Corruption
from tests.core.store.made import alarm, header, step

EACH = 6  # of every kind; `python -m tests.core.store.test_corruption 1000` tries more


def original(path: Path, seed: int) -> bytes:
    """A run with every kind of line."""
    writer = store.create(path, header(run=f"{seed:032x}"))
    for number in range(1, 41):
        writer.append(step(number, seed=seed))
        if number % 15 == 0:
            writer.append(alarm(number))
    writer.append({"kind": "note", "step": 40, "sentence": "§ σ"})
    writer.append({"kind": "end", "step": 40, "share": 0.021})
    writer.close()
    return writer.path.read_bytes()


def fault(damaged: Path, runs: list[store.Run]) -> str:
    """What is wrong with how a damaged file is read; empty where nothing is."""
    try:
        got = store.read(damaged)
    except store.StoreError:
        return ""
    of = {run.header["run"]: run for run in runs}
    lost = "run" not in got.header
    near = [of[got.header["run"]]] if not lost else runs
    if lost != any("header is lost" in sentence for sentence in got.problems):
        return "a lost header is not said"
    for true in near:
        same = {s["step"]: dict(s) for s in true.steps}
        numbers = all(dict(s) == same.get(s["step"]) for s in got.steps)
        others = all(r in true.alarms for r in got.alarms) and all(r in true.notes for r in got.notes)
        if numbers and others and (lost or got.layers == true.layers) and got.end in (None, true.end):
            parts = zip(*((run.steps, run.alarms, run.notes) for run in (got, true)), strict=True)
            fewer = any(len(a) < len(b) for a, b in parts) or got.end is None
            cut = got.end is None and len(got.steps) == sum(s["step"] <= len(got.steps) for s in got.steps)
            return "" if not fewer or got.problems or cut else "lines are lost and it is not said"
    return "numbers, names or sentences changed"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    data = [original(place / name, seed) for seed, name in enumerate("ab", 1)]
    return place, data, [store.read(place / name) for name in "ab"]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda f: f.__name__)
def test_no_damage_changes_a_number_unsaid(runs, corrupt: Corruption, tmp_path):
    _, (data, other), known = runs
    for seed in range(EACH):
        damaged = tmp_path / "run.jsonl"
        damaged.write_bytes(corrupt(data, other, Random(f"{corrupt.__name__} {seed}")))
        assert fault(damaged, known) == "", seed


def test_a_number_changed_without_its_check_would_be_noticed(runs, tmp_path):
    """The test can fail: of a line without a check, as they were written before, a changed number is believed."""
    _, (data, _), known = runs
    (tmp_path / "run.jsonl").write_bytes(
        b"\n".join(line.partition(b',"check"')[0] + b"}" for line in data.split(b"\n"))
    )
    text = (tmp_path / "run.jsonl").read_bytes().replace(b'"lr":0.001', b'"lr":0.003', 1)
    (tmp_path / "run.jsonl").write_bytes(text.replace(b"\n}", b"\n"))
    assert fault(tmp_path / "run.jsonl", known) == "numbers, names or sentences changed"


def trials(count: int, place: Path) -> None:
    """Try many, and print what was found."""
    data = [original(place / name, seed) for seed, name in enumerate("ab", 1)]
    known = [store.read(place / name) for name in "ab"]
    found: dict[str, int] = {}
    for trial in range(count):
        chance = Random(trial)
        corrupt = chance.choice(CORRUPTIONS)
        damaged = place / "run.jsonl"
        damaged.write_bytes(corrupt(*data, chance))
        told = fault(damaged, known)
        found[told] = found.get(told, 0) + 1
        if told:
            print(trial, corrupt.__name__, told)
    print(count, "corruptions:", found)


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        trials(int(sys.argv[1]), Path(folder))
