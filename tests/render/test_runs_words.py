"""Whether a run goes on is judged by time."""

from __future__ import annotations

import os
import time

import pytest

from normgauge.core import store
from normgauge.render.runs_data import labelled_runs
from normgauge.render.runs_words import run_sentences
from tests.core.store.made import header, step


@pytest.mark.parametrize(
    ("apart", "ago", "said"),
    [
        (1.0, 5, "it is still being written."),
        (1.0, 300, "nothing was written since "),
        (60.0, 300, "it is still being written."),  # its lines come once a minute
        (1.0, -(10**6), "it is still being written."),  # a clock that was set back
    ],
)
def test_a_run_without_an_end_is_judged_by_its_last_line(tmp_path, apart, ago, said):
    writer = store.create(tmp_path, header())
    for number in range(1, 20):
        writer.append({**step(number), "time": apart * number})
    writer.close()
    os.utime(writer.path, (time.time() - ago,) * 2)
    (item,) = labelled_runs([store.read(tmp_path)])
    assert f"The run has no end: {said}" in run_sentences(item)[-1]
