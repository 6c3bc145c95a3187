"""Writing: names never shared, locks, resumption, and a disk that fills up."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from normgauge.core import store
from tests.core.store.made import header, step, written


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_bytes().split(b"\n")[:-1]]


def made_here(folder: str) -> str:
    with_header = store.create(folder, header())
    with_header.append(step(1))
    with_header.close()
    return with_header.path.name


def test_a_run_is_a_header_and_lines(tmp_path):
    path = written(tmp_path / "a", steps=3)
    assert path == tmp_path / "a" / "run.jsonl"
    assert kinds(path) == ["header", "step", "step", "step", "end"]
    first = json.loads(path.read_bytes().split(b"\n")[0])
    assert list(first)[:3] == ["kind", "format", "schema"] and first["schema"] == 1 and len(first["run"]) == 32


def test_a_taken_name_is_not_written_to(tmp_path):
    first = written(tmp_path / "a")
    before = first.read_bytes()
    assert written(tmp_path / "a").name == "run-2.jsonl"
    assert written(tmp_path / "a" / "mine.jsonl").name == "mine.jsonl"
    assert written(tmp_path / "a" / "mine.jsonl").name == "mine-2.jsonl"
    assert first.read_bytes() == before


def test_processes_that_start_at_once_take_different_files(tmp_path):
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        names = list(pool.map(made_here, [str(tmp_path / "a")] * 8))
    assert sorted(names) == sorted(["run.jsonl", *(f"run-{k}.jsonl" for k in range(2, 9))])
    assert [len(store.read(path).steps) for path in store.find(tmp_path)] == [1] * 8


@pytest.mark.parametrize("where", ["file/run", "file"])
def test_a_path_that_cannot_be_written_is_refused_before_training(tmp_path, where):
    (tmp_path / "file").write_text("x")
    with pytest.raises(store.StoreError, match=r"cannot write .* give a folder"):
        store.create(tmp_path / where, header())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "shut").mkdir(mode=0o500)
    with pytest.raises(store.StoreError, match="Permission denied"):
        store.create(tmp_path / "shut" / "a", header())


def test_a_header_that_is_no_json_is_refused(tmp_path):
    with pytest.raises(store.StoreError, match="header of the run is no JSON"):
        store.create(tmp_path / "a", header(config={(1, 2): 3}))


def test_a_line_that_is_no_json_is_said_and_noted(tmp_path):
    said = []
    writer = store.create(tmp_path / "a", header())
    writer.on_trouble = said.append
    writer.append({"kind": "note", "step": 1, "bad": {(1, 2): 3}})
    writer.append(step(2))
    assert len(said) == 1 and "no JSON" in said[0]
    assert kinds(writer.path) == ["header", "note", "step"]


def test_resume_goes_on_and_says_so(tmp_path):
    path = written(tmp_path / "a", steps=5, end=False)
    with path.open("ab") as file:
        file.write(b'{"kind":"step","step":6,"lo')
    writer = store.resume(tmp_path / "a", header())
    assert (writer.path, writer.resumed_from, writer.elapsed) == (path, 5, 0.15)
    writer.append(step(6))
    writer.close()
    run = store.read(path)
    assert [s["step"] for s in run.steps] == [1, 2, 3, 4, 5, 6]
    assert [(r["step"], r["torn_bytes"]) for r in run.resumes] == [(5, 27)]
    assert run.problems == ("line 7 is torn (27 bytes) and was left out",)


def test_a_whole_line_without_its_newline_is_kept(tmp_path):
    path = written(tmp_path / "a", steps=5, end=False)
    path.write_bytes(path.read_bytes()[:-1])
    assert len(store.read(path).steps) == 4
    writer = store.resume(path, header())
    writer.close()
    assert writer.resumed_from == 5 and len(store.read(path).steps) == 5 and not store.read(path).problems


def test_resume_begins_where_there_is_nothing_and_takes_the_newest(tmp_path):
    fresh = store.resume(tmp_path / "a", header())
    assert (fresh.resumed_from, fresh.elapsed, fresh.path.name) == (None, 0.0, "run.jsonl")
    fresh.close()
    for _ in range(10):
        newest = written(tmp_path / "a", steps=2)
    (tmp_path / "a" / "running.jsonl").write_text("{}\n")
    assert newest.name == "run-11.jsonl"
    again = store.resume(tmp_path / "a", header())
    again.close()
    assert again.path == newest
    assert store.resume(tmp_path / "a" / "run-3.jsonl", header()).path.name == "run-3.jsonl"


@pytest.mark.parametrize("content", [b"", b'{"kind":"head'])
def test_a_run_killed_as_it_began_is_begun_again(tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(store.StoreError, match="no complete header"):
        store.read(path)
    writer = store.resume(tmp_path, header())
    writer.append(step(1))
    writer.close()
    assert writer.resumed_from is None and kinds(path) == ["header", "step"]


def test_a_file_that_is_no_run_is_not_touched(tmp_path):
    (tmp_path / "run.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(store.StoreError, match="is no run file"):
        store.resume(tmp_path, header())
    assert (tmp_path / "run.jsonl").read_text() == '{"a": 1}\n'


@pytest.mark.parametrize(
    ("blocks", "said"), [(2, r"'head', \(10, 32\).* here|blocks.2.linear.* there"), (4, "there, .*blocks.3.linear")]
)
def test_another_network_is_refused(tmp_path, blocks, said):
    path = written(tmp_path / "a", blocks=3)
    before = path.read_bytes()
    with pytest.raises(store.StoreError, match=f"another network: .*({said})"):
        store.resume(path, header(blocks))
    assert path.read_bytes() == before


def test_more_layers_of_the_same_names_are_counted(tmp_path):
    longer = header()
    longer["layers"] = [*longer["layers"], {"name": "extra", "shape": [1]}]
    with pytest.raises(store.StoreError, match="7 layers there, 8 here"):
        store.resume(written(tmp_path / "a"), longer)


def test_a_run_being_written_is_refused(tmp_path):
    writer = store.create(tmp_path / "a", header())
    with pytest.raises(store.StoreError, match="still being written"):
        store.resume(tmp_path / "a", header())
    writer.close()
    store.resume(tmp_path / "a", header()).close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_neither_writes_nor_holds_the_lock(tmp_path):
    writer = store.create(tmp_path / "a", header())
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        writer.append(step(1))
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    os.close(writer._descriptor)  # as when the parent is killed
    writer._descriptor = -1
    again = store.resume(tmp_path / "a", header())
    again.close()
    os.write(done[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert kinds(again.path) == ["header", "resume"]


FULL = """
    import resource, sys
    from normgauge.core import store
    from tests.core.store.made import header, step
    said = []
    writer = store.create(sys.argv[1], header())
    writer.on_trouble = said.append
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (writer.path.stat().st_size + 4000, hard))
    for number in range(1, 11):
        writer.append(step(number))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for number in range(11, 14):
        writer.append(step(number))
    writer.close()
    print(len(said), said[0])
