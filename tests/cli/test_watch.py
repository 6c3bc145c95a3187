"""The watch command and the report of runs: what they print, what they refuse, and how they end."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from normgauge.cli import main, watch
from normgauge.core import store
from normgauge.monitor.watching.scene import Scene
from tests.core.store.made import alarm, header, step, written
from tests.render.networks import residual

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path):
    return str(written(tmp_path / "runs" / "a", steps=40, alarms=(9,)).parent)


def refused(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 1
    said = capsys.readouterr()
    assert said.err.startswith("normgauge: ") and said.err.count("\n") == 1 and said.out == ""
    return said.err


def test_nothing_is_wider_than_eighty_columns(capsys, tmp_path):
    for name in ("with-a-long-name-of-its-own", "b"):
        written(tmp_path / name, steps=40, blocks=12, alarms=(9, 11))
    assert main(["watch", str(tmp_path), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and sum("update / weight" in line for line in lines) == 1


def test_once_prints_alarms_totals_and_layers(capsys, run):
    assert main(["watch", run, "--once"]) == 0
    said = capsys.readouterr().out
    for words in (
        "[LOOK] a: Sigma collapse in blocks.1.norm, since step 9", "log10 folded product", "depends on the gauge",
        "estimated", "proved", "blocks.0.linear", "sigma_collapse", "▁",
    ):  # fmt: skip
        assert words in said


def test_json_is_for_scripts(capsys, run, tmp_path):
    written(tmp_path / "runs" / "b", steps=3, created="2026-02-01")
    assert main(["watch", str(tmp_path / "runs"), "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(r["run"], r["step"], r["healthy"], r["ended"]) for r in data["runs"]] == [
        ("a", 40, False, True), ("b", 3, True, True),
    ]  # fmt: skip
    assert data["runs"][0]["alarms"][0]["layer"] == "blocks.1.norm"
    assert set(data["runs"][0]["layers"][0]) >= {"name", "norm_upper", "sigma_rms"}
    assert data["runs"][0]["notes"] == [] and "folded product" in " ".join(data["runs"][0]["sentences"])


def test_a_run_that_is_not_there_is_an_error_once_and_no_run_file_always(capsys, tmp_path):
    assert "no run at" in refused(capsys, "watch", str(tmp_path / "x"), "--once")
    assert "no run at" in refused(capsys, "watch", str(tmp_path / "x"), "--json", "-")
    (tmp_path / "y.jsonl").write_text("hello\n")
    for options in (["--once"], ["--web"], []):
        assert "is no run file" in refused(capsys, "watch", str(tmp_path / "y.jsonl"), *options)


def test_following_waits_and_shows_what_is_new(capsys, tmp_path):
    moments, folder = [], tmp_path / "a\x1b[2J"

    def pause(_: float) -> None:
        moments.append(1)
        if len(moments) == 2:
            written(folder, steps=3, end=False)
        if len(moments) == 4:
            raise KeyboardInterrupt

    watch._follow(Scene([folder]), pause)
    said = capsys.readouterr().out
    assert said.count("Waiting for a run") == 1 and said.count("Following 1 run, up to step 3") == 1
    assert "\x1b" not in said and "a\\u001b[2J" in said


@pytest.mark.parametrize("ended", [True, False])
def test_following_ends_with_the_run(capsys, tmp_path, ended):
    written(tmp_path / "a", steps=3, end=ended)
    if not ended:
        long_ago = time.time() - 10_000
        os.utime(tmp_path / "a" / "run.jsonl", (long_ago, long_ago))
    assert main(["watch", str(tmp_path / "a")]) == 0
    assert ("The run ended at step 3" if ended else "it ended without close(), by an error perhaps") in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize("with_rich", [True, False])
def test_on_a_terminal_the_view_is_drawn_over_itself(tmp_path, monkeypatch, with_rich, run):
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    def pause(_: float) -> None:
        raise KeyboardInterrupt

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "130")
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("TERM", "xterm")
    if not with_rich:
        for name in ("rich", "rich.console"):
            monkeypatch.setitem(sys.modules, name, None)
    watch._follow(Scene([run]), pause)
    text = screen.getvalue()
    assert ("\x1b[?1049h" in text) == with_rich and (watch.CLEAR in text) == (not with_rich)
    last = text[text.rindex("Following") :]
    assert "blocks.1.norm" in last and last.count("\n") <= 20


def heeds_interrupts():
    """A shell lets what it starts in the background ignore interrupts, and so would what that starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_in_a_real_terminal_an_interrupt_ends_it_cleanly(tmp_path):
    written(tmp_path / "a", steps=4, end=False)
    goes_on = store.resume(tmp_path / "a", header())  # and so does the watching
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "normgauge", "watch", str(tmp_path / "a")]
    watching = subprocess.Popen(
        command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=ROOT, preexec_fn=heeds_interrupts
    )
    os.close(theirs)
    seen = b""
    while b"blocks.1.norm" not in seen:
        seen += os.read(ours, 65536)
    watching.send_signal(signal.SIGINT)
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:
            break
    assert watching.wait(10) == 0 and b"Traceback" not in seen
    os.close(ours)
    goes_on.close()


