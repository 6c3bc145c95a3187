"""`normgauge sweep` from the command line to the exit code."""

from __future__ import annotations

import csv
import json
import signal
import sys
from pathlib import Path

import pytest
import torch

from normgauge.cli import main
from normgauge.lab.sweep import on_ray
from normgauge.lab.sweep.config import read_config
from normgauge.lab.sweep.drive import Folder
from normgauge.lab.sweep.files import CHECKPOINT, LOCK, RECORD, exclusive_lock, file_digest, read_imports
from normgauge.lab.sweep.space import expand_trials
from tests.lab.sweep.made import HEAD, written

GRID = '[grid]\n"network.options.norm" = ["batch", "none"]\n"training.lr" = [1e-2, 1e-1]'
OWN = HEAD.replace('build = "mlp"', 'build = "nets.py:build"').replace("sizes = [64, 8, 10]", "")


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """Run the command in a folder of its own; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["sweep", *arguments])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


def test_a_dry_run_lists_and_runs_nothing(sweep, tmp_path):
    path = written(tmp_path, GRID, top="seeds = 12")
    code, out, err = sweep(str(path), "--dry-run")
    assert (code, err) == (0, "")
    assert "48 trials (4 points × 12 seeds): 0 done, 48 to run." in out and "and 8 more" in out
    assert out.count("new") == 40 and "norm" in out and "lr" in out
    for gate in (("--fail-above", "1"), ("--fail-on-failed",)):
        code, _, err = sweep(str(path), "--dry-run", *gate)
        assert code == 0 and err.startswith("normgauge: --dry-run judges nothing: ") and gate[0] in err
    assert not (tmp_path / "sweeps").exists()


def test_a_sweep_from_the_first_run_to_the_last(sweep, tmp_path):
    rates = '[grid]\n"training.lr" = [1e-2, 1e-1]'
    path = written(tmp_path, rates, top="seeds = 2\nname = 'n'", head=HEAD.replace("epochs = 2", "epochs = 1"))
    page = tmp_path / "n.html"
    code, out, _ = sweep(str(path), "--workers", "2", "--html", str(page), "--json", "n.json")
    assert code == 0 and out.count("n.html") == 1 and "Page:" in out
    assert "4 of 4 trials done, 0 failed." in out and "Sweep n" in out and "±" in out and "2/2" in out
    data = json.loads((tmp_path / "n.json").read_text())
    assert data == json.loads((tmp_path / "sweeps/n/results.json").read_text())
    assert [point["done"] for point in data["points"]] == [2, 2]
    assert "at most, point: proved." in out
    held = {"evidence": "proved", "path_dependent": False, "failure_probability": 0.0}
    assert all(trial["known"] == {"point": held} for trial in data["trials"])
    values = [trial["values"]["test_loss"] for trial in data["trials"][:2]]
    assert data["points"][0]["mean"]["test_loss"] == pytest.approx(sum(values) / 2)
    assert data["points"][0]["std"]["test_loss"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    with (tmp_path / "sweeps/n/results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows] == [trial["id"] for trial in data["trials"]]
    assert float(rows[3]["test_loss"]) == data["trials"][3]["values"]["test_loss"]
    assert {row["point.evidence"] for row in rows} == {"proved"}
    text = page.read_text(encoding="utf-8")
    assert "mean ± standard deviation over seeds" in text and "at most, point: proved." in text
    assert text.count("<figcaption>") == 2 and "Content-Security-Policy" in text

    begun = {trial["id"]: trial["attempts"] for trial in data["trials"]}
    grown = rates.replace("[1e-2, 1e-1]", "[1e-2, 1.0]")
    written(tmp_path, grown, top="seeds = 2\nname = 'n'", head=HEAD.replace("epochs = 2", "epochs = 1"))
    code, out, _ = sweep(str(path), "--show")
    assert code == 0 and "2 of 4 trials done, 0 failed." in out
    assert "2 trials of another config in sweeps/n: not shown here." in out
    code, out, _ = sweep(str(path), "--json", "-", "--sort", "gap")
    data = json.loads(out)
    assert code == 0 and [trial["attempts"] for trial in data["trials"]] == [1] * 4
    assert sum(trial["id"] in begun for trial in data["trials"]) == 2


def test_failures_are_told_and_the_rest_is_done(sweep, tmp_path):
    path = written(
        tmp_path,
        '[grid]\n"network.options.how" = ["well", "raise", "exit", "once"]',
        '[run]\nout = "o"',
        head=OWN,
        top="monitor = false",
    )
    code, out, _ = sweep(str(path), "--html", "o.html")
    assert code == 0 and "2 of 4 trials done, 2 failed." in out
    assert "In one run a trial is given up after 2 attempts (run.retries); the same command tries it again" in " ".join(
        out.split()
    )
    assert "(how raise, seed 0), 2 attempts in all: ValueError: no such network today" in " ".join(out.split())
    assert "(how exit, seed 0), 2 attempts in all: about to leave" in out
    trials = json.loads((tmp_path / "o/results.json").read_text())["trials"]
    assert [trial["attempts"] for trial in trials] == [1, 2, 2, 2] and trials[3]["status"] == "done"
    assert "no such network today" in (tmp_path / "o.html").read_text()
    (tmp_path / "nets.py").write_text((tmp_path / "nets.py").read_text() + "# changed\n")
    out = " ".join(sweep(str(path), "--show")[1].split())
    assert (
        "2 finished trials used an earlier version of your code, or of files it reads: o/trials/" in out
        and "with --fresh" in out
    )
    code, _, err = sweep(str(path), "--show", "--fail-on-failed")
    assert code == 1 and "--fail-on-failed: of 4 trials 2 failed: " in err and "2 of 4 trials used earlier code" in err


@pytest.mark.parametrize("keep", [False, True])
def test_a_trial_that_outlived_its_sweep_is_done(sweep, tmp_path, keep):
    """As a kill leaves it that comes after the result and before the sweep has noted it."""
    path = written(tmp_path, f"[run]\nkeep = {str(keep).lower()}", top="monitor = false")
    assert sweep(str(path))[0] == 0
    (place,) = (tmp_path / "sweeps/a/trials").iterdir()
    record = json.loads((place / RECORD).read_text())
    (place / RECORD).write_text(json.dumps({**record, "status": "running", "seconds": 0.0}))
    (place / CHECKPOINT).touch()
    code, out, _ = sweep(str(path), "--json", "a.json")
    assert code == 0 and "1 of 1 trial done" in out
    record = json.loads((place / RECORD).read_text())
    assert (record["status"], record["attempts"]) == ("done", 1) and record["seconds"] > 0
    assert json.loads((tmp_path / "a.json").read_text())["trials"][0]["seconds"] == record["seconds"]
    assert (place / CHECKPOINT).exists() == keep


def test_what_could_not_be_gauged_is_told(sweep, tmp_path):
    path = written(tmp_path, '[grid]\n"network.options.how" = ["well", "nan"]', head=OWN, top="monitor = false")
    (tmp_path / "nets.py").write_text(
        "from normgauge.lab.zoo import mlp\n\n"
        "def build(how):\n    model = mlp((64, 8, 10))\n"
        "    next(model.parameters()).data.fill_(float('nan' if how == 'nan' else 0.1))\n    return model\n"
    )
    code, out, err = sweep(str(path))
    out = " ".join(out.split())
    assert (code, err) == (0, "") and "2 of 2 trials done, 0 failed, 1 could not be gauged." in out
    assert "(how nan, seed 0): weight layers.0.linear.weight holds NaN" in out
    assert sweep(str(path), "--show", "--fail-on-failed")[0] == 1
    with (tmp_path / "sweeps/a/results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0]["notes"] == "" and "holds NaN" in rows[1]["notes"] and rows[1]["point.log10_upper"] == ""
    code, _, err = sweep(str(path), "--show", "--fail-above", "9")
    assert code == 1 and f"no limit is held: 1 of 2 trials has no upper bound in scope point: {rows[1]['id']}" in err
    code, _, err = sweep(str(path), "--show", "--fail-above", "-9", "--fail-on-failed")
    assert code == 3 and "limit FAILED: 1 of 2 trials above 10^-9" in err and "(how well, seed 0)" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_stops_in_good_order(sweep, tmp_path, monkeypatch, number, code):
    """One line that says how far it came; the engine is left, and signals do again what they did."""
    path, left, before = written(tmp_path, GRID), [], signal.getsignal(number)

    class Stand:
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            left.append(True)

    monkeypatch.setattr("normgauge.cli.sweep_run.Local", Stand)
    monkeypatch.setattr("normgauge.cli.sweep_run.drive", lambda *_, **__: signal.raise_signal(number))
    found, out, err = sweep(str(path))
    assert (found, out, left) == (code, "", [True])
    assert err == "normgauge: stopped, 0 of 4 trials done; the same command goes on\n"
    assert signal.getsignal(number) is before


def test_a_helper_that_changed_is_told_and_run_again(sweep, tmp_path):
    """What the user's file imports from beside it is its code too, also where it does so while it builds."""
    path = written(tmp_path, '[run]\nout = "o"', head=OWN, top="monitor = false")
    (tmp_path / "helper.py").write_text("width = 8\n")
    (tmp_path / "nets.py").write_text(
        "from normgauge.lab.zoo import mlp\n\ndef build():\n    import helper\n    return mlp((64, helper.width, 10))\n"
    )
    assert sweep(str(path))[0] == 0
    (tmp_path / "helper.py").write_text("width = 16\n")
    code, out, _ = sweep(str(path), "--json", "a.json")
    assert code == 0 and "1 finished trial used an earlier version of your code" in out
    (trial,) = json.loads((tmp_path / "a.json").read_text())["trials"]
    assert trial["outdated"] and trial["attempts"] == 1
    code, out, _ = sweep(str(path), "--fresh", "--json", "b.json")
    assert code == 0 and "earlier version" not in out
    (again,) = json.loads((tmp_path / "b.json").read_text())["trials"]
    assert not again["outdated"] and again["attempts"] == 1 and again["values"] != trial["values"]
    assert sweep(str(path), "--fresh", "--json", "b.json")[0] == 0
    assert json.loads((tmp_path / "b.json").read_text())["trials"][0]["attempts"] == 1


