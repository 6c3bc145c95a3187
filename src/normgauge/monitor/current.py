"""The weights of all layers as they are now, looked up once: a training changes their numbers, seldom the tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.norms import Norms

# Entries above which radial part and update are taken from every eighth row, and rows below which they are not: more in
# embeddings, whose rows differ
SAMPLED, STRIDE, FEW, MANY = 65536, 8, 128, 4096

SMALL = 8192  # entries up to which weights that no enclosure follows are measured all at once

Weights = list[tuple[int, Tensor]]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How the weights of a model are measured.

    Attributes:
        weights: of the layers that have one, by row.
        sizes: of the inputs of convolutions, as they were seen so far.
        small: measured whole, all at once.
        large: measured by themselves.
        samples: of these, some rows where there are many.
    """

    weights: Mapping[int, Tensor]
    sizes: Mapping[nn.Module, tuple[int, ...]]
    small: Weights
    large: Weights
    samples: list[Tensor]

    def stands_for(self, place: int) -> float:
        """How many rows of the large weight at this place each sampled row stands for."""
        weight, sample = self.large[place][1], self.samples[place]
        return 1.0 if weight is sample else weight.shape[0] / len(sample)


class CurrentWeights:
    """Looks weights up, and again only where a parameter has another tensor than before.

    Args:
        layers: all layers, later ones too.
        norms: those whose norm is followed.
        on_unread: told of a layer whose weight cannot be read.
    """

    def __init__(
        self, layers: list[WatchedLayer], norms: Norms, on_unread: Callable[[WatchedLayer, Exception], None]
    ) -> None:
        self._layers, self._norms, self._on_unread = layers, norms, on_unread
        self._known: list[tuple[WatchedLayer, Tensor, Tensor, int]] = []
        self._count = 0
        self._layout: Layout | None = None

    def laid_out(self, sizes: Mapping[nn.Module, tuple[int, ...]]) -> Layout:
        """The weights as they are now; the same object as before where nothing but their numbers changed.

        Args:
            sizes: of the inputs of convolutions.
        """
        kept = self._layout
        if kept is None or self._count != len(self._layers) or not all(map(_is_still, self._known)):
            weights = dict(self._found())
        elif kept.sizes == sizes:
            return kept
        else:
            weights = dict(kept.weights)
        self._norms.follow({row: (self._layers[row], weight) for row, weight in weights.items()}, sizes)
        small, large = self._parted(weights)
        layout = Layout(weights, dict(sizes), small, large, [self.sample(row, weight) for row, weight in large])
        expected = sum(layer.attribute is not None and layer.tied is None and not layer.gone for layer in self._layers)
        self._layout = layout if len(self._known) == expected else None  # others are asked for again each time
        return layout

    def sample(self, row: int, weight: Tensor) -> Tensor:
        """Every eighth row of a large weight: not in small heads and embeddings, whose rows differ."""
        if weight.numel() <= SAMPLED or weight.ndim < 2:
            return weight
        few = MANY if self._layers[row].role == "embedding" else FEW
        return weight[::STRIDE] if weight.shape[0] >= few else weight

    def _found(self) -> Weights:
        """Every weight that can be read, and which of them are parameters of an ordinary kind."""
        self._known, self._count = [], len(self._layers)
        found: Weights = []
        for row, layer in enumerate(self._layers):
            if layer.tied is not None or layer.gone:
                continue
            try:
                weight = layer.weight
            except Exception as error:
                self._on_unread(layer, error)
                continue
            # An empty part of a sharded weight takes part in every sum.
            if weight is None or not (weight.numel() or layer.block is not None):
                continue
            found.append((row, weight))
            parameter = layer.parameter
            if type(parameter) is nn.Parameter and type(weight) is Tensor and layer.held is None:
                self._known.append((layer, parameter, weight, parameter.data_ptr()))
        return found

    def _parted(self, weights: Mapping[int, Tensor]) -> tuple[Weights, Weights]:
        """The weights measured all at once, and those measured one by one."""
        small: Weights = []
        large: Weights = []
        for row, weight in weights.items():
            block = self._layers[row].block
            count = weight.numel() if block is None else math.prod(block.shape)  # the same on every process
            alone = row in self._norms or count > SMALL or self._layers[row].role == "conv"
            (large if alone else small).append((row, weight))
        return small, large


def _is_still(known: tuple[WatchedLayer, Tensor, Tensor, int]) -> bool:
    """Whether a layer has the parameter it had, with its numbers in the same place."""
    layer, parameter, weight, place = known
    now = layer.module._parameters.get(layer.attribute)  # type: ignore[arg-type]
    return not layer.gone and now is parameter and parameter.data_ptr() == place and parameter.shape == weight.shape
