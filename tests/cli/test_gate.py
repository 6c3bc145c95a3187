"""The gate of `diff --fail-above`: it refuses what it cannot compare; and the script that a pipeline runs."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from normgauge.cli import main
from normgauge.cli.arguments import readings_at
from normgauge.cli.gate import ALLOWED, Gate, growth_words
from normgauge.cli.gauge import gauge_json
from normgauge.cli.remeasure import other_weights
from normgauge.core.bound import Evidence, Scope
from normgauge.core.checker import digest
from normgauge.core.compare import NO_WEIGHTS
from normgauge.core.errors import ReadingError
from normgauge.core.reading import LATER, Finding, Reading
from normgauge.core.spelled import LN10
from normgauge.core.version import __version__
from normgauge.instrument.measure import gauge
from tests.made import layer
from tests.made import reading as made

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SAMPLES, OTHERS = (f"sha256:{digit * 64}" for digit in "ab")
OPTIONS = {"input": None, "output": None, "balance": True, "search": False, "width": 1e-3, "effort": "default"}
INF = math.inf


def reading(**changes: Any) -> Reading:
    return made(**{"batch": SAMPLES, "options": OPTIONS, **changes})


@pytest.fixture
def gate(tmp_path, capsys):
    """Hold the gate between two readings, or lists of them; returns exit code, standard output and error."""

    def run(a: Reading | list[Reading], b: Reading | list[Reading], *options: str) -> tuple[int, str, str]:
        for name, side in (("a.json", a), ("b.json", b)):
            (tmp_path / name).write_text(json.dumps(gauge_json(side if isinstance(side, list) else [side])))
        given = options if "--fail-above" in options else ("--fail-above", "0.3", *options)
        code = main(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), *given])
        streams = capsys.readouterr()
        return code, streams.out, streams.err.replace(f"{tmp_path}/", "")

    return run


@pytest.mark.parametrize(("limit", "code"), [("0.6", 0), ("0.4", 3), ("-1", 3)])
def test_a_gate(gate, limit, code):
    found, _, err = gate(reading(), reading(log_upper=2.5 * LN10), "--fail-above", limit)
    told = f"growth {'FAILED' if code else 'passed'}: the upper bound, scope point, grew by 0.5000 decades; allowed are"
    assert found == code and err == f"normgauge: {told} {limit}\n"


def test_the_scope_that_grew_most_decides(gate):
    ball = Scope.parse("ball:0.1")
    a, b = [reading(), reading(scope=ball)], [reading(log_upper=2.1 * LN10), reading(scope=ball, log_upper=2.4 * LN10)]
    code, _, err = gate(a, b)
    assert code == 3 and "scope ball:0.1, grew by 0.4000 decades" in err


REFUSED = {
    "samples": (
        {"batch": OTHERS},
        "samples",
        "a.json was measured on 1 sample (sha256:aaaaaaaa), b.json 1 sample (sha",
    ),
    "no digest": ({"batch": ""}, "samples", "b.json does not say on which samples"),
    "together": (
        {"batch": OTHERS, "scope": "global", "together": True},
        "samples",
        "a.json was measured on 1 sample (sha256:aaaaaaaa), b.json a batch (sha",
    ),
    "version": ({"version": "0.1.9"}, "version", f"a.json was measured by normgauge {__version__}, b.json 0.1.9"),
    "effort": ({"options": {**OPTIONS, "effort": "quick"}}, "settings", "with effort default, b.json quick"),
    "width": ({"options": {**OPTIONS, "width": 0.1}}, "settings", "with width 0.001, b.json 0.1"),
    "balance": ({"options": {**OPTIONS, "balance": False}}, "settings", "with balance True, b.json False"),
    "estimated": ({"evidence": Evidence.ESTIMATED}, "evidence", "a bound that is proved, b.json estimated"),
    "observed": ({"evidence": Evidence.OBSERVED}, "evidence", "a bound that is proved, b.json observed"),
    "path": ({"path_dependent": True}, "path", "in b.json the path through the model depends on the data, and off the"),
    "mode": ({"mode": "train"}, "", "a.json was read in mode eval, b.json train"),
    "outputs": (
        {"notes": ("measured output: 0; not measured: 1",)},
        "outputs",
        "a.json has one output, b.json several outputs (measured output: 0; not measured: 1)",
    ),
    "inputs": (
        {"notes": ("measured in input; the other inputs are held fixed: input 1",)},
        "inputs",
        "a.json has one input, b.json several inputs (measured in input; the other inputs are held fixed: input 1)",
    ),
    "input": ({"options": {**OPTIONS, "input": "ids"}}, "", "a.json has as its input none, b.json ids"),
    "output": ({"options": {**OPTIONS, "output": "logits"}}, "", "a.json has as its output none, b.json logits"),
}


@pytest.mark.parametrize(("changes", "word", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_refused(gate, changes, word, said):
    """Whatever the numbers are; a person may allow most of it, and the verdict says what was allowed."""
    scope = Scope.parse(changes.get("scope", "point"))
    a, b = reading(scope=scope), reading(**{**changes, "scope": scope})
    code, out, err = gate(a, b)
    assert (code, out) == (1, "") and err.count("\n") == 1
    assert err.startswith("normgauge: no gate is held: ") and said in err
    assert ("Measure both alike" in err) == (word != "path")
    assert (f"--allow {word}" in err) == bool(word) and ("--allow" in err) == bool(word)
    others = [part for name in ALLOWED if name != word for part in ("--allow", name)]
    assert gate(a, b, *others)[0] == 1
    if word:
        code, _, err = gate(a, b, "--allow", word)
        assert code == 0 and "growth passed: " in err and "stayed" in err and said in err


def test_all_that_differs_is_told_at_once(gate):
    code, _, err = gate(reading(), reading(batch=OTHERS, version="0.1.9"))
    assert code == 1 and "Measure both alike, or allow it: --allow samples --allow version" in err
    assert gate(reading(), reading(batch=OTHERS, version="0.1.9"), "--allow", "samples")[0] == 1


def test_growth_that_other_samples_hide(gate):
    """With the bounds apart by less than the limit and the samples unlike, it is not known what grew."""
    code, out, err = gate(reading(), reading(batch=OTHERS, log_upper=2.2761 * LN10))
    assert code == 1 and "passed" not in out + err
    code, _, err = gate(reading(), reading(batch=OTHERS, log_upper=2.4472 * LN10), "--allow", "samples")
    assert code == 3 and "grew by 0.4472 decades" in err


@pytest.mark.parametrize("kinds", ["ab", "ba"])
def test_scopes_do_not_vanish(gate, kinds):
    more, less = [reading(), reading(scope=Scope.parse("global"), log_upper=9.0)], [reading()]
    a, b = (more, less) if kinds == "ab" else (less, more)
    code, out, err = gate(a, b)
    assert (code, out) == (1, "") and f"{'a' if kinds == 'ab' else 'b'}.json alone has scope global" in err
    code, _, err = gate(a, b, "--allow", "scopes")
    assert code == 0 and "alone has scope global" in err


def test_infinite_against_infinite_is_no_growth_of_nothing(gate):
    endless = Scope.parse("global")
    parts = {"scope": endless, "log_upper": INF, "unbounded": (Finding("cube", "it grows faster than its input"),)}
    code, out, err = gate(reading(**parts), reading(**parts, log_lower=9.0))
    assert (code, out) == (1, "") and "neither has a finite bound in scope global, owing to cube" in err
    assert "--allow" not in err
    assert gate(reading(**parts), reading(**parts, log_lower=9.0), "--allow", "infinite")[0] == 1  # nothing is left
    code, _, err = gate([reading(), reading(**parts)], [reading(), reading(**parts)], "--allow", "infinite")
    assert code == 0 and "scope point, stayed" in err and "neither has a finite bound in scope global" in err


@pytest.mark.parametrize(
    ("a", "b", "code", "said"),
    [
        (1.0, INF, 3, "has no finite value any more"),
        (INF, 1.0, 0, "is finite now"),
        (-INF, 1.0, 3, "was 0 and is not any more"),
        (1.0, -INF, 0, "is 0 now"),
        (-INF, -INF, 0, "stayed"),
        (1.0, 1.0 + 1e-9, 0, "grew by less than 0.0001 decades"),
        (1.0, 1.0 - LN10, 0, "fell by 1.0000 decades"),
    ],
)
def test_ends_of_every_kind(gate, a, b, code, said):
    low = {"log_lower": -INF, "samples": ()}
    found, _, err = gate(reading(log_upper=a, **low), reading(log_upper=b, **low), "--fail-above", "100")
    assert found == code and f"scope point, {said}" in err
    assert growth_words(reading(log_upper=a), reading(log_upper=b), 0.0) == "stayed"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "Other"}, "(another model: MLP became Other)"),
        ({"layers": (layer("f.0", "Linear", 1.0, 0), layer("new", "ReLU", 0.0, 1))}, "(other layers: f.1, head, new)"),
        ({"input_name": "x"}, "(the input input is called x)"),
        ({"evidence": Evidence.COMPUTED}, "(the bound was proved, is computed)"),
        (
            {"scope": Scope.parse("global"), "batch": OTHERS},
            "(other samples, whose shape alone counts in scope global)",
        ),
        ({"layers": (layer("f.0", "Linear", 1.0, 0, rule="user.mine"),)}, "as good as rules of your own: user.mine"),
        ({}, "(alike to the seconds they took: perhaps one measurement)"),
    ],
)
def test_what_a_person_should_know_stands_in_the_line_of_the_verdict(gate, changes, said):
    scope = changes.get("scope", Scope.parse("point"))
    code, _, err = gate(reading(scope=scope), reading(**{**changes, "scope": scope}))
    assert code == 0 and err.count("\n") == 1 and said in err and "growth passed" in err


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (SAMPLES, "(same parameters and buffers)"),
        (OTHERS, "(other weights)"),
        (NO_WEIGHTS, "(no parameters or buffers to compare)"),
        ("", None),
    ],
    ids=["same", "other", "none in it", "no"],
)
def test_the_verdict_says_whether_the_weights_are_the_same(gate, weights, said):
    code, _, err = gate(reading(weights=SAMPLES), reading(weights=weights, log_upper=2.1 * LN10))
    assert code == 0 and ((said in err) if said else "weights" not in err and "buffers" not in err)


def test_two_models_without_parameters_are_not_called_the_same(gate):
    a, b = reading(weights=NO_WEIGHTS), reading(weights=NO_WEIGHTS, log_upper=2.1 * LN10)
    code, out, err = gate(a, b)
    assert code == 0 and "(no parameters or buffers to compare)" in err and "same" not in err
    assert "are the same in A and B" not in " ".join(out.split())


def test_the_same_layers_wired_in_another_way(gate):
    class Net(nn.Module):
        def __init__(self, skips: bool) -> None:
            super().__init__()
            self.skips = skips
            with torch.random.fork_rng():
                torch.manual_seed(0)
                self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x)
            return self.second(h) + (h if self.skips else x)

    batch = torch.ones(2, 3)
    a, b = (gauge(Net(skips), batch, search=False) for skips in (True, False))
    assert "the same layers wired in another way" in gate(a, b, "--fail-above", "9")[2]
    again = replace(gauge(Net(True), batch, search=False), seconds={"rules": 0.5})  # else equal where both took no time
    assert gate(a, again)[2].endswith("stayed; allowed are 0.3 (same parameters and buffers)\n")


class Ends(nn.Module):
    """A linear map that is given and returns so many tensors; the measured ones are the first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.map = nn.Linear(3, 3)

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.map(sum(given))
        return tuple(found * (i + 1) for i in range(self.outputs))