def test_weights_that_changed_pass_no_gate(sweep, tmp_path):
    """A file that the network is built from is measured as it is now, or the gate is red and says why."""
    path = written(tmp_path, '[run]\nout = "o"', head=OWN, top="monitor = false")
    (tmp_path / "nets.py").write_text(
        "import pathlib, torch\nfrom normgauge.lab.zoo import mlp\n\ndef build():\n    model = mlp((64, 8, 10))\n"
        "    weights = torch.load(pathlib.Path(__file__).parent / 'head.pt', weights_only=True)\n"
        "    list(model.parameters())[-2].data.copy_(weights)\n    return model\n"
    )
    weights, gate = torch.ones(10, 8) / 100, ("--fail-on-failed", "--fail-above", "2")
    torch.save(weights, tmp_path / "head.pt")
    page = tmp_path / "a.html"
    code, _, err = sweep(str(path), *gate, "--html", str(page))
    assert (
        code == 0 and err.startswith("normgauge: limit passed: ") and "limit passed: 0 of 1 trial" in page.read_text()
    )
    (place,) = (tmp_path / "o/trials").iterdir()
    assert read_imports(place) == {name: file_digest(tmp_path / name) for name in ("head.pt", "nets.py")}
    torch.save(weights * 1e6, tmp_path / "head.pt")
    code, out, err = sweep(str(path), *gate, "--html", str(page))
    assert code == 1 and err.count("\n") == 1 and "1 of 1 trial used earlier code, or files that have changed" in err
    assert (
        "run again with --fresh" in err and "limit passed" not in page.read_text() and "no verdict" in page.read_text()
    )
    assert "or of files it reads" in " ".join(out.split())
    code, out, err = sweep(str(path), *gate, "--fresh")
    assert code == 3 and "limit FAILED: 1 of 1 trial above 10^2" in err and "earlier" not in out + err


