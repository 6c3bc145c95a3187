"""A config is read whole or refused in one line with its place and what would have been right."""

from __future__ import annotations

from pathlib import Path

import pytest

from normgauge.core.errors import InputError
from normgauge.lab.sweep.config import line_of, read_config
from tests.lab.sweep.made import HEAD, config, written

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("sweep*.toml"))


def test_what_is_not_said_has_a_default(tmp_path):
    read = config(tmp_path)
    assert read.name == "a" and read.seeds == (0,) and read.varied == ()
    assert read.shared["training.lr"] == 1e-3 and read.shared["network.options.sizes"] == [64, 8, 10]
    assert read.shared["monitor"] is True and "run.workers" not in read.shared and "seeds" not in read.shared
    assert read.run == {"out": None, "workers": 1, "threads": None, "retries": 1, "timeout": None, "keep": False}
    assert read.out == Path("sweeps/a") and read.folder == tmp_path


def test_everything_can_be_said(tmp_path):
    read = config(
        tmp_path,
        '[grid]\n"training.lr" = [1, 0.1]\nnetwork.options.norm = ["batch", "none"]',
        '[random]\ncount = 3\nseed = 4\n"training.batch_size" = { int = [8, 16] }\n'
        '"training.weight_decay" = { log_uniform = [1e-5, 1] }\n"training.optimizer" = { choice = ["sgd", "adam"] }',
        '[run]\nout = "there"\nworkers = 2\ntimeout = 5',
        top='name = "all-of-it"\nseeds = [3, 5]\nmonitor = false',
    )
    assert read.name == "all-of-it" and read.seeds == (3, 5) and read.count == 3 and read.draw_seed == 4
    assert read.grid == {"training.lr": (1.0, 0.1), "network.options.norm": ("batch", "none")}
    assert list(read.draws) == ["training.batch_size", "training.weight_decay", "training.optimizer"]
    assert read.draws["training.weight_decay"].ends == (1e-5, 1.0)
    assert read.out == Path("there") and read.run["timeout"] == 5.0 and not read.shared["monitor"]


