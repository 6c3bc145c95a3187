"""The scene: files that are not there yet, that grow, that appear, that go."""

from __future__ import annotations

import shutil

import pytest

from normgauge.core import store
from normgauge.monitor.watching import scene as module
from normgauge.monitor.watching.scene import Scene, read_runs
from tests.core.store.made import header, step, written


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(module, "LOOK", 0.0)


def labels(scene: Scene) -> list[str]:
    return [item.label for item in scene.items()]


def test_it_waits_then_follows_then_finds_more(tmp_path):
    scene = Scene([tmp_path / "runs"])
    assert not scene.refresh() and scene.items() == [] and scene.age() is None
    assert scene.waiting() == f"Waiting for a run at {tmp_path / 'runs'}: there is none yet."
    writer = store.create(tmp_path / "runs" / "a", header())
    assert scene.refresh() and labels(scene) == ["a"] and scene.waiting() == "" and scene.age() < 60
    assert not scene.refresh()
    writer.append(step(1))
    assert scene.refresh() and scene.items()[0].last == 1
    written(tmp_path / "runs" / "b", steps=2, created="2026-02-01")
    assert scene.refresh() and labels(scene) == ["a", "b"]
    shutil.rmtree(tmp_path / "runs" / "a")
    assert scene.refresh() or scene.version
    assert labels(scene) == ["b"]
    writer.close()


def test_a_file_deleted_between_two_looks_is_dropped(tmp_path, monkeypatch):
    path = written(tmp_path / "a")
    scene = Scene([path])
    scene.refresh()
    monkeypatch.setattr(module, "LOOK", 1e9)
    path.unlink()
    assert scene.age() is None
    assert scene.refresh() and scene.items() == []


def test_a_half_line_is_not_called_torn_while_it_is_written(tmp_path):
    path = written(tmp_path / "a", steps=2, end=False)
    with path.open("ab") as file:
        file.write(b'{"kind"')
    scene = Scene([path])
    scene.refresh()
    assert scene.items()[0].run.problems == ()


def test_the_newest_of_many_are_followed(tmp_path):
    for i in range(10):
        written(tmp_path / f"r{i}", steps=1, created=f"2026-01-{i + 1:02}")
    scene = Scene([tmp_path])
    scene.refresh()
    assert labels(scene) == [f"r{i}" for i in range(2, 10)] and scene.note() == (
        "2 older runs not shown: of a folder the newest 8 are; name others."
    )
    written(tmp_path / "new", steps=1, created="2026-02-01")
    scene.refresh()
    assert labels(scene) == [*(f"r{i}" for i in range(3, 10)), "new"] and scene.note().startswith(
        "3 older runs not shown"
    )


def test_runs_that_are_named_are_all_followed(tmp_path):
    paths = [written(tmp_path / f"r{i}", steps=1, created=f"2026-01-{i + 1:02}").parent for i in range(11)]
    scene = Scene(paths)
    scene.refresh()
    assert len(labels(scene)) == 11 and scene.note() == ""
    scene = Scene([tmp_path, paths[0]])  # the oldest, besides the newest of the folder
    scene.refresh()
    assert len(labels(scene)) == 9 and "r0" in labels(scene) and scene.note().startswith("2 older runs")


def test_a_file_of_a_folder_that_is_no_run_is_left_out(tmp_path):
    written(tmp_path / "a", steps=3)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.jsonl").write_text('{"kind":"other"}\n')
    scene = Scene([tmp_path])
    scene.refresh()
    assert [item.label for item in scene.items()] == ["a"]


def test_a_named_file_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text("hello\n")
    with pytest.raises(store.StoreError, match="is no run file"):
        Scene([tmp_path / "x.jsonl"]).refresh()


def test_opened_wants_a_run_at_every_path(tmp_path):
    path = written(tmp_path / "a")
    assert [item.label for item in read_runs([path])[0]] == ["a"]
    with pytest.raises(store.StoreError, match="no run at"):
        read_runs([path, tmp_path / "b"])
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(store.StoreError, match="no complete header"):
        read_runs([tmp_path / "empty.jsonl"])
