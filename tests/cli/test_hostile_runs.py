"""Run files with values that no writer of ours makes: every view says what it can, and none breaks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from normgauge.cli import main
from normgauge.core.store.seal import Seal, sealed
from tests.core.store.made import header

HUGE = "9" * 400
HEAD = {"kind": "header", "format": "normgauge-run", "schema": 1, "run": "r", **header(1)}
STEP = {"kind": "step", "step": 1, "time": 1, "loss": 1, "lr": 0.1, "totals": {"log10_P_w": 1.0},
        "columns": {"norm_upper": [1.0, 2.0, 3.0]}}  # fmt: skip
SURROGATE, STEERING = "\ud800x", "\x1b]0;OWNED\x07\x1b[2J\u202e\x00"


def step(**more: Any) -> dict[str, Any]:
    return {**STEP, **more}


def named(*names: Any) -> dict[str, Any]:
    return {**HEAD, "layers": [{"name": name} for name in names]}


HOSTILE: dict[str, list[Any]] = {
    "nan literals": [HEAD, '{"kind":"step","step":1,"loss":NaN,"totals":{"log10_P_w":-Infinity},"columns":{}}'],
    "400 digits": [HEAD, json.dumps(STEP).replace("1.0", HUGE).replace('"loss": 1', f'"loss": {HUGE}'), step(step=2)],
    "5000 digits": [HEAD, json.dumps(STEP).replace("1.0", "9" * 5000), step(step=2)],
    "400 digits of a step": [HEAD, step(step=int(HUGE)), step(step=2)],
    "steps of 300 digits": [HEAD, step(step=10**30), step(step=10**300)],
    "steps below zero": [HEAD, step(step=-5), step(step=-4)],
    "a step of 2^53": [HEAD, step(step=2**53), step(step=2**53)],
    "times": [HEAD, step(time=1e308), step(step=2, time="inf"), step(step=3, time="nan")],
    "wrong types": [HEAD, step(time="abc", lr="x", loss={"a": 1}), step(step=2, time=[1], lr={}, loss=[])],
    "keys twice": [HEAD, '{"kind":"step","step":1,"step":2,"loss":1,"loss":5,"totals":{},"columns":{}}'],
    "deep nesting": [HEAD, '{"kind":"note","step":1,"sentence":' + "[" * 50_000 + "]" * 50_000 + "}", STEP],
    "a nested header": [{**HEAD, "model": json.loads("[" * 90 + "]" * 90)}, STEP],
    "other kinds": [HEAD, STEP, {"kind": "note", "sentence": {"a": [1]}}, {"kind": "note"}, {"kind": "alarm"},
                    {"kind": "alarm", "step": "x", "layer": 5, "sentence": None, "alarm": [], "began": {}},
                    {"kind": "consequence", "cause": [], "cause_step": {}}, {"kind": "consequence"},
                    {"kind": "resume"}, {"kind": "end", "step": [], "share": "x"}, {"kind": "reading", "reading": 5},
                    {"kind": "layers", "layers": 5}],
    "a header of other types": [{**HEAD, "model": 5, "versions": [1], "created": 7, "run": {"a": 1}, "columns": [1],
                                 "totals": "x", "config": None, "world": "w", "device": 3}, STEP],
    "layers of other types": [{**HEAD, "layers": [5, None, {"name": None}, {"name": {"a": 1}}, ["l"], {"role": []}]},
                              step(columns={"norm_upper": [1, 2, 3, 4, 5, 6]})],
    "layers twice": [named("a", "a", ""), STEP],
    "no layers": [{**HEAD, "layers": {}}, STEP],
    "cells of other types": [HEAD, step(columns={"norm_upper": ["x", {}], "norm_lower": [[], True], "s": 3}),
                             step(step=2, columns={"norm_upper": [1] * 50})],
    "totals of other types": [HEAD, step(totals={"log10_P_w": {}, "log10_folded": "x", "gradient": [1]}),
                              step(step=2, totals={"gradient": -5, "log10_folded": 1e308})],
    "no totals": [HEAD, step(totals=[], columns=7)],
    "signs of the loss": [HEAD, step(loss=-1e300), step(step=2, loss=1e300), step(step=3, loss=-1e-320)],
    "all infinite": [HEAD, *(step(step=i, loss="inf", totals={"gradient": "nan"},
                                  columns={"norm_lower": ["inf", "-inf", "nan"]}) for i in range(1, 6))],
    "half a surrogate pair": [named(SURROGATE, "b"), STEP, {"kind": "note", "step": 1, "sentence": SURROGATE}],
    "signs that steer": [named(STEERING, "b"), STEP, {"kind": STEERING}, {"kind": "alarm", "step": 1, "alarm": STEERING,
                                                                         "layer": STEERING, "sentence": STEERING}],
    "a long name": [named("n" * 100_000, "b"), STEP],
    "only a header": [HEAD],
    "nothing": [""],
    "no header": [STEP, step(step=2)],
    "another schema": [{**HEAD, "schema": {"x": 1}}, STEP],
    "a mark in front": ["\ufeff" + json.dumps(HEAD), STEP],
    "many alarms": [HEAD, STEP, *({"kind": "alarm", "step": 1, "alarm": f"a{i}", "layer": "a", "sentence": "s"}
                                  for i in range(3000))],
    "many kinds": [HEAD, STEP, *({"kind": f"k{i}"} for i in range(3000))],
    "a file of another kind": ["PK\x03\x04", "\x00" * 500],
}  # fmt: skip


def lines_of(records: list[Any], checked: bool) -> bytes:
    texts = [(r if isinstance(r, str) else json.dumps(r)).encode("utf-8", "surrogatepass") for r in records]
    if not checked:
        return b"".join(text + b"\n" for text in texts)
    return b"".join(sealed(text + b"\n", Seal("0badcafe", i)) for i, text in enumerate(texts, 1))


@pytest.mark.parametrize("checked", [False, True], ids=["without checks", "with checks"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_value_breaks_a_view(capsys, tmp_path, name, checked):
    path = tmp_path / "run.jsonl"
    path.write_bytes(lines_of(HOSTILE[name], checked))
    for command in (
        ["watch", str(path), "--once"],
        ["watch", str(path), "--json", str(tmp_path / "a.json")],
        ["report", str(path), "--html", str(tmp_path / "a.html")],
    ):
        code = main(command)
        said = capsys.readouterr()
        assert code in (0, 1) and "\x1b]" not in said.out and "\u202e" not in said.out
        assert said.err.startswith("normgauge: ") if code else not said.err
