from __future__ import annotations

import json

import pytest

from normgauge.cli import demo_networks, main


@pytest.mark.slow
def test_the_demo_tells_its_story(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo_networks, "SIZES", (64, 16, 16, 10))
    monkeypatch.setattr(demo_networks, "QUICK_SAMPLES", 5)
    out = tmp_path / "out"
    assert main(["demo", "--quick", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "P_w by" in told and "report.html" in told
    data = json.loads((out / "readings.json").read_text())
    assert list(data["accuracy"]) == ["no norm", "BatchNorm", "LayerNorm", "GroupNorm", "RMSNorm"]
    twins = data["readings"][-3:]
    p_w = [r["published"]["log10_P_w"] for r in twins]
    balanced = [r["log10_balanced"] for r in twins]
    assert max(p_w) - min(p_w) > 6
    assert max(balanced) - min(balanced) < 1e-3
    assert max(data["output_change"].values()) < 1e-9
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<figcaption>Gain by depth") == len(data["readings"]) and "Side by side" in page
    assert main(["report", str(out / "readings.json"), "--html", str(out / "again.html")]) == 0


def test_a_folder_that_cannot_be_made_is_a_mistake(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "out")]) == 1
    assert "cannot make the folder" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_told_before_training(tmp_path, capsys):
    (tmp_path / "report.html").mkdir()
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert f"cannot write {tmp_path / 'report.html'}: Is a directory" in capsys.readouterr().err
    assert not (tmp_path / "readings.json").exists()