"""


def test_a_full_disk_is_said_once_and_noted_when_there_is_room_again(tmp_path):
    """The limit on a file's size does what a full disk does: a part of a line is taken, then none."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    command = [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 cannot write") and "the training goes on" in done.stdout
    run = store.read(tmp_path / "a")
    steps = [s["step"] for s in run.steps]
    kept = len(steps) - 3
    assert steps == [*range(1, kept + 1), 11, 12, 13] and 1 <= kept < 9
    assert [note["sentence"] for note in run.notes] == [
        f"{10 - kept} lines before this note could not be written; nothing else is missing"
    ]
    torn, missing = run.problems
    assert "is torn" in torn and missing.startswith(
        f"{10 - kept} lines of the run, numbers {kept + 2} to 11, are missing"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_without_room_loses_lines_and_nothing_else(tmp_path):
    writer = store.create(tmp_path / "b", header())
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._descriptor)
    os.close(full)
    said = []
    writer.on_trouble = said.append
    for number in (1, 2):
        writer.append(step(number))
    assert writer.lost == 2 and len(said) == 1 and "No space left" in said[0]
    writer.close()
    writer.append(step(3))  # ignored


def test_no_room_for_the_header_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(store.StoreError, match="No space left on device; make room"):
        store.create(tmp_path / "a", header())
    monkeypatch.undo()
    assert not list((tmp_path / "a").iterdir())
    path = written(tmp_path / "b", steps=2)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(store.StoreError, match="the disk may be full"):
        store.resume(tmp_path / "b", header())
    assert len(store.read(path).steps) == 2


