"""Products of the Hessian of a loss with vectors, by double backward, on a model that is left as it was.

Also in units that a rescaling of the weights cannot change, and as a matrix for a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.geometry.hessian.graph import GradientGraph, Loss, Setting, build_graph
from normgauge.geometry.hessian.operator import Mapped, dense_matrix, scaled_operator

UNITS = ("tensor", "channel")
KEPT = 8  # batches whose graphs stay in memory without being asked to


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
        """Build the graph of every batch.

        Args:
            model: any module.
            loss: called as ``loss(output, target)`` with batches ``(input, target)``; must return a scalar.
            batches: what `normgauge.geometry.hessian.graph.as_batches` takes.
            objective: instead of ``loss``, called as ``objective(model, batch)`` with each batch as it is.
            mode: ``eval`` or ``train``; train-mode normalizers see each batch by itself.
            dtype: precision; the model's own by default, float32 for half-precision ones.
            keep: keep the graphs in memory, the fastest; by default up to 8 batches. Otherwise they are built anew
                for each product, about twice as slow.
            seed: of dropout masks and other draws of the forward pass.

        Raises:
            InputError: for a model, loss or batch without second derivatives; the message says which and why.
        """
        self._setting = Setting.of(model, loss, batches, objective=objective, mode=mode, dtype=dtype, seed=seed)
        self._weights = self._setting.shares()
        self._keep = len(self._weights) <= KEPT if keep is None else keep
        self.names, self.shapes = self._setting.names, self._setting.shapes
        self.dtype, self.device = self._setting.dtype, self._setting.device
        ends = [0, *accumulate(shape.numel() for shape in self.shapes)]
        self.size = ends[-1]
        self.blocks = {name: slice(*at) for name, at in zip(self.names, pairwise(ends), strict=True)}
        self.count = 0
        self._stamp = self._setting.stamp()
        self._graphs: list[GradientGraph] = []
        self.loss, notes = 0.0, dict.fromkeys(self._setting.notes)
        self.gradient = torch.zeros(self.size, dtype=self.dtype, device=self.device)
        for i, weight in enumerate(self._weights):
            graph = self._build(i)
            self.loss += weight * graph.loss
            self.gradient.add_(_joined(graph.gradients, graph.parameters), alpha=weight)
            notes.update(dict.fromkeys(graph.notes))
            if self._keep:
                self._graphs.append(graph)
        self.notes = tuple(notes)

    def _build(self, index: int) -> GradientGraph:
        if self._setting.stamp() != self._stamp:
            raise InputError(
                "the model changed since this product was built; build a new one, or keep the graphs with keep=True"
            )
        return build_graph(self._setting, index)

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

    def block(self, names: Iterable[str]) -> Mapped:
        """The diagonal block of some parameters, as an operator of its own."""
        chosen = tuple(names)
        size = sum(self.shapes[self.names.index(name)].numel() for name in chosen)
        return Mapped(size, self.dtype, self.device, lambda vector: self.part(vector, chosen))

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector as tensors by parameter."""
        return dict(zip(self.names, self._pieces(vector, list(self.shapes)), strict=True))

    def weights(self) -> Tensor:
        """The parameters as one flat vector."""
        values = dict(self._setting.model.named_parameters())
        return torch.cat([values[name].detach().reshape(-1) for name in self.names])


def dense_hessian(
    model: nn.Module,
    loss: Loss,
    batches: Any,
    *,
    mode: str = "eval",
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The Hessian as a matrix, in the order of ``named_parameters`` that have a gradient.

    Args:
        model: any module with few parameters.
        loss: ``loss(output, target)``, a scalar.
        batches: as for `Product`.
        mode: ``eval`` or ``train``.
        dtype: precision.

    Returns:
        A symmetric matrix: what rounding left of its skew part is taken out.
    """
    return dense_matrix(Product(model, loss, batches, mode=mode, dtype=dtype))


def scale_free(product: Product, units: str = "tensor") -> Mapped:
    """D H D with D the norm of the unit that a weight belongs to: the Hessian by relative changes of the weights.

    D = diag(‖w_l‖) on the entries of w_l.  If L(cw_l) = L(w_l) then H_ll → H_ll/c², ‖w_l‖ → c‖w_l‖ and DHD stays, so
    λ_max(DHD) is a property of the network and λ_max(H) is not.

    Holds:  for ``tensor``, under scaling whole tensors that the loss does not see; for ``channel``, under scaling
            single rows of weight matrices and filters too, which BatchNorm hides. A tensor that is zero has no scale
            and drops out.
    Source: spherical sharpness ‖w‖²λ_max of one block, Lyu, Li & Arora 2022; blockwise here.
    Claim:  A.P4.1

    Args:
        product: the Hessian.
        units: ``tensor`` (default): one norm a parameter tensor; ``channel``: one a row of it.

    Returns:
        The scaled map; its largest eigenvalue is the scale-free sharpness.

    Raises:
        InputError: for other units.
    """
    if units not in UNITS:
        raise InputError(f"units: expected tensor or channel, got {units!r}")
    parts = product.split(product.weights())
    return scaled_operator(product, torch.cat([_norms(value, units).reshape(-1) for value in parts.values()]))


def _norms(value: Tensor, units: str) -> Tensor:
    if units == "channel" and value.ndim >= 2:
        return value.flatten(1).norm(dim=1, keepdim=True).expand(-1, value[0].numel())
    return value.norm().expand(value.numel())


def zero_tensors(product: Product) -> list[str]:
    """Names of the parameters that are zero altogether."""
    return [name for name, value in product.split(product.weights()).items() if not bool(value.any())]


def by_layer(names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Parameter names grouped by the module that owns them."""
    groups: dict[str, tuple[str, ...]] = {}
    for name in names:
        owner = name.rpartition(".")[0].partition(".parametrizations")[0] or name
        groups[owner] = (*groups.get(owner, ()), name)
    return groups


def _joined(tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    return torch.cat(
        [
            (torch.zeros_like(model) if tensor is None else tensor.detach()).reshape(-1)
            for tensor, model in zip(tensors, like, strict=True)
        ]
    )
