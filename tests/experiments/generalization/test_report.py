"""The tables, from results whose numbers are easy to follow; those of the README."""

from __future__ import annotations

from pathlib import Path

from experiments.generalization import report, results


def test_bounds_are_rounded_up_beside_the_truth(folder: Path) -> None:
    text = report.disagreement(results.load("disagreement", folder))
    assert text.splitlines()[2] == "| MNIST | 2 | 0.05 | **1.01** (1.02) | 0.60 | 0.41 | 2.00 | 0.50 | 0.40 ± 0.00 |"


def test_rows_of_certificates_by_kind(folder: Path) -> None:
    lines = report.tables(results.load("tables", folder)).splitlines()
    assert lines[0] == "**digits**, δ = 0.05"
    assert lines[2] == "| row | mlp batch | mlp layer | mlp none |"
    assert "| hold-out | **0.0501** | **0.2001** | **0.1001** |" in lines
    assert "| Gibbs | 0.0500 † | 0.2000 † | 0.1000 † |" in lines
    assert "| spectral | ∞ v | ∞ v | 1.2e+06 v |" in lines
    assert "| unit | n/a | n/a | n/a |" in lines


def test_ranks_are_of_the_constant_named(folder: Path) -> None:
    lines = {
        line.split(" | ")[0][2:]: line.split(" | ")[1:]
        for line in report.local(results.load("local", folder)).splitlines()
    }
    assert lines["global, proved"][0] == "−1.00"
    assert lines["at the samples, proved"][0] == "1.00"
    assert lines["ball of 1, proved"][0] == "−1.00"
    assert lines["ball of 0.1, units that are off left out"][0] == "1.00"
    assert lines["mean Jacobian at samples"][0] == "–"  # all the same
    assert lines["constant"][:2] == ["all (6)", "fitted (6)"]


def test_exponents_and_ratios(folder: Path) -> None:
    text = report.samples(results.load("samples", folder))
    assert "| digits | mlp | none | 1.000 | 1.000 |" in text
    assert "| 2.00 to 2.00, median 2.00 |" in text.splitlines()[2]
    assert text.splitlines()[4].endswith("| 1 |")


def test_constants_by_attack(folder: Path) -> None:
    lines = report.adversarial(results.load("adversarial", folder)).splitlines()
    assert len(lines) == 2 + 6
    assert lines[2].startswith("| digits | mlp | batch | 0 | 1.00 | 10.00 | 0.05 | −0.05 | −0.05 | 5.00 |")


def test_a_text_is_filled_in_and_checked(folder: Path, tmp_path: Path) -> None:
    readme = tmp_path / "R.md"
    readme.write_text("a\n<!-- table samples machine -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    where = ["--results", str(folder), "--readme", str(readme)]
    assert report.main([*where, "--check"]) == 1
    assert report.main(where) == 0
    assert readme.read_text(encoding="utf-8").splitlines()[2].startswith("3 units, 4 minutes")
    assert report.main([*where, "--check"]) == 0
    assert report.NONE in report.filled(readme.read_text(encoding="utf-8"), tmp_path / "nothing")


def test_the_readme_says_what_the_committed_results_say() -> None:
    assert report.main(["--check"]) == 0