def test_a_deleted_folder_is_said_and_the_file_comes_back_with_it(tmp_path):
    said = []
    writer = store.create(tmp_path / "a", header())
    writer.on_trouble = said.append
    writer.append(step(1))
    shutil.rmtree(tmp_path / "a")
    writer.append(step(2))
    writer.append(step(3))
    assert len(said) == 1 and "cannot write" in said[0] and writer.lost == 2
    (tmp_path / "a").mkdir()
    writer.append(step(4))
    writer.append(step(5))
    writer.close()
    assert kinds(writer.path) == ["header", "note", "note", "step", "step"]
    run = store.read(writer.path)
    assert [note["sentence"] for note in run.notes] == [
        "the file was deleted or cut while it was written: it had 2 lines before this note",
        "2 lines before this note could not be written; nothing else is missing",
    ]
    assert run.problems == ("4 lines of the run, numbers 1 to 4, are missing before line 1 of the file",)


@pytest.mark.parametrize("left", [0, 2], ids=["emptied", "cut"])
def test_a_file_that_was_cut_under_the_writer_has_its_header_again_and_says_what_is_missing(tmp_path, left):
    writer = store.create(tmp_path / "a", header())
    for number in range(1, 11):
        writer.append(step(number))
    kept = writer.path.read_bytes().split(b"\n")[:left]
    os.truncate(writer.path, len(b"\n".join(kept)))  # without the newline of the last line that stays
    writer.append(step(11))
    writer.close()
    run = store.read(writer.path)
    assert [s["step"] for s in run.steps] == ([11] if left == 0 else [1, 11]) and run.layers[0] == "blocks.0.linear"
    assert run.problems == (
        f"{11 - left} lines of the run, numbers {left + 1} to 11, are missing before line {left + 1} of the file",
    )
    assert "it had 11 lines" in run.notes[0]["sentence"]


def test_the_folder_may_be_relative_and_the_training_may_leave_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer = store.create("a", header())
    monkeypatch.chdir("/")
    writer.path.unlink()
    writer.append(step(1))
    writer.close()
    assert kinds(tmp_path / "a" / "run.jsonl") == ["header", "note", "step"]


def test_a_write_that_takes_a_part_is_finished_or_mended(tmp_path, monkeypatch):
    said = []
    writer = store.create(tmp_path / "a", header())
    writer.on_trouble = said.append
    whole, room = os.write, [50, 60, 10**6, 40, 0, 10**6]

    def some(descriptor: int, data: bytes) -> int:
        size = room.pop(0) if room else len(data)
        if not size:
            raise OSError(28, "No space left on device")
        return whole(descriptor, data[:size])

    monkeypatch.setattr(os, "write", some)
    writer.append(step(1))  # in three parts
    assert not said and len(store.read(writer.path).steps) == 1
    writer.append(step(2))  # a part, then none
    writer.append(step(3))
    assert len(said) == 1
    run = store.read(writer.path)
    assert [s["step"] for s in run.steps] == [1, 3] and "1 line before this note" in run.notes[0]["sentence"]
    assert run.problems == ("line 3 is torn (40 bytes) and was left out",)
    writer.close()


def test_a_name_that_was_snatched_is_left_and_no_name_is_said(tmp_path, monkeypatch):
    from normgauge.core.store import writer as module

    answers = [False, True]
    monkeypatch.setattr(module, "lock_file", lambda _: answers.pop(0))
    writer = store.create(tmp_path / "a", header())
    assert writer.path.name == "run-2.jsonl"
    writer.close()
    monkeypatch.setattr(module, "candidate_paths", lambda path: [path / "run.jsonl"])
    with pytest.raises(store.StoreError, match="no free name"):
        store.create(tmp_path / "a", header())


def test_a_file_that_may_not_be_opened_is_said(tmp_path, monkeypatch):
    path = written(tmp_path / "a")

    def shut(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", shut)
    for opened in (store.create, store.resume):
        with pytest.raises(store.StoreError, match="cannot write .*Permission denied"):  # noqa: RUF043
            opened(path, header())
