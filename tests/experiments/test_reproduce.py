"""What `normgauge reproduce` runs: drawing from results, and training anew at a small scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.than2025 import launch, plan, reproduce, results


def test_drawn_from_the_committed_results(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "FOLDER", finished)
    assert reproduce.main(["fig1", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == ["nets/mlp-adam"] and told["trained"] is False and told["devices"] == ["cpu"]
    assert Path(told["figure"]).read_text(encoding="utf-8").startswith("<svg")
    assert reproduce.main(["fig3", "--out", str(tmp_path)]) == 1
    assert "train them with --train" in capsys.readouterr().err


def test_trained_anew(
    finished: Path,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The launcher is tested elsewhere; here it leaves the archive it would leave."""
    import tarfile

    given: list[list[str]] = []

    def launched(arguments: list[str]) -> int:
        given.append(arguments)
        with tarfile.open(tmp_path / "results.tar.gz", "w:gz") as archive:
            for path in finished.glob("nets__*.json"):
                archive.add(path, f"results/{path.name}")
        return 75

    monkeypatch.setattr(launch, "main", launched)
    assert reproduce.main(["fig1", "--out", str(tmp_path), "--train", "--scale", "digits", "--device", "cpu"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trained"] and "run it again" in told["words"]
    options = launch.parser().parse_args(given[0])
    assert (options.scale, options.device, options.only, options.state) == (
        "digits",
        "cpu",
        ["nets/resnet18-adam", "optimizers/resnet18-adam-none", "nets/mlp-adam"],
        tmp_path / "state",
    )
    assert plan.select(plan.load(scale=options.scale), options.only)
