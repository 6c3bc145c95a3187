"""`normgauge verify --model`: what was stored, measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch import nn

from normgauge.cli import main
from normgauge.cli.gauge import gauge_json
from normgauge.core.checker import digest
from normgauge.core.multipliers import Multipliers, kept_multipliers
from normgauge.instrument.measure import readings
from normgauge.instrument.rules import REGISTRY
from normgauge.instrument.rules.flow import Gain, Transfer
from normgauge.loading import load_batch, load_model


@pytest.fixture
def verify(capsys):
    """Run the command; returns exit code, standard output and error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["verify", *map(str, arguments)])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


NET = """\
import torch
from torch import nn

def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).eval()

def other():
    return build(1)

def batch():
    torch.manual_seed(2)
    return torch.randn(3, 4)

def another():
    return batch() + 1
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> tuple[Path, dict]:
    """A network as code, and its readings in three scopes as the command writes them."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "net.py").write_text(NET)
    options = ["--no-search", "--width", "0.01", "--json", str(folder / "a.json")]
    assert main(["gauge", f"{folder / 'net.py'}:build", "--batch", f"{folder / 'net.py'}:batch", *options]) == 0
    return folder / "net.py", json.loads((folder / "a.json").read_text())


def given(network: tuple[Path, dict], model: str = "build", batch: str | None = "batch") -> list[str]:
    path = network[0]
    return ["--model", f"{path}:{model}", *([] if batch is None else ["--batch", f"{path}:{batch}"])]


def test_measured_again_all_comes_out_the_same(verify, network):
    told = network[0].with_name("told.json")
    code, out, _ = verify(network[0].with_name("a.json"), *given(network), "--json", told)
    out = " ".join(out.split())  # lines wrap
    assert code == 0 and "every bound and every layer's gain measured again, with the stored multipliers" in out
    assert "; not checked, that the same slopes" in out
    assert set(json.loads(told.read_text())) == {"schema", "verified", "findings", "checked", "not_checked"}
    code, out, _ = verify(network[0].with_name("a.json"), *given(network, batch=None))
    assert code == 0
    assert "the digest of the parameters and buffers compared; not checked, as it needs data (--batch)" in " ".join(
        out.split()
    )


def test_other_weights_and_other_data_are_told_apart(verify, network):
    code, out, _ = verify(network[0].with_name("a.json"), *given(network, "other", None))
    assert code == 1 and out.count("weights_digest: the weights are not those that were measured") == 3
    code, out, _ = verify(network[0].with_name("a.json"), *given(network, batch="another"))
    assert code == 1 and "weights_digest" not in out
    assert "point: layers[1].log10_gain.upper: stored " in out and ", measured again " in out
    assert "global: log10_upper" not in out and "global: layers[1].log10_gain" not in out  # they need no data


def forged_gain(data: dict) -> None:
    """One gain, and all that follows from it in a chain."""
    less = 0.5
    step, record = data["proof"]["steps"][-1], data["layers"][-1]
    for column in ("log10_folded", "log10_balanced"):
        step[column] = [[g - less for g in gain] if isinstance(gain, list) else gain - less for gain in step[column]]
    step["log10_everywhere"] -= less
    for key in ("log10_folded", "log10_balanced", "log10_cumulative"):
        record[key] -= less
    tables = [record["log10_gain"], record["log10_spectral"], data["log10_loss"]]
    for table, keys in [
        *((table, tuple(table)) for table in tables),
        (data, ("log10_upper", "log10_balanced", "log10_folded", "log10_lower")),
        (
            data["published"],
            ("log10_P_w", "log10_theorem9", "log10_theorem9_published", "log10_corollary11_published"),
        ),
        *((row, ("log10_upper", "log10_lower")) for row in data["samples"]),
        *((other, ("log10_to_output",)) for other in data["layers"][:-1]),
    ]:
        for key in keys:
            table[key] -= less
    data["witness"]["output_change"] /= 10**less


def forged_scope(data: dict) -> None:
    """A point called global, with every fact the scope is tied to, as a forger would who knows them all."""
    data.update(scope="global")
    for row in data["samples"]:
        row["log10_upper"] = None
    data["proof"].update(samples=1, log10_radii=["inf"])
    for step in data["proof"]["steps"]:
        for column in ("log10_folded", "log10_balanced"):
            step[column] = [max(gain) if isinstance(gain, list) else gain for gain in step[column]]
        step["log10_radius"] = "inf"
        step["log10_everywhere"] = next(x for x in data["layers"] if x["name"] == step["layer"])["log10_gain"]["upper"]
    data["published"]["log10_theorem9_published"] = data["published"]["log10_theorem9"]


