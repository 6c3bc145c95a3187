"""What cannot be copied is named, whatever its class raises."""

from typing import Any

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.instrument.trace.copied import copied


class Wrapped:
    """Settings by attribute, as of many a library; a name that is none raises KeyError."""

    def __init__(self) -> None:
        object.__setattr__(self, "table", {"scale": 1.0})

    def __getattr__(self, name: str) -> Any:
        return self.table[name]


def model() -> nn.Module:
    made = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)))
    made[0].settings = Wrapped()
    return made


def test_the_attribute_and_what_to_do_are_said() -> None:
    with pytest.raises(
        ng.NormgaugeError, match=r"0\.settings cannot be copied: .*Wrapped raises KeyError.*__deepcopy__"
    ):
        copied(model())
    with pytest.raises(ng.NormgaugeError, match=r"0\.settings"):
        ng.bounded(model())


def test_cap_names_it_and_goes_on() -> None:
    cap = ng.cap(model(), torch.randn(2, 3), log10=1.0)
    assert cap() == float("inf") and cap.controlled <= 1.0 and "0.settings cannot be copied" in str(cap)


def test_a_copy_is_a_copy() -> None:
    given = nn.Linear(2, 2)
    made = copied(given)
    assert made is not given and torch.equal(made.weight, given.weight)
