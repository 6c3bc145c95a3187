"""The command itself: help, version, wrong arguments, interrupts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from normgauge.cli import COMMANDS, main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure"], "invalid choice"),
        (["gauge"], "the following arguments are required: MODEL"),
        (["gauge", "m", "--mode", "test"], "invalid choice"),
        (["gauge", "m", "--width", "0"], "expected a positive number"),
        (["gauge", "m", "--width", "x"], "argument --width: expected a number, got 'x'"),
        (["gauge", "m", "--fail-above", "x"], "argument --fail-above: expected a number, got 'x'"),
        (["gauge", "m", "--fail-above", "nan"], "expected a finite number"),
    ],
)
def test_a_wrong_argument_is_exit_code_one_and_one_line(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    error = capsys.readouterr().err
    assert ended.value.code == 1
    assert message in error and error.count("\n") == 1


TAUGHT = {
    "gauge": ("RUNS", "execute nothing", "the widest scope measured counts"),
    "demo": ("one to two minutes",),
    "advise": ("insert_norm(model, fix.places, fix.kind)", "A healthy network"),
    "certify": ("--holdout net.py:holdout", "vacuous is a bound that says nothing", "--demo mnist", "without random"),
}


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    for words in (f"normgauge {command}".strip(), "examples:" if command else "first steps:", *TAUGHT.get(command, ())):
        assert words in told


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("normgauge 0.")


def test_an_interrupt_ends_quietly(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr("normgauge.cli.rules.list_rules", interrupt)
    assert main(["rules"]) == 130
    assert capsys.readouterr() == ("", "")


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "normgauge", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("normgauge")
