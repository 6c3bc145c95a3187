"""One module in the place of another: nothing of the network is changed afterwards."""

from __future__ import annotations

import pytest
import torch

from normgauge.advice.whatif.exchange import swapped_modules
from normgauge.core.errors import ReadingError
from tests.advice.whatif.nets import ask, built

CALLS: list[int] = []


def test_the_network_is_untouched_also_after_an_error(batch):
    net = built().train()
    calls = CALLS  # of the module's own: what a hook closes over is put back

    def seen(*_: object) -> None:
        CALLS.append(1)

    net.bn.register_forward_hook(seen)
    before = dict(net.named_modules(remove_duplicate=False)), net.state_dict(), [m.training for m in net.modules()]
    asked = ask(net, batch)
    count = len(calls)
    asked.without("bn")
    assert len(calls) > count  # the user's hook still runs on what stands in its place
    asked.with_norm("first", "batch")
    with pytest.raises(ReadingError):
        asked.with_norm("first", "instance")
    with pytest.raises(RuntimeError, match="stop"), swapped_modules(net, ()):
        raise RuntimeError("stop")
    after = dict(net.named_modules(remove_duplicate=False)), net.state_dict(), [m.training for m in net.modules()]
    assert before[0].keys() == after[0].keys() and all(before[0][k] is after[0][k] for k in before[0])
    assert all(torch.equal(before[1][k], after[1][k]) for k in before[1]) and before[2] == after[2]
    assert list(net.bn._forward_hooks.values()) == [seen] and not net.first._forward_hooks
