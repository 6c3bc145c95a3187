"""`normgauge gauge` from the command line to the exit code, on small networks."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from normgauge.cli import main
from normgauge.cli.gauge import gauge_exit_code, gauge_json
from normgauge.core.bound import Scope
from normgauge.core.reading import Finding
from normgauge.core.spelled import LN10
from tests.made import reading

NET = """\
import torch
from torch import nn

print("a line of the user's own")
torch.manual_seed(0)


class Odd(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

def odd():
    return nn.Sequential(nn.Linear(4, 4), Odd())

def square():
    class Square(nn.Module):
        def forward(self, x):
            return x * x
    return Square()

def poisoned():
    model = build()
    model[0].weight.data[0, 0] = float("nan")
    return model

def fails():
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError("the forward of the user")
    return Fails()

def big():
    print("build ran")
    return build()

def wants(size):
    return torch.randn(size, 4)

def interrupted():
    raise KeyboardInterrupt

def batch():
    return torch.randn(5, 4)

def wrong_shape():
    return torch.randn(5, 7)

def empty():
    return torch.randn(0, 4)

def nan():
    return torch.full((5, 4), float("nan"))
"""


@pytest.fixture
def gauge(tmp_path, capsys):
    """Run `normgauge gauge` on a function of the file above; returns exit code, standard output and error."""
    path = tmp_path / "net.py"
    path.write_text(NET)

    def run(model: str, *options: str, batch: str | None = "batch") -> tuple[int, str, str]:
        given = [] if batch is None else ["--batch", f"{path}:{batch}"]
        code = main(["gauge", f"{path}:{model}", *given, *options])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


def test_without_a_scope_all_three_are_measured_and_the_point_comes_first(gauge, tmp_path):
    code, out, err = gauge("build", "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html"))
    assert code == 0 and out.count("at most, ") == 3 and out.count("at least, ") == 1
    assert "a line of the user's own" in err and "a line of the user's own" not in out
    assert "<svg" in (tmp_path / "a.html").read_text(encoding="utf-8")
    data = json.loads((tmp_path / "a.json").read_text())
    assert data["scope"] == "point" and data["schema"] == 2 and data["mode"] == "eval"
    point, ball, everywhere = data["readings"]
    assert [r["scope"] for r in data["readings"]] == ["point", "ball:0.1", "global"]
    assert point["log10_upper"] <= ball["log10_upper"] + 1e-9 <= everywhere["log10_upper"] + 2e-9
    assert point["log10_lower"] <= point["log10_upper"] + 1e-9
    assert [layer["kind"] for layer in data["layers"]] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]


def test_scopes_may_be_named_one_by_one_and_the_widest_is_judged(gauge):
    code, out, _ = gauge("build", "--scope", "global", "--scope", "point", "--no-search", "--json", "-")
    assert code == 0 and [r["scope"] for r in json.loads(out)["readings"]] == ["point", "global"]


def test_one_scope_gives_one_reading(gauge):
    code, out, _ = gauge("build", "--scope", "global", "--json", "-")
    data = json.loads(out)
    assert code == 0 and data["scope"] == "global" and "readings" not in data
    assert data["log10_lower"] <= data["log10_upper"] <= data["log10_folded"] + 1e-9


def test_the_bracket_holds_the_jacobian_of_this_network(gauge):
    code, out, _ = gauge("build", "--scope", "point", "--json", "-")
    torch.manual_seed(0)  # as the file does
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    slopes = [
        torch.linalg.matrix_norm(torch.autograd.functional.jacobian(net, x[None])[0, :, 0], 2)
        for x in torch.randn(5, 4)
    ]
    data = json.loads(out)
    assert code == 0
    assert data["log10_lower"] == pytest.approx(math.log10(max(slopes)), abs=1e-4)
    assert data["log10_upper"] >= math.log10(max(slopes)) - 1e-6


def test_train_mode_is_labelled(gauge):
    code, out, _ = gauge("build", "--mode", "train", "--scope", "point", "--no-search", "--json", "-")
    assert code == 0 and json.loads(out)["mode"] == "train"


def test_unknown_parts_and_strict(gauge):
    code, out, _ = gauge("odd", "--scope", "global", "--no-search", "--json", "-")
    data = json.loads(out)
    assert code == 0 and data["log10_upper"] == "inf" and data["evidence"] == "unknown"
    assert any("bessel" in finding["name"] + finding["why"] for finding in data["unknown"])
    code, out, err = gauge("odd", "--scope", "global", "--no-search", "--strict", "--json", "-")
    assert code == 2 and "bessel" in err and json.loads(out)["unknown"]


def test_an_unbounded_map_is_proved_infinite(gauge):
    code, out, _ = gauge("square", "--scope", "global", "--no-search", "--strict", "--json", "-")
    data = json.loads(out)
    assert code == 0 and data["log10_upper"] == "inf" and data["evidence"] == "proved"
    assert data["unknown"] == [] and data["unbounded"]


def test_fail_above(gauge):
    assert gauge("build", "--no-search", "--fail-above", "100")[0] == 0
    assert gauge("build", "--no-search", "--fail-above", "-100")[0] == 3
    assert gauge("square", "--no-search", "--scope", "global", "--fail-above", "100")[0] == 3


def test_faster_and_looser(gauge):
    code, out, _ = gauge("build", "--scope", "global", "--no-balance", "--no-search", "--width", "0.1", "--json", "-")
    data = json.loads(out)
    assert code == 0 and math.isclose(data["log10_upper"], data["log10_folded"])


@pytest.mark.parametrize(
    ("model", "options", "batch", "message"),
    [
        ("build", (), None, "a batch is needed: --batch"),
        ("build", ("--scope", "ball"), "batch", "expected point (the samples), ball:RADIUS"),
        ("build", ("--input", "nothing"), "batch", "nothing"),
        ("nowhere", (), "batch", "has no 'nowhere'"),
        ("build", (), "empty", "at least one sample"),
        ("build", (), "nan", "NaN"),
        ("poisoned", (), "batch", "0.weight"),
        ("build", (), "wrong_shape", "shape"),
        ("fails", (), "batch", "the forward of the user"),
        ("build", ("--json", "/nowhere/at/all.json"), "batch", "cannot write"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_one(gauge, model, options, batch, message):
    code, _, err = gauge(model, *options, batch=batch)
    told = err.removeprefix("a line of the user's own\n")
    assert code == 1
    assert told.startswith("normgauge: ") and told.count("\n") == 1
    assert message.lower() in told.lower()


@pytest.mark.parametrize("batch", ["nowhere", "wants", None])
def test_a_wrong_batch_is_told_before_the_model_is_built(gauge, batch):
    code, _, err = gauge("big", batch=batch)
    assert code == 1 and "build ran" not in err and err.count("normgauge: ") == 1
    code, _, err = gauge("big", "--batch", "nowhere.npy", batch=None)
    assert code == 1 and "build ran" not in err and "no such file" in err


def test_an_interrupt_is_quiet(gauge):
    code, out, err = gauge("interrupted")
    assert code == 130 and out == "" and err in ("", "a line of the user's own\n")


def test_one_scope_is_the_contract_object_and_several_add_a_list():
    point, everywhere = reading(), reading(scope=Scope.parse("global"))
    assert gauge_json([point]) == point.to_json()
    several = gauge_json([point, everywhere])
    assert several["scope"] == "point"
    assert [r["scope"] for r in several["readings"]] == ["point", "global"]


@pytest.mark.parametrize(
    ("log10_upper", "limit", "code"), [(2, None, 0), (2, 2.5, 0), (2, 1.5, 3), (math.inf, 300, 3), (math.inf, None, 0)]
)
def test_fail_above_judges_the_upper_bound(capsys, log10_upper, limit, code):
    found = [reading(log_upper=-5.0), reading(scope=Scope.parse("global"), log_upper=log10_upper * LN10)]
    assert gauge_exit_code(found, strict=False, limit=limit) == code
    err = capsys.readouterr().err
    told = f"limit {'FAILED' if code else 'passed'}: the upper bound, scope global, is "
    assert (err.count("\n") == 1 and told in err) if limit is not None else err == ""


@pytest.mark.parametrize(
    ("log_upper", "unknown", "said"),
    [
        (-math.inf, (), "is 0 (proved), not above 10^-3"),
        (math.inf, (), "is infinite (proved), above 10^-3"),
        (math.inf, (Finding("a", "torch.foo"),), "is infinite, since nothing is known of a (proved), above 10^-3"),
    ],
)
def test_a_bound_of_zero_is_not_told_as_an_infinite_one(capsys, log_upper, unknown, said):
    found = [reading(log_upper=log_upper, log_lower=-math.inf, samples=(), unknown=unknown)]
    assert gauge_exit_code(found, strict=False, limit=-3.0) == (3 if log_upper > 0 else 0)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limit", "allowed", "code", "said"),
    [
        (
            2.5,
            (),
            1,
            "no limit is held: the upper bound, scope ball:0.1, is 10^2 (proved on the same path): the path thr",
        ),
        (
            2.5,
            ("path",),
            0,
            "limit passed: the upper bound, scope ball:0.1, is 10^2 (proved on the same path), not above",
        ),
        (1.5, (), 3, "limit FAILED: the upper bound, scope ball:0.1, is 10^2 (proved on the same path), above"),
    ],
)
def test_a_bound_that_holds_on_one_path_keeps_a_limit_only_where_that_is_allowed(capsys, limit, allowed, code, said):
    found = [reading(scope=Scope.parse("ball:0.1"), path_dependent=True)]
    assert gauge_exit_code(found, False, limit, allowed) == code
    err = capsys.readouterr().err
    assert said in err and "off the path traced no bound is known" in err and ("--allow path" in err) == (code == 1)
    assert main(["gauge", "net.py:build", "--allow", "path"]) == 1
    assert "--allow is for a gate: give --fail-above too" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("end", "note"),
    [
        ("output", "measured output: logits; not measured: value"),
        ("input", "measured in x; the other inputs are held fixed: y"),
    ],
)
def test_one_of_several_ends_keeps_a_limit_only_where_it_was_chosen(capsys, end, note):
    """Whatever the others do would pass; above the limit it fails all the same."""
    found = [reading(notes=(note,), options={"input": None, "output": None})]
    assert gauge_exit_code(found, False, 2.5) == 1
    err = capsys.readouterr().err
    assert f"no limit is held: the upper bound, scope point, is 10^2 (proved): the model has several {end}s and" in err
    assert f"none was chosen ({note}). Choose what is to be judged: --{end} NAME, or allow it: --allow {end}s\n" in err
    assert gauge_exit_code(found, False, 1.5) == 3
    assert gauge_exit_code(found, False, 2.5, (f"{end}s",)) == 0
    chosen = [reading(notes=(note,), options={"input": None, "output": None, end: "it"})]
    capsys.readouterr()
    assert gauge_exit_code(chosen, False, 2.5) == 0
    assert capsys.readouterr().err.endswith(f"is 10^2 (proved), not above 10^2.5; {note}\n")


def test_strict_lists_every_unknown_part_once(capsys):
    unknown = (Finding("a", "torch.foo"), Finding("b", "torch.bar"))
    found = [reading(unknown=unknown, log_upper=math.inf)] * 3
    assert gauge_exit_code(found, strict=True, limit=0.0) == 2
    assert capsys.readouterr().err.count("torch.foo") == 1
    assert gauge_exit_code(found, strict=False, limit=None) == 0
    assert gauge_exit_code([reading()], strict=True, limit=None) == 0


def test_a_folder_that_is_not_there_is_named(capsys):
    assert main(["gauge", "bertt"]) == 1
    told = capsys.readouterr().err
    assert "'bertt'" in told and "no such file or folder" in told and "a batch is needed" not in told
