"""One trial: what it measures, that it resumes, and what it leaves behind."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from normgauge.core import store
from normgauge.core.errors import InputError, LoadError
from normgauge.lab.sweep import child
from normgauge.lab.sweep.drive import Folder
from normgauge.lab.sweep.files import RESULT, Record, Result, measure_names, read_record, read_result, write_result
from normgauge.lab.sweep.space import expand_trials
from tests.lab.sweep.made import HEAD, config


def begun(tmp_path: Path, *parts: str, **options: str) -> tuple[Path, Record]:
    read = config(tmp_path, *parts, **options)
    place = Folder(tmp_path / "out", read.folder, {}).begin(expand_trials(read)[0])
    record = read_record(place)
    assert record is not None
    return place, record


def test_a_trial_measures_what_it_says(tmp_path):
    head = HEAD.replace("samples = 4", 'samples = 6\nscopes = ["point", "ball:0.1"]')
    place, record = begun(tmp_path, '[grid]\n"network.options.norm" = ["batch"]', head=head)
    result = child.run_trial(place, record)
    assert list(result.values) == measure_names(["point", "ball:0.1"])
    values = {name: value for name, value in result.values.items() if value is not None}
    assert values["gap"] == pytest.approx(values["train_accuracy"] - values["test_accuracy"])
    assert values["loss_gap"] == pytest.approx(values["test_loss"] - values["train_loss"])
    assert values["point.log10_median"] <= values["point.log10_lower"] <= values["point.log10_upper"]
    assert values["point.log10_upper"] <= values["point.log10_balanced"] <= values["point.log10_folded"] + 1e-9
    assert values["point.log10_upper"] <= values["ball:0.1.log10_upper"]
    assert values["alarms"] >= 0 and len(result.losses) == 2 and result.losses[1] < result.losses[0]
    run = store.read(place / "run.jsonl")
    assert run.header["config"]["user"]["settings"]["network.options.norm"] == "batch"
    assert [step["step"] for step in run.steps][-1] <= 6 and run.end is not None
    assert child.run_trial(place, record) == result  # from its checkpoint


def test_the_seed_decides(tmp_path):
    results = []
    for seed in (0, 0, 1):
        place, record = begun(tmp_path, top=f"seeds = [{seed}]\nmonitor = false")
        (place / "checkpoint.pt").unlink(missing_ok=True)
        results.append(child.run_trial(place, record).values["test_loss"])
        assert not (place / "run.jsonl").exists()
    assert results[0] == results[1] != results[2]


def test_a_resumed_trial_ends_as_if_it_had_not_stopped(tmp_path, monkeypatch):
    """Stopped in the second of three epochs; the run file goes on at the step the checkpoint was written at."""
    head = HEAD.replace("epochs = 2", "epochs = 3")
    place, record = begun(tmp_path, head=head)
    whole = child.run_trial(place, record)
    (place / "checkpoint.pt").unlink()
    passed = child.Watched.on_step

    def stop(self, step, loss):
        passed(self, step, loss)
        if step == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(child.Watched, "on_step", stop)
        with pytest.raises(KeyboardInterrupt):
            child.run_trial(place, record)
    assert (place / "checkpoint.pt").exists()
    again = child.run_trial(place, record)
    assert again.losses == whole.losses
    assert {k: v for k, v in again.values.items() if k != "alarms"} == {
        k: v for k, v in whole.values.items() if k != "alarms"
    }
    run = store.read(place / "run.jsonl")
    assert len(run.resumes) == 1 and run.resumes[0]["step"] == 3
    assert run.end is not None and run.end["step"] == 9


def test_a_network_that_diverges_has_a_result_without_readings(tmp_path):
    head = HEAD.replace("epochs = 2", "epochs = 2\nlr = 1e30\noptimizer = 'sgd'")
    place, record = begun(tmp_path, head=head, top="monitor = false")
    result = child.run_trial(place, record)
    assert math.isnan(result.values["train_loss"] or 0.0) and "point.log10_upper" not in result.values
    (note,) = result.notes
    assert note.startswith("not gauged: ")
    write_result(place, result)
    assert json.loads((place / RESULT).read_text())["values"]["train_loss"] == "nan"
    stored = read_result(place)
    assert stored is not None and math.isnan(stored.values["train_loss"] or 0.0) and stored.notes == result.notes


def test_a_function_that_gives_no_network(tmp_path):
    head = '[network]\nbuild = "nets.py:build"\n[network.options]\nhow = "number"'
    place, record = begun(tmp_path, head=head)
    with pytest.raises(LoadError, match=r"expected a torch.nn.Module, got int"):
        child.run_trial(place, record)


def test_the_exit_code_and_the_last_words(tmp_path, capsys, monkeypatch):
    head = HEAD.replace("[64, 8, 10]", "[65, 8, 10]")
    place, _ = begun(tmp_path, head=head, top="monitor = false")

    def refuse(*_: object) -> Result:
        raise InputError("two\n  lines")

    monkeypatch.setattr(child, "run_trial", refuse)
    assert child.run_folder(place) == 1 and capsys.readouterr().err == "InputError: two lines\n"
    assert child.run_folder(tmp_path / "nowhere") == 1 and "expected a trial.json" in capsys.readouterr().err
    monkeypatch.setattr(child, "run_trial", lambda *_: Result({"gap": 1.0}))
    assert child.run_folder(place) == 0
    stored = read_result(place)
    assert stored is not None and stored.seconds is not None and 0 <= stored.seconds < 60


def test_alarms_of_a_file_that_is_not_there(tmp_path):
    assert child.alarm_count(tmp_path) is None
