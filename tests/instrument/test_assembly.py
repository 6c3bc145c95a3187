"""How a bound is known: what refutes it, what leaves it without proof, and that no rendering hides it."""

from __future__ import annotations

import dataclasses
import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.cli import main
from normgauge.core import consistency
from normgauge.core.compare import compare_readings
from normgauge.core.errors import UnknownOpError
from normgauge.instrument import slopes
from normgauge.instrument.assembly import UNMOVED
from normgauge.instrument.local import headline
from normgauge.instrument.probe import screen
from normgauge.render.difference import difference_verdict
from normgauge.render.verdict import trouble_sentences, verdict_line
from tests.instrument.claimed_rules import LOG2, LOG3, Triple, claimed, rule_of

pytestmark = pytest.mark.usefixtures("brief_search")


class Branching(nn.Module):
    """Five times as steep where its input is positive."""

    def forward(self, x: Tensor) -> Tensor:
        return 5 * x if x.sum() > 0 else x * 1.0


@pytest.fixture(scope="module")
def refuted(brief_search: None) -> ng.Reading:
    torch.manual_seed(0)
    return ng.gauge(Triple(), torch.randn(3, 4), scope="ball:0.1", rules=claimed(triple=rule_of(2.0)))


def test_a_slope_above_the_bound_refutes_it_and_both_numbers_are_kept(refuted):
    assert refuted.evidence is ng.Evidence.REFUTED and not refuted.certain
    assert refuted.log_upper == refuted.log_folded == refuted.displacement == math.inf
    assert refuted.log_refuted == pytest.approx(LOG2) and refuted.log_lower == pytest.approx(LOG3)
    assert len(refuted.samples) == 3 and all(row["log10_upper"] == math.inf for row in refuted.samples)
    assert all(row["log10_refuted"] == pytest.approx(math.log10(2)) for row in refuted.samples)
    assert set(refuted.loss.values()) == {math.inf}
    data = json.loads(json.dumps(refuted.to_json(), allow_nan=False))
    assert data["evidence"] == "refuted" and data["log10_upper"] == "inf"
    assert data["log10_refuted"] == pytest.approx(math.log10(2))
    assert ng.Reading.from_json(data).log_refuted == pytest.approx(LOG2)


def test_a_refuted_reading_is_never_verified(refuted):
    (said,) = consistency.check_consistency(json.loads(json.dumps(refuted.to_json())))
    assert said.startswith("refuted: a slope was found above a bound (log10 of the bound 0.301029996")


def test_every_rendering_says_it_first(refuted, tmp_path):
    torch.manual_seed(0)
    same = torch.randn(3, 4)  # networks on different samples would not be ranked at all
    good = ng.gauge(nn.Linear(4, 4), same, scope="ball:0.1")
    assert verdict_line(refuted).startswith(
        "REFUTED within 0.1 of the samples: a slope of 3 was found, where at most 2"
    )
    assert str(refuted).startswith("REFUTED within 0.1 of the samples")
    assert difference_verdict(compare_readings(good, refuted))[0].startswith("B: REFUTED")
    assert "REFUTED" in refuted.explain(refuted.layers[0].name)
    for readings in ([refuted], [good, refuted]):
        page = (ng.report(readings, tmp_path / "a.html")).read_text(encoding="utf-8")
        shown = page[page.index("<main") :]
        assert shown.index("REFUTED") < shown.index('class="verdict"') < shown.index("<svg")
    drawn = refuted._repr_html_()
    assert drawn.index("REFUTED") < drawn.index("<svg")


def test_a_samples_slope_above_its_own_bound_refutes_though_the_total_holds():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    reading = ng.gauge(Triple(), x, scope="point", rules=claimed(triple=rule_of(2.0, 10.0)))
    assert reading.evidence is ng.Evidence.REFUTED and reading.log_upper == math.inf
    assert reading.log_refuted == pytest.approx(LOG3) and reading.log_lower == pytest.approx(LOG3)
    assert "a slope of 3 was found at sample 0, where at most 2 had been computed" in verdict_line(reading)


def test_a_path_that_depends_on_the_data_is_a_field():
    x = torch.full((2, 3), -1.0)
    point, ball, everywhere = ng.readings(Branching(), x, ("point", "ball:0.1", "global"))
    for reading in (point, ball):
        assert reading.path_dependent and reading.evidence is ng.Evidence.PROVED and not reading.certain
        assert reading.to_json()["path_dependent"] is True and reading.log_upper == pytest.approx(0.0, abs=1e-6)
        assert "proved on the same path" in str(reading)
        assert any(
            "the bound holds where they take the path traced" in sentence for sentence in trouble_sentences(reading)
        )
    assert everywhere.path_dependent and everywhere.evidence is ng.Evidence.UNKNOWN
    assert everywhere.log_upper == math.inf and everywhere.unknown == () and len(everywhere.no_bound) == 1
    assert any("along the path the data took the bound is 10^" in note for note in everywhere.notes)
    assert not ng.gauge(nn.Linear(3, 2), x, scope="global").path_dependent


def test_a_bound_on_one_path_makes_no_certain_comparison():
    x = torch.full((2, 3), -1.0)
    narrow, steep = (ng.gauge(model, x, scope="ball:0.1") for model in (Branching(), Triple()))
    told = " ".join(difference_verdict(compare_readings(narrow, steep)))
    assert steep.log_lower > narrow.log_upper and "for certain" not in told
    assert compare_readings(steep, narrow).weaker and not compare_readings(narrow, steep).weaker


