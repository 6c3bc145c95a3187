"""Products of the Hessian of a loss with vectors, by double backward, on a model that is left as it was."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.errors import InputError
from normgauge.hessian.batches import as_batches, size_of
from normgauge.hessian.graph import Graph, Setting, build
from normgauge.trace.untouched import unwrap

KEPT = 8  # batches whose graphs stay in memory without being asked to
Loss = Callable[..., Tensor]


class Product:
    """The Hessian of the mean loss over some batches, as a map of flat vectors.

    L(w) = Σ_b n_b L_b(w) / Σ_b n_b with n_b samples in batch b, so a loss that is a mean over its batch gives the mean
    over all samples.   Hv = ∂(∇L·v)/∂w, from the kept graph of ∇L: one backward pass a product.

    The model is lent out while its graph is built and is the same, bit for bit, afterwards. The product belongs to the
    weights it had then. Randomness is drawn once and held: every product sees the same dropout masks.

    Attributes:
        names, shapes: the parameters with a gradient, in the order of the flat vector.
        size: their entries together.
        dtype, device: of the vectors.
        loss: the mean loss.
        gradient: its gradient, flat.
        count: products made so far; one over all batches counts once.
        notes: what a reader must know, in sentences.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None = None,
        batches: Any = (),
        *,
        objective: Callable[[nn.Module, Any], Tensor] | None = None,
        mode: str = "eval",
        dtype: torch.dtype | None = None,
        keep: bool | None = None,
        seed: int = 0,
    ) -> None:
        """Build the graphs.

        Args:
            model: any module.
            loss: called as ``loss(output, target)`` with batches ``(input, target)``; must return a scalar.
            batches: what `normgauge.hessian.batches.as_batches` takes.
            objective: instead of ``loss``, called as ``objective(model, batch)`` with each batch as it is.
            mode: ``eval`` or ``train``; train-mode normalizers see each batch by itself.
            dtype: precision; the model's own by default, float32 for half-precision ones.
            keep: keep the graphs in memory, the fastest; by default up to 8 batches. Otherwise they are built anew
                for each product, about twice as slow.
            seed: of dropout masks and other draws of the forward pass.

        Raises:
            InputError: for a model, loss or batch without second derivatives; the message says which and why.
        """
        model = unwrap(model)
        self._batches = as_batches(batches)
        self._setting = Setting.of(model, loss, objective, mode, dtype, seed)
        self._weights = weights_of(self._batches)
        self._keep = len(self._batches) <= KEPT if keep is None else keep
        self.names, self.shapes = self._setting.names, self._setting.shapes
        self.dtype, self.device = self._setting.dtype, self._setting.device
        self.size = sum(shape.numel() for shape in self.shapes)
        self.blocks = dict(zip(self.names, _slices(self.shapes), strict=True))
        self.count = 0
        self._stamp = self._setting.stamp()
        self._graphs: list[Graph] = []
        self._first_pass()

    def _first_pass(self) -> None:
        self.loss, notes = 0.0, dict.fromkeys(self._setting.notes)
        self.gradient = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        for i, weight in enumerate(self._weights):
            graph = self._build(i)
            self.loss += weight * graph.loss
            self.gradient.add_(self._flat(graph.gradients), alpha=weight)
            notes.update(dict.fromkeys(graph.notes))
            if self._keep:
                self._graphs.append(graph)
        self.notes = tuple(notes)

    def _build(self, index: int) -> Graph:
        if self._setting.stamp() != self._stamp:
            raise InputError(
                "the model changed since this product was built; build a new one, or keep the graphs with keep=True"
            )
        return build(self._setting, self._batches[index], f"batch {index}")

    def hvp(self, vector: Tensor) -> Tensor:
        """The Hessian times a flat vector.

        Raises:
            InputError: for a vector of another length, or an operation without a second derivative.
        """
        return self.part(vector, self.names)

    def part(self, vector: Tensor, names: Iterable[str]) -> Tensor:
        """The diagonal block of the named parameters times a vector of their entries."""
        chosen = [self.names.index(name) for name in names]
        pieces = self._pieces(vector, [self.shapes[i] for i in chosen])
        total = torch.zeros(vector.numel(), dtype=self.dtype, device=self.device)
        for i, weight in enumerate(self._weights):
            graph = self._graphs[i] if self._keep else self._build(i)
            total.add_(_joined(graph.times(chosen, pieces), pieces), alpha=weight)
        self.count += 1
        return total

    def _pieces(self, vector: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
        size = sum(shape.numel() for shape in shapes)
        if vector.shape != (size,):
            raise InputError(f"vector: expected shape ({size},) like the parameters, got {tuple(vector.shape)}")
        vector = vector.detach().to(device=self.device, dtype=self.dtype)
        sizes = [shape.numel() for shape in shapes]
        return [piece.view(shape) for piece, shape in zip(vector.split(sizes), shapes, strict=True)]

    def _flat(self, tensors: Iterable[Tensor | None]) -> Tensor:
        zeros = [torch.zeros(shape, dtype=self.dtype, device=self.device) for shape in self.shapes]
        return _joined(list(tensors), zeros)

    def block(self, names: Iterable[str]) -> Block:
        """The diagonal block of some parameters, as a map of its own."""
        return Block(self, tuple(names))

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector as tensors by parameter."""
        return dict(zip(self.names, self._pieces(vector, list(self.shapes)), strict=True))

    def weights(self) -> Tensor:
        """The parameters themselves, flat."""
        values = self._setting.values()
        return self._flat([values[name] for name in self.names])


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A diagonal block of a Hessian: only its parameters move."""

    whole: Product
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        """Entries of its parameters."""
        return sum(self.whole.shapes[self.whole.names.index(name)].numel() for name in self.names)

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors."""
        return self.whole.dtype

    @property
    def device(self) -> torch.device:
        """Of the vectors."""
        return self.whole.device

    def hvp(self, vector: Tensor) -> Tensor:
        """The block times a vector."""
        return self.whole.part(vector, self.names)


def weights_of(batches: list[Any]) -> list[float]:
    """The share of each batch in the mean over all samples."""
    sizes = [size_of(batch, i) for i, batch in enumerate(batches)]
    return [size / math.fsum(sizes) for size in sizes]


def by_layer(names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Parameter names grouped by the module that owns them."""
    groups: dict[str, tuple[str, ...]] = {}
    for name in names:
        owner = name.rpartition(".")[0].partition(".parametrizations")[0] or name
        groups[owner] = (*groups.get(owner, ()), name)
    return groups


def _joined(tensors: list[Tensor | None], like: list[Tensor]) -> Tensor:
    return torch.cat(
        [
            (torch.zeros_like(model) if tensor is None else tensor.detach()).reshape(-1)
            for tensor, model in zip(tensors, like, strict=True)
        ]
    )


def _slices(shapes: Iterable[torch.Size]) -> list[slice]:
    at, found = 0, []
    for shape in shapes:
        found.append(slice(at, at + shape.numel()))
        at += shape.numel()
    return found
