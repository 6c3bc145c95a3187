"""What the tape writes down: names, arguments, the slice behind an output, a trace that is doubted."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normgauge.instrument.trace.step import Step, Trace, Value, axes_of, backward_slice, function_name, unfollowed


def chain() -> tuple[Value, list[Step]]:
    """x → a → b, and c made of x that nobody reads."""
    x = Value(0, torch.zeros(2))
    steps: list[Step] = []
    for index, (given, target) in enumerate(((x, torch.sin), (None, torch.cos), (x, torch.tan))):
        value = given or steps[0].outputs[0]
        step = Step(index, target, None, "net.part", (value, 7), {"dim": 3}, (value,))
        step.outputs = (Value(index + 1, torch.ones(2), step),)
        steps.append(step)
    return x, steps


def test_a_slice_holds_what_the_output_depends_on_in_order() -> None:
    x, (first, second, unread) = chain()
    assert backward_slice(second.outputs[0]) == (first, second)
    assert backward_slice(unread.outputs[0]) == (unread,)
    assert backward_slice(x) == ()


def test_a_value_knows_its_readers() -> None:
    x, steps = chain()
    trace = Trace((x,), steps[1].outputs[0], tuple(steps))
    assert trace.consumers == {0: [steps[0], steps[2]], 1: [steps[1]]}
    assert not trace.path_dependent and Trace((x,), x, (), reads=("a truth value",)).path_dependent


def test_arguments_are_found_by_place_or_name() -> None:
    _, (step, *_) = chain()
    assert step.get(1, "dim") == 7 and step.get(2, "dim") == 3 and step.get(2, "eps", 1e-5) == 1e-5
    layer = Step(0, nn.LeakyReLU, nn.LeakyReLU(0.3), "act", (), {}, ())
    assert layer.option(1, "negative_slope", 0.01) == 0.3 and step.option(1, "negative_slope") == 7


def test_names_of_steps() -> None:
    _, (step, *_) = chain()
    assert (step.kind, step.name) == ("sin", "net.part.sin")
    layer = nn.ReLU()
    assert Step(0, nn.ReLU, layer, "act", (), {}, ()).name == "act"
    assert Step(0, nn.ReLU, layer, "", (), {}, ()).name == "ReLU"
    assert Step(0, torch.sin, None, "", (), {}, ()).name == "sin"
    assert Step(0, unfollowed, None, "the model", (), {}, ()).name == "the model"
    assert function_name(Tensor.T.__get__) == "T" and function_name(torch.add) == "add"


def test_a_doubted_trace_ends_in_a_step_without_a_rule() -> None:
    x, steps = chain()
    trace = Trace((x,), steps[1].outputs[0], tuple(steps[:2]))
    doubted = trace.doubted("part", "nobody knows")
    last = doubted.steps[-1]
    assert doubted.output is last.outputs[0] and last.trouble == "nobody knows" and last.name == "part"
    assert last.inputs == (steps[1].outputs[0], x) and doubted.output.index not in {0, 1, 2}
    assert doubted.consumers[2] == [last] and trace.steps == tuple(steps[:2])  # the first is as it was


def test_numbers_are_rewound_only_where_some_were_drawn() -> None:
    x, steps = chain()
    calls: list[int] = []
    for draws, random in ((False, None), (True, None), (False, torch.get_rng_state())):
        steps[0].random = random
        Trace((x,), steps[0].outputs[0], (steps[0],), draws=draws, random=lambda: calls.append(1)).rewind()
    assert len(calls) == 2


def test_axes_are_counted_from_the_front() -> None:
    assert axes_of(-1, 3) == (2,) and axes_of((0, -2), 4) == (0, 2) and axes_of(0, 0) == (0,)
