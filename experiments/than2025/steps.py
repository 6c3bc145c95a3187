"""The training step: plainly, or as one CUDA graph that holds forward, loss, backward and optimizer.

Small images leave a GPU waiting for the next kernel; a graph launches the whole step at once. The step takes its batch
from the data on the device through an order and a cursor that live there too, so that an epoch needs no host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from experiments.than2025.data import Data
from experiments.than2025.plan import PlanError, Spec

WARM_UP = 3  # steps before a capture, as torch asks


def make_optimizer(model: nn.Module, spec: Spec, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer of a run; on CUDA of a form that can be captured.

    Raises:
        PlanError: for an unknown name.
    """
    parameters = list(model.parameters())
    if spec.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=spec.lr, momentum=spec.momentum, weight_decay=spec.decay, foreach=True)
    kinds: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if spec.optimizer not in kinds:
        raise PlanError(f"optimizer={spec.optimizer!r} is not known; use adam, adamw or sgd.")
    faster = {"fused": True, "capturable": True} if device.type == "cuda" else {"foreach": True}
    return kinds[spec.optimizer](parameters, lr=spec.lr, weight_decay=spec.decay, **faster)


@dataclass(frozen=True, slots=True)
class Progress:
    """Sums over an epoch, on the device."""

    loss: torch.Tensor
    hits: torch.Tensor

    def zero(self) -> None:
        """Begin an epoch."""
        self.loss.zero_()
        self.hits.zero_()


class Stepper:
    """Runs the steps of an epoch.

    Attributes:
        steps: in an epoch; a last partial batch is dropped.
        captured: whether a graph runs them.
        why: what kept a graph from being captured, "" where nothing did.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, data: Data, batch: int) -> None:
        self.model, self.optimizer, self.data = model, optimizer, data
        self.device = data.train.device
        self.steps = max(1, len(data.labels) // batch)
        size = min(batch, len(data.labels))
        self.order = torch.arange(self.steps * size, device=self.device).view(self.steps, size)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=self.device)
        zero = torch.zeros((), device=self.device)
        self.progress = Progress(zero.double(), zero.double())
        self.graph: torch.cuda.CUDAGraph | None = None
        self.why = "no CUDA device"
        weights = (p for p in model.parameters() if p.ndim == 4)
        last = any(p.is_contiguous(memory_format=torch.channels_last) and not p.is_contiguous() for p in weights)
        self.layout = torch.channels_last if last else torch.contiguous_format

    @property
    def captured(self) -> bool:
        """Whether a graph runs the steps."""
        return self.graph is not None

    def step(self) -> None:
        """One step on the batch under the cursor; moves the cursor on."""
        chosen = self.order.index_select(0, self.cursor).flatten()
        inputs = self.data.real(self.data.train[chosen]).contiguous(memory_format=self.layout)
        labels = self.data.labels[chosen]
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(inputs)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        self.optimizer.step()
        self.progress.loss.add_(loss.detach())
        self.progress.hits.add_((logits.detach().argmax(-1) == labels).sum())
        self.cursor.add_(1)

    def capture(self) -> bool:
        """Record the step as a graph; weights, statistics and optimizer are as before. False, and why, if it fails."""
        if self.device.type != "cuda":
            return False
        before = _copied(self.model.state_dict())
        fresh = not self.optimizer.state
        state = {} if fresh else _copied(_tensors(self.optimizer))
        random = torch.cuda.get_rng_state(self.device)
        try:
            self._record()
            self.why = ""
        except RuntimeError as error:
            self.graph, self.why = None, str(error).splitlines()[0]
        _fill(self.model.state_dict(), before)
        # A new optimizer counts as all zeros: what Adam and SGD with momentum would begin with.
        _fill(_tensors(self.optimizer), state)
        torch.cuda.set_rng_state(random, self.device)
        self.begin(None)
        return self.captured

    def _record(self) -> None:
        """Warm up on a side stream, then capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.cursor.zero_()
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.cursor.zero_()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph

    def begin(self, order: torch.Tensor | None) -> None:
        """Set the order of the coming epoch, (steps · batch) indices, and the sums to zero."""
        if order is not None:
            self.order.copy_(order.view_as(self.order))
        self.cursor.zero_()
        self.progress.zero()

    def advance(self, count: int) -> None:
        """So many steps, on the current stream; on CUDA nothing waits for them."""
        for _ in range(count):
            if self.graph is not None:
                self.graph.replay()
            else:
                self.step()

    def means(self) -> tuple[float, float]:
        """Mean loss and accuracy since ``begin``, over a whole epoch."""
        return float(self.progress.loss) / self.steps, float(self.progress.hits) / self.order.numel()


def _tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state tensors under stable names."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {
        f"{k}.{key}": value
        for k, parameter in enumerate(parameters)
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, torch.Tensor)
    }


def _copied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def _fill(targets: dict[str, torch.Tensor], values: dict[str, torch.Tensor]) -> None:
    """Values into the same memory, which a graph points at; zero where there is none."""
    for name, target in targets.items():
        if name in values:
            target.copy_(values[name])
        else:
            target.zero_()