HEADS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body, self.value = nn.Linear(8, 3), nn.Linear(8, 1)
        self.value.weight.data.mul_(SCALE)

    def forward(self, x):
        return {"logits": self.body(x), "value": self.value(x)}


build = Net
"""


@pytest.mark.parametrize(
    ("ends", "end", "name"), [((1, 2), "output", "1"), ((2, 1), "input", "input 1")], ids=["output", "input"]
)
def test_one_of_several_passes_no_gate_unless_it_was_chosen(gate, ends, end, name):
    """Whatever the others do would pass; a chosen one is judged, and the verdict names it."""
    model, batch = Ends(*ends), (torch.ones(2, 3),) * ends[0]
    a = gauge(model, batch, search=False)
    code, out, err = gate(a, a, "--fail-above", "9")
    assert (code, out) == (1, "") and f"in b.json the model has several {end}s and none was chosen (measured" in err
    assert f". Choose what is to be judged: --{end} NAME, or allow it: --allow {end}s\n" in err
    code, _, err = gate(a, a, "--fail-above", "9", "--allow", f"{end}s")
    assert code == 0 and f"several {end}s and none was chosen" in err
    chosen = gauge(model, batch, search=False, **{end: name})
    code, _, err = gate(chosen, chosen, "--fail-above", "9")
    assert code == 0 and re.search(rf"\(.*measured (output: 1; not measured: 0|in {name}; the other .*)\)", err)
    assert gate(a, chosen, "--fail-above", "9", *(part for word in ALLOWED for part in ("--allow", word)))[0] == 1


@pytest.mark.parametrize(("ends", "word"), [((1, 2), "outputs"), ((2, 1), "inputs"), ((7, 1), "inputs")])
def test_ends_that_came_or_went_are_refused(gate, ends, word):
    """On networks, in both directions: which tensor was measured is not known from the options, which ask for none."""
    fewer = (8, 1) if ends == (7, 1) else (1, 1)  # more than are named
    readings = [gauge(Ends(*those), (torch.ones(2, 3),) * those[0], search=False) for those in (fewer, ends)]
    for a, b in (readings, readings[::-1]):
        code, out, err = gate(a, b, "--fail-above", "9")
        assert (code, out) == (1, "") and f"or allow it: --allow {word}\n" in err and "none was chosen" not in err
        assert gate(a, b, "--fail-above", "9", "--allow", word)[0] == 0


def test_estimates_on_both_sides_are_said_to_be_no_proof(gate):
    code, _, err = gate(
        reading(evidence=Evidence.ESTIMATED), reading(evidence=Evidence.ESTIMATED, log_upper=2.1 * LN10)
    )
    assert code == 0 and "the bound is estimated, not proved" in err


@pytest.mark.parametrize("before", [True, False])
def test_a_bound_on_one_path_alone_is_held_only_where_that_is_allowed(gate, before):
    """Whatever the committed one is; a committed one alone is compared, since the new bound has no condition."""
    a, b = reading(path_dependent=before), reading(path_dependent=True, log_upper=2.1 * LN10)
    code, out, err = gate(a, b)
    assert (code, out) == (
        1,
        "",
    ) and "off the path traced no bound is known in scope point. Allow it: --allow path" in err
    code, _, err = gate(a, b, "--allow", "path")
    assert code == 0 and "off the path traced no bound is known in scope point" in err
    code, _, err = gate(a, reading(log_upper=2.1 * LN10))
    assert code == 0 and ("the bound was proved on the same path, is proved" in err) == before


def test_a_file_is_not_held_against_itself(tmp_path, capsys):
    reading().save(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    for a, b in (("a.json", "a.json"), ("a.json", "b.json")):
        assert main(["diff", str(tmp_path / a), str(tmp_path / b), "--fail-above", "1"]) == 1
        assert "are one file; give the committed reading and the new one" in capsys.readouterr().err
    assert main(["diff", "reference:mlp", "reference:mlp", "--fail-above", "1"]) == 1


def test_two_readings_of_one_scope_in_a_file(gate):
    code, _, err = gate([reading(), reading(log_upper=9.0)], reading())
    assert code == 1 and "a.json holds 2 readings in scope point; keep the one that counts" in err


def test_no_gate_is_held_against_a_file_that_was_edited(gate, tmp_path, capsys):
    gate(reading(), reading())
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mode": "train"}))
    assert main(["diff", str(path), str(tmp_path / "b.json"), "--fail-above", "9"]) == 1
    streams = capsys.readouterr()
    assert not streams.out and "was edited after it was written; a change is accepted by" in streams.err
    assert main(["diff", str(path), str(tmp_path / "b.json")]) == 0
    assert "A was edited after it was written" in " ".join(capsys.readouterr().out.split())


def edits(honest: dict[str, Any], count: int) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Files of which one to three fields were changed, renamed or left out, often the schema too; drawn, seeded."""

    def places(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        for key, item in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            yield from ((*at, key), *places(item, (*at, key)))

    rng, every = random.Random(0), list(places(honest))
    top = [place for place in every if len(place) == 1]
    values = [
        1,
        True,
        2.0,
        "2",
        "inf",
        "-inf",
        None,
        math.nan,
        5.0,
        "global",
        "unknown",
        "0.1.0",
        [],
        {},
        f"sha256:{0:064}",
    ]
    for _ in range(count):
        data, done = copy.deepcopy(honest), [("schema", rng.choice([1, 1, 1.0, True, 2, 2.0, "2"]))]
        data["schema"] = done[0][1]
        if rng.random() < 0.5:  # what an edit is for
            data["log10_upper"] = rng.choice([data["log10_upper"] + 0.7, "inf"])
        if rng.random() < 0.2:  # no field is left that no file of schema 1 has
            data = {key: item for key, item in data.items() if key not in LATER}
        for place in rng.choices(rng.choice([every, top]), k=rng.choice([1, 2, 3])):
            node: Any = data
            with contextlib.suppress(AttributeError, LookupError, TypeError):  # what held it is gone
                for key in place[:-1]:
                    node = node[key]
                old = node.pop(place[-1])
                new = old + rng.choice([0.7, -1, 1e-9]) if isinstance(old, float) else rng.choice(values)
                if isinstance(node, dict) and rng.random() < 0.7:
                    node[place[-1]] = new
                done.append((place, new))
        yield done, data


@pytest.mark.parametrize("several", [False, True])
def test_no_edit_of_a_committed_reading_passes_what_the_honest_one_does_not(tmp_path, several):
    """Whatever is allowed: a bound that grew by 0.7 decades passes 0.3 in no file that was changed by hand."""
    path = tmp_path / "a.json"
    honest = json.loads((EXAMPLES / "ci/reading.json").read_text())
    first = Reading.from_json(honest)
    grown, passed, refused = replace(first, log_upper=first.log_upper + 0.7 * LN10), [], 0
    grown.save(tmp_path / "b.json")
    for done, data in edits(honest, 600):
        path.write_text(json.dumps({"readings": [data], "schema": data.get("schema")} if several else data))
        try:
            gate = Gate((str(path), str(tmp_path / "b.json")), readings_at(str(path)), [grown])
            passed += [done] * gate.judge(0.3, ALLOWED).passed
        except ReadingError:
            refused += 1
    assert not passed and refused > 500


@pytest.mark.parametrize("schema", [1, 1.0, True, 2, 2.0, "2", None])
@pytest.mark.parametrize("change", [{"log10_upper": 1.9}, {"log10_upper": "inf"}, {}], ids=["raised", "inf", "digest"])
def test_a_reading_that_was_made_one_of_an_older_schema(gate, tmp_path, capsys, schema, change):
    """Its digest counts under any schema, and where it is gone no gate is held."""
    honest = forged(reading().to_json())
    gate(reading(), reading(log_upper=2.7 * LN10))
    data = {**honest, "schema": schema, **change}
    data = data if change else {key: item for key, item in data.items() if key != "digest"}
    (tmp_path / "a.json").write_text(json.dumps(data))
    code = main(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--fail-above", "0.3"])
    assert code == 1 and "growth" not in capsys.readouterr().err


def test_a_reading_of_schema_1_is_compared_and_holds_no_gate(gate, tmp_path, capsys):
    gate(reading(), reading())
    old = {key: item for key, item in {**reading().to_json(), "schema": 1}.items() if key not in LATER}
    (tmp_path / "a.json").write_text(json.dumps(old))
    both = ["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main([*both, "--fail-above", "9", "--allow", "settings"]) == 1
    assert "a.json is of schema 1, which has no digest that would show an edit" in capsys.readouterr().err
    assert main(both) == 0
    assert "A is of schema 1, which has no digest: nothing would show that its" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_key_that_stands_twice_is_refused(gate, tmp_path, capsys):
    gate(reading(), reading())
    path = tmp_path / "a.json"
    path.write_text(path.read_text().replace('"log10_upper": 2.0', '"log10_upper": 1.0, "log10_upper": 2.0', 1))
    assert main(["diff", str(path), str(tmp_path / "b.json"), "--fail-above", "9"]) == 1
    assert '"log10_upper" stands twice in one object' in capsys.readouterr().err
    assert main(["verify", str(path)]) == 1


def test_a_bound_that_was_edited_is_not_called_refuted(gate, tmp_path, capsys):
    """No rule is wrong where a hand wrote a smaller bound: it says so first, and a gate is not held."""
    gate(reading(), reading())
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "log10_upper": -3.0}))
    both = ["diff", str(path), str(tmp_path / "b.json")]
    assert main([*both, "--fail-above", "9"]) == 1
    assert "was edited after it was written" in capsys.readouterr().err
    assert main(both) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "EDITED at the samples: this file was changed after it was written" in out
    assert "measure again." in out and "REFUTED" not in out and "a rule is wrong" not in out