def test_everything_can_run_again(sweep, tmp_path):
    """What nothing can see has changed, such as the data."""
    path = written(tmp_path, '[run]\nout = "o"', top="monitor = false")
    written_at = set()
    for arguments, runs in (((), 1), (("--fresh",), 1), (("--fresh-all",), 2)):
        assert sweep(str(path), *arguments, "--json", "a.json")[0] == 0
        (trial,) = json.loads((tmp_path / "a.json").read_text())["trials"]
        written_at.add((tmp_path / "o/trials" / trial["id"] / "result.json").stat().st_mtime_ns)
        assert trial["attempts"] == 1 and len(written_at) == runs  # those before it are of another result


def test_trials_whose_sweep_was_killed_are_said_to_go_on(sweep, tmp_path):
    path = written(tmp_path, GRID)
    trials = tmp_path / "sweeps/a/trials"
    assert sweep(str(path), "--dry-run")[0] == 0
    read = read_config(path)
    folder = Folder(read.out, read.folder, {})
    for trial in expand_trials(read)[:2]:
        folder.begin(trial)
    assert len(list(trials.iterdir())) == 2
    assert "0 failed. 2 stopped: the same command goes on with them." in " ".join(sweep(str(path), "--show")[1].split())
    if sys.platform != "win32":
        with exclusive_lock(tmp_path / "sweeps/a" / LOCK):
            assert "2 running." in sweep(str(path), "--show")[1]


def test_all_failed_is_an_exit_code(sweep, tmp_path):
    path = written(tmp_path, '[grid]\n"network.options.how" = ["raise"]', "[run]\nretries = 0", head=OWN)
    code, out, err = sweep(str(path))
    assert err.splitlines()[-1].startswith("normgauge: every trial failed: ")
    assert code == 1 and "0 of 1 trial done, 1 failed." in out and "Sweep a" not in out
    assert (
        "1 attempt in all: " in out
        and "1 attempts" not in out
        and "In one run a trial is given up after 1 attempt " in " ".join(out.split())
    )


