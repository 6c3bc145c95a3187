"""Norms of many small weights, and σ, γ and gain of all normalizers, at once: one concatenation, sums by segment."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import torch
from torch import Tensor

from normgauge.instrument.rules.normalizer import Normalizer
from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.listener import Listener, ObservedSigma
from normgauge.monitor.sheet import Sheet

LONG = 4096  # mean length of parts above which each gets a sum of its own

STEADY = ("layer", "rms", "group")  # kinds that depend on nothing but their gains

ALIGNED = 1024  # numbers a device adds up in one go: a segment of millions would be added up by one of its many units


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
        self.take([part.numel() for part in parts], parts[0].device)

    def take(self, lengths: list[int], device: torch.device) -> None:
        """Take the lengths of the parts."""
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
        reduce: adds sums of the parts here up over all processes; None where one has everything.
        steps: the last step of each, where it is known, until the next call of ``keep``.
    """

    def __init__(self, rows: Sequence[int], *, whole: bool = True) -> None:
        self.rows = list(rows)
        self._whole = whole
        self._segments = Segments()
        self.steps: list[Tensor] = []
        self._kept = False
        self._shapes: list[torch.Size] = []
        self._like = torch.empty(0)
        self.reduce: Callable[[Tensor], Tensor] | None = None
        self._rooms: dict[str, Room] = {}  # fresh memory costs a CPU more than the arithmetic done in it

    def follow(self, rows: Sequence[int]) -> None:
        """Take the rows of the coming weights; where they are others, what was kept is of no use."""
        if self.rows != list(rows):
            self.rows, self.steps, self._shapes, self._rooms, self._kept = list(rows), [], [], {}, False

    def keep(self, weights: Sequence[Tensor]) -> None:
        """Remember the weights as they are, for the update."""
        self.steps = []
        if weights:
            self._fit(weights)
            self._joined("kept", weights)
        self._kept = bool(weights)

    def read(self, weights: Sequence[Tensor], gradients: Sequence[Tensor | None], sheet: Sheet) -> None:
        """Write norm, gradient, radial part and update of each weight into the sheet."""
        if not weights:
            return
        self._fit(weights)
        before = self._rooms["kept"] if self._kept else None
        self._kept = False
        joined = before
        if self._whole or before is None:
            now = self._joined("weights", weights)
            joined = now if before is None else before
            if self._whole:
                sheet.put_column(self.rows, "frobenius", self._sums(now, now).sqrt())
        assert joined is not None
        self._slopes(joined, weights, gradients, sheet)
        if before is not None:
            self.steps = before.parts
            torch._foreach_sub_(self.steps, [_wide_as(weight, before.flat) for weight in weights])
            sheet.put_column(self.rows, "update", self._sums(before, before).sqrt())

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """Euclidean norm of each tensor."""
        self._fit(tensors)
        joined = self._joined("weights", tensors)
        return self._sums(joined, joined).sqrt()

    def _slopes(self, at: Room, weights: Sequence[Tensor], gradients: Sequence[Tensor | None], sheet: Sheet) -> None:
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

    def _sums(self, left: Room, right: Room) -> Tensor:
        sums = self._sums_here(left, right)
        return sums if self.reduce is None else self.reduce(sums)

    def _sums_here(self, left: Room, right: Room) -> Tensor:
        """Σ left·right over each part; torch adds segments up one by one, so that long ones go to a fast dot."""
        if left.flat.device.type == "cpu" and left.flat.numel() > LONG * len(left.parts):
            return torch.stack([torch.dot(x, y) for x, y in zip(left.lines, right.lines, strict=True)])
        products = torch.mul(left.flat, right.flat, out=self._room("products").flat)
        short = products if products.device.type == "cpu" else products.view(-1, ALIGNED).sum(1)
        return self._segments.reduce(short, "sum")

    def _joined(self, name: str, tensors: Sequence[Tensor]) -> Room:
        """One vector of all numbers, in memory of its own that is used again."""
        room = self._room(name)
        torch._foreach_copy_(room.parts, list(tensors))
        return room

    def _room(self, name: str) -> Room:
        held = self._rooms.get(name)
        if held is None:
            held = self._rooms[name] = Room(self._shapes, self._like)
        return held

    def _fit(self, tensors: Sequence[Tensor]) -> None:
        """Take in what the coming vectors consist of; where that is new, what was kept is of no use."""
        shapes, first = [tensor.shape for tensor in tensors], tensors[0]
        wide = first.dtype if first.dtype in (torch.float32, torch.float64) else torch.float32
        if shapes != self._shapes or (wide, first.device) != (self._like.dtype, self._like.device):
            self._shapes, self._like = shapes, torch.empty(0, dtype=wide, device=first.device)
            self._rooms, self._kept = {}, False
            aligned = 1 if first.device.type == "cpu" else ALIGNED
            self._segments.take([-(-shape.numel() // aligned) for shape in shapes], first.device)


class Room:
    """Memory for several tensors side by side, each from a place that a device adds up quickly; 0 between them.

    Attributes:
        flat: all of it.
        parts: the tensors.
        lines: the same as vectors.
    """

    def __init__(self, shapes: Sequence[torch.Size], like: Tensor) -> None:
        aligned = 1 if like.device.type == "cpu" else ALIGNED
        room = [-(-shape.numel() // aligned) * aligned for shape in shapes]
        self.flat = like.new_zeros(sum(room))
        self.lines = [part[: shape.numel()] for part, shape in zip(self.flat.split(room), shapes, strict=True)]
        self.parts = [line.view(shape) for line, shape in zip(self.lines, shapes, strict=True)]


class Normalizers:
    """Measures the layers whose role is ``norm``.

    Attributes:
        forms: what each of them was at the last reading, by row.
        gammas: of those that have some.
    """

    def __init__(self) -> None:
        self._segments, self._means = Segments(), Segments()
        self.forms: dict[int, Normalizer] = {}
        self.gammas: dict[int, Tensor] = {}
        self._asked: dict[int, list[float]] = {}

    def read(
        self, layers: Mapping[int, WatchedLayer], listener: Listener, weights: Mapping[int, Tensor], sheet: Sheet
    ) -> dict[int, Tensor]:
        """Write down σ, γ and gain of each normalizer that was heard, and the running statistics.

        Args:
            layers: the normalizers by row.
            listener: what was heard of each.
            weights: of layers that have one, by row.
            sheet: where to write.

        Returns:
            |γ|/σ of each: by channel for batch normalization, of the worst sample or group for the others.
        """
        forms = self.forms = {row: self._form(row, layer) for row, layer in layers.items()}
        found_gammas = {row: layer.gain_of(forms[row], weights.get(row)) for row, layer in layers.items()}
        self.gammas = {row: gamma for row, gamma in found_gammas.items() if gamma is not None}
        for row, layer in layers.items():
            form = forms[row]
            if form.kind == "batch" and form.running is not None:
                sheet.put(sheet.layers[row], "running", form.running[1].mean())
            if layer.module in listener.frozen:
                sheet.put(sheet.layers[row], "batch", listener.frozen[layer.module])
        found = {row: listener.spreads.get(layer.module) for row, layer in layers.items()}
        for row, one in found.items():
            if one is not None and one.half:
                sheet.put(sheet.layers[row], "half", 1.0)
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
        gammas = {row: self.gammas[row] for row in rows if row in self.gammas}
        several = zip(rows, steepest.unbind(), strict=True)
        worst = {row: _worst(forms[row], heard[row], steep) for row, steep in several}
        scales = worst | scaled_gains(gammas, worst)
        if gammas:
            sheet.put_column(gammas, "gamma_max", torch.stack(_largest(list(gammas.values()))))
        sheet.put_column(rows, "gain", torch.stack(_largest(list(scales.values()))))
        return scales

    def _form(self, row: int, layer: WatchedLayer) -> Normalizer:
        """What a normalizer is; asked again where its gains or numbers are others, or it uses what it keeps."""
        known = self.forms.get(row)
        module = layer.module
        numbers = [value for value in module.__dict__.values() if type(value) is float]  # ε among them
        still = [*map(id, (module, *module._parameters.values())), *numbers]
        if known is None or known.kind not in STEADY or self._asked.get(row) != still:
            self._asked[row], known = still, layer.form
        return known

    def _read_means(self, rows: Sequence[int], found: Mapping[int, ObservedSigma | None], sheet: Sheet) -> None:
        """Write down the mean square of the means that were taken off."""
        means = {row: _joined(one.means) for row in rows if (one := found[row]) is not None and one.means}
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
    return _joined([t.reshape(-1) for t in spread.inverse])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _largest(vectors: Sequence[Tensor]) -> list[Tensor]:
    """The largest modulus in each vector; of those of one length at once."""
    alike: dict[Hashable, list[int]] = {}
    for place, vector in enumerate(vectors):
        alike.setdefault((vector.shape, vector.dtype, vector.device), []).append(place)
    found: dict[int, Tensor] = {}
    for places in alike.values():
        together = torch.stack([vectors[place] for place in places]).reshape(len(places), -1)
        found.update(zip(places, torch.linalg.vector_norm(together, math.inf, dim=1).unbind(), strict=True))
    return [found[place] for place in range(len(vectors))]


def _worst(form: Normalizer, heard: ObservedSigma | None, steepest: Tensor) -> Tensor:
    """1/σ by channel for batch normalization, of the worst sample or group for the others."""
    assert heard is not None  # only those heard come here
    return heard.inverse[-1] if form.kind == "batch" else steepest


def scaled_gains(gammas: Mapping[int, Tensor], worst: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """|γ|/σ of each normalizer; of those of one shape at once."""
    alike: dict[Hashable, list[int]] = {}
    for row, gamma in gammas.items():
        alike.setdefault((gamma.shape, gamma.dtype, gamma.device, worst[row].shape), []).append(row)
    found: dict[int, Tensor] = {}
    for rows in alike.values():
        gamma, inverse = torch.stack([gammas[row] for row in rows]), torch.stack([worst[row] for row in rows])
        if gamma.ndim == 2:
            scales = (gamma * (inverse[:, None] if inverse.ndim == 1 else inverse)).abs()
        else:  # γ of several axes: its largest stands for all
            scales = torch.linalg.vector_norm(gamma.flatten(1), math.inf, dim=1) * inverse
        found.update(zip(rows, scales.unbind(), strict=True))
    return found


def _wide_as(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor if tensor.dtype == like.dtype else tensor.to(like.dtype)
