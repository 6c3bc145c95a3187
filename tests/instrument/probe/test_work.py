"""The work of a pass, counted: against what is known of each operation."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from normgauge.instrument.probe.work import CALL, ENTRY, PRODUCT, Work, counted

PRODUCTS = {
    "linear": (nn.Linear(5, 7), (3, 5), 3 * 7 * 5),
    "without a bias": (nn.Linear(5, 7, bias=False), (3, 5), 3 * 7 * 5),
    "tokens": (nn.Linear(5, 7), (2, 4, 5), 2 * 4 * 7 * 5),
    "convolution": (nn.Conv2d(4, 6, 3, padding=1), (2, 4, 5, 5), 2 * 6 * 25 * 4 * 9),
    "groups": (nn.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 5, 5), 2 * 4 * 25 * 9),
    "transposed": (nn.ConvTranspose2d(4, 6, 2, stride=2), (2, 4, 5, 5), 2 * 4 * 25 * 6 * 4),
    "no product": (nn.LayerNorm(5), (3, 5), 0),
}


@pytest.mark.parametrize("name", PRODUCTS)
@torch.no_grad()
def test_products_are_counted(name: str) -> None:
    module, shape, products = PRODUCTS[name]
    x = torch.randn(shape)
    out, work = counted(module, x)
    assert torch.equal(out, module(x))
    assert work.products == products and work.calls >= 1 and work.entries >= x.numel() + out.numel()


def test_attention_counts_both_of_its_products() -> None:
    x = torch.randn(2, 3, 5, 4)  # batch, heads, tokens, width
    _, work = counted(lambda q: (q @ q.mT).softmax(-1) @ q, x)
    assert work.products == 2 * (2 * 3 * 5 * 5 * 4)


def test_the_same_work_takes_the_same_seconds_and_more_work_more() -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    first, second = (counted(net, torch.randn(4, 6))[1] for _ in range(2))
    assert first == second and first.seconds == second.seconds > 0
    assert counted(net, torch.randn(8, 6))[1].seconds > first.seconds
    assert Work(2, 3, 4).seconds == pytest.approx(2 * PRODUCT + 3 * ENTRY + 4 * CALL)


def test_the_input_is_not_overwritten() -> None:
    x = torch.ones(3)
    out, _ = counted(lambda y: y.mul_(2), x)
    assert x.eq(1).all() and out.eq(2).all()


def test_a_program_that_does_not_run_while_it_is_watched_runs_all_the_same() -> None:
    def shy(x: Tensor) -> Tensor:
        watching: TorchDispatchMode | None = _get_current_dispatch_mode()
        if watching is not None:
            raise RuntimeError("watched")
        return 2 * x

    out, work = counted(shy, torch.ones(3))
    assert out.eq(2).all() and work == Work(0, 3, 1)


def test_the_programs_own_error_is_raised() -> None:
    def wrong(x: Tensor) -> Tensor:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        counted(wrong, torch.ones(3))


def test_counting_does_not_load_the_compiler() -> None:
    program = (
        "import sys, torch\n"
        "from normgauge.instrument.probe.work import counted\n"
        "counted(torch.nn.Linear(2, 2), torch.ones(1, 2))\n"
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