def test_data_that_are_not_there(sweep, tmp_path, monkeypatch):
    monkeypatch.delenv("NORMGAUGE_DATA", raising=False)
    path = written(tmp_path, head=HEAD.replace("limit = 48", "set = 'cifar10'"))
    code, _, err = sweep(str(path))
    assert code == 1 and f"{path}: cifar10: no folder to look in. Give data_dir in [data], or set NORMGAUGE_DATA" in err
    assert "To get the data: " in err and err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks on Windows")
def test_a_second_sweep_in_the_same_folder_is_refused(sweep, tmp_path):
    path = written(tmp_path, GRID)
    (tmp_path / "sweeps/a").mkdir(parents=True)
    with exclusive_lock(tmp_path / "sweeps/a" / LOCK):
        code, _, err = sweep(str(path))
    assert code == 1 and "another sweep runs in sweeps/a; wait for its end, or give another folder with --out" in err


def test_ray_is_asked_for_what_the_config_says(sweep, tmp_path, monkeypatch):
    """Without Ray itself: the engine that is made, and for how many cores and devices."""
    asked = []

    class Stand:
        def __init__(self, workers, limits, address, gpus):
            asked.append((workers, limits.threads, limits.timeout, address, gpus))
            raise KeyboardInterrupt

    monkeypatch.setattr(on_ray, "OnRay", Stand)
    path = written(tmp_path, "[run]\nworkers = 3\nthreads = 2\ntimeout = 9", head=HEAD + "[random]\n", name="r.toml")
    path.write_text(path.read_text().replace("[random]\n", "").replace("epochs = 2", "epochs = 2\ndevice = 'cuda'"))
    assert sweep(str(path), "--engine", "ray", "--address", "auto")[0] == 130
    assert asked == [(3, 2, 9.0, "auto", 1.0)]


def test_a_person_sees_how_far_it_is(sweep, tmp_path, monkeypatch):
    import contextlib

    from normgauge.cli import sweep_run as command

    told: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def bar():
        yield lambda stage, fraction: told.append((stage, fraction))

    monkeypatch.setattr(command, "is_watched", lambda: True)
    monkeypatch.setattr(command, "progress_bar", bar)
    path = written(tmp_path, "[measure]\nsamples = 2", head=HEAD.replace("[measure]\nsamples = 4", ""))
    assert sweep(str(path))[0] == 0
    assert (
        told[0] == ("0 of 1 trials done", 0.0) and told[-1][0].startswith("1 of 1 trials done") and told[-1][1] == 1.0
    )


def test_the_examples_pass_every_check(sweep):
    folder = Path(__file__).parents[2] / "examples"
    for path, count in ((folder / "sweep.toml", 24), (folder / "sweep_random.toml", 20)):
        code, out, err = sweep(str(path), "--dry-run")
        assert (code, err) == (0, "") and f"{count} trials" in out


LOOKS = """
from torch import nn
from normgauge.lab.zoo import mlp

class Looks(nn.Module):
    def forward(self, x):
        return 50 * x if x.max() > 1e9 else x

def build(look=True):
    return nn.Sequential(mlp((64, 8, 10)), Looks()) if look else mlp((64, 8, 10))
"""


def test_a_sweep_tells_how_its_bounds_are_known_and_passes_no_limit_on_one_path(sweep, tmp_path):
    head = HEAD.replace('build = "mlp"', 'build = "looks.py:build"').replace("sizes = [64, 8, 10]", "")
    both = '[grid]\n"network.options.look" = [true, false]'
    path = written(tmp_path, both, head=head.replace("epochs = 2", "epochs = 1"), top="monitor = false\nname = 'n'")
    (tmp_path / "looks.py").write_text(LOOKS)
    code, out, err = sweep(str(path), "--fail-above", "9", "--html", "n.html", "--json", "n.json")
    trials = json.loads((tmp_path / "n.json").read_text())["trials"]
    one, other = (trial["id"] for trial in trials)
    told = f"at most, point: proved on the same path in 1: {one}; proved in 1: {other}."
    assert code == 1 and f"no limit is held: in {one} the path through" in err and "Allow it: --allow path" in err
    assert told in " ".join(out.split()) and told in (tmp_path / "n.html").read_text(encoding="utf-8")
    assert [trial["known"]["point"]["path_dependent"] for trial in trials] == [True, False]
    with (tmp_path / "sweeps/n/results.csv").open() as stream:
        assert [row["point.evidence"] for row in csv.DictReader(stream)] == ["proved on the same path", "proved"]
    assert sweep(str(path), "--show", "--fail-above", "9", "--allow", "path")[0] == 0
