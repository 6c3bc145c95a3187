"""How a bound is known: what refutes it, what leaves it without proof, and that no rendering hides it."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.cli import main
from normgauge.core import consistency
from normgauge.core.bound import Scope
from normgauge.core.compare import compare_readings
from normgauge.core.errors import UnknownOpError
from normgauge.instrument import measure, stretch
from normgauge.instrument.compose import Composition
from normgauge.instrument.fingerprint import weights_digest
from normgauge.instrument.probe.search import Found
from normgauge.instrument.rules.flow import Context, Flow, Gain, Transfer
from normgauge.instrument.session import Options, Session, start
from normgauge.instrument.slopes import excused_slopes, largest_slope, noise_of_output
from normgauge.instrument.trace.inputs import make_call
from normgauge.instrument.trace.step import Step
from normgauge.render.difference import difference_verdict
from normgauge.render.verdict import reading_verdict

LOG2, LOG3 = math.log(2), math.log(3)


class Triple(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3.0 * x


class Tenth(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.1 * x


class Branching(nn.Module):
    """Five times as steep where its input is positive."""

    def forward(self, x: Tensor) -> Tensor:
        return 5 * x if x.sum() > 0 else x * 1.0


def rule_of(*factors: float, **facts: Any) -> Any:
    """A rule that claims these constants, one a sample where there are several."""

    def rule(step: Step, incoming: tuple[Flow, ...], ctx: Context) -> Transfer:
        """Claims."""
        logs = [math.log(f) if f < math.inf else f for f in factors]
        gains = torch.tensor(logs, dtype=torch.float64) if len(logs) == ctx.samples else ctx.full(max(logs))
        return Transfer((Gain(gains),), **facts)

    return rule


def claimed(**rules: Any) -> Any:
    kinds = {"triple": Triple, "tenth": Tenth}
    return ng.REGISTRY.extended({kinds[name]: rule for name, rule in rules.items()})


@pytest.fixture(scope="module")
def refuted() -> ng.Reading:
    torch.manual_seed(0)
    return ng.gauge(Triple(), torch.randn(3, 4), scope="ball:0.1", rules=claimed(triple=rule_of(2.0)))


def test_a_slope_above_the_bound_refutes_it_and_both_numbers_are_kept(refuted):
    assert refuted.evidence is ng.Evidence.REFUTED and not refuted.certain
    assert refuted.log_upper == refuted.log_folded == refuted.displacement == math.inf
    assert refuted.log_refuted == pytest.approx(LOG2) and refuted.log_lower == pytest.approx(LOG3)
    assert all(row["log10_upper"] == math.inf for row in refuted.samples)
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
    good = ng.gauge(nn.Linear(4, 4), torch.randn(3, 4), scope="ball:0.1")
    assert reading_verdict(refuted)[0].startswith(
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
    assert reading.log_refuted == pytest.approx(math.log(10)) and reading.log_lower == pytest.approx(LOG3)
    assert "a slope of 3 was found at sample 0, where at most 2 had been computed" in reading_verdict(reading)[0]


def test_a_slope_above_a_layers_bound_refutes_though_the_total_holds():
    model = nn.Sequential(Triple(), Tenth())
    rules = claimed(triple=rule_of(2.0), tenth=rule_of(10.0))
    point, ball, everywhere = ng.readings(model, torch.randn(3, 4), rules=rules)
    for reading in (ball, everywhere):
        assert reading.evidence is ng.Evidence.REFUTED and reading.log_upper == math.inf
        assert (
            "a slope of 3 was found at the output of 0, where at most 2 had been computed"
            in reading_verdict(reading)[0]
        )
    assert point.evidence is ng.Evidence.PROVED  # followed over a short way, which a point has no room for


def test_rounding_on_the_way_refutes_nothing():
    """Changes of 1e-6 on values of 1e9: what a layer seems to reach is rounding, and is not told."""

    class Far(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.far = nn.Linear(4, 4)
            self.far.weight.data, self.far.bias.data = torch.eye(4), torch.full((4,), 1e9)

        def forward(self, x: Tensor) -> Tensor:
            return self.far(x).tanh() + x

    for scope in ("ball:0.1", "global"):
        reading = ng.gauge(Far(), torch.linspace(-2, 2, 12).reshape(3, 4), scope=scope)
        assert reading.evidence is ng.Evidence.PROVED and reading.layer("far").log_reached is None


def test_digits_lost_inside_a_step_are_no_slope():
    """Normalizing a constant leaves the last digits, magnified: noise excuses a slope of its own size and no other."""

    class Cancels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.sin() * 1e5 + x) - x.sin() * 1e5 - x

    x = torch.randn(3, 4, dtype=torch.float64)
    rules = ng.REGISTRY.extended({Cancels: rule_of(1e-30)})
    session = start(Cancels(), make_call(Cancels(), x), torch.float64, torch.device("cpu"), Options(rules=rules))
    parts = session.composed(Scope.parse("point"))
    best = session.bounds(parts)[1]
    noise = noise_of_output(session)
    assert 0 < noise < 1e-8
    for slope, is_excused in ((noise, True), (1e4 * noise, False)):
        logs = torch.full((3,), math.log(slope / 1e-3), dtype=torch.float64)
        found = excused_slopes(session, Found(logs, float(logs[0]), "here", 1, 0, (1e-3, slope)), parts, best)
        assert (found.log_best == float(best.log_upper.max())) == is_excused


def test_a_slope_of_a_smaller_scope_refutes_a_larger_ones_bound(monkeypatch):
    """Slopes move to larger scopes once all are measured; the bounds are judged after that."""

    def blind(session: Session, parts: Composition) -> Found:
        """A search that finds next to nothing over all inputs."""
        found = largest_slope(session, parts)
        if parts.ctx.scope.kind != "global":
            return found
        less = found.log_best - 9
        return dataclasses.replace(found, log_lower=found.log_lower - 9, log_best=less, lengths=(1.0, math.exp(less)))

    monkeypatch.setattr(measure, "largest_slope", blind)
    monkeypatch.setattr(stretch, "reached", lambda here, there: {})
    rules, x = claimed(triple=rule_of(2.0)), torch.ones(1, 2)
    assert ng.gauge(Triple(), x, rules=rules).evidence is ng.Evidence.PROVED
    everywhere = ng.readings(Triple(), x, ("global", "point"), rules=rules)[0]
    assert everywhere.evidence is ng.Evidence.REFUTED and everywhere.log_upper == math.inf
    assert everywhere.log_refuted == pytest.approx(LOG2) and everywhere.log_lower == pytest.approx(LOG3)


@pytest.mark.parametrize("strict", [False, True])
def test_no_bound_found_is_neither_unknown_nor_a_proof(strict):
    rules = claimed(triple=rule_of(math.inf, no_bound="nobody found one"))
    reading = ng.gauge(nn.Sequential(Triple(), nn.Linear(4, 2)), torch.randn(3, 4), rules=rules, strict=strict)
    assert reading.evidence is ng.Evidence.UNKNOWN and reading.log_upper == math.inf
    assert [(f.name, f.why) for f in reading.no_bound] == [("0", "nobody found one")]
    assert reading.unknown == () and reading.unbounded == ()
    assert "No finite bound was found everywhere; there may be one." in reading_verdict(reading)[0]
    assert reading.to_json()["no_bound"] == [{"name": "0", "why": "nobody found one"}]


def test_behind_a_part_without_a_bound_nothing_is_proved_infinite():
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            h = x[0] if isinstance(x, tuple) else x
            return h * h

    rules = claimed(triple=rule_of(math.inf, no_bound="nobody found one"))
    behind = ng.gauge(nn.Sequential(Triple(), Square()), torch.randn(3, 4), rules=rules)
    before = ng.gauge(nn.Sequential(Square(), Triple()), torch.randn(3, 4), rules=rules)
    assert behind.unbounded == () and [f.name for f in behind.no_bound] == ["0"]
    assert [f.name for f in before.unbounded] == ["0.mul"] and before.evidence is ng.Evidence.UNKNOWN


def test_an_infinite_gain_without_a_word_is_not_called_proved():
    reading = ng.gauge(Triple(), torch.randn(3, 4), rules=claimed(triple=rule_of(math.inf)))
    assert reading.evidence is ng.Evidence.UNKNOWN and len(reading.no_bound) == 1 and reading.unbounded == ()
    proved = ng.gauge(Triple(), torch.randn(3, 4), rules=claimed(triple=rule_of(math.inf, unbounded="a proof")))
    assert proved.evidence is ng.Evidence.PROVED and proved.no_bound == () and proved.unbounded[0].why == "a proof"


def test_a_path_that_depends_on_the_data_is_a_field():
    x = torch.full((2, 3), -1.0)
    point, ball, everywhere = ng.readings(Branching(), x, ("point", "ball:0.1", "global"))
    for reading in (point, ball):
        assert reading.path_dependent and reading.evidence is ng.Evidence.PROVED and not reading.certain
        assert reading.to_json()["path_dependent"] is True and reading.log_upper == pytest.approx(0.0, abs=1e-6)
        assert "proved on the same path" in str(reading)
        assert any(
            "the bound holds where they take the path traced" in sentence for sentence in reading_verdict(reading)
        )
    assert everywhere.path_dependent and everywhere.evidence is ng.Evidence.UNKNOWN
    assert everywhere.log_upper == math.inf and everywhere.unknown == () and len(everywhere.no_bound) == 1
    assert any("along the path the data took the bound is 10^" in note for note in everywhere.notes)
    assert not ng.gauge(nn.Linear(3, 2), x).path_dependent


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

    for reading in ng.readings(Elsewhere(), torch.randn(4, 3)):
        assert reading.evidence is ng.Evidence.UNKNOWN and reading.log_upper == reading.log_folded == math.inf
        assert reading.unknown and not reading.unbounded and reading.log_refuted is None
        assert all(row["log10_upper"] in (None, math.inf) for row in reading.samples)
    with pytest.raises(UnknownOpError):
        ng.gauge(Elsewhere(), torch.randn(4, 3), strict=True)


def test_the_whole_batch_as_one_point_and_the_precision_are_fields():
    mixed = ng.gauge(nn.Sequential(nn.BatchNorm1d(4)), torch.randn(5, 4), mode="train", scope="point")
    alone = ng.gauge(nn.Linear(4, 2), torch.randn(5, 4), scope="point")
    assert mixed.together and not alone.together
    assert alone.precision == "float64" and alone.to_json()["precision"] == "float64"


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


# digests


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2)).eval()


def test_the_digest_of_the_weights_sees_every_bit_name_and_type():
    model = net()
    first = weights_digest(model)
    assert first.startswith("sha256:") and len(first) == 71 and weights_digest(copy.deepcopy(model)) == first
    assert ng.gauge(model, torch.randn(3, 4)).weights == first == weights_digest(model)
    assert weights_digest(copy.deepcopy(model).train()) == first  # a mode is no weight
    others = [copy.deepcopy(model) for _ in range(4)]
    others[0][3].bias.data[1] = torch.nextafter(others[0][3].bias.data[1], torch.tensor(9.0))
    others[1][1].running_mean[2] += 1e-3
    others[2].double()
    others[3] = nn.Sequential(*others[3], nn.Identity()).append(nn.Linear(1, 1))
    named = nn.ModuleDict({str(10 + i): layer for i, layer in enumerate(copy.deepcopy(model))})
    assert len({first, *(weights_digest(other) for other in (*others, named))}) == 6


def test_the_digest_takes_tensors_of_any_type_and_says_where_there_are_no_bytes():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, dtype in enumerate((torch.bfloat16, torch.complex64, torch.bool, torch.int64, torch.float8_e5m2)):
                self.register_buffer(f"b{i}", torch.ones(2, 3).to(dtype), persistent=False)
            self.register_buffer("scalar", torch.tensor(2.0))
            self.register_buffer("empty", torch.empty(0, 3))
            self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)
            self.register_buffer("conjugate", torch.ones(2, dtype=torch.complex64).conj())

    assert len(weights_digest(Odd())) == 71
    assert weights_digest(nn.Linear(2, 2, device="meta")) == ""


def test_an_edited_file_is_known_as_edited_and_stays_so(tmp_path):
    reading = ng.gauge(net(), torch.randn(3, 4))
    reading.save(tmp_path / "a.json")
    assert not ng.Reading.load(tmp_path / "a.json").edited
    data = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**data, "model": "Better"}))
    edited = ng.Reading.load(tmp_path / "b.json")
    assert edited.edited and any("was edited after it was written" in sentence for sentence in reading_verdict(edited))
    edited.save(tmp_path / "c.json")
    again = json.loads((tmp_path / "c.json").read_text())
    assert any(said.startswith("edited: ") for said in consistency.check_consistency(again))
