"""Ctrl-C and too little memory: what is known is told, and the model is as it was."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge import cli
from normgauge.core.bound import Evidence
from normgauge.core.interrupted import Interrupted
from normgauge.instrument import known
from normgauge.instrument.session import Session
from normgauge.instrument.spectral import waves
from normgauge.instrument.spectral.conv import conv_norm
from normgauge.instrument.spectral.conv_operator import ConvSpec
from normgauge.instrument.spectral.symbol import GramPolynomial


def interrupt(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


def no_memory(*_: Any, **__: Any) -> NoReturn:
    raise MemoryError


def network() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    return model.train(), torch.randn(4, 6)


@pytest.mark.parametrize(("where", "same"), [((Session, "bounds"), False), ((known, "largest_slope"), True)])
def test_ctrl_c_gives_what_is_known_and_leaves_the_model(
    where: tuple[Any, str], same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = network()
    whole = ng.gauge(model, x, "global", effort="quick")
    before = {name: t.clone() for name, t in model.state_dict().items()}
    held, random = [dict(m.__dict__) for m in model.modules()], torch.get_rng_state()
    monkeypatch.setattr(*where, interrupt)
    with pytest.raises(Interrupted, match="known so far: global: at most 10") as stopped:
        ng.gauge(model, x, "global", effort="quick")
    (reading,) = stopped.value.readings
    assert reading.evidence is Evidence.PROVED and reading.log_lower == -float("inf")
    assert (reading.log_upper == whole.log_upper) if same else (whole.log_upper < reading.log_upper < 20)
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert [dict(m.__dict__) for m in model.modules()] == held and model.training
    assert torch.equal(torch.get_rng_state(), random)


def test_scopes_that_were_done_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network()
    rounds = iter([known.headline, interrupt])
    monkeypatch.setattr(known, "headline", lambda *given: next(rounds)(*given))
    with pytest.raises(Interrupted) as stopped:
        ng.readings(model, x, ("point", "global"), search=False)
    assert [str(r.scope) for r in stopped.value.readings] == ["point", "global"]


@pytest.mark.parametrize("where", [(Session, "bounds"), (known, "headline"), (known, "largest_slope")])
def test_a_stage_without_memory_is_named_and_the_rest_is_measured(
    where: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = network()
    whole = ng.gauge(model, x, "global", effort="quick")
    monkeypatch.setattr(*where, no_memory)
    reading = ng.gauge(model, x, "global", effort="quick")
    assert any("memory ran out" in note for note in reading.notes)
    assert reading.evidence is Evidence.PROVED and whole.log_upper - 1e-9 <= reading.log_upper < 20
    assert (reading.log_lower > -20) is (where[1] != "largest_slope")


def scarce(function: Callable[..., Any], most: int, seen: list[int]) -> Callable[..., Any]:
    """The function with memory for so many matrices at once."""

    def tried(first: Any, *rest: Any) -> Any:
        count = len(rest[0]) if isinstance(first, GramPolynomial) else len(first)
        seen.append(count)
        if count > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return function(first, *rest)

    return tried


def test_blocks_are_halved_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(8, 8, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spec = ConvSpec((12, 12), padding=((1, 1), (1, 1)))
    usual = conv_norm(weight, spec, dense_limit=0)
    made: list[int] = []
    proved: list[int] = []
    monkeypatch.setattr(GramPolynomial, "at", scarce(GramPolynomial.at, 20, made))
    monkeypatch.setattr(waves, "proved_below", scarce(waves.proved_below, 5, proved))
    with_less = conv_norm(weight, spec, dense_limit=0)
    assert max(made) > 20 and max(proved) > 5
    assert with_less.log.hi == pytest.approx(usual.log.hi, abs=1e-12)
    monkeypatch.setattr(GramPolynomial, "at", no_memory)
    with pytest.raises(MemoryError):
        conv_norm(weight, spec, dense_limit=0)


def test_the_command_line_tells_what_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = ng.gauge(*network(), "global", search=False, balance=False)

    def run(_: argparse.Namespace) -> NoReturn:
        raise Interrupted("balance", [reading])

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=run)
    monkeypatch.setattr(cli, "build_parser", lambda: parser)
    assert cli.main([]) == 130
    assert "known so far: global: at most 10^" in capsys.readouterr().err