@pytest.mark.parametrize("forge", [forged_gain, forged_scope])
def test_what_holds_together_and_was_resealed_is_still_found_by_measuring_again(verify, tmp_path, network, forge):
    data = json.loads(json.dumps(network[1]["readings"][0]))
    forge(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    code, out, _ = verify(tmp_path / "a.json")
    assert code == 1 and "digest: it is not that of the content" in out
    data["digest"] = digest(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    assert verify(tmp_path / "a.json")[0] == 0
    code, out, _ = verify(tmp_path / "a.json", *given(network))
    assert code == 1 and "log10_upper: stored " in out and "layers[" in out


def test_a_batch_needs_its_network_and_a_model_that_does_not_fit_is_named(verify, tmp_path, network):
    code, out, err = verify(network[0].with_name("a.json"), "--batch", f"{network[0]}:batch")
    assert code == 1 and "give --model too" in err and out == ""
    (tmp_path / "net.py").write_text(NET.replace("(3, 4)", "(3, 5)"))
    code, out, _ = verify(network[0].with_name("a.json"), *given((tmp_path / "net.py", {})))
    assert code == 1 and out.count("measured again: ") == 3 and "Traceback" not in out


def test_rules_of_the_users_are_named_where_they_are_missing(verify, tmp_path, network):
    def rule(step, incoming, ctx):
        """Larger than need be."""
        return Transfer((Gain(ctx.log(7.0)),))

    model = load_model(f"{network[0]}:build")
    found = readings(
        model, load_batch(f"{network[0]}:batch"), ("global",), rules=REGISTRY.extended({nn.ReLU: rule}), search=False
    )
    (tmp_path / "a.json").write_text(json.dumps(gauge_json(found)))
    code, out, _ = verify(tmp_path / "a.json", *given(network))
    assert code == 1 and "rules: user." in out and "that the command does not have" in out


PLAIN = """\
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 4)).eval()

def wide():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 400), nn.ReLU(), nn.Linear(400, 4)).eval()

def normed():
    torch.manual_seed(0)
    layers = nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.LayerNorm(20), nn.Linear(20, 4)
    layers[0].weight.data[::2] *= 100
    layers[2].weight.data[:, ::2] /= 100
    return nn.Sequential(*layers).eval()

def batch():
    torch.manual_seed(2)
    return torch.randn(2, 6)
"""


@pytest.fixture(scope="module", params=["build", "wide"])
def multiplied(request, tmp_path_factory) -> tuple[Path, str, dict]:
    """Networks whose bounds rest on multipliers: of open units, and of a loop where there are too many."""
    folder = tmp_path_factory.mktemp("multiplied")
    (folder / "net.py").write_text(PLAIN)
    model = load_model(f"{folder / 'net.py'}:{request.param}")
    found = readings(model, load_batch(f"{folder / 'net.py'}:batch"), ["ball:0.2", "global"], search=False)
    assert [r.method for r in found] == ["open units", "loop" if request.param == "wide" else "open units"]
    return folder / "net.py", request.param, gauge_json(found)


def resealed(path: Path, data: dict) -> Path:
    """The readings of a file as someone writes them who knows how."""
    for item in data["readings"]:
        item["digest"] = digest(item)
    path.write_text(json.dumps({"schema": data["schema"], "readings": data["readings"]}))
    return path


def lowered(data: dict, less: float) -> None:
    """Every bound by a method of its own, and what follows from it."""
    for item in data["readings"]:
        item["log10_upper"] -= less
        item["log10_loss"] = {key: value - less for key, value in item["log10_loss"].items()}
        for row in item["samples"]:
            row["log10_upper"] = None if row["log10_upper"] is None else row["log10_upper"] - less


def test_multipliers_prove_a_bound_again_without_a_search(verify, tmp_path, multiplied, monkeypatch):
    path, name, data = multiplied

    def never(*_: object) -> None:
        raise AssertionError("nothing is looked for")

    monkeypatch.setattr("normgauge.instrument.loop.bound.descend_loop", never)
    monkeypatch.setattr("normgauge.instrument.local.headline.Swept.improved", never)
    assert all(item["multipliers"][0]["packed"] for item in data["readings"][1:])
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 0, out


@pytest.mark.parametrize("less", [1e-7, 1e-3, 0.1])
def test_a_bound_below_what_its_multipliers_prove_is_refused(verify, tmp_path, multiplied, less):
    path, name, data = multiplied
    data = json.loads(json.dumps(data))
    lowered(data, less)
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 1 and "global: log10_upper: stored " in out and "its multipliers prove" in out
    assert "ball:0.2: log10_upper: stored " in out and "samples[" in out


@pytest.mark.parametrize("shift", [-30.0, -1.0, 1.0, 30.0, 800.0])
def test_other_multipliers_prove_a_larger_bound_or_none(verify, tmp_path, multiplied, shift):
    path, name, data = multiplied
    data = json.loads(json.dumps(data))
    item = data["readings"][1]
    stored = Multipliers.from_json(item["multipliers"][0])
    logs = [log + shift * (-1) ** place for place, log in enumerate(stored.logs())]
    item["multipliers"] = [kept.to_json() for kept in kept_multipliers({0: logs})]
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 1 and "global: log10_upper: stored " in out


@pytest.mark.parametrize("log", [-800.0, -745.0, -700.0, 360.0, 700.0])
def test_multipliers_at_the_ends_of_float64_prove_nothing_and_break_nothing(verify, tmp_path, multiplied, log):
    path, name, data = multiplied
    data = json.loads(json.dumps(data))
    for item in data["readings"]:
        logs = {kept["sample"]: [log] * kept["count"] for kept in item["multipliers"]}
        item["multipliers"] = [kept.to_json() for kept in kept_multipliers(logs)]
    code, out, err = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 1 and err == ""
    assert "global: log10_upper: stored " in out and "ball:0.2: log10_upper: stored " in out


@pytest.mark.parametrize("packed", ["", "AAAA", "no base64!"])
def test_multipliers_that_are_not_there_are_named(verify, tmp_path, multiplied, packed):
    path, name, data = multiplied
    data = json.loads(json.dumps(data))
    data["readings"][1]["multipliers"][0]["packed"] = packed
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 1 and ("numbers are not there" in out or "up to 4,096 are kept, and none are there" in out)


@pytest.mark.parametrize("count", [None, 5000], ids=["removed", "said to be too many"])
def test_without_its_multipliers_a_bound_is_not_held_less_strictly(verify, tmp_path, multiplied, count):
    path, name, data = multiplied
    data = json.loads(json.dumps(data))
    for item in data["readings"]:
        item["multipliers"] = [] if count is None else [{"sample": 0, "count": count, "packed": ""}]
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 1 and out.count("up to 4,096 are kept, and none are there") == 2
    lowered(data, 9e-4)
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 1 and out.count("could not be confirmed") > 2


def test_too_many_multipliers_are_looked_for_again(verify, tmp_path, multiplied, monkeypatch):
    path, name, data = multiplied
    data = json.loads(json.dumps(data))
    for item in data["readings"]:
        for kept in item["multipliers"]:
            kept["packed"] = ""
    for module in ("core.multipliers", "core.consistency", "cli.remeasure"):
        monkeypatch.setattr(f"normgauge.{module}.MOST_KEPT", 0)
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {}), name))
    assert code == 0, out


