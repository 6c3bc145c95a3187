"""Whether a run goes on, judged by its lock and by time; and what is said of its losses and products."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time

import pytest

from normgauge.core import store
from normgauge.render.runs_console import headline, run_blocks, run_snapshot
from normgauge.render.runs_curves import curves
from normgauge.render.runs_data import labelled_runs
from normgauge.render.runs_words import is_over, run_sentences
from normgauge.render.table import Grid
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
    os.utime(writer.path, (time.time() - ago,) * 2)
    (item,) = labelled_runs([store.read(tmp_path)])
    writer.close()
    assert f"The run has no end: {said}" in run_sentences(item)[-1]


def test_a_run_whose_process_is_gone_is_over_at_once(tmp_path):
    child = "import sys; from normgauge.core import store; from tests.core.store.made import header, step\n"
    child += "store.create(sys.argv[1], header()).append(step(1)); 1 / 0"
    failed = subprocess.run([sys.executable, "-c", child, str(tmp_path)], capture_output=True, check=False)
    assert b"ZeroDivisionError" in failed.stderr
    (item,) = labelled_runs([store.read(tmp_path)])
    assert is_over(item) and "no process writes it since 2" in run_sentences(item)[-1]
    with contextlib.closing(store.resume(tmp_path, header())):
        (item,) = labelled_runs([store.read(tmp_path)])
        assert not is_over(item) and "it is still being written." in run_sentences(item)[-1]


def test_the_last_loss_is_the_same_everywhere_and_both_numbers_say_their_step(tmp_path):
    writer = store.create(tmp_path, header())
    for number in (1, 5, 9):
        writer.append({**step(number), "loss": 5.0 - number / 2, "totals": {"log10_folded": 9.77 - number / 3}})
    writer.append({"kind": "end", "step": 12, "share": 0.02, "loss": 1.25})
    writer.close()
    (item,) = labelled_runs([store.read(tmp_path)])
    said = run_sentences(item)
    assert "The loss fell from 4.5 at step 1 to 1.25 at step 12." in said
    assert "After step 1 the folded product was 10^9.44, after step 9 10^6.77 (estimated)." in said
    snapshot = run_snapshot(item)
    assert (snapshot["step"], snapshot["loss"], snapshot["read"]) == (12, 1.25, 9)
    (loss,) = [row for block in run_blocks([item]) if isinstance(block, Grid) for row in block.rows if row[0] == "loss"]
    assert loss[1:3] == ("4.5", "1.25") and "up to step 12" in headline([item])


@pytest.mark.parametrize(
    ("share", "every", "said"), [(0.048, None, True), (0.03, None, False), (0.5, 1, False), (1.186, 1, False)]
)
def test_a_share_beyond_the_budget_says_why(tmp_path, share, every, said):
    writer = store.create(tmp_path, {**header(), "config": {"budget": 0.03, "every": every}})
    writer.append(step(1))
    writer.append({"kind": "end", "step": 12, "share": share})
    writer.close()
    (item,) = labelled_runs([store.read(tmp_path)])
    state = run_sentences(item)[-1]
    assert f"Measuring took {share:.1%} of the time since its first step" in state  # so it may be more than all of it
    assert ("counting what that one took" in state) == (share > 1) and ("the budget of 3.0%" in state) == said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            [39.25, math.nan],
            "After step 1 the folded product was 10^39.25 (estimated); when next read, at step 2, it was not finite.",
        ),
        ([2.0, 2.01], "From step 1 on the folded product stays near 10^2.01 (estimated)."),
        (
            [2.0, 2.01, None],
            "From step 1 to 2 the folded product stayed near 10^2.01 (estimated); it was not read later.",
        ),
        ([2.0, 5.0, 2.0], "After step 1 the folded product was 10^2.00, after step 3 10^2.00 (estimated)."),
        ([2.0, math.nan, 5.0], "After step 1 the folded product was 10^2.00, after step 3 10^5.00 (estimated)."),
        ([2.0], "After step 1 the folded product was 10^2.00 (estimated)."),
    ],
)
def test_a_product_is_said_to_stay_only_where_it_was_read_and_a_number(tmp_path, values, said):
    writer = store.create(tmp_path, header())
    for number, value in enumerate(values, 1):
        spelled = "nan" if value is not None and math.isnan(value) else value
        writer.append({**step(number), "totals": {"log10_folded": spelled}})
    writer.close()
    (item,) = labelled_runs([store.read(tmp_path)])
    assert said in run_sentences(item)


@pytest.mark.parametrize(
    ("rates", "ended", "said"),
    [
        ([0.001, 0.01, 0.02], False, "rises to the last step read: from 0.001 at step 1 to 0.02 at 3."),
        ([0.001, 0.01, 0.02], True, "rose to the last step read: from 0.001 at step 1 to 0.02 at 3."),
        ([0.0, 0.01, 0.02], True, "rose to the last step read: from 0 at step 1 to 0.02 at 3."),
        ([0.001, 0.02, 0.02], False, None),  # a warm-up that came to its end
        ([0.001, 0.03, 0.02], False, None),
        ([0.01, 0.011, 0.012], False, None),
        ([0.0, 0.0, 0.0], False, None),
    ],
)
def test_a_rate_that_never_stops_rising_is_told_and_drawn(tmp_path, rates, ended, said):
    writer = store.create(tmp_path, header())
    for number, rate in enumerate(rates, 1):
        writer.append({**step(number), "lr": rate})
    if ended:
        writer.append({"kind": "end", "step": 3, "share": 0.01})
    writer.close()
    (item,) = labelled_runs([store.read(tmp_path)])
    told = [sentence for sentence in run_sentences(item) if sentence.startswith("The learning rate ")]
    assert told == ([f"The learning rate {said}"] if said else [])
    rows = [row[0] for block in run_blocks([item]) if isinstance(block, Grid) for row in block.rows]
    assert ("Learning rate (observed)" in curves([item])) == ("learning rate" in rows) == (len(set(rates)) > 1)
