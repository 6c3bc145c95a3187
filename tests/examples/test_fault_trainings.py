from __future__ import annotations

import multiprocessing

import pytest

if "forkserver" not in multiprocessing.get_all_start_methods():
    pytest.skip("the bench forks its trainings", allow_module_level=True)

from benchmarks.fault_trainings import TRAININGS
from benchmarks.fault_trainings.__main__ import figures, judged, observed
from benchmarks.fault_trainings.training import ACCEPTED, Training, named, sample_words

BY_NAME = {row.name: row for row in TRAININGS}


def said(step: int, sentence: str, layer: str = "") -> dict[str, object]:
    return {"step": step, "alarm": "any", "layer": layer, "sentence": sentence}


def test_every_training_has_its_own_name_and_half_are_healthy() -> None:
    healthy = [row for row in TRAININGS if not row.fault]
    assert len(BY_NAME) == len(TRAININGS) >= 44
    assert min(len(healthy), len(TRAININGS) - len(healthy)) >= 22


def test_every_fault_of_the_list_is_there_with_its_mended_twin() -> None:
    sick = [row for row in TRAININGS if row.fault]
    assert {row.fault for row in sick} == {*ACCEPTED, "nan sample"}
    assert all(row.accepted and row.mended is not None for row in sick)


def test_a_symptom_does_not_name_the_cause() -> None:
    rate = ACCEPTED["rate too large"]
    assert named(rate, "The learning rate\nis too high: try a tenth of it.")
    assert not named(rate, "The loss is NaN at step 4. Look at the learning rate and at divisions in the loss.")
    assert named(sample_words(23), "sample 23 of the batch holds NaN") and not named(sample_words(23), "NaN at step 23")


def test_the_first_incident_decides_and_must_not_come_before_the_fault() -> None:
    row = Training("x", BY_NAME["mlp-adam"].train, "dead relus", "body", 10, ("dead",))
    right, wrong = said(12, "dead units", "body.2"), said(11, "the loss is NaN")
    assert judged(row, [right, wrong]) == {"right": True, "delay": 2, "layer_right": True}
    assert not judged(row, [wrong, right])["right"]
    assert not judged(row, [said(9, "dead units")])["right"]
    assert not judged(row, [])["right"]


def test_figures_count_what_was_said() -> None:
    healthy = {"name": "a", "fault": "", "right": False, "alarms": [said(1, "x")], "written": [{}]}
    named_right = {
        "name": "b",
        "fault": "f",
        "right": True,
        "delay": 4,
        "layer_right": True,
        "alarms": [{}, {}],
        "written": [{}],
    }
    silent = {"name": "c", "fault": "f", "right": False, "alarms": []}
    found = figures([healthy, named_right, silent])
    assert (found["named_right"], found["faults"], found["silent"]) == (1, 2, 1)
    assert found["healthy_alarmed"] == ["a"] and found["callback_and_file_differ"] == ["b"]
    assert found["incidents_a_faulty_run"] == 1.0 and found["median_delay"] == 4


def test_a_training_runs_under_the_monitor_in_a_process_of_its_own() -> None:
    found = observed("benchmarks.fault_trainings", BY_NAME["mlp-sgd-rate"], "every1")
    assert found["steps"] == 300 and [a["step"] for a in found["alarms"]] == [a["step"] for a in found["written"]]
    assert found["right"]
