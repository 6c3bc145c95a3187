"""The plain side loads without torch; checked in a fresh process, since this one has long imported it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

PLAIN = [
    "import normgauge",
    "import normgauge.core.reading, normgauge.core.interval, normgauge.core.bound",
    "import normgauge.render.console, normgauge.render.page, normgauge.render.verdict, normgauge.render.svg",
    "import normgauge.core.store, normgauge.render.runs, normgauge.monitor.watching.scene",
    "import normgauge; normgauge.Reading, normgauge.report, normgauge.Scope, normgauge.NormgaugeError",
    "from normgauge.cli import build_parser; build_parser()",
]
HEAVY = {"torch", "numpy", "scipy", "sklearn", "transformers"}


def loaded(statement: str) -> set[str]:
    """The heavy packages in memory after a statement."""
    script = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", PLAIN)
def test_the_plain_side_loads_without_torch(statement):
    assert loaded(statement) == set()


def test_the_lazy_names_do_load_torch_so_that_the_test_above_can_fail():
    assert "torch" in loaded("import normgauge; normgauge.gauge")


def test_import_is_quick():
    def seconds(statement: str) -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - begun

    bare = min(seconds("pass") for _ in range(5))
    assert min(seconds("import normgauge") for _ in range(5)) - bare < 0.15
