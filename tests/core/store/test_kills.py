"""A writer killed at random points: every file can be read, and the run goes on in it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from normgauge.core import store
from tests.core.store.made import header, step

SCRIPT = """
import itertools, sys
from normgauge.core import store
from tests.core.store.made import header, step
writer = store.resume(sys.argv[1], header())
print("on", flush=True)
for number in itertools.count((writer.resumed_from or 0) + 1):
    writer.append(step(number))
"""


def test_killed_at_random_points_the_file_can_be_read_and_gone_on_with(tmp_path):
    chance = random.Random(4)
    last = 0
    for kill in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        ) as writing:
            writing.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.08))
            os.kill(writing.pid, signal.SIGKILL)
        run = store.read(tmp_path)
        steps = [s["step"] for s in run.steps]
        assert steps == list(range(1, len(steps) + 1)) and len(steps) >= last
        assert len(run.resumes) == kill
        assert sum("torn" in problem for problem in run.problems) <= kill + 1
        last = len(steps)
    assert last > 5
    writer = store.resume(tmp_path, header())
    assert writer.resumed_from == last
    writer.append(step(last + 1))
    writer.close()
    assert len(store.read(tmp_path).steps) == last + 1 and len(store.find(tmp_path)) == 1
