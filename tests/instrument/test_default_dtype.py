"""What torch makes of a number without a type is the user's setting, and changes no reading."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.instrument.local import blocks
from normgauge.instrument.local.turning import Turned
from normgauge.instrument.session import opened

pytestmark = pytest.mark.usefixtures("brief_search")
LIKELY = [torch.float64, torch.bfloat16]


@pytest.fixture(params=LIKELY, ids=str)
def other_default(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    usual = torch.get_default_dtype()
    yield request.param
    torch.set_default_dtype(usual)


def nets() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )
    rows = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return {"images": (images.eval(), torch.randn(1, 3, 4, 4)), "rows": (rows, torch.randn(1, 6))}


NETS = nets()


def numbers(name: str) -> list[tuple[float, float, float]]:
    return [(r.log_upper, r.log_balanced, r.log_lower) for r in ng.readings(*NETS[name])]


usual_numbers = functools.cache(numbers)


@pytest.mark.parametrize("name", NETS)
def test_readings_do_not_depend_on_it(name: str, other_default: torch.dtype) -> None:
    usual = usual_numbers(name)
    torch.set_default_dtype(other_default)
    assert numbers(name) == usual


def test_half_widths_of_slopes_keep_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = 1 + 2.0**-40
    monkeypatch.setattr(blocks, "_turned", lambda *_: Turned(0.5, 0.5, *[wide] * 4))
    with opened(nn.LayerNorm(4), torch.randn(1, 4)) as session:
        bent = blocks.normalized(session.trace.steps[0], session.native, lambda pushes: [0.1] * len(pushes), 0.0)
    assert bent.open is not None and bool((bent.open.half >= wide).all())
