"""The arguments of `normgauge sweep`."""

from __future__ import annotations

import pytest

from normgauge.cli import main
from tests.lab.sweep.made import written

GRID = '[grid]\n"network.options.norm" = ["batch", "none"]\n"training.lr" = [1e-2, 1e-1]'


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """Run the command in a folder of its own; returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["sweep", *arguments])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.toml"], "cannot read nowhere.toml: No such file or directory"),
        (["a.toml", "--x", "training.lrr"], "--x training.lrr: this sweep does not vary it; nearest: training.lr"),
        (["a.toml", "--x", "training.lr", "--x", "training.lr"], "expected one setting, or two different ones"),
        (["a.toml", "--y", "test_acc"], "--y test_acc: no such measure; nearest: test_accuracy"),
        (["a.toml", "--sort", "zzz"], "--sort zzz: no such measure; known: train_accuracy"),
        (["a.toml", "--address", "x"], "--address is for --engine ray"),
        (["a.toml", "--html", "no/where.html"], "cannot write no/where.html"),
        (["a.toml", "--out", "a.toml"], "cannot write a.toml: File exists"),
    ],
    ids=["no file", "x", "x twice", "y", "sort", "address", "html", "out"],
)
def test_mistakes_take_one_line(sweep, tmp_path, arguments, message):
    written(tmp_path, GRID)
    code, out, err = sweep(*arguments)
    assert (code, out) == (1, "") and err.startswith("normgauge: ") and err.count("\n") == 1 and message in err


@pytest.mark.parametrize("count", ["0", "two"])
def test_a_number_of_workers(sweep, capsys, count):
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "a.toml", "--workers", count])
    assert ended.value.code == 1 and "expected a whole number of at least 1" in capsys.readouterr().err
