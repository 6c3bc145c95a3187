"""What is said of a loss: its ends as they were, what lies between, and where it was no number."""

from __future__ import annotations

import math

import pytest

from normgauge.core import store
from normgauge.monitor.journal import calm_losses
from normgauge.render.runs_console import run_blocks, run_snapshot
from normgauge.render.runs_data import labelled_runs
from normgauge.render.runs_loss import loss_sentence
from normgauge.render.table import Grid
from tests.core.store.made import header, step


def run_of(path, losses, apart: int = 1, end: float | None = None):
    """A run that was read every so many steps, as the monitor writes one."""
    writer = store.create(path, header(0))
    for last in range(apart, len(losses) + 1, apart):
        seen = losses[last - apart : last]
        known = {"loss": seen[-1], "loss_mean": sum(seen) / apart, "loss_max": max(seen)}
        known |= calm_losses(list(enumerate(seen, last - apart + 1)))
        told = {name: value if math.isfinite(value) else str(value) for name, value in known.items()}
        writer.append({**step(last, 1), **told})
    record = {"kind": "end", "step": len(losses), "share": 0.02}
    writer.append(record if end is None else {**record, "loss": end})
    writer.close()
    return labelled_runs([store.read(path)])[0]


def said(path, losses, **given) -> str:
    return loss_sentence(run_of(path, losses, **given))


EXPLODED = [*(4.2 - 0.08 * k for k in range(12)), *(3.3 * 1.03**k for k in range(126))]
EXPLODED += [140 * 0.974**k for k in range(126)]
JUMPED = [*(4.2 - 0.015 * k for k in range(110)), *[2.55] * 40, *(4.5 - 0.02 * k for k in range(95)), *[2.6] * 5]


def test_a_loss_that_exploded_is_not_said_to_have_hardly_moved(tmp_path):
    assert said(tmp_path, EXPLODED) == (
        "The loss rose from 4.2 at step 1 to 5.2 at step 264; its mean, line by line, was lowest in steps 9 to 16 "
        "(3.45) and it rose to 140 by step 139."
    )


@pytest.mark.parametrize("apart", [1, 10, 25])
def test_a_jump_that_was_made_good_is_told_with_its_step(tmp_path, apart):
    told = said(tmp_path, JUMPED, apart=apart)
    assert told.startswith("The loss fell from ")
    assert f"rose to 4.5 by step {-(-151 // apart) * apart}." in told
    assert ("its mean, line by line, was lowest in steps 126 to 150 (2.55)" in told) == (
        apart == 25
    )  # the last 25 were higher
    assert ("it came hardly lower" in told) == (apart < 25)


def test_a_loss_that_came_back_says_where_it_was_lowest(tmp_path):
    told = said(tmp_path, [4.17, *(3.83 + 0.0012 * k for k in range(280))])
    assert "; its mean, line by line, was lowest in steps 2 to 9 (3.83)." in told


def test_the_steps_up_to_a_jump_count_where_the_loss_was_lowest(tmp_path):
    losses = [*(4.0 - 0.01 * k for k in range(149)), *(25.0 + k for k in range(31))]
    told = said(tmp_path, losses, apart=30)  # the line at 150 holds the first loss after the jump
    assert "lowest in steps 121 to 149 (2.66)." in told
    told = said(tmp_path / "b", [*losses[:140], *losses[149:]], apart=30)  # steps 121 to 150, ten of them spoiled
    assert "lowest in steps 121 to 140 (2.71)" in told


def test_since_when_a_loss_comes_hardly_lower_is_told_and_contradicts_no_fall(tmp_path):
    told = said(tmp_path, [*(4.0 - 0.1 * k for k in range(10)), *[3.0] * 200])
    assert told == (
        "The loss fell from 4 at step 1 to 3 at step 210; since step 16 it came hardly lower (by means of 8 steps or "
        "more)."
    )
    assert said(tmp_path / "b", [4.0 * 0.99**k for k in range(200)]).endswith("at step 200.")
    assert said(tmp_path / "c", [4.0 * 0.99**k for k in range(200)], apart=40).endswith("at step 200.")  # five lines


def test_the_loss_at_the_last_step_is_no_mean(tmp_path):
    losses = [3 - 0.005 * k + 0.5 * (k == 299) for k in range(300)]
    item = run_of(tmp_path, losses, apart=10)
    assert loss_sentence(item).startswith("The loss fell from 2.96 at step 10 to 2 at step 300")
    assert f"{run_snapshot(item)['loss']:.3g}" == "2"
    (row,) = [r for block in run_blocks([item]) if isinstance(block, Grid) for r in block.rows if r[0] == "loss"]
    assert row[2] == "2"


@pytest.mark.parametrize(
    ("apart", "where"),
    [(1, "The loss is not finite at step 121."), (10, "A loss between steps 121 and 130 is not finite.")],
)
def test_a_loss_that_was_lost_and_came_back_says_both(tmp_path, apart, where):
    losses = [math.nan if k == 120 else 4.0 * 0.998**k for k in range(300)]
    told = said(tmp_path, losses, apart=apart)
    assert told.startswith(f"{where} The loss fell from ") and "to 2.2 at step 300" in told
    lost = said(tmp_path / "b", [*losses[:120], *[math.nan] * 20], apart=apart)
    assert lost == where if apart == 1 else lost == "The loss is not finite at step 130."


def test_losses_below_0_and_short_runs_have_their_ends_alone(tmp_path):
    assert said(tmp_path, [-1.0, -3.0, -2.0]) == "The loss fell from -1 at step 1 to -2 at step 3."
    assert said(tmp_path / "b", [2.0, 2.0]) == "The loss is 2 at step 2, as at step 1."
    assert said(tmp_path / "c", [2.0]) == "The loss is 2 at step 1."
    assert said(tmp_path / "d", [2.0], end=1.5) == "The loss is 2 at step 1."