def test_a_trace_that_is_not_the_model_leaves_no_number():
    class Elsewhere(nn.Module):
        """Part of the way leads through another thread, where no tape follows."""

        def forward(self, x: Tensor) -> Tensor:
            with ThreadPoolExecutor(1) as pool:
                return x + pool.submit(lambda: 100 * x).result()

    found = ng.readings(Elsewhere(), torch.randn(4, 3))
    assert len(found) == 3
    for reading in found:
        assert reading.evidence is ng.Evidence.UNKNOWN and reading.log_upper == reading.log_folded == math.inf
        assert reading.unknown and not reading.unbounded and reading.log_refuted is None
        assert all(row["log10_upper"] in (None, math.inf) for row in reading.samples)
    with pytest.raises(UnknownOpError):
        ng.gauge(Elsewhere(), torch.randn(4, 3), scope="global", strict=True)


# the command


NET = """\
import torch
from torch import nn

class Branching(nn.Module):
    def forward(self, x):
        return 5 * x if x.sum() > 0 else x * 1.0

def build():
    return Branching()

def batch():
    return torch.full((1, 3), -0.05)
"""


@pytest.mark.parametrize(
    "options", [(), ("--scope", "ball:0.1"), ("--scope", "ball:0.1", "--strict", "--fail-above", "-9")]
)
def test_exit_code_four_in_one_scope_or_several_whatever_else_applies(tmp_path, capsys, options):
    path = tmp_path / "net.py"
    path.write_text(NET)
    code = main(["gauge", f"{path}:build", "--batch", f"{path}:batch", *options, "--json", str(tmp_path / "a.json")])
    streams = capsys.readouterr()
    assert code == 4 and streams.out.startswith("REFUTED within 0.1 of the samples")
    assert streams.err.strip().splitlines()[-1].startswith("normgauge: REFUTED within 0.1")
    data = json.loads((tmp_path / "a.json").read_text())
    assert [r["evidence"] for r in data.get("readings", [data]) if r["scope"] == "ball:0.1"] == ["refuted"]
    assert main(["verify", str(tmp_path / "a.json")]) == 1
    assert "refuted: a slope was found above a bound" in capsys.readouterr().out
    assert main(["diff", str(tmp_path / "a.json"), str(tmp_path / "a.json"), "--fail-above", "9"]) == 4
    assert capsys.readouterr().err.startswith("normgauge: A: REFUTED")


def test_what_is_said_of_an_embedding_to_be_at_most_is_rounded_up():
    """A norm of 28.72 is at most 28.73; "at most 28.7" was below it."""
    table = nn.Embedding(2, 2)
    with torch.no_grad():
        table.weight.copy_(torch.tensor([[28.72099, 0.0], [0.0, 0.0]]))
    net = nn.Sequential(table, nn.Linear(2, 2))
    (said,) = [note for note in ng.gauge(net, torch.tensor([[0, 1]]), search=False).notes if "one-hot" in note]
    apart, norm = (
        float(said.partition(word)[2].split()[0].rstrip(";")) for word in ("lie at most ", "input is at most ")
    )
    assert 28.72099 <= apart <= 28.75 and 28.72099 <= norm <= 28.75


def test_of_a_large_table_it_is_told_from_two_sides_how_far_its_rows_lie_apart():
    torch.manual_seed(0)
    table = nn.Embedding(1600, 2)
    truth = float(torch.cdist(table.weight.detach().double(), table.weight.detach().double()).max())
    (said,) = [
        n
        for n in ng.gauge(nn.Sequential(table, nn.Linear(2, 2)), torch.tensor([[0, 1]]), search=False).notes
        if "one-hot" in n
    ]
    most, least = (float(said.partition(word)[2].split()[0]) for word in ("lie at most ", "two of them "))
    assert least <= truth <= most and least > 0.9 * truth


def test_how_well_a_norm_is_known_is_not_rounded_to_whole_parts_of_a_hundred(monkeypatch):
    def known(session, budget, whole=headline._computed):
        return dataclasses.replace(whole(session, budget), wide=math.log1p(0.02049))

    monkeypatch.setattr(headline, "_computed", known)
    torch.manual_seed(0)
    notes = ng.gauge(Wide(), torch.randn(1, 2, 4), search=False).notes
    assert "the Jacobian's norm is known to 2.05 %; effort=long would narrow it" in notes


class Wide(nn.Module):
    """Attention with more outputs than a proof follows."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 501)

    def forward(self, x):
        return self.head(nn.functional.scaled_dot_product_attention(x, x, x))


def test_a_search_that_could_not_move_is_told(monkeypatch):
    """Its slopes are those of the samples, however much steeper it is nearby."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(3, 4)
    assert not any(UNMOVED in note for note in ng.gauge(net, x, scope="ball:1").notes)
    whole = screen.search
    asked: list[float | None] = []

    def poor(*args, **options):
        asked.append(options.get("budget"))
        return whole(*args, **{**options, "budget": 0.0})

    monkeypatch.setattr(screen, "search", poor)
    assert f"{UNMOVED}; effort=long looks further" in ng.gauge(net, x, scope="ball:1").notes
    assert not any(UNMOVED in note for note in ng.gauge(net, x).notes)
    ng.gauge(net, x, scope="ball:1", effort="long")
    assert asked[-1] == slopes.LONG_BUDGET and asked[0] is None
