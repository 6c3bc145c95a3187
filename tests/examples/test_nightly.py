"""The workflow of a nightly sweep: it runs what the command takes, and keeps the folder a sweep writes in."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from normgauge.cli import build_parser
from normgauge.lab.sweep.config import read_config

ROOT = Path(__file__).parents[2]
WORKFLOW = (ROOT / "examples/ci/nightly.yml").read_text(encoding="utf-8")
GATE = r"normgauge sweep \S+\.toml .*--fail-above .*"


def nightly(line: str) -> dict[str, object]:
    return vars(build_parser().parse_args(shlex.split(line)[1:]))


def test_the_workflow_runs_what_the_command_takes():
    (line,) = re.findall(rf"- run: ({GATE})", WORKFLOW)
    given = nightly(line)
    assert given["fresh"] and given["fail_on_failed"] and given["fail_above"] == 2.0
    assert given["config"] == Path("sweep.toml") and given["html"] == "sweep.html"
    assert f"path: {given['html']}\n" in WORKFLOW and "exceeds 10^2" in WORKFLOW


def test_the_workflow_keeps_the_folder_of_a_sweep():
    """Restored and saved, also after a failure, in the one folder where sweeps write that say nothing of it."""
    steps = re.split(r"\n {6}- ", WORKFLOW)
    restored, saved = (next(step for step in steps if f"actions/cache/{what}@" in step) for what in ("restore", "save"))
    out = read_config(ROOT / "examples/sweep.toml").out
    for step in (restored, saved):
        assert f"path: {out.parts[0]}\n" in step and "github.run_id" in step
    (key,) = set(re.findall(r"\bkey: (.+)", WORKFLOW))
    (start,) = re.findall(r"restore-keys: (.+)", WORKFLOW)
    assert key.startswith(start) and "if: always()" in saved
    assert (
        steps.index(restored) < steps.index(saved)
        and "schedule:" in WORKFLOW
        and "actions/upload-artifact@" in steps[-1]
    )


def test_the_nightly_lines_of_the_pages_run_changed_code_again():
    for page in ("docs/sweep.md", "README.md"):
        lines = re.findall(GATE, (ROOT / page).read_text(encoding="utf-8"))
        assert lines and all(nightly(line)["fresh"] for line in lines)
