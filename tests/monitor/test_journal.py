"""What a monitor says: every record to the file and to the sinks, troubles once, long runs in few lines."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

import normgauge as ng
from normgauge.core import store
from normgauge.monitor.journal import DENSE_LINES, FINENESS, Journal


def test_a_sink_or_callback_that_raises_is_told_of_once_and_every_line_is_written(tmp_path):
    def broken(_):
        raise OSError("the tracker is away")

    good = []
    with ng.Monitor(nn.Linear(4, 2), tmp_path, every=1, sinks=[broken, good.append], on_alarm=broken) as monitor:
        for loss in (0.5, 0.4, math.nan):
            monitor.step(loss=loss)
    run = store.read(tmp_path)
    sentences = [note["sentence"] for note in run.notes]
    assert sum("function failed (OSError: the tracker is away)" in s for s in sentences) == 1
    assert sum("on_alarm raised OSError" in s for s in sentences) == 1
    assert [line["step"] for line in run.steps] == [1, 2, 3]
    kinds = [record["kind"] for record in good]
    assert kinds[0] == "header" and kinds[-1] == "end" and kinds.count("step") == 3


def written(tmp_path, steps, **options):
    """The step lines of a journal that was given a reading at each of these steps, with the loss equal to the step."""
    records = []
    journal = Journal(store.create(tmp_path, {}), [records.append], None, **options)
    for step in steps:
        totals = {"log10_P_w": 1 / 3, "log10_P_w_lower": 1 / 3, "chance": 1e-7 / 3, "log10_prod_l2": None}
        journal.line(
            {"step": step, "totals": totals}, [(step, float(step))], [{"norm_lower": 1 / 3, "norm_upper": 1 / 3}]
        )
    journal.close()
    return [record for record in records if record["kind"] == "step"]


def test_lines_of_a_long_run_are_apart_and_carry_the_losses_between(tmp_path):
    lines = written(tmp_path, range(1, 3001), sparse=True)
    steps = [line["step"] for line in lines]
    assert steps[:DENSE_LINES] == list(range(1, DENSE_LINES + 1)) and len(steps) < 1600
    apart = [(late, late - early) for early, late in pairwise(steps) if early > DENSE_LINES]
    assert apart and all(gap >= late / FINENESS for late, gap in apart)
    early, late = lines[-2:]
    between = range(early["step"] + 1, late["step"] + 1)
    assert late["loss_mean"] == sum(between) / len(between) and late["loss"] == late["loss_max"] == late["step"]


def test_every_reading_is_a_line_where_asked_for_and_ends_are_rounded_outward(tmp_path):
    lines = written(tmp_path, range(1, 601), sparse=False)
    assert [line["step"] for line in lines] == list(range(1, 601))
    (lower,), (upper,) = (lines[0]["columns"][name] for name in ("norm_lower", "norm_upper"))
    assert lower < 1 / 3 < upper and upper - lower < 1e-5
    totals = lines[0]["totals"]
    assert totals["log10_P_w_lower"] < 1 / 3 < totals["log10_P_w"] and totals["chance"] > 1e-7 / 3
