"""What a command does with its readings and its streams; the readings are made by hand."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys

import pytest

from normgauge.cli import main
from normgauge.cli.gauge import gauge_exit_code, gauge_json
from normgauge.cli.output import check_targets, write_json, write_text
from normgauge.cli.progress import progress_bar
from normgauge.core.bound import Scope
from normgauge.core.errors import InputError
from normgauge.core.reading import Finding
from normgauge.core.spelled import LN10
from tests.made import reading


def test_one_scope_is_the_contract_object_and_several_add_a_list():
    point, everywhere = reading(), reading(scope=Scope.parse("global"))
    assert gauge_json([point]) == point.to_json()
    several = gauge_json([point, everywhere])
    assert several["scope"] == "point"
    assert [r["scope"] for r in several["readings"]] == ["point", "global"]


@pytest.mark.parametrize(
    ("log10_upper", "limit", "code"), [(2, None, 0), (2, 2.5, 0), (2, 1.5, 3), (math.inf, 300, 3), (math.inf, None, 0)]
)
def test_fail_above_judges_the_upper_bound(capsys, log10_upper, limit, code):
    found = [reading(log_upper=-5.0), reading(scope=Scope.parse("global"), log_upper=log10_upper * LN10)]
    assert gauge_exit_code(found, strict=False, limit=limit) == code
    assert ("above" in capsys.readouterr().err) == (code == 3)


def test_strict_lists_every_unknown_part_once(capsys):
    unknown = (Finding("a", "torch.foo"), Finding("b", "torch.bar"))
    found = [reading(unknown=unknown, log_upper=math.inf)] * 3
    assert gauge_exit_code(found, strict=True, limit=0.0) == 2
    assert capsys.readouterr().err.count("torch.foo") == 1
    assert gauge_exit_code(found, strict=False, limit=None) == 0
    assert gauge_exit_code([reading()], strict=True, limit=None) == 0


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
    ["from normgauge.cli.output import write_text; write_text('line\\n' * 40000, '-')", "main(['rules'])"],
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


def test_report_merges_saved_readings(tmp_path, capsys):
    reading().save(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps(gauge_json([reading(), reading(scope=Scope.parse("global"))])))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    out = tmp_path / "out.html"
    assert main(["report", *files, "--html", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 3 readings\n"
    assert "<h2>b</h2>" in out.read_text(encoding="utf-8")
    assert main(["report", *files, "--html", str(out), "--json", "-"]) == 0
    merged = json.loads(capsys.readouterr().out)
    assert merged["labels"] == ["a: point", "b: point", "b: global"]
    (tmp_path / "merged.json").write_text(json.dumps(merged))
    assert main(["report", str(tmp_path / "merged.json"), "--html", str(out)]) == 0
    assert "merged: b, global" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"schema": 9}', '{"schema": 1}', '{"readings": 3}', '{"readings": []}']
)
def test_report_refuses_what_is_no_reading_in_one_line(tmp_path, capsys, content):
    (tmp_path / "a.json").write_text(content)
    assert main(["report", str(tmp_path / "a.json"), "--html", str(tmp_path / "out.html")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("normgauge: ") and error.count("\n") == 1
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required"),
        (["measure"], "invalid choice"),
        (["gauge"], "the following arguments are required: MODEL"),
        (["gauge", "m", "--mode", "test"], "invalid choice"),
        (["gauge", "m", "--width", "0"], "expected a positive number"),
        (["gauge", "m", "--width", "x"], "argument --width: expected a number, got 'x'"),
        (["gauge", "m", "--fail-above", "x"], "argument --fail-above: expected a number, got 'x'"),
        (["gauge", "m", "--fail-above", "nan"], "expected a finite number"),
    ],
)
def test_a_wrong_argument_is_exit_code_one_and_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    error = capsys.readouterr().err
    assert ended.value.code == 1
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("command", [[], ["gauge"], ["rules"], ["explain"], ["report"], ["demo"]])
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "normgauge" in text and ("examples:" in text or "first steps:" in text)
    if command == ["gauge"]:
        assert "RUNS" in text and "execute nothing" in text
        assert "the widest scope measured counts" in " ".join(text.split())
    if command == ["demo"]:
        assert "one to two minutes" in text


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("normgauge 0.")
