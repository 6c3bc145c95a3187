"""The readings that come with the package: complete, verified, small, and shown beside a measurement."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from normgauge.cli import main
from normgauge.core import consistency, reference
from normgauge.core.errors import ReadingError

NORMS = ("batchnorm", "groupnorm", "layernorm", "rmsnorm")
UNTRAINED = tuple(f"{shape}-initial" for shape in ("bert-base", "gpt2", "resnet18", "vit-base"))
TRAINED = ("cnn", "minilm", "mlp", *(f"mlp-{norm}" for norm in NORMS), "resnet20", "resnet56", "vit")
EXPECTED = sorted((*TRAINED, *UNTRAINED))
NET = Path(__file__).parents[2] / "examples" / "net.py"


def test_the_names():
    assert reference.names() == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_reference_is_verified(name):
    stored = reference.reference_content(name)["readings"]
    assert len(stored) == 3
    for item in stored:
        assert consistency.check_consistency(item) == []
        assert json.dumps(item, allow_nan=False)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_reference_has_three_scopes_and_says_what_it_is(name):
    found = reference.load_reference(name)
    assert [str(r.scope) for r in found] == ["point", "ball:0.1", "global"]
    assert all(r.unknown == () and math.isfinite(r.log_lower) for r in found)
    assert found[0].log_upper <= found[1].log_upper + 1e-6 <= found[2].log_upper + 2e-6
    assert all(r.batch and r.weights for r in found)  # so that other data is known to be
    assert not any("picture" in row for r in found for row in r.samples)
    assert "Measured" in reference.about(name) and reference.reference_title(name)
    if name.endswith("-initial"):
        assert "RANDOM INITIAL WEIGHTS" in reference.about(name) and "untrained" in reference.reference_title(name)
    elif name != "minilm":
        assert re.search(r"right on \d\d\.\d% of", reference.about(name))


def test_they_are_small():
    folder = Path(str(reference.__file__)).parent
    assert sum(path.stat().st_size for path in folder.glob("*.json.gz")) < 1.5e6


def test_the_numbers_of_the_readme():
    """ResNet-20 and ResNet-56: folded, balanced, the bound, and the largest slope found."""
    for name, *bounds in (("resnet20", 10.24, 9.73, 6.43), ("resnet56", 23.38, 21.53, 21.53)):
        everywhere = reference.load_reference(name)[2]
        told = [everywhere.log_folded, everywhere.log_capacity, everywhere.log_upper]
        assert [log / math.log(10) for log in told] == pytest.approx(bounds, abs=0.02)
        assert 40 < math.exp(everywhere.log_lower) < 80


def test_a_name_may_have_the_prefix_of_the_command_line():
    assert reference.load_reference("reference:mlp") == reference.load_reference("mlp")
    with pytest.raises(ReadingError, match="no reference called 'alexnet'; expected one of bert-base-initial, cnn"):
        reference.load_reference("alexnet")


def test_a_measurement_shows_what_is_normal_elsewhere(capsys, tmp_path):
    page = tmp_path / "a.html"
    arguments = ["gauge", f"{NET}:build", "--batch", f"{NET}:batch", "--scope", "point", "--no-search"]
    assert main([*arguments, "--beside", "resnet20", "--beside", "mlp", "--html", str(page)]) == 0
    out = capsys.readouterr().out
    table = out[out.index("What is normal elsewhere") :]
    assert "this network" in table and "ResNet-20" in table and "65.4" in table
    assert "trained by others" in table and "ball" not in table
    assert "ResNet-20" in page.read_text(encoding="utf-8")


def test_an_unknown_name_is_refused_before_anything_is_measured(capsys):
    assert main(["gauge", "nowhere.py:build", "--batch", "nowhere.py:batch", "--beside", "alexnet"]) == 1
    error = capsys.readouterr().err
    assert "no reference called 'alexnet'" in error and error.count("\n") == 1
