"""What is lost is said exactly: how many lines, which, and whose."""

from __future__ import annotations

import pytest

from normgauge.core import store
from normgauge.core.store.seal import Seal, sealed, unsealed
from tests.core.store.made import header, step, written


@pytest.fixture
def lines(tmp_path):
    return written(tmp_path / "a", steps=40).read_bytes().splitlines(keepends=True)


def read(tmp_path, lines: list[bytes]) -> store.Run:
    (tmp_path / "run.jsonl").write_bytes(b"".join(lines))
    return store.read(tmp_path / "run.jsonl")


def bare(line: bytes) -> bytes:
    """The line as it was written before lines had checks."""
    return unsealed(line.rstrip(b"\n"))[0] + b"\n"


def test_a_check_holds_for_what_was_sealed_and_nothing_else():
    line = sealed(b'{"kind":"note"}\n', Seal("5f1c0a3b", 17))
    assert unsealed(line.rstrip(b"\n")) == (b'{"kind":"note"}', Seal("5f1c0a3b", 17), True)
    for other in (line.replace(b":17:", b":18:"), line.replace(b"note", b"Note"), line.replace(b"5f1c", b"5f1d")):
        assert not unsealed(other.rstrip(b"\n"))[2]


@pytest.mark.parametrize("count", [1, 20])
def test_missing_lines_are_counted(tmp_path, lines, count):
    run = read(tmp_path, lines[:10] + lines[10 + count :])
    said = "line number 11 of the run is" if count == 1 else "20 lines of the run, numbers 11 to 30, are"
    assert run.problems == (f"{said} missing before line 11 of the file",) and len(run.steps) == 40 - count


def test_a_changed_line_is_left_out_and_its_loss_is_said_once(tmp_path, lines):
    lines[10] = lines[10].replace(b'"step":10,', b'"step":11,')
    run = read(tmp_path, lines)
    size = len(lines[10]) - 1
    assert run.problems == (f"line 11 was changed after it was written ({size} bytes) and was left out",)
    assert [s["step"] for s in run.steps] == [*range(1, 10), *range(11, 41)]


def test_without_its_header_a_run_is_read_by_numbers(tmp_path, lines):
    run = read(tmp_path / "a", lines[1:])
    assert run.layers == [str(i) for i in range(7)] and len(run.series("norm_upper", 0)) == 40
    assert run.problems[0].startswith("the header is lost") and "line number 1 of the run is missing" in run.problems[1]
    assert store.find(tmp_path) == [tmp_path / "a" / "run.jsonl"]


def test_lines_of_another_run_and_lines_twice_there_are_left_out(tmp_path, lines):
    other = written(tmp_path / "b", steps=9, seed=4).read_bytes().splitlines(keepends=True)
    run = read(tmp_path, [*lines[:5], *other[3:6], *lines[5:20], lines[7], *lines[20:]])
    assert len(run.steps) == 40 and run.problems == (
        "3 lines are of another run and left out",
        "1 line is out of order or twice there, from line 24 on, and left out",
    )
    joined = read(tmp_path, [*lines, *other])
    assert len(joined.steps) == 9
    assert joined.problems == ("42 lines before line 43 are of another run and were left out",)


def test_a_file_from_before_is_read_as_it_is_and_can_be_gone_on_with(tmp_path, lines):
    run = read(tmp_path, [bare(line) for line in lines])
    assert run.problems == () and len(run.steps) == 40 and run.end is not None
    writer = store.resume(tmp_path / "run.jsonl", header())
    writer.append(step(41))
    writer.close()
    again = store.read(tmp_path / "run.jsonl")
    assert again.problems == () and len(again.steps) == 41 and again.resumes[0]["unchecked"] == len(lines)
    cut = (tmp_path / "run.jsonl").read_bytes().splitlines(keepends=True)
    assert read(tmp_path, cut[:5] + cut[8:]).problems == (
        "3 lines of the run, numbers 40 to 42, are missing before line 40 of the file",
    )


def test_lines_without_a_check_among_others_are_not_believed(tmp_path, lines):
    forged = read(tmp_path, [bare(lines[0]), bare(lines[1]), *lines[2:]])
    assert "lines 1 to 2 bear no check as the others do and were left out" in forged.problems
    assert len(forged.steps) == 39
    assert len(read(tmp_path, [*lines[:9], bare(lines[9]), *lines[10:]]).steps) == 39


def test_a_file_of_which_every_line_was_changed_is_refused(tmp_path, lines):
    with pytest.raises(store.StoreError, match=r"all lines of .* are damaged"):
        read(tmp_path, [line.replace(b'"kind":', b'"kind": ') for line in lines])
