"""Norms of many small weights, and σ, γ and gain of all normalizers, at once: one concatenation, sums by segment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from normgauge.instrument.rules.normalizer import Normalizer
from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.listener import Listener, ObservedSigma
from normgauge.monitor.sheet import Sheet

LONG = 4096  # mean length of parts above which each gets a sum of its own


class Segments:
    """Which numbers of a concatenation belong together.

    Attributes:
        lengths: numbers of each part.
    """

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self._sizes = torch.tensor(self.lengths)

    def fit(self, parts: Sequence[Tensor]) -> None:
        """Take the lengths of the parts that the coming vectors consist of."""
        lengths, device = [part.numel() for part in parts], parts[0].device
        if self.lengths != lengths or self._sizes.device != device:
            self.lengths, sizes = lengths, torch.tensor(lengths)
            # From pinned memory nothing waits for the device.
            self._sizes = (sizes.pin_memory() if device.type == "cuda" else sizes).to(device, non_blocking=True)

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """Maximum, minimum, mean or sum of each part."""
        return torch.segment_reduce(values, how, lengths=self._sizes, axis=0, unsafe=True)


class Vectors:
    """Weights measured all at once: small ones, or samples of large ones.

    Args:
        rows: of the sheet, one for each weight.
        whole: whether they are whole weights, and so have a norm to write down.

    Attributes:
        steps: the last step of each, where it is known, until the next call of ``keep``.
    """

    def __init__(self, rows: Sequence[int], *, whole: bool = True) -> None:
        self.rows = list(rows)
        self._whole = whole
        self._segments = Segments()
        self.steps: list[Tensor] = []
        self._kept: Tensor | None = None
        self._room: dict[str, Tensor] = {}  # fresh memory costs a CPU more than the arithmetic done in it

    def keep(self, weights: Sequence[Tensor]) -> None:
        """Remember the weights as they are, for the update."""
        self.steps = []
        self._kept = self._joined("kept", weights) if weights else None

    def read(self, weights: Sequence[Tensor], gradients: Sequence[Tensor | None], sheet: Sheet) -> None:
        """Write norm, gradient, radial part and update of each weight into the sheet."""
        if not weights:
            return
        self._segments.fit(weights)
        before = self._kept if self._kept is not None and self._fits(self._kept, weights) else None
        self._kept = None
        if self._whole or before is None:
            joined = self._joined("weights", weights)
            if self._whole:
                sheet.put_column(self.rows, "frobenius", self._sums(joined, joined).sqrt())
        self._slopes(joined if before is None else before, weights, gradients, sheet)
        if before is not None:
            self.steps = self._views(before, weights)
            torch._foreach_sub_(self.steps, [_wide_as(weight, before) for weight in weights])
            sheet.put_column(self.rows, "update", self._sums(before, before).sqrt())

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """Euclidean norm of each tensor."""
        self._segments.fit(tensors)
        joined = self._joined("weights", tensors)
        return self._sums(joined, joined).sqrt()

    def _slopes(self, at: Tensor, weights: Sequence[Tensor], gradients: Sequence[Tensor | None], sheet: Sheet) -> None:
        """Gradients, and their products with the weights they belong to: those before the step."""
        with_slope = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not with_slope:
            return
        filled = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, gradients, strict=True)]
        slope = self._joined("gradients", filled)
        rows = [self.rows[i] for i in with_slope]
        norms, dots = self._sums(slope, slope).sqrt(), self._sums(slope, at)
        if len(rows) < len(self.rows):
            norms, dots = norms[with_slope], dots[with_slope]
        sheet.put_column(rows, "gradient" if self._whole else "sampled_gradient", norms)
        sheet.put_column(rows, "dot", dots)

    def _sums(self, left: Tensor, right: Tensor) -> Tensor:
        """Σ left·right over each part; torch adds segments up one by one, so that long ones go to a fast dot."""
        lengths = self._segments.lengths
        if left.device.type == "cpu" and left.numel() > LONG * len(lengths):
            return torch.stack(
                [torch.dot(x, y) for x, y in zip(left.split(lengths), right.split(lengths), strict=True)]
            )
        return self._segments.reduce(torch.mul(left, right, out=self._space("products", left)), "sum")

    def _joined(self, name: str, tensors: Sequence[Tensor]) -> Tensor:
        """One vector of all numbers, in memory of its own that is used again."""
        wide = tensors[0].dtype if tensors[0].dtype in (torch.float32, torch.float64) else torch.float32
        like = torch.empty(0, dtype=wide, device=tensors[0].device)
        room = self._space(name, like, sum(t.numel() for t in tensors))
        torch._foreach_copy_(self._views(room, tensors), list(tensors))
        return room

    def _views(self, joined: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
        """The parts of a joined vector in the shapes of the tensors they came from."""
        parts = joined.split([t.numel() for t in like])
        return [part.view(t.shape) for part, t in zip(parts, like, strict=True)]

    def _fits(self, joined: Tensor, weights: Sequence[Tensor]) -> bool:
        """Whether a joined vector was made of weights like these."""
        first = weights[0]
        wide = first.dtype if first.dtype in (torch.float32, torch.float64) else torch.float32
        count = sum(weight.numel() for weight in weights)
        return (joined.numel(), joined.dtype, joined.device) == (count, wide, first.device)

    def _space(self, name: str, like: Tensor, count: int | None = None) -> Tensor:
        count = like.numel() if count is None else count
        held = self._room.get(name)
        if held is None or (held.numel(), held.dtype, held.device) != (count, like.dtype, like.device):
            held = self._room[name] = torch.empty(count, dtype=like.dtype, device=like.device)
        return held


class Normalizers:
    """Measures the layers whose role is ``norm``.

    Attributes:
        forms: what each of them was at the last reading, by row.
    """

    def __init__(self) -> None:
        self._segments, self._means = Segments(), Segments()
        self.forms: dict[int, Normalizer] = {}

    def read(self, layers: Mapping[int, WatchedLayer], listener: Listener, sheet: Sheet) -> dict[int, Tensor]:
        """Write down σ, γ and gain of each normalizer that was heard, and the running statistics.

        Args:
            layers: the normalizers by row.
            listener: what was heard of each.
            sheet: where to write.

        Returns:
            |γ|/σ of each: by channel for batch normalization, of the worst sample or group for the others.
        """
        forms = self.forms = {row: layer.form for row, layer in layers.items()}
        for row, layer in layers.items():
            form = forms[row]
            if form.kind == "batch" and form.running is not None:
                sheet.put(sheet.layers[row], "running", form.running[1].mean())
            if layer.module in listener.frozen:
                sheet.put(sheet.layers[row], "batch", listener.frozen[layer.module])
        found = {row: listener.spreads.get(layer.module) for row, layer in layers.items()}
        heard = {row: one if one and one.inverse else running_sigmas(forms[row]) for row, one in found.items()}
        rows = [row for row, spread in heard.items() if spread is not None and spread.inverse]
        if not rows:
            return {}
        self._read_means(rows, found, sheet)
        inverses = [_one(heard[row]) for row in rows]
        joined = torch.cat(inverses) if len(inverses) > 1 else inverses[0]
        self._segments.fit(inverses)
        steepest = self._segments.reduce(joined, "max")
        sheet.put_column(rows, "inverse_max", steepest)
        sheet.put_column(rows, "inverse_min", self._segments.reduce(joined, "min"))
        sheet.put_column(rows, "square", self._segments.reduce(joined.square().reciprocal(), "mean"))
        scales: dict[int, Tensor] = {}
        for place, row in enumerate(rows):
            worst = heard[row].inverse[-1] if forms[row].kind == "batch" else steepest[place]  # type: ignore[union-attr]
            gamma = layers[row].gain_of(forms[row])
            scales[row] = worst if gamma is None else _scale(gamma, worst)
            sheet.put(sheet.layers[row], "gain", scales[row].max())
            if gamma is not None:
                sheet.put(sheet.layers[row], "gamma_max", torch.linalg.vector_norm(gamma, math.inf))
        return scales

    def _read_means(self, rows: Sequence[int], found: Mapping[int, ObservedSigma | None], sheet: Sheet) -> None:
        """Write down the mean square of the means that were taken off."""
        means = {row: torch.cat(one.means) for row in rows if (one := found[row]) is not None and one.means}
        if means:
            self._means.fit(list(means.values()))
            sheet.put_column(means, "mean_square", self._means.reduce(torch.cat(list(means.values())).square(), "mean"))


def running_sigmas(form: Normalizer) -> ObservedSigma | None:
    """The running statistics, where no pass was heard (a compiled model) and there are some."""
    return None if form.running is None else ObservedSigma([form.below(form.running[1]).reciprocal()])


def groups_of(layer: WatchedLayer, form: Normalizer) -> int:
    """How many scale-free groups a normalizer of this form makes of the rows in front of it."""
    if form.kind in ("batch", "instance"):
        return int(layer.module.num_features if form.gamma is None else form.gamma.numel())  # type: ignore[arg-type]
    return form.count


def _one(spread: ObservedSigma | None) -> Tensor:
    assert spread is not None  # only those heard come here
    parts = [t.reshape(-1) for t in spread.inverse]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _scale(gamma: Tensor, worst: Tensor) -> Tensor:
    return (gamma * worst).abs() if gamma.ndim == 1 else torch.linalg.vector_norm(gamma, math.inf) * worst


def _wide_as(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor if tensor.dtype == like.dtype else tensor.to(like.dtype)
