"""The report command: its files, what it compares with, and every mistake in one line."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from normgauge.cli import main
from normgauge.cli.gauge import gauge_json
from normgauge.core import reference
from normgauge.core.bound import Scope
from normgauge.core.spelled import LN10
from tests.made import reading
from tests.render.networks import residual


@pytest.fixture
def saved(tmp_path):
    residual().save(tmp_path / "a.json")
    return str(tmp_path / "a.json")


def refused(capsys, *arguments: str) -> str:
    """The one line of a command that must fail."""
    assert main(["report", *arguments]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("normgauge: ") and said.err.count("\n") == 1
    return said.err


def test_figures_are_written_beside_the_page(tmp_path, capsys, saved):
    out, figures = tmp_path / "a.html", tmp_path / "figures"
    arguments = [saved, "--html", str(out), "--figures", str(figures)]
    assert main(["report", *arguments, "--figure-format", "svg"]) == 0
    assert sorted(path.name for path in figures.iterdir()) == ["bracket.svg", "sigma.svg", "waterfall.svg"]
    assert capsys.readouterr().out == f"{out}: 1 reading\n{figures}: 3 files\n"


def test_without_the_converter_the_drawings_come_as_svg_and_a_line_says_why(tmp_path, capsys, saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)  # an import of it fails
    out, figures = tmp_path / "a.html", tmp_path / "figures"
    arguments = [saved, "--html", str(out), "--figures", str(figures)]
    assert main(["report", *arguments]) == 0
    assert sorted(path.name for path in figures.iterdir()) == ["bracket.svg", "sigma.svg", "waterfall.svg"]
    said = capsys.readouterr()
    need = "PNG figures need a converter: pip install 'normgauge[plot]'"
    assert (said.out, said.err) == (f"{out}: 1 reading\n{figures}: 3 files\nSVG only. {need}\n", "")
    assert main(["report", *arguments, "--figure-format", "svg"]) == 0
    assert need not in capsys.readouterr().out
    assert need in refused(capsys, *arguments, "--figure-format", "png")


def test_a_file_beside_is_a_row_of_the_bracket(tmp_path, saved):
    out = tmp_path / "a.html"
    assert main(["report", saved, "--html", str(out), "--beside", saved]) == 0
    assert 'class="row beside"><title>a: point' in out.read_text(encoding="utf-8")


def test_a_reference_beside_is_found_by_its_name(tmp_path, saved, monkeypatch):
    monkeypatch.setattr(reference, "names", lambda: ["made"])
    monkeypatch.setattr(reference, "reference_title", lambda name: f"normal for a {name} net")
    monkeypatch.setattr(reference, "load_reference", lambda name: [residual()])
    out = tmp_path / "a.html"
    assert main(["report", saved, "--html", str(out), "--beside", "made"]) == 0
    assert "normal for a made net, point: found" in out.read_text(encoding="utf-8")


def test_a_reading_of_another_schema_or_with_a_field_missing_is_named(tmp_path, capsys, saved):
    data = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    (tmp_path / "old.json").write_text(json.dumps({**data, "schema": 9}))
    del data["log10_folded"]
    (tmp_path / "cut.json").write_text(json.dumps(data))
    out = str(tmp_path / "out.html")
    assert "expected a reading of schema 1 or 2, got schema 9" in refused(
        capsys, str(tmp_path / "old.json"), "--html", out
    )
    assert "lacks the field 'log10_folded'" in refused(capsys, str(tmp_path / "cut.json"), "--html", out)
    assert not os.path.exists(out)


def test_what_cannot_be_read_or_written_is_said(tmp_path, capsys, saved):
    assert "No such file" in refused(capsys, str(tmp_path / "none.json"))
    assert "No such file" in refused(capsys, saved, "--html", str(tmp_path / "a.html"), "--beside", "no-such-name")
    assert "cannot write" in refused(capsys, saved, "--html", str(tmp_path))
    assert "cannot write" in refused(capsys, saved, "--html", str(tmp_path / "none" / "a.html"))
    page = str(tmp_path / "a.html")
    assert "cannot write figures" in refused(capsys, saved, "--html", page, "--figures", saved)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_line(capsys, saved):
    assert "cannot write /dev/full: No space left on device" in refused(capsys, saved, "--html", "/dev/full")


def test_report_merges_saved_readings(tmp_path, capsys):
    reading().save(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps(gauge_json([reading(), reading(scope=Scope.parse("global"))])))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    out = tmp_path / "out.html"
    assert main(["report", *files, "--html", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 3 readings\n"
    assert "<h2>b</h2>" in out.read_text(encoding="utf-8")
    assert main(["report", *files, "--html", str(out), "--json", "-"]) == 0
    merged = json.loads(capsys.readouterr().out)
    assert merged["labels"] == ["a: point", "b: point", "b: global"]
    (tmp_path / "merged.json").write_text(json.dumps(merged))
    assert main(["report", str(tmp_path / "merged.json"), "--html", str(out)]) == 0
    assert "merged: b, global" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"schema": 9}', '{"schema": 1}', '{"readings": 3}', '{"readings": []}']
)
def test_report_refuses_what_is_no_reading_in_one_line(tmp_path, capsys, content):
    (tmp_path / "a.json").write_text(content)
    assert main(["report", str(tmp_path / "a.json"), "--html", str(tmp_path / "out.html")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("normgauge: ") and error.count("\n") == 1
    assert not (tmp_path / "out.html").exists()


def two_files(tmp_path, batches):
    """Files of two networks at eight samples: the second is steeper at the steepest one, and not at the median."""
    for name, middle, most, batch in (("a", 1.1, 1.2, batches[0]), ("b", 0.9, 1.3, batches[1])):
        rows = tuple(
            {"index": i, "log10_lower": s, "log10_upper": s + 1e-8} for i, s in enumerate([middle] * 7 + [most])
        )
        ends = {"log_lower": most * LN10, "log_upper": (most + 1e-8) * LN10}
        reading(samples=rows, weights=f"sha256:{name}", batch=batch, **ends).save(tmp_path / f"{name}.json")
    return [str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--html", str(tmp_path / "c.html")]


def test_different_samples_are_refused_first_on_page_and_terminal(tmp_path, capsys):
    said = "Measured on different samples: at the samples they cannot be compared."
    assert main(["report", *two_files(tmp_path, ("sha256:x", "sha256:y"))]) == 0
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert capsys.readouterr().out.startswith(said) and said in page and "Of 2 networks" not in page
    assert main(["report", *two_files(tmp_path, ("sha256:x", "sha256:x"))]) == 0
    assert said not in capsys.readouterr().out + (tmp_path / "c.html").read_text(encoding="utf-8")


def test_the_headline_has_medians_and_the_number_of_samples_and_says_one_training(tmp_path):
    given = two_files(tmp_path, ("sha256:x", "sha256:x"))
    assert main(["report", *given, "--label", "BatchNorm", "--label", "LayerNorm"]) == 0
    assert (
        "Slope of the median sample: 12.589 for BatchNorm, 7.9433 for LayerNorm. Slope of the steepest of 8 samples: "
        "15.849 for BatchNorm, 19.953 for LayerNorm."
    ) in (tmp_path / "c.html").read_text(encoding="utf-8")


def test_a_label_for_each_file_or_none(tmp_path, capsys):
    given = two_files(tmp_path, ("", ""))
    assert "--label: expected one for each of 2 files of readings, got 1" in refused(capsys, *given, "--label", "x")


def test_a_label_may_stand_before_its_file(tmp_path, capsys):
    a, b, *page = two_files(tmp_path, ("sha256:x", "sha256:x"))
    assert main(["report", "--label", "BatchNorm", a, "--label", "LayerNorm", b, *page]) == 0
    assert {"<h2>BatchNorm</h2>", "<h2>LayerNorm</h2>"} <= set(re.findall("<h2>[^<]*</h2>", read(tmp_path / "c.html")))
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["report", a, "--label", "x", b, "--figurs", "y", *page])
    assert "unrecognized arguments: --figurs y; did you mean --figures?" in capsys.readouterr().err


def test_files_with_one_label_are_trainings_of_one_network(tmp_path, capsys):
    a, b, *page = two_files(tmp_path, ("sha256:x", "sha256:x"))
    figures = ["--figures", str(tmp_path / "figures"), "--figure-format", "svg"]
    assert main(["report", a, b, "--label", "MLP", "--label", "MLP", *page, *figures]) == 0
    said = "2 trainings of MLP: of each number the median over them"
    assert said in capsys.readouterr().out and said in read(tmp_path / "c.html")
    assert read(tmp_path / "figures" / "bracket.svg").count('class="row ') == 1
    assert {"<h2>MLP (a)</h2>", "<h2>MLP (b)</h2>"} <= set(re.findall("<h2>[^<]*</h2>", read(tmp_path / "c.html")))
    assert (tmp_path / "figures" / "waterfall-MLP-point-b.svg").exists()


def test_copies_of_one_training_are_said_to_be_and_an_edit_is(tmp_path, capsys):
    a, _, *page = two_files(tmp_path, ("sha256:x", "sha256:x"))
    assert main(["report", a, a, "--label", "MLP", "--label", "MLP", *page]) == 0
    said = capsys.readouterr().out
    assert "MLP is given 2 times with the same weights: that is one training" in said and "2 trainings" not in said
    data = json.loads(read(tmp_path / "a.json"))
    (tmp_path / "a.json").write_text(json.dumps({**data, "log10_upper": 0.5}))
    figures = ["--figures", str(tmp_path / "none"), "--figure-format", "svg"]
    assert main(["report", a, *page, *figures]) == 0
    said = capsys.readouterr().out
    assert said.startswith("a: EDITED at the samples") and "rule" not in said and "0 files" in said


def test_files_of_one_name_in_other_folders_are_networks_of_their_own(tmp_path, capsys):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        reading(weights=f"sha256:{folder}").save(tmp_path / folder / "net.json")
    page = tmp_path / "c.html"
    assert main(["report", *(str(tmp_path / f / "net.json") for f in "ab"), "--html", str(page)]) == 0
    assert "trainings" not in capsys.readouterr().out
    assert {"<h2>a/net</h2>", "<h2>b/net</h2>"} <= set(re.findall("<h2>[^<]*</h2>", read(page)))


def read(path):
    return path.read_text(encoding="utf-8")
