"""What a command does with its readings and its streams; the readings are made by hand."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
import time

import pytest

from normgauge.cli import main
from normgauge.cli.output import check_targets, progress_bar, progress_lines, write_json, write_text
from normgauge.core.errors import InputError


def test_a_file_that_cannot_be_written_is_a_mistake(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*No such file"):
        write_text("x", str(tmp_path / "none" / "a.txt"))


def test_a_target_is_tried_and_left_as_it_was(tmp_path):
    (tmp_path / "there").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "led to")
    check_targets(None, "-", "/dev/null", *(str(tmp_path / name) for name in ("there", "new", "link")))
    assert (tmp_path / "there").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]


def test_a_pipe_is_not_opened_to_try_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check_targets(str(tmp_path / "pipe"))  # without a reader, opening it would wait for ever


@pytest.mark.parametrize("target", ["{}", "{}/none/a.html", "/proc/x.html"], ids=["folder", "no folder", "refused"])
def test_a_target_that_cannot_be_opened_is_told_before_the_work(tmp_path, capsys, target):
    target = target.format(tmp_path)
    for command in (["gauge", "none.py:build", "--html"], ["report", "none.json", "--html"], ["verify", "a", "--json"]):
        assert main([*command, target]) == 1
        assert capsys.readouterr().err.startswith(f"normgauge: cannot write {target}: ")


def test_nan_never_reaches_a_file(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json({"a": math.nan}, str(tmp_path / "a.json"))


@pytest.mark.parametrize(
    "written",
    [
        "from normgauge.cli.output import write_text; write_text('line\\n' * 40000, '-')",
        "main(['explain', 'reference:resnet20'])",
    ],
)
def test_a_closed_pipe_is_no_error_and_keeps_the_exit_code(written):
    script = f"import sys; from normgauge.cli import main\n{written}\nsys.exit(3)"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (3, "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_without_a_terminal():
    with progress_bar() as report:
        assert report is None


def test_a_stage_that_takes_long_is_told_on_a_line_without_a_terminal(capsys):
    with progress_lines(silence=0.02) as report:
        report("trace", 0.0)
        report("local", 0.0)
        time.sleep(0.3)
    told = capsys.readouterr().err
    assert told.startswith("normgauge: a smaller bound: still at work after 0 s") and told.count("\n") == 1


@pytest.mark.parametrize(("step", "drawn"), [(0.1, False), (1.0, True)])
def test_progress_is_drawn_after_two_seconds_only(monkeypatch, step, drawn):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ticks = iter(range(100))
    with progress_bar(clock=lambda: step * next(ticks)) as report:
        assert report is not None
        for done in range(5):
            report("conv norms", done / 5)
    assert ("conv norms" in terminal.getvalue()) == drawn


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("options", [[], ["--json", "-"]], ids=["tables", "json"])
def test_a_full_disk_is_one_line(options):
    command = [sys.executable, "-m", "normgauge", "explain", "reference:resnet20", *options]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "normgauge: cannot write to standard output: No space left on device\n"
