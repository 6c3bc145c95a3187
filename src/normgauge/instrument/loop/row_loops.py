"""Single combinations of outputs over all inputs: the same loop with a row behind the network, its weights its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from normgauge.core.rounding import dot_error, house_up
from normgauge.instrument.balance import Balanced
from normgauge.instrument.compose import Composition
from normgauge.instrument.loop.bound import LoopBound, LoopEffort, loop_networks, weighted_bound
from normgauge.instrument.loop.linear_step import LinearStep
from normgauge.instrument.loop.mid_network import MidNetwork
from normgauge.instrument.session import Session
from normgauge.instrument.trace.step import Step, Value


@dataclass(frozen=True, slots=True)
class RowLoops:
    """A network whose outputs are combined, one row at a time.

    Attributes:
        parts: its composition over all inputs.
        net: the mid network in float64.
        rough: the same in the precision that weights are looked for in.
        effort: for each row.
    """

    parts: Composition
    net: MidNetwork
    rough: MidNetwork
    effort: LoopEffort

    @classmethod
    def of(cls, session: Session, parts: Composition, known: Balanced, effort: LoopEffort) -> RowLoops | None:
        """The network of a session with outputs (samples, numbers); None where it is not followed or too large."""
        nets = loop_networks(session, parts, known, effort)
        if nets is None or len(nets[0].shapes[1]) != 2 or nets[0].sides[1] != 0:
            return None
        return cls(parts, *nets, effort)

    def bound(self, row: Tensor) -> LoopBound | None:
        """A proved bound of the slope of row·output over all inputs."""
        return weighted_bound(self.parts, ended(self.net, row), ended(self.rough, row), self.effort)


def ended(net: MidNetwork, row: Tensor) -> MidNetwork:
    """The mid network with one linear step more, out ↦ row·out."""
    weight = row.to(net.dtype)
    before = Value(net.end, torch.zeros(net.shapes[1], dtype=net.dtype))
    index = 1 + max(net.source, *(value.index for node in net.nodes for value in node.step.outputs))
    after = Value(index, torch.zeros(net.samples, 1, dtype=net.dtype))
    step = Step(index, torch.matmul, None, "", (), {}, (before,), (after,))
    size = house_up(float(torch.linalg.vector_norm(row.double())))
    linear = LinearStep(
        step,
        lambda x: [(x[0] @ weight)[:, None]],
        lambda y: [y[0] * weight],
        (dot_error(len(row)) * size,),
        float(net.shapes[1].numel()),
    )
    gains = {(index, net.end): size * (1 + dot_error(len(row)))}
    shapes = (net.shapes[0], after.tensor.shape)
    return dataclasses.replace(net, nodes=(*net.nodes, linear), gains=(*net.gains, gains), end=index, shapes=shapes)
