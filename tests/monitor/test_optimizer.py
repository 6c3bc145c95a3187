"""What an optimizer does to each parameter, read from its groups."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.core.errors import InputError
from normgauge.monitor.optimizer import at_hand, first_rate, largest_decay, optimizers_of, settings_of


def test_settings_that_are_tensors_are_read_where_nothing_waits():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.25), capturable=False)
    assert first_rate([optimizer]) == 0.25 and first_rate([]) is None
    assert settings_of([optimizer])[id(model.weight)]["rate"] == 0.25
    assert at_hand(torch.empty((), device="meta")) is None and at_hand("0.1") is None


def test_each_group_has_its_own_settings_and_the_first_beta_is_a_momentum():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    groups = [{"params": first.parameters()}, {"params": second.parameters(), "lr": 0.5, "momentum": 0.7}]
    found = settings_of([torch.optim.SGD(groups, lr=0.1, weight_decay=0.01)])
    assert found[id(first.bias)] == {"rate": 0.1, "momentum": 0.0, "weight_decay": 0.01}
    assert found[id(second.weight)] == {"rate": 0.5, "momentum": 0.7, "weight_decay": 0.01}
    adam = settings_of([torch.optim.Adam(first.parameters(), betas=(0.8, 0.99))])
    assert adam[id(first.weight)]["momentum"] == 0.8 and settings_of([]) == {}


def test_several_optimizers_come_in_a_list_a_table_or_alone():
    first, second = (torch.optim.SGD(nn.Linear(2, 2).parameters(), lr) for lr in (0.1, 0.2))
    assert optimizers_of(None) == () and optimizers_of(first) == (first,)
    assert optimizers_of([first, second]) == optimizers_of({"a": first, "b": second}) == (first, second)
    assert [row["rate"] for row in settings_of([first, second]).values()] == [0.1, 0.1, 0.2, 0.2]
    with pytest.raises(InputError, match="expected an optimizer, or several in a list; got str"):
        optimizers_of(["adam"])


def test_the_largest_decay_is_that_of_any_group():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    groups = [{"params": first.parameters(), "weight_decay": 0.0}, {"params": second.parameters(), "lr": 0.5}]
    assert largest_decay([torch.optim.SGD(groups, lr=0.1, weight_decay=0.01)]) == pytest.approx(0.005)
    assert largest_decay([]) is None
