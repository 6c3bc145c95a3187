"""Training steps as CUDA graphs: launches are most of a small network's step, and a replayed graph has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.control.methods import Training

Loss = Callable[[Tensor, Tensor], Tensor]


class Stepper:
    """Takes the steps of one training: as they are on a CPU, replayed on a GPU.

    Forward pass, term, backward pass and the optimizers that can be captured are in the graph; Muon and projections
    follow it. A term that is worked out on one step in several makes two graphs, one with it and one without.

    Attributes:
        training: whose steps they are.
        taken: steps so far.
        why: what went wrong when a graph was captured; steps are taken as they are then. Empty otherwise.
    """

    def __init__(self, training: Training, loss: Loss, x: Tensor, y: Tensor) -> None:
        self.training, self._loss, self.every = training, loss, training.every
        self.x, self.y = x.clone(memory_format=torch.preserve_format), y.clone()
        self.last = torch.zeros((), device=x.device)
        self.taken, self.why = 0, ""
        self._graphs: list[Any] = []
        self._stream = torch.cuda.Stream() if x.is_cuda else None
        self._warm = training.every * max(2, -(-4 // training.every))  # whole rounds, at least four steps
        held = [o for o in training.optimizers if o.defaults.get("capturable", False)]
        self._held, self._free = held, [o for o in training.optimizers if o not in held]

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """Take one step; the loss is in ``last``."""
        self.x.copy_(x)
        self.y.copy_(y)
        if self._stream is not None and self.taken == self._warm and not self.why:
            self._capture()
        if self._graphs:
            self._graphs[min(self.taken % self.every, len(self._graphs) - 1)].replay()
        elif self._stream is not None:
            self._on_stream()
        else:
            self._begin()
        for optimizer in self._free:
            optimizer.step()
        self.training.after()
        self.taken += 1

    def _begin(self) -> None:
        """What a graph holds."""
        loss = self._loss(self.x, self.y)
        self.last.copy_(loss.detach())
        self.training.gradients(loss)
        for optimizer in self._held:
            optimizer.step()

    def _on_stream(self) -> None:
        """The same as it is, beside the stream that graphs are captured on."""
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._begin()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self) -> None:
        """Capture the step with the term, then one without it; where that fails, go on without graphs."""
        torch.cuda.synchronize()
        try:
            for _ in range(min(2, self.every)):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self._stream):
                    self._begin()
                self._graphs.append(graph)
        except RuntimeError as error:
            self._graphs, self.why = [], str(error).splitlines()[0]
            torch.cuda.synchronize()