@pytest.fixture(scope="module")
def balanced(tmp_path_factory) -> tuple[Path, dict]:
    """A network whose bounds come from the layers' gains alone."""
    folder = tmp_path_factory.mktemp("balanced")
    (folder / "net.py").write_text(PLAIN)
    model, batch = load_model(f"{folder / 'net.py'}:build"), load_batch(f"{folder / 'net.py'}:batch")
    found = readings(model, batch, ["point", "ball:0.2", "global"], search=False, effort="quick")
    assert [r.method for r in found] == ["jacobian", "balanced", "balanced"]
    return folder / "net.py", gauge_json(found)


def forged_capacity(item: dict, less: float) -> None:
    """The last gain of the balanced column, and all that follows from it."""
    step, record = item["proof"]["steps"][-1], item["layers"][-1]
    step["log10_balanced"] = [[g - less for g in gain] if isinstance(gain, list) else gain - less
                              for gain in step["log10_balanced"]]  # fmt: skip
    record["log10_balanced"] -= less
    item["log10_balanced"] -= less
    if item["method"] == "balanced":
        lowered({"readings": [item]}, less)
        if item["log10_displacement"] is not None:
            item["log10_displacement"] -= less


@pytest.mark.parametrize("less", [1e-8, 9e-6, 9e-4])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["point", "ball", "global"])
def test_a_balanced_bound_may_not_be_lowered_by_anything_but_rounding(verify, tmp_path, balanced, place, less):
    path, data = balanced
    data = json.loads(json.dumps(data))
    item = data["readings"][place]
    forged_capacity(item, less)
    file = resealed(tmp_path / "a.json", data)
    assert verify(file)[0] == 0  # it holds together
    code, out, _ = verify(file, *given((path, {})))
    assert code == 1 and f"{item['scope']}: log10_balanced: stored " in out and "could not be confirmed" in out