def test_the_web_page_is_served_until_interrupted(tmp_path):
    pytest.importorskip("uvicorn", reason="the live page is normgauge[web]")
    command = [sys.executable, "-m", "normgauge", "watch", str(tmp_path / "runs"), "--web"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, cwd=ROOT, preexec_fn=heeds_interrupts) as serving:
        try:
            address = serving.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", address)
            assert "Waiting for a run" in serving.stdout.readline()
            assert "there is none yet" in fetched(address)
            with pytest.raises(urllib.error.HTTPError, match="403"):
                fetched(address.split("?")[0])
            written(tmp_path / "runs" / "a", steps=4)
            news = address.replace("/?", "/news?")
            deadline = time.monotonic() + 20
            while "No alarm up to step 4" not in fetched(news):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            serving.send_signal(signal.SIGINT)
            out, err = serving.communicate(timeout=20)
        assert (serving.returncode, out, err) == (0, "", "")


def fetched(address: str) -> str:
    """What an address answers once its server is up."""
    for _ in range(200):
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            time.sleep(0.05)
    raise AssertionError("the server never came up")


def test_open_opens_the_address_and_a_taken_port_is_said(capsys, monkeypatch, run):
    pytest.importorskip("uvicorn", reason="the live page is normgauge[web]")
    import socket
    import webbrowser

    import uvicorn

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(uvicorn.Server, "run", interrupted)
    assert main(["watch", run, "--web", "--open"]) == 0
    assert capsys.readouterr().out == f"{opened[0]}\nOpen this address. Ctrl-C ends.\n"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = refused(capsys, "watch", run, "--web", "--port", str(taken.getsockname()[1]))
    assert "cannot listen on" in said and "--port" in said


def test_watching_loads_no_torch(run):
    shown = "import sys; from normgauge.cli import main; main(['watch', sys.argv[1], '--once'])"
    script = f"{shown}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, run], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.endswith("False\n")


def test_a_report_of_runs(capsys, tmp_path, run):
    written(tmp_path / "runs" / "b", steps=9, created="2026-02-01")
    page, data = tmp_path / "a.html", tmp_path / "a.json"
    assert main(["report", str(tmp_path / "runs"), "--html", str(page), "--json", str(data)]) == 0
    assert capsys.readouterr().out == f"{page}: 2 runs\n"
    assert "2 runs side by side" in page.read_text(encoding="utf-8")
    stored = json.loads(data.read_text())
    assert stored["readings"] == [] and [r["run"] for r in stored["runs"]] == ["a", "b"]


def test_a_report_of_runs_and_readings(capsys, tmp_path, run):
    residual().save(tmp_path / "a.json")
    page = tmp_path / "a.html"
    assert main(["report", str(tmp_path / "a.json"), run, "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: 1 run, 1 reading\n"
    text = page.read_text(encoding="utf-8")
    assert "Where the truth lies" in text and "Product of folded gains" in text
    said = refused(capsys, "report", run, "--html", str(page), "--beside", "resnet20")
    assert "--beside is for readings" in said


def test_a_report_of_runs_writes_their_figures(capsys, run, tmp_path):
    figures = tmp_path / "figures"
    assert main(["report", run, "--html", str(tmp_path / "a.html"), "--figures", str(figures)]) == 0
    assert {"loss.svg", "P_w.svg", "P_w.png", "norm_lower.svg"} <= {path.name for path in figures.iterdir()}
    assert f"{figures}: " in capsys.readouterr().out


def test_the_last_full_reading_of_a_run_is_on_the_page(capsys, tmp_path):
    writer = store.create(tmp_path / "a", header())
    writer.append(step(1))
    for number in (1, 2):
        writer.append({"kind": "reading", "step": number, "reading": residual(model=f"Net{number}").to_json()})
    writer.append({"kind": "reading", "step": 3, "reading": {"schema": 99}})
    writer.append(alarm(3))
    writer.close()
    page = tmp_path / "a.html"
    assert main(["report", str(tmp_path / "a"), "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "a: full reading at step 2" in text and "Where the truth lies" in text and "reading at step 1<" not in text


def test_a_report_refuses_what_is_no_run(capsys, tmp_path):
    page = str(tmp_path / "a.html")
    assert "no run at" in refused(capsys, "report", str(tmp_path), "--html", page)
    assert "no run at" in refused(capsys, "report", str(tmp_path / "x.jsonl"), "--html", page)
    assert "a run file, its folder, or runs in a folder" in refused(capsys, "report", "nothere", "--html", page)
    for command in (["verify", str(tmp_path)], ["diff", str(tmp_path), str(tmp_path)]):
        assert "folders of runs are for `normgauge watch`" in refused(capsys, *command)
    (tmp_path / "y.jsonl").write_text("hello\n")
    assert "is no run file" in refused(capsys, "report", str(tmp_path / "y.jsonl"), "--html", page)
    assert not os.path.exists(page)
