from __future__ import annotations

import pytest
import torch

from benchmarks.device import NETS, compared, differences, net
from normgauge.instrument.measure import readings

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: nothing to compare the CPU with")


@CUDA
@pytest.mark.parametrize("name", NETS)
def test_a_gpu_measures_what_the_cpu_does(name):
    model, x = net(name)
    assert compared(model, x, torch.device("cuda")) == []
    assert all(parameter.is_cuda for parameter in model.parameters())


@pytest.mark.parametrize("name", ["mlp", "convolutions", "encoder"])
def test_the_comparison_of_devices_finds_nothing_on_one_and_sees_another_model(name):
    model, x = net(name)
    assert compared(model, x, torch.device("cpu")) == []
    here = readings(model, x, search=False)
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    there = readings(model, x, search=False)
    assert all(list(differences(a, b)) for a, b in zip(here, there, strict=True))
