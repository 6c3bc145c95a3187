"""A tape made wrong on purpose: the second run of the steps notices, and the answer is `unknown`, never a number.

Each fault is first shown to matter: without the second run it gives a finite bound below a slope the network has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core.bound import Scope
from normgauge.instrument.session import Options, opened
from normgauge.instrument.trace import tape as taping
from normgauge.instrument.trace import watch as watching
from normgauge.instrument.trace.again import Own
from normgauge.instrument.trace.held import Held
from normgauge.instrument.trace.step import Value, function_name
from normgauge.instrument.trace.tape import Tape
from normgauge.instrument.trace.watch import OperatorWatch


class Net(nn.Module):
    """A forward given as a function."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.layer, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def drops_a_step(patch: pytest.MonkeyPatch) -> None:
    write = Tape.write

    def forgetful(self: Tape, target: Any, module: Any, args: Any, kwargs: Any, out: Any, run: Any) -> Any:
        used = run[0][2]
        if function_name(target) != "mul" or len(used) != 1:
            return write(self, target, module, args, kwargs, out, run)
        self.attach(out, used[0])
        return out

    patch.setattr(Tape, "write", forgetful)


def swaps_two_inputs(patch: pytest.MonkeyPatch) -> None:
    freeze = Tape.freeze

    def crossed(self: Tape, *given: Any) -> Any:
        given, named, used, trouble = freeze(self, *given)
        if len(used) == 2:
            given, used = (given[1], given[0], *given[2:]), used[::-1]
        return given, named, used, trouble

    patch.setattr(Tape, "freeze", crossed)


def forgets_a_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watching, "written_by", lambda func, args, kwargs: [])


def keeps_a_stale_constant(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Held, "before_write", lambda self, storage: None)


def binds_to_the_wrong_tensor(patch: pytest.MonkeyPatch) -> None:
    attach = Tape.attach

    def mistaken(self: Tape, tensor: Tensor, value: Value) -> None:
        step = value.step
        twin = next((s for s in self.steps if step is not None and s.target is step.target and s is not step), None)
        attach(self, tensor, value if twin is None else twin.outputs[0])  # as if an id had been used twice

    patch.setattr(Tape, "attach", mistaken)


def loses_the_taint(patch: pytest.MonkeyPatch) -> None:
    class Blind(set[int]):
        def __contains__(self, item: object) -> bool:
            return False

    begin = OperatorWatch.__init__

    def blind(self: OperatorWatch, before_write: Any) -> None:
        begin(self, before_write)
        self.tainted = Blind()

    patch.setattr(OperatorWatch, "__init__", blind)


def ignores_the_copy_of_a_cast(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tape, "cast", lambda self, func, args, kwargs: args[0])


def ignores_overlap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taping, "memory_overlaps", lambda a, b: False)


def reads_settings_afterwards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Held, "layer", lambda self, module, kind: module)


def takes_a_value_for_a_constant(patch: pytest.MonkeyPatch) -> None:
    freeze = Tape.freeze

    def frozen(self: Tape, args: Any, *more: Any) -> Any:
        given, named, used, trouble = freeze(self, args, *more)
        if len(used) == 2:
            given, used = (given[0], args[1].clone()), used[:1]
        return given, named, used, trouble

    patch.setattr(Tape, "freeze", frozen)


def overlooks_a_number_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tape, "told", lambda self, func, name, out: out)
    patch.setattr(Tape, "read", lambda self: None)


def through_a_view(net: Net, x: Tensor) -> Tensor:
    y = x * 1.0
    part = y[:, :2]
    y.mul_(20.0)
    return part.neg()


def in_place(net: Net, x: Tensor) -> Tensor:
    y = x * 1.0
    y.mul_(20.0)
    return y.neg()


def weights_that_change(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        net.layer.weight.mul_(20.0)
        y = net.layer(x)
        net.layer.weight.div_(20.0)
    return y


def settings_that_change(net: Net, x: Tensor) -> Tensor:
    net.norm.eps = 1e-8
    y = net.norm(x)
    net.norm.eps = 1.0
    return y


def out_of_sight(net: Net, x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        y = 20 * x
    return x + y


def copied(net: Net, x: Tensor) -> Tensor:
    y = x.to(x.dtype, copy=True)
    y.mul_(0.01)
    return 5 * x + y


@dataclass(frozen=True)
class Fault:
    plant: Callable[[pytest.MonkeyPatch], None]
    function: Callable[[Any, Tensor], Tensor]
    slope: float  # one that the network has


FAULTS = [
    Fault(drops_a_step, lambda net, x: (x.tanh() * 20.0).neg(), 19.0),
    Fault(swaps_two_inputs, lambda net, x: torch.sub(0.1 * x, 1.0 * x, alpha=9.0), 8.8),
    Fault(forgets_a_write, in_place, 19.9),
    Fault(keeps_a_stale_constant, weights_that_change, 19.9),
    Fault(binds_to_the_wrong_tensor, lambda net, x: (x.mul(1.0), x.mul(20.0))[1].neg(), 19.9),
    Fault(loses_the_taint, out_of_sight, 20.9),
    Fault(ignores_the_copy_of_a_cast, copied, 5.0),
    Fault(ignores_overlap, through_a_view, 14.0),
    Fault(reads_settings_afterwards, settings_that_change, 100.0),
    Fault(takes_a_value_for_a_constant, lambda net, x: torch.mul(x.tanh(), (20 * x.roll(1, 1)).sin()), 5.0),
    Fault(overlooks_a_number_read, lambda net, x: x * x.sum().tanh().item() * 20.0, 15.0),
]


def name_of(fault: Fault) -> str:
    return fault.plant.__name__


@pytest.fixture
def batch() -> Tensor:
    return torch.tensor([[0.3, -0.2, 0.5, 0.1], [-0.4, 0.2, 0.6, -0.7]], dtype=torch.float64)


def steepest(net: Net, batch: Tensor) -> float:
    """A slope of the model itself, by differences along the batch and near a constant input."""
    found = []
    with torch.no_grad():
        for x, step in ((batch, 1e-4), (3 * batch, 1e-4), (1.0 + 1e-6 * batch, 1e-8), (0.05 * batch, 1e-4)):
            for direction in (batch, torch.ones_like(batch), batch.flip(0)):
                gap = step * direction / direction.norm()
                found.append(float((net(x + gap) - net(x - gap)).norm()) / (2 * step))
    return max(found)


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_second_run_notices(fault, batch, monkeypatch):
    net = Net(fault.function).double()
    assert steepest(net, batch) >= fault.slope
    fault.plant(monkeypatch)
    reading = ng.gauge(net, batch, scope="global", search=False)
    assert reading.evidence == "unknown" and reading.log_upper == math.inf
    assert reading.unknown and reading.unknown[-1].why


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_without_it_the_bound_would_be_false(fault, batch, monkeypatch):
    fault.plant(monkeypatch)
    monkeypatch.setattr("normgauge.instrument.session.checked_trace", lambda trace, *_: trace)
    monkeypatch.setattr(Own, "computed_by", lambda *_: True)
    net = Net(fault.function).double()
    with opened(net, batch, Options(search=False)) as session:
        assert math.exp(float(session.composed(Scope.parse("global")).log_upper.max())) < fault.slope


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_without_the_fault_it_is_no_smaller_than_the_slope(fault, batch):
    net = Net(fault.function).double()
    reading = ng.gauge(net, batch, scope="global", search=False)
    assert math.exp(min(reading.log_upper, 700.0)) >= fault.slope or reading.evidence == "unknown"
