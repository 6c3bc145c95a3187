"""Everything that is measured at a reading: numbers of every layer, on the device until they are fetched."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from normgauge.monitor.columns import Row
from normgauge.monitor.convolution import TrackedConv, is_pointwise, spec_of
from normgauge.monitor.enclosure import Tracked, ends, root_of_squares, unit_of, working
from normgauge.monitor.fetch import Floats, Sheet
from normgauge.monitor.layers import Layer
from normgauge.monitor.sigma import Listener, Spread
from normgauge.monitor.vectors import Vectors

TARGET = 0.05
"""Relative width above which an enclosure wants a new proof."""

SAMPLED = 65536
"""Entries above which the update is taken from every eighth row."""

SMALL = 8192
"""Entries up to which weights that no enclosure follows are measured all at once."""

CHEAP = 256
"""Order up to which a proof is taken at once when everything is asked for; larger ones keep to the budget."""

PER_DIRECTION = 400
"""A full proof for a convolution costs about this many readings of it; only until one was timed."""


class Instruments:
    """The layers of a model with what is known of each between readings."""

    def __init__(
        self, layers: list[Layer], optimizer: torch.optim.Optimizer | None, on_error: Callable[[Exception], None]
    ) -> None:
        self.layers: list[Layer] = []
        self.widths: dict[int, float] = {}
        self._tracked: dict[int, Tracked | TrackedConv] = {}
        self._costs: dict[int, float] = {}
        self._previous: dict[int, Tensor] = {}
        self._vectors = Vectors([])
        self._places: dict[int, int] = {}
        self._optimizer = optimizer
        self._listener = Listener(on_error)
        self.add(layers)

    def add(self, layers: list[Layer]) -> None:
        """Watch these layers too."""
        first = len(self.layers)
        self.layers += layers
        for index, layer in enumerate(layers, first):
            if layer.tied is not None or layer.attribute is None:
                continue
            self._places[id(getattr(layer.module, layer.attribute))] = index
            weight = layer.weight
            if weight is None or not weight.numel():
                continue
            if layer.role == "matrix" or (layer.role == "conv" and is_pointwise(layer.module)):
                self._tracked[index] = Tracked(weight)
        norms = [layer.module for layer in layers if layer.role == "norm"]
        convs = [layer.module for layer in layers if layer.role == "conv" and not is_pointwise(layer.module)]
        self._listener.attach(norms, convs)

    @property
    def device(self) -> torch.device:
        """Where the first weight lives."""
        owned = (p.device for layer in self.layers for p in layer.module.parameters(recurse=False))
        return next(owned, torch.device("cpu"))

    def first_rate(self) -> float | None:
        """The learning rate of the optimizer's first group, where there is one and it is at hand."""
        if self._optimizer is None:
            return None
        rate = self._optimizer.param_groups[0]["lr"]
        return None if isinstance(rate, Tensor) and rate.device.type != "cpu" else float(rate)

    @property
    def hook_seconds(self) -> float:
        """Time the hooks took since this was asked last."""
        seconds, self._listener.seconds = self._listener.seconds, 0.0
        return seconds

    def arm(self) -> None:
        """The coming step will be read: listen, and keep what its update will be compared with."""
        self._listener.awake = True
        small, large = self._parted()
        self._vectors = Vectors([index for index, _ in small])
        self._vectors.keep([weight for _, weight in small])
        for index, weight in large:
            rows = _rows(weight)
            kept = self._previous.get(index)
            if kept is None or kept.shape != rows.shape or kept.device != rows.device:
                self._previous[index] = rows.clone()
            else:
                kept.copy_(rows)

    def read(self) -> Sheet:
        """Measure every layer as it is now."""
        self._listener.awake = False
        sheet = Sheet()
        scales = {i: self._normalizer(i, sheet) for i, layer in enumerate(self.layers) if layer.role == "norm"}
        small, large = self._parted()
        if [index for index, _ in small] != self._vectors.rows:
            self._vectors = Vectors([index for index, _ in small])
        self._vectors.read([w for _, w in small], [self.layers[i].gradient for i, _ in small], sheet)
        for index, weight in large:
            tracked = self._tracker(index, weight)
            if tracked is None:
                sheet.put(index, "frobenius", root_of_squares(_wide(weight)))
            else:
                follows = self.layers[index].normalizer
                scale = None if follows is None else scales.get(follows)
                for column, value in tracked.read(weight, scale).items():
                    sheet.put(index, column, value)
            self._slopes(index, weight, sheet)
        self._listener.forget()
        return sheet

    def finish(self, floats: Floats, lr: float | None) -> list[Row]:
        """The numbers of a line from those fetched, rounding outward."""
        rows: list[Row] = []
        for index, layer in enumerate(self.layers):
            raw = floats.get(index, {})
            row = {k: raw[k] for k in _AS_THEY_ARE if k in raw}
            tracked = self._tracked.get(index)
            if tracked is not None and "found" in raw:
                row["norm_lower"], row["norm_upper"] = self._ends(tracked, raw)
                row["folded"] = raw["folded"]
                self.widths[index] = row["norm_upper"] / row["norm_lower"] - 1 if row["norm_lower"] else math.inf
            if "inverse_max" in raw:
                row["sigma_min"], row["sigma_max"] = _inverse(raw["inverse_max"]), _inverse(raw["inverse_min"])
            if "gradient" in raw:
                row["scale_free_gradient"] = raw["frobenius"] * raw["gradient"]
                row["radial"] = raw["dot"] / row["scale_free_gradient"] if row["scale_free_gradient"] else 0.0
            rate = lr if lr is not None else self._rate(layer)
            if rate is not None and layer.normalizer is not None:
                square = raw["frobenius"] ** 2 + raw.get("bias", 0.0) ** 2
                row["effective_lr"] = rate * _groups(self.layers[layer.normalizer]) / square if square else math.inf
            rows.append(row)
        return rows

    def lone(self) -> list[bool]:
        """Which layers are normalizers with no weight straight in front of them."""
        folded = {layer.normalizer for layer in self.layers}
        return [layer.role == "norm" and index not in folded for index, layer in enumerate(self.layers)]

    def wanting(self) -> list[int]:
        """Layers whose enclosure is wider than the target, widest first."""
        wide = [(width, index) for index, width in self.widths.items() if width > TARGET and index in self._tracked]
        return [index for _, index in sorted(wide, key=lambda pair: (-pair[0], pair[1]))]

    def cost(self, index: int) -> float:
        """Seconds the next proof of a layer will take, as far as is known."""
        return self._costs.get(index, 0.0)

    def refresh(self, index: int, *, full: bool = True) -> float:
        """Prove the norm of one layer anew.

        Args:
            index: of the layer.
            full: for a convolution, the operator norm itself instead of √taps times that of the kernel.

        Returns:
            The seconds it took.
        """
        began = time.perf_counter()
        tracked, weight = self._tracked[index], self._weight(index)
        if isinstance(tracked, Tracked):
            tracked.refresh(weight)
        elif full and weight.device.type == "cpu":
            tracked.refresh(weight)
        else:
            tracked.refresh_cheaply(weight)
        self.widths[index] = 0.0
        seconds = time.perf_counter() - began
        self._costs[index] = seconds
        return seconds

    def narrow(self, rows: list[Row]) -> None:
        """Prove at once what is cheap to prove and wider than the target, so that this reading has it.

        Only where nothing has to be waited for and the weights are still those of the reading: on a CPU.
        """
        for index in self.wanting():
            tracked = self._tracked[index]
            if isinstance(tracked, Tracked) and min(tracked.reference.shape) <= CHEAP and self.device.type == "cpu":
                self.refresh(index)
                raw = {k: float(v) for k, v in tracked.read(self._weight(index), None).items()}
                lower, upper = self._ends(tracked, raw)
                rows[index] = {**rows[index], "norm_lower": lower, "norm_upper": upper}
                self.widths[index] = upper / lower - 1 if lower else math.inf

    def prove_first(self, seconds: float) -> None:
        """Prove what can be proved of the initial weights in this time."""
        began = time.perf_counter()
        for index in list(self._tracked):
            if time.perf_counter() - began + max(self._costs.values(), default=0.0) > seconds:
                self.widths[index] = math.inf
            else:
                self.refresh(index)

    def close(self) -> None:
        """Take the hooks off."""
        self._listener.detach()

    def _weights(self) -> Iterator[tuple[int, Tensor]]:
        for index, layer in enumerate(self.layers):
            if layer.tied is None and layer.attribute is not None:
                weight = layer.weight
                if weight is not None and weight.numel():
                    yield index, weight

    def _weight(self, index: int) -> Tensor:
        weight = self.layers[index].weight
        assert weight is not None  # what is tracked has a weight
        return weight

    def _parted(self) -> tuple[list[tuple[int, Tensor]], list[tuple[int, Tensor]]]:
        """The weights measured all at once, and those measured one by one."""
        small: list[tuple[int, Tensor]] = []
        large: list[tuple[int, Tensor]] = []
        for index, weight in self._weights():
            alone = index in self._tracked or weight.numel() > SMALL or self.layers[index].role == "conv"
            (large if alone else small).append((index, weight))
        return small, large

    def _tracker(self, index: int, weight: Tensor) -> Tracked | TrackedConv | None:
        tracked = self._tracked.get(index)
        layer = self.layers[index]
        if layer.role != "conv" or is_pointwise(layer.module):
            return tracked
        size = self._listener.sizes.get(layer.module)
        if size is None:
            return None
        if not isinstance(tracked, TrackedConv):
            tracked = self._tracked[index] = TrackedConv(weight, spec_of(layer.module, size))
            tracked.refresh_cheaply(weight)
        return tracked

    def _slopes(self, index: int, weight: Tensor, sheet: Sheet) -> None:
        gradient = self.layers[index].gradient
        if gradient is not None and gradient.shape == weight.shape:
            flat_weight, flat_gradient = _flat_pair(_wide(weight), _wide(gradient))
            sheet.put(index, "dot", torch.dot(flat_weight, flat_gradient))
            sheet.put(index, "gradient", root_of_squares(flat_gradient))
        kept = self._previous.get(index)
        rows = _rows(weight)
        if kept is not None and kept.shape == rows.shape:
            scale = math.sqrt(weight.shape[0] / rows.shape[0]) if weight.ndim else 1.0
            sheet.put(index, "update", root_of_squares(_wide(rows) - _wide(kept)) * scale)

    def _normalizer(self, index: int, sheet: Sheet) -> Tensor | None:
        """Write down a normalizer's σ and give |γ|/σ: of each channel for batch normalization, of the worst sample else."""
        module = self.layers[index].module
        spread = self._listener.spreads.get(module) or _running(module)
        if spread is None or not spread.inverse:
            return None
        inverse = spread.inverse[-1] if len(spread.inverse) == 1 else torch.cat([t.flatten() for t in spread.inverse])
        steepest = inverse.max()
        sheet.put(index, "inverse_max", steepest)
        sheet.put(index, "inverse_min", inverse.min())
        sheet.put(index, "sigma_rms", torch.linalg.vector_norm(1 / inverse) / math.sqrt(inverse.numel()))
        if spread.feeding in self._places:
            self.layers[self._places[spread.feeding]].normalizer = index
        gamma = self.layers[index].weight
        if gamma is None:
            scale = spread.inverse[-1] if isinstance(module, _BatchNorm) else steepest
        else:
            size = gamma.abs()
            sheet.put(index, "gamma_max", size.max())
            worst = spread.inverse[-1] if isinstance(module, _BatchNorm) else steepest
            scale = size * worst if gamma.ndim == 1 else size.max() * worst
        sheet.put(index, "gain", scale.max())
        return scale

    def _ends(self, tracked: Tracked | TrackedConv, raw: Row) -> tuple[float, float]:
        shape = tracked.reference.shape
        unit = unit_of(working(tracked.reference))
        if isinstance(tracked, Tracked):
            return ends(raw, shape[0] + shape[1], tracked.reference.numel(), unit)
        terms = max(shape[:2]) * math.prod(shape[2:]) + tracked.right.numel() + shape[0] * tracked.right[0, 0].numel()
        return ends(raw, terms, tracked.reference.numel(), unit, tracked.spread, 2.0**-53)

    def _rate(self, layer: Layer) -> float | None:
        if self._optimizer is None or layer.attribute is None:
            return None
        parameter = getattr(layer.module, layer.attribute)
        for group in self._optimizer.param_groups:
            if any(parameter is member for member in group["params"]):
                rate = group["lr"]
                return None if isinstance(rate, Tensor) and rate.device.type != "cpu" else float(rate)
        return None


_AS_THEY_ARE = ("frobenius", "gradient", "update", "sigma_rms", "gamma_max", "gain")


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf


def _rows(weight: Tensor) -> Tensor:
    """The rows whose change is followed: all of a small weight, every eighth of a large one."""
    return weight[::8] if weight.numel() > SAMPLED and weight.ndim > 1 else weight


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _flat_pair(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors as vectors in the same order, without a copy where their memory is laid out alike."""
    if left.stride() == right.stride() and left.is_contiguous(memory_format=torch.channels_last) and left.ndim == 4:
        left, right = left.permute(0, 2, 3, 1), right.permute(0, 2, 3, 1)
    return left.reshape(-1), right.reshape(-1)


def _running(module: nn.Module) -> Spread | None:
    """The running statistics, where no pass was heard (a compiled model) and there are some."""
    if isinstance(module, _NormBase) and module.running_var is not None:
        return Spread([torch.rsqrt(module.running_var + module.eps)])
    return None


def _groups(layer: Layer) -> int:
    """How many scale-free groups a normalizer makes of the rows in front of it."""
    if isinstance(layer.module, _BatchNorm | _InstanceNorm):
        return layer.module.num_features
    return layer.module.num_groups if isinstance(layer.module, nn.GroupNorm) else 1