def test_a_refuted_bound_comes_before_all_else(gate):
    low = {"log_lower": 9.0, "samples": ()}
    code, _, err = gate(reading(), reading(batch=OTHERS, **low))
    assert code == 4 and "REFUTED" in err


def test_what_is_allowed_without_a_gate(tmp_path, capsys):
    reading().save(tmp_path / "a.json")
    assert main(["diff", str(tmp_path / "a.json"), str(tmp_path / "a.json"), "--allow", "samples"]) == 1
    assert "--allow is for a gate: give --fail-above too" in capsys.readouterr().err


digits_of_x86 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="on another processor the example's batch differs in its last digits",
)


@pytest.fixture
def script(tmp_path):
    """Run gate.sh in a copy of the examples; returns its exit code, standard output and error."""
    shutil.copytree(EXAMPLES / "ci", tmp_path / "ci")
    shutil.copy(EXAMPLES / "net.py", tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(*arguments: str, **settings: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", "ci/gate.sh", *arguments],
            cwd=tmp_path,
            env={**os.environ, **settings, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr

    return run


NET = ("net.py:build", "net.py:batch")


@digits_of_x86
def test_the_example_of_a_gate_runs(script, tmp_path):
    """The script as a pipeline runs it, on the network of the documentation."""
    code, out, err = script(*NET, "ci/reading.json", "new.json")
    assert code == 0, err
    assert json.loads((tmp_path / "new.json").read_text())["scope"] == "ball:0.1"
    assert "verified: new.json" in " ".join(out.split())
    assert "The bound within 0.1 of the samples is the same in A and B" in out
    assert "limit passed: " in err and "growth passed: " in err and err.endswith("gate.sh: passed\n")


def test_a_gate_fails_aloud(script, tmp_path):
    """Above the limit at the first reading; then with nothing to hold it against, where growth is not spoken of."""
    code, out, err = script(*NET, "none.json", "new.json", LIMIT="0.2", FIRST="1", QUIET="1")
    assert (code, out) == (3, "") and "limit FAILED" in err and "commit new.json as none.json" in err
    assert err.endswith("gate.sh: FAILED with exit code 3\n")
    code, _, err = script(*NET, "none.json", "new.json")
    assert code == 1 and "no reading at none.json: nothing to hold" in err
    assert err.endswith("gate.sh: FAILED with exit code 1\n") and "gate passed" not in err


def test_the_worse_verdict_wins(script):
    """Above the limit is 3, whatever else is wrong; each thing that is wrong is said."""
    code, _, err = script(*NET, "none.json", "new.json", LIMIT="0.2")
    assert code == 3 and "limit FAILED" in err and "no reading at none.json: nothing to hold" in err
    code, _, err = script("net.py:nobody", NET[1], "none.json", "new.json", LIMIT="0.2")
    assert code == 1 and "no reading at" not in err


def forged(reading: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A reading with other numbers, and the digest of those."""
    data = {key: value for key, value in {**reading, **changes}.items() if key != "digest"}
    return {**data, "digest": digest(data)}


@digits_of_x86
def test_a_reading_of_an_earlier_run_is_not_left_for_that_of_this_one(script, tmp_path):
    stale = tmp_path / "new.json"
    stale.write_text("{}")
    code, _, _ = script("net.py:nowhere", "net.py:batch", "ci/reading.json", "new.json")
    assert code == 1 and not stale.exists()


@pytest.mark.parametrize("upper", [5.0, "inf"])
def test_a_committed_reading_that_does_not_hold_together(script, tmp_path, upper):
    path = tmp_path / "ci/reading.json"
    path.write_text(json.dumps(forged(json.loads(path.read_text()), log10_upper=upper)))
    code, out, err = script(*NET, "ci/reading.json", "new.json", QUIET="1")
    assert (code, out) == (1, "") and "growth" not in err.replace("no growth is told of it", "")
    assert "ci/reading.json: log10_upper: stored" in err and "ci/reading.json is not verified" in err


def test_weights_that_are_others_each_time(script, tmp_path):
    """A gate on random weights is green by chance: the network is built again, and must be the same."""
    (tmp_path / "fresh.py").write_text("from torch import nn\n\ndef build():\n    return nn.Linear(8, 3)\n")
    code, _, err = script("fresh.py:build", NET[1], "none.json", "new.json", FIRST="1")
    assert code == 1 and "limit passed" in err and "weights_digest: the weights are not those that were measured" in err
    assert "If the weights are others when fresh.py:build is built again, load them from a file" in err


LISTED = """
import random
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.maps, self.factor = [torch.ones(3, 8)], 1 + random.random()

    def forward(self, x):
        return self.factor * (x @ self.maps[0].to(x.dtype).T)


build = Net
"""


def test_numbers_that_are_no_parameters_and_others_each_time(script, tmp_path):
    """No digest holds them; the second measurement finds other bounds, and verify alone says that it cannot tell."""
    (tmp_path / "listed.py").write_text(LISTED)
    code, _, err = script("listed.py:build", NET[1], "none.json", "new.json", FIRST="1", QUIET="1")
    assert code == 1 and "limit passed" in err and "the stored bound could not be confirmed" in err
    (tmp_path / "still.py").write_text(LISTED.replace("random.random()", "1"))
    code, _, err = script("still.py:build", NET[1], "none.json", "new.json", FIRST="1", QUIET="1")
    assert code == 0, err


def test_verify_does_not_compare_two_digests_of_nothing():
    (told,) = other_weights(NO_WEIGHTS, NO_WEIGHTS, measured=False)
    assert "no parameters or buffers to compare; give --batch" in told
    assert not list(other_weights(NO_WEIGHTS, NO_WEIGHTS, measured=True))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"GROWTH": "0,3"}, "expected a number, got '0,3'"),
        ({"ALLOW": "sample"}, "did you mean samples?"),
        ({"ALLOW": "samples,vision"}, "did you mean version?"),
    ],
)
def test_a_mistake_in_the_settings_is_said_before_anything_is_measured(script, tmp_path, settings, said):
    code, _, err = script(*NET, "ci/reading.json", "new.json", **settings)
    assert code == 1 and said in err and 'words as in "samples version"' in err
    assert "limit" not in err and not (tmp_path / "new.json").exists()


@digits_of_x86
@pytest.mark.parametrize("allow", ["samples version", "samples,version", "samples, version"])
def test_words_that_are_allowed_stand_between_blanks_or_commas(script, tmp_path, allow):
    path = tmp_path / "ci/reading.json"
    path.write_text(json.dumps(forged(json.loads(path.read_text()), batch_digest=OTHERS, normgauge="0.1.9")))
    code, _, err = script(*NET, "ci/reading.json", "new.json", ALLOW=allow)
    assert code == 0, err
    assert "growth passed: " in err and "was measured by normgauge 0.1.9" in err


STEEPER = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.relu(self.first(x))
        if h.max() > 1e3:
            h = 50 * h
        return self.second(h)


build = Net
"""


def test_a_network_that_looks_at_its_data_passes_no_gate_unallowed(script, tmp_path):
    """In no run: the first one neither, nor where both readings are alike; the lines say what to allow, and how."""
    (tmp_path / "looks.py").write_text(STEEPER)
    code, out, err = script("looks.py:build", NET[1], "none.json", "new.json", FIRST="1", QUIET="1")
    assert (code, out) == (1, "") and "passed" not in err and "commit new.json" not in err
    assert "no limit is held" in err and "(proved on the same path)" in err and 'Allow it: ALLOW="path"' in err
    (tmp_path / "new.json").rename(tmp_path / "kept.json")
    code, out, err = script("looks.py:build", NET[1], "kept.json", "new.json", QUIET="1")
    assert (code, out) == (1, "") and err.count('llow it: ALLOW="path"') == 2 and "--allow" not in err
    code, out, err = script("looks.py:build", NET[1], "kept.json", "new.json", QUIET="1", ALLOW="path")
    assert (code, out) == (0, "") and err.count("off the path traced no bound is known") == 2


def test_a_network_with_two_heads_is_judged_by_the_one_that_is_chosen(script, tmp_path):
    """A green gate says nothing of an output that nobody asked about, so it is asked for."""
    for name, scale in (("small", "1"), ("large", "1e6")):
        (tmp_path / f"{name}.py").write_text(HEADS.replace("SCALE", scale))
    code, out, err = script("small.py:build", NET[1], "none.json", "new.json", FIRST="1", QUIET="1")
    assert (code, out) == (1, "") and "passed" not in err and "commit new.json" not in err
    assert 'judged: OUTPUT=NAME, or allow it: ALLOW="outputs"\n' in err and "--" not in err
    code, _, err = script("small.py:build", NET[1], "none.json", "new.json", FIRST="1", QUIET="1", OUTPUT="value")
    assert code == 0 and "measured output: value; not measured: logits" in err
    (tmp_path / "new.json").rename(tmp_path / "kept.json")
    code, _, err = script("large.py:build", NET[1], "kept.json", "new.json", QUIET="1", OUTPUT="value", LIMIT="9")
    assert code == 3 and "grew by 6.0000 decades" in err and err.count("measured output: value; not") == 2


def test_no_reading_of_an_earlier_run_is_left_where_nothing_was_measured(script, tmp_path):
    for settings in ({"GROWTH": "nan"}, {"FIRST": "1"}):
        (tmp_path / "new.json").write_text("{}")
        assert script(*NET, "ci/reading.json", "new.json", **settings)[0] == 1
        assert not (tmp_path / "new.json").exists()


def test_what_may_be_allowed_is_said_in_the_words_of_the_script(script, tmp_path):
    path = tmp_path / "ci/reading.json"
    path.write_text(json.dumps(forged(json.loads(path.read_text()), batch_digest=OTHERS, normgauge="0.1.9")))
    code, _, err = script(*NET, "ci/reading.json", "new.json", QUIET="1")
    assert code == 1 and 'or allow it: ALLOW="samples version"\n' in err and "--allow" not in err


def test_the_committed_reading_is_not_overwritten(script, tmp_path):
    before = (tmp_path / "ci/reading.json").read_bytes()
    (tmp_path / "same.json").symlink_to("ci/reading.json")
    for new in ("ci/reading.json", "./ci/reading.json", "same.json"):
        code, _, err = script(*NET, "ci/reading.json", new)
        assert code == 1 and "COMMITTED and NEW are one file" in err and "FAILED with exit code 1" in err
    code, _, err = script(*NET, "ci/reading.json", "new.json", FIRST="1")
    assert code == 1 and "FIRST=1, but there is a reading at ci/reading.json" in err
    assert (tmp_path / "ci/reading.json").read_bytes() == before and not (tmp_path / "new.json").exists()
    code, _, err = script(*NET, "none.json", "new.json", FIRST="yes")
    assert code == 1 and "FIRST=yes: expected 1" in err
    code, _, err = script(*NET, "none.json", "new.json", FIRST="0", LIMIT="9")
    assert code == 1 and "no reading at none.json" in err


@digits_of_x86
def test_the_committed_example_is_verified_against_its_network(monkeypatch, capsys):
    monkeypatch.chdir(EXAMPLES)
    code = main(["verify", "ci/reading.json", "--model", NET[0], "--batch", NET[1]])
    assert code == 0, capsys.readouterr().out


def test_the_workflow_runs_the_script():
    text = (EXAMPLES / "ci" / "normgauge.yml").read_text(encoding="utf-8")
    pages = text + (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:above|more than) 10\^(\d+)", pages)) == {"2"}
    assert "bash ci/gate.sh net.py:build net.py:batch ci/reading.json new.json" in text
    for name, default in (("SCOPE", "ball:0.1"), ("LIMIT", "2"), ("GROWTH", "0.3")):
        assert f'{name}: "{default}"' in text
        assert f"${{{name}:-{default}}}" in (EXAMPLES / "ci" / "gate.sh").read_text(encoding="utf-8")


def test_the_script_and_the_pages_gate_in_one_scope():
    for page in ("README.md", "docs/compare.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        gates = [line for line in text.splitlines() if line.startswith("normgauge gauge") and "--fail-above" in line]
        assert gates and all("--scope ball:0.1" in line for line in gates)
        assert "committed.json" in text
