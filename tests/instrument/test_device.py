from __future__ import annotations

import pytest
import torch

from benchmarks.device import NETS, compared, differences, net
from normgauge import gauge
from normgauge.core.errors import InputError
from normgauge.instrument import session
from normgauge.instrument.measure import readings
from normgauge.instrument.probe.search import Found
from normgauge.instrument.rules import affine
from normgauge.instrument.trace.place import (
    drawn_since,
    free_memory,
    is_out_of_memory,
    seconds_on,
    set_torch_random,
    torch_random,
)

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: nothing to compare the CPU with")


@CUDA
@pytest.mark.parametrize("name", NETS)
def test_a_gpu_measures_what_the_cpu_does(name):
    model, x = net(name)
    assert compared(model, x, torch.device("cuda")) == []
    assert all(parameter.is_cuda for parameter in model.parameters())


@pytest.mark.parametrize("name", ["mlp", "convolutions"])
def test_the_comparison_of_devices_finds_nothing_on_one_and_sees_another_model(name):
    model, x = net(name)
    assert compared(model, x, torch.device("cpu")) == []
    here = readings(model, x, search=False)
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    there = readings(model, x, search=False)
    assert all(list(differences(a, b)) for a, b in zip(here, there, strict=True))


def no_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_step_without_memory_is_named_and_the_others_are_measured(monkeypatch):
    monkeypatch.setattr(affine, "dense_norm", no_memory)
    reading = gauge(*net("mlp"), scope="global", search=False)
    assert [(found.name, found.why) for found in reading.unknown] == [
        (name, "the rule affine.linear needs more memory here than is free") for name in ("0", "3")
    ]
    assert len(reading.layers) == 4 and reading.layers[2].gain.hi < 10


def test_a_trace_without_memory_says_so(monkeypatch):
    monkeypatch.setattr(session, "start", no_memory)
    with pytest.raises(InputError, match="cpu has too little memory left"):
        gauge(*net("mlp"), scope="global")


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (None, False),
    ],
)
def test_errors_of_full_memory_are_told_from_others(error, full):
    assert is_out_of_memory(error) == full


def test_the_random_numbers_of_torch_come_back():
    before = torch_random()
    assert not drawn_since(before)
    first = torch.rand(3)
    assert drawn_since(before)
    set_torch_random(before)
    assert torch.equal(torch.rand(3), first)


def test_the_clock_and_the_memory_of_the_cpu():
    begun = seconds_on(torch.device("cpu"))
    torch.randn(200, 200) @ torch.randn(200, 200)
    assert 0 <= seconds_on(torch.device("cpu")) - begun < 60
    assert free_memory(torch.device("cpu")) > 1e6


@CUDA
def test_what_is_found_lies_in_main_memory():
    assert not Found(torch.zeros(2, device="cuda"), 0.0, "", 0, 0).log_lower.is_cuda