WRONG = {
    "an unknown key": ("[run]\nworker = 2", "line 16: unknown key 'worker' in [run]; nearest: run.workers"),
    "a key of another table": ("[run]\nepochs = 2", "unknown key 'epochs' in [run]; nearest: training.epochs"),
    "a key like no other": ("[run]\nzzz = 2", "unknown key 'zzz' in [run]; known: run.out, run.workers"),
    "an unknown table": ("[traning]\nlr = 1", "no table [traning]; nearest: training"),
    "a table inside": ("[run.more]\nx = 1", "unknown key 'x' in [run.more]"),
    "a text for a number": ('[run]\nworkers = "two"', "run.workers: expected a whole number of at least 1, got 'two'"),
    "a flag for a number": ("[run]\nworkers = true", "expected a whole number of at least 1, got True"),
    "a number for a flag": ("[run]\nkeep = 1", "run.keep: expected true or false, got 1"),
    "no time at all": ("[run]\ntimeout = 0", "run.timeout: expected a number above 0, got 0"),
    "an empty name": ('[run]\nout = ""', "run.out: expected a text in quotes"),
    "an empty grid": ('[grid]\n"training.lr" = []', "line 16: grid training.lr: expected a list of values, not empty"),
    "a value for a grid": ('[grid]\n"training.lr" = 0.1', "expected a list of values, not empty, got 0.1"),
    "a wrong value in a grid": ('[grid]\n"training.lr" = [0.1, -1]', "expected a number above 0, got -1"),
    "a value twice": ('[grid]\n"training.lr" = [0.1, 0.1]', "expected each value once"),
    "an optimizer": ('[grid]\n"training.optimizer" = ["adamx"]', "one of adam, adamw, sgd (nearest: adam)"),
    "a grid over what is not varied": ('[grid]\n"run.workers" = [1]', "[grid] cannot vary 'run.workers'"),
    "a grid key misspelled": (
        '[grid]\n"training.lrs" = [1]',
        "[grid] cannot vary 'training.lrs'; nearest: training.lr",
    ),
    "a scope": ('[grid]\n"measure.scopes" = [["point"]]', "cannot vary 'measure.scopes'"),
    "no count": ('[random]\n"training.lr" = { uniform = [0.1, 1] }', "[random] needs count"),
    "nothing drawn": ("[random]\ncount = 3", "[random] draws nothing"),
    "an unknown draw": ('[random]\ncount = 1\n"training.lr" = { normal = [0, 1] }', "one of log_uniform, uniform"),
    "a value for a draw": ('[random]\ncount = 1\n"training.lr" = 3', "expected { KIND = [...] }"),
    "a draw of nothing": ('[random]\ncount = 1\n"training.lr" = { choice = [] }', "a list of values, not empty"),
    "one end": ('[random]\ncount = 1\n"training.lr" = { uniform = [1] }', "two numbers, the smaller first"),
    "ends that are no numbers": ('[random]\ncount = 1\n"training.lr" = { uniform = ["a", 1] }', "two numbers"),
    "the larger first": ('[random]\ncount = 1\n"training.lr" = { uniform = [2, 1] }', "the smaller first"),
    "the log of zero": ('[random]\ncount = 1\n"training.lr" = { log_uniform = [0, 1] }', "both above 0"),
    "a fraction of examples": (
        '[random]\ncount = 1\n"training.batch_size" = { uniform = [1, 8] }',
        "expected a whole number of at least 1, got 1.0",
    ),
    "an unknown key drawn": ('[random]\ncount = 1\n"training.lrs" = { uniform = [1, 8] }', "nearest: training.lr"),
    "unknown and no draw": ('[random]\ncount = 1\n"training.lrs" = 3', "[random] cannot vary 'training.lrs'"),
    "a key in both": (
        '[grid]\n"training.lr" = [1]\n[random]\ncount = 1\n"training.lr" = { uniform = [1, 8] }',
        "line 19: training.lr stands in [grid] and in [random]",
    ),
    "not TOML": ("[grid", "not TOML: Expected ']'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_told_with_its_place(tmp_path, case):
    content, message = WRONG[case]
    path = written(tmp_path, content, head=HEAD.rstrip("\n"))
    with pytest.raises(InputError) as failure:
        read_config(path)
    assert str(failure.value).startswith(str(path)) and message in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ("seed = 3", "line 1: unknown key 'seed' at the top; nearest: random.seed"),
        ("nmae = 'x'", "unknown key 'nmae' at the top; nearest: name"),
        ("seeds = []", "seeds: expected a list of whole numbers, not empty"),
        ("seeds = [1, 1]", "seeds: expected each seed once"),
        ("seeds = 0", "seeds: expected a count of at least 1 or a list"),
        ("seeds = [-1]", "expected a whole number of at least 0"),
        ("name = '../up'", "expected letters, digits and - _ . only"),
        ("grid = 3", "expected a table, got 3; write [grid] above its keys"),
        ("training = 3", "expected a table, got a value; write [training] above its keys"),
    ],
    ids=["seed", "name", "no seeds", "a seed twice", "zero seeds", "a negative seed", "a path", "grid", "training"],
)
def test_a_mistake_at_the_top(tmp_path, top, message):
    head = HEAD if top != "training = 3" else "[network]\nbuild = 'mlp'"
    with pytest.raises(InputError) as failure:
        config(tmp_path, top=top, head=head)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("scopes = ['ball']", "measure.scopes: expected point, global or ball:RADIUS, got ['ball']"),
        ("scopes = [3]", "expected point, global or ball:RADIUS"),
        ("scopes = 'point'", "expected a list of scopes, not empty, got 'point'"),
        ("samples = 0", "measure.samples: expected a whole number of at least 1"),
    ],
    ids=["no radius", "a number", "no list", "no samples"],
)
def test_what_is_measured_is_checked(tmp_path, measure, message):
    with pytest.raises(InputError) as failure:
        config(tmp_path, head=f"[network]\nbuild = 'mlp'\n[measure]\n{measure}")
    assert message in str(failure.value)


def test_a_network_is_needed(tmp_path):
    with pytest.raises(InputError, match=r"\[network\] needs build"):
        config(tmp_path, head="")


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="No such file or directory; give a TOML file"):
        read_config(tmp_path / "nowhere.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="in UTF-8"):
        read_config(tmp_path / "b.toml")


def test_lines_are_found():
    content = "a = 1\n[t]\n  b.c = 2\n[t.u] # more\n'd' = { e = 3 }\n"
    assert [line_of(content, key) for key in ("a", "t.b.c", "t.u.d.e", "t.u", "t", "x")] == [1, 3, 5, 4, 2, None]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_read(path):
    assert len(read_config(path).varied) >= 1


def test_there_are_examples():
    assert len(EXAMPLES) >= 2