def test_a_bound_larger_than_need_be_is_no_false_one(verify, tmp_path, balanced):
    path, data = balanced
    data = json.loads(json.dumps(data))
    for item in data["readings"][1:]:
        forged_capacity(item, -5e-4)
        item["layers"][-1]["log10_spectral"]["lower"] -= 5e-6
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {})))
    assert code == 0, out


@pytest.mark.parametrize("shift", [0.0, 1.0, 200.0, 400.0, 800.0])
def test_a_balanced_bound_is_proved_again_with_its_weights_without_a_search(
    verify, tmp_path, balanced, monkeypatch, shift
):
    path, data = balanced
    data = json.loads(json.dumps(data))

    def never(*_: object) -> None:
        raise AssertionError("nothing is looked for")

    monkeypatch.setattr("normgauge.instrument.balance.bounds.descend_weights", never)
    for item in data["readings"]:
        logs = Multipliers.from_json(item["channel_weights"][0]).logs()
        assert len(logs) > 20
        moved = [log + shift * (-1) ** place for place, log in enumerate(logs)]
        item["channel_weights"] = [kept.to_json() for kept in kept_multipliers({0: moved})]
    code, out, err = verify(resealed(tmp_path / "a.json", data), *given((path, {})))
    assert code == (shift > 0) and err == "", out
    assert out.count("log10_balanced: stored ") == (3 if shift else 0)


def test_without_its_weights_a_balanced_bound_is_minimised_again_and_held_as_strictly(verify, tmp_path, balanced):
    path, data = balanced
    data = json.loads(json.dumps(data))
    for item in data["readings"]:
        item["channel_weights"] = []
    assert verify(resealed(tmp_path / "a.json", data), *given((path, {})))[0] == 0
    forged_capacity(data["readings"][2], 9e-6)
    code, out, _ = verify(resealed(tmp_path / "a.json", data), *given((path, {})))
    assert code == 1 and "global: log10_balanced: stored " in out and "could not be confirmed" in out


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_ball_keeps_the_weights_that_its_radii_were_measured_with(verify, tmp_path, monkeypatch, shift):
    """Other weights prove larger radii, and gains above those stored: these could not be confirmed."""
    (tmp_path / "net.py").write_text(PLAIN)
    model, batch = load_model(f"{tmp_path / 'net.py'}:normed"), load_batch(f"{tmp_path / 'net.py'}:batch")
    data = gauge_json(readings(model, batch, ["ball:0.05"], search=False, effort="quick"))

    def never(*_: object) -> None:
        raise AssertionError("nothing is looked for")

    monkeypatch.setattr("normgauge.instrument.balance.bounds.descend_weights", never)
    data = {"schema": data["schema"], "readings": data.get("readings", [data])}
    own, samples = (Multipliers.from_json(kept) for kept in data["readings"][0]["channel_weights"])
    assert (own.sample, samples.sample) == (0, 1) and own.count == samples.count > 20
    moved = [log + shift * (-1) ** place for place, log in enumerate(samples.logs())]
    data["readings"][0]["channel_weights"][1] = {**kept_multipliers({1: moved})[0].to_json()}
    code, out, err = verify(resealed(tmp_path / "a.json", data), *given((tmp_path / "net.py", {}), "normed"))
    assert code == (shift > 0) and err == "", out
    assert ("layers[3].log10_gain.upper: stored" in " ".join(out.split())) == (shift > 0)
