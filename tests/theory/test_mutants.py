"""Mistakes in formulas are found: the parts of benchmarks/mutants.py on made-up checks, and a slice on real ones."""

from __future__ import annotations

import ast
import math

import pytest
import torch

from benchmarks.formula_side import parsed, sites, unit_of
from benchmarks.mutate import Mutant, bodies, judged, mutants, run
from normgauge.core.claim import Entry, Verdict
from normgauge.theory import CLAIMS
from normgauge.theory.claim import Claim, below, equals, moves, refutes, shown

SLICE = (
    "T.L1", "T.T13.8", "T.C11.reduce", "T.rate.nonconvex", "T.C19.exponent", "A.P4.1", "A.P4.3", "A.C4.1.1", "A.Hzero",
    "A.WD",
)  # fmt: skip


def root(x: float) -> float:
    return x**0.5


def on_both_sides(x: float) -> float:
    return 3 * x


def tight(draw):
    sides = draw.uniform(2, low=1.0, high=2.0)
    a, b = float(sides[0]), float(sides[1])
    squares = a**2 + b**2
    length = root(squares)
    yield equals("hypotenuse", math.hypot(a, b), predicted=length, rel=1e-9)
    yield equals("both", on_both_sides(a), predicted=on_both_sides(a))
    yield refutes("sum", math.hypot(a, b), published=a + b)


def slack(draw):
    a = float(draw.uniform(1, low=1.0, high=2.0))
    bound = 10 * a
    unused = 5 * a
    yield below("a number", a, predicted=bound)
    yield moves("another", a, 2 * a + 0 * unused)
    yield shown("a fact", a > 0)


def claim(check) -> Claim:
    return Claim(Entry("T.x", "s", "p", "reading", Verdict.HOLDS), check)


def made(check) -> list[Mutant]:
    return mutants(claim(check), sites(check), bodies(parsed(unit_of(check).module)))


def fates(one: Claim) -> dict[tuple[str, str], str]:
    base = [run(one, seed) for seed in (0, 1)]
    assert all(outcome.passed for outcome in base)
    found = mutants(one, sites(one.check), bodies(parsed(unit_of(one.check).module)))
    assert found
    return {(m.kind, m.after): judged(one, m.check, (0, 1), base)[0] for m in found}


def test_only_the_formula_is_changed():
    changed = {(m.kind, m.before) for m in made(tight)}
    assert {before for _, before in changed} == {
        "squares = a ** 2 + b ** 2",
        "return x ** 0.5",
        "yield equals('hypotenuse', math.hypot(a, b), predicted=length, rel=1e-09)",
        "yield equals('both', on_both_sides(a), predicted=on_both_sides(a))",
        "yield refutes('sum', math.hypot(a, b), published=a + b)",
    }
    assert ("operator", "squares = a ** 2 + b ** 2") in changed and ("exponent", "return x ** 0.5") in changed


def test_every_mistake_in_a_tight_formula_is_found():
    found = fates(claim(tight))
    assert set(found.values()) <= {"killed", "crashed"} and len(found) == 10  # a root of a² − b² is no number
    assert ("printed", "yield refutes('sum', math.hypot(a, b), published=math.hypot(a, b))") in found
    assert ("factor", "yield equals('both', on_both_sides(a), predicted=on_both_sides(a) * 2.0)") in found


def test_a_bound_that_rose_and_one_with_room_are_told_apart():
    found = fates(claim(slack))
    assert found["constant", "bound = 11 * a"] == "weaker bound"
    assert found["constant", "bound = 9 * a"] == "room"
    assert found["operator", "bound = 10 / a"] in ("room", "killed")
    assert found["fact", "yield moves('another', a, a)"] == "killed"
    assert found["fact", "yield shown('a fact', not a > 0)"] == "killed"
    assert not any("unused" in after for _, after in found)


def test_a_value_that_is_overwritten_before_the_comparison_is_no_part_of_it():
    def again(draw):
        a = float(draw.uniform(1, low=1.0, high=2.0))
        bound = 7 * a
        yield refutes("printed", a, published=bound)
        bound = 3 * a
        yield equals("right", a + a + a, predicted=bound)

    changed = {m.before for m in made(again) if m.finding == "equals"}
    assert "bound = 3 * a" in changed and "bound = 7 * a" not in changed


def test_what_is_assigned_together_with_what_is_measured_is_left_alone():
    def together(draw):
        a = float(draw.uniform(1, low=1.0, high=2.0))
        drawn, half = 2 * a, 1 * a
        yield equals("twice", drawn, predicted=half + half)

    assert {m.before for m in made(together)} == {"yield equals('twice', drawn, predicted=half + half)"}


def test_a_check_that_compares_nothing_tight_misses():
    def loose(draw):
        a = float(draw.uniform(1, low=1.0, high=2.0))
        yield equals("close", a, predicted=1.0 * a, rel=10.0)

    assert fates(claim(loose)) == {
        ("constant", "yield equals('close', a, predicted=2.0 * a, rel=10.0)"): "missed",
        ("constant", "yield equals('close', a, predicted=0.5 * a, rel=10.0)"): "missed",
        ("operator", "yield equals('close', a, predicted=1.0 / a, rel=10.0)"): "missed",
    }


def test_a_mistake_that_moves_nothing_and_one_that_crashes():
    def check(draw):
        a = draw.uniform(3)
        yield equals("largest", float(a.max()), predicted=float(a.sort().values[2]))
        yield equals("sum", float(a.sum()), predicted=float(a.sum(dim=-1) ** 1))

    found = fates(claim(check))
    ends = {after.partition("predicted=")[2]: end for (_, after), end in found.items()}
    assert ends["float(a.sort().values[3]))"] == "crashed" and ends["float(a.sort().values[1]))"] == "killed"
    assert ends["float(a.sum(dim=-0) ** 1))"] == "same"  # the only axis there is


def test_a_check_without_an_end_counts_as_crashed(monkeypatch):
    monkeypatch.setattr("benchmarks.mutate.SECONDS", 1)

    def endless(draw):
        while True:
            torch.ones(1)
        yield

    assert run(claim(endless), 0).problem == "TimeoutError: no end after 1 s"


def test_the_source_is_left_as_it_was():
    before = ast.dump(parsed(unit_of(tight).module))
    made(tight)
    assert ast.dump(parsed(unit_of(tight).module)) == before and run(claim(tight), 0).passed


@pytest.mark.parametrize("name", SLICE)
def test_real_checks_find_mistakes(name):
    """At least nineteen of twenty that are mistakes: moved a number, and did more than raise a bound."""
    ends = [end for end in fates(CLAIMS[name]).values() if end not in ("same", "weaker bound")]
    assert len(ends) >= 2
    assert sum(end in ("killed", "crashed") for end in ends) >= 0.95 * len(ends)
