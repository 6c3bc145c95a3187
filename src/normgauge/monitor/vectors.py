"""Norms of many small weights, and σ, γ and gain of all normalizers, at once: one concatenation, sums by segment."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normgauge.instrument.rules.normalizer import OF_TORCH, Normalizer
from normgauge.monitor.launched import kernels
from normgauge.monitor.layers import WatchedLayer
from normgauge.monitor.listener import Listener, ObservedSigma
from normgauge.monitor.maps import sizes_of
from normgauge.monitor.sheet import Sheet

LONG = 4096  # mean length of parts above which each gets a sum of its own

STEADY = ("layer", "rms", "group")  # kinds that depend on nothing but their gains

# Modules of which nothing but ε is a number that matters
TORCHS = frozenset(each for torchs in OF_TORCH.values() for each in torchs.modules if each is not nn.LocalResponseNorm)

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

    @property
    def state(self) -> list[Tensor]:
        """What is used from reading to reading."""
        return [self._sizes]

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """Maximum, minimum, mean or sum of each part."""
        return torch.segment_reduce(values, how, lengths=self._sizes, axis=0, unsafe=True)


class Staged(NamedTuple):
    """What is known of weights and gradients at a reading: which have one, whether the step before was kept, types."""

    with_slope: tuple[int, ...]
    kept: bool
    kind: torch.dtype | None = None


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
        self._compared: Any = None  # on devices that kernels are written for
        self._rooms: dict[str, Room] = {}  # fresh memory costs a CPU more than the arithmetic done in it

    def follow(self, rows: Sequence[int]) -> None:
        """Take the rows of the coming weights; where they are others, what was kept is of no use."""
        if self.rows != list(rows):
            self.rows, self.steps, self._shapes, self._rooms, self._kept = list(rows), [], [], {}, False
            self._compared = None

    def keep(self, weights: Sequence[Tensor]) -> None:
        """The coming step is to be read: ``copy`` remembers the weights as they are, for the update."""
        self.steps = []
        if weights:
            self._fit(weights)
            self._compare_on_device(weights)
        self._kept = bool(weights)

    def copy(self, weights: Sequence[Tensor]) -> None:
        """Remember the weights as they are."""
        if self._compared is not None:
            self._compared.keep()
        elif weights:
            self._joined("kept", weights)

    @property
    def state(self) -> list[Tensor]:
        """Where everything is that is used from reading to reading."""
        compared = [] if self._compared is None else self._compared.state
        return [*(room.flat for room in self._rooms.values()), *self._segments.state, *compared]

    def stage(
        self, weights: Sequence[Tensor], whole: Sequence[Tensor | None], cut: Callable[[int, Tensor], Tensor]
    ) -> Staged:
        """Take in the gradients, which are elsewhere at every step; ``put`` writes down what follows from them.

        Args:
            weights: as they are now.
            whole: the gradient of each, where it has one.
            cut: the sample of a gradient that belongs to that of its weight, from the place of both.
        """
        self._fit(weights)
        self._compare_on_device(weights)
        with_slope = tuple([place for place, gradient in enumerate(whole) if gradient is not None])
        if self._compared is not None:
            kept, self._kept = self._kept, False
            self._compared.meet(whole, cut)
            self.steps = self._compared.steps if kept else []
            return Staged(with_slope, kept, self._compared.kind)
        gradients = [None if g is None else cut(place, g) for place, g in enumerate(whole)]
        if with_slope:
            slopes = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, gradients, strict=True)]
            self._joined("gradients", slopes)
        kept, self._kept = self._kept, False
        self.steps = self._rooms["kept"].parts if kept else []
        return Staged(with_slope, kept)

    def put(self, weights: Sequence[Tensor], staged: Staged, sheet: Sheet) -> None:
        """Write norm, gradient, radial part and update of each weight into the sheet."""
        if self._compared is not None:
            self._put_compared(staged, sheet)
            return
        before = self._rooms["kept"] if staged.kept else None
        joined = before
        if self._whole or before is None:
            now = self._joined("weights", weights)
            joined = now if before is None else before
            if self._whole:
                sheet.put_column(self.rows, "frobenius", self._sizes(now))
        assert joined is not None
        if staged.with_slope:
            self._put_slopes(joined, staged.with_slope, sheet)
        if before is not None:
            torch._foreach_sub_(before.parts, [_wide_as(weight, before.flat) for weight in weights])
            sheet.put_column(self.rows, "update", self._sizes(before))

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """Euclidean norm of each tensor."""
        self._fit(tensors)
        return self._sizes(self._joined("weights", tensors))

    def _compare_on_device(self, weights: Sequence[Tensor]) -> None:
        """Take in where weights lie that one kernel can compare."""
        if self._compared is not None and self._compared.follow(weights):
            return
        made, before = kernels(self._like.device), self._compared
        self._compared = made.Compared(weights) if made is not None and made.can_compare(weights, []) else None
        if before is not None or self._compared is not None:
            self._rooms, self._kept = {}, False

    def _put_slopes(self, at: Room, with_slope: Sequence[int], sheet: Sheet) -> None:
        """Gradients, and their products with the weights they belong to: those before the step."""
        slope = self._room("gradients")
        rows = [self.rows[place] for place in with_slope]
        self._put_slope_sums(self._sizes(slope), self._sums(slope, at), rows, with_slope, sheet)

    def _put_compared(self, staged: Staged, sheet: Sheet) -> None:
        """The same from the sums that a kernel takes."""
        self._compared.compare(kept=staged.kept)
        sums = self._compared.added()
        weights, slopes, dots, steps = sums if self.reduce is None else map(self.reduce, sums)
        if self._whole:
            sheet.put_column(self.rows, "frobenius", weights.sqrt())
        if staged.with_slope:
            rows = [self.rows[place] for place in staged.with_slope]
            self._put_slope_sums(slopes.sqrt(), dots, rows, staged.with_slope, sheet)
        if staged.kept:
            sheet.put_column(self.rows, "update", steps.sqrt())

    def _put_slope_sums(
        self, norms: Tensor, dots: Tensor, rows: Sequence[int], with_slope: Sequence[int], sheet: Sheet
    ) -> None:
        if len(rows) < len(self.rows):
            known = torch.stack([norms, dots]).unbind(1)
            norms, dots = torch.stack([known[place] for place in with_slope], 1).unbind()  # by no list of indices
        sheet.put_column(rows, "gradient" if self._whole else "sampled_gradient", norms)
        sheet.put_column(rows, "dot", dots)

    def _sizes(self, room: Room) -> Tensor:
        """Euclidean norm of each part; on a CPU those whose squares float32 cannot hold are taken in float64."""
        squares = self._sums_here(room, room)
        sizes = sizes_of(squares, room.lines) if squares.device.type == "cpu" else squares.sqrt()
        return sizes if self.reduce is None else self.reduce(sizes.square()).sqrt()

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
            self._compared = None


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


class Heard(NamedTuple):
    """What was heard of normalizers in one step, by row.

    Attributes:
        inverse: 1/σ of each channel, sample or group, over all passes.
        means: what was taken off each group, where that is known.
        channels: for batch normalizations the shape of their 1/σ in one pass.
    """

    inverse: dict[int, Tensor]
    means: dict[int, Tensor]
    channels: dict[int, torch.Size]


class Normalizers:
    """Measures the layers whose role is ``norm``.

    Attributes:
        forms: what each of them was at the last reading, by row.
        gammas: of those that have some.
    """

    def __init__(self) -> None:
        self._segments, self._means = Segments(), Segments()
        self._joined: dict[str, Tensor] = {}
        self.forms: dict[int, Normalizer] = {}
        self.gammas: dict[int, Tensor] = {}
        self._asked: dict[int, list[float]] = {}

    def hear(
        self, layers: Mapping[int, WatchedLayer], listener: Listener, weights: Mapping[int, Tensor], sheet: Sheet
    ) -> Heard:
        """Take in what was heard of each normalizer in this step; ``read`` writes down what follows from it.

        Args:
            layers: the normalizers by row.
            listener: what was heard of each.
            weights: of layers that have one, by row.
            sheet: where to write what is known at once.
        """
        forms = self.forms = {row: self._form(row, layer) for row, layer in layers.items()}
        found_gammas = {row: layer.gain_of(forms[row], weights.get(row)) for row, layer in layers.items()}
        self.gammas = {row: self._where_it_was(row, gamma) for row, gamma in found_gammas.items() if gamma is not None}
        spreads: dict[int, ObservedSigma] = {}
        for row, layer in layers.items():
            spread = listener.spreads.get(layer.module)
            if layer.module in listener.frozen:
                sheet.put(sheet.layers[row], "batch", listener.frozen[layer.module])
            if spread is not None and spread.half:
                sheet.put(sheet.layers[row], "half", 1.0)
            if spread is None or not spread.inverse:
                spread = running_sigmas(forms[row])
            if spread is not None and spread.inverse:
                spreads[row] = spread
        inverses = {row: [one.reshape(-1) for one in spread.inverse] for row, spread in spreads.items()}
        means = {row: [one.reshape(-1) for one in spread.means] for row, spread in spreads.items() if spread.means}
        return Heard(
            self._taken("inverse", inverses),
            self._taken("means", means),
            {row: spread.inverse[-1].shape for row, spread in spreads.items() if forms[row].kind == "batch"},
        )

    def read(self, heard: Heard, sheet: Sheet) -> dict[int, Tensor]:
        """Write down σ, γ and gain of each normalizer that was heard, and the running statistics.

        Returns:
            |γ|/σ of each: by channel for batch normalization, of the worst sample or group for the others.
        """
        running = {row: f.running[1] for row, f in self.forms.items() if f.kind == "batch" and f.running is not None}
        for rows in _of_one_shape(running):
            sheet.put_column(rows, "running", torch.stack([running[row] for row in rows]).mean(1))
        rows = list(heard.inverse)
        if not rows:
            return {}
        if heard.means:
            self._means.fit(list(heard.means.values()))
            squares = self._joined["means"].square()
            sheet.put_column(heard.means, "mean_square", self._means.reduce(squares, "mean"))
        joined = self._joined["inverse"]
        if joined.device.type == "cpu" and (size := self._one_size(heard)):
            return self._read_alike(rows, joined.view(len(rows), size), sheet)
        self._segments.fit(list(heard.inverse.values()))
        steepest = self._segments.reduce(joined, "max")
        sheet.put_column(rows, "inverse_max", steepest)
        sheet.put_column(rows, "inverse_min", self._segments.reduce(joined, "min"))
        sheet.put_column(rows, "square", self._segments.reduce(joined.square().reciprocal(), "mean"))
        gammas = {row: self.gammas[row] for row in rows if row in self.gammas}
        worst = dict(zip(rows, steepest.unbind(), strict=True))
        for row, shape in heard.channels.items():  # those of the last pass
            worst[row] = heard.inverse[row][-shape.numel() :].view(shape)
        scales = worst | scaled_gains(gammas, worst)
        if gammas:
            sheet.put_column(gammas, "gamma_max", torch.stack(_largest(list(gammas.values()))))
        sheet.put_column(rows, "gain", torch.stack(_largest(list(scales.values()))))
        return scales

    def _one_size(self, heard: Heard) -> int:
        """Channels of each batch normalization, where there are no others and all have gains of one size; else 0."""
        sizes = {len(vector) for vector in heard.inverse.values()}
        gains = [self.gammas.get(row) for row in heard.inverse]
        sizes |= {shape.numel() for shape in heard.channels.values()}  # of one pass
        sizes |= {0 if gain is None or gain.ndim != 1 else len(gain) for gain in gains}
        kinds = {None if gain is None else gain.dtype for gain in gains}
        return sizes.pop() if len(sizes) == len(kinds) == 1 and heard.channels.keys() == heard.inverse.keys() else 0

    def _read_alike(self, rows: Sequence[int], inverse: Tensor, sheet: Sheet) -> dict[int, Tensor]:
        """What `read` writes down and returns, for normalizers that are alike: a few calls for all of them."""
        gammas = torch.stack([self.gammas[row] for row in rows])
        scales = (gammas * inverse).abs()
        least, most = inverse.aminmax(dim=1)
        sheet.put_column(rows, "inverse_max", most)
        sheet.put_column(rows, "inverse_min", least)
        sheet.put_column(rows, "square", inverse.square().reciprocal_().mean(1))
        sheet.put_column(rows, "gamma_max", torch.linalg.vector_norm(gammas, math.inf, dim=1))
        sheet.put_column(rows, "gain", scales.amax(1))
        return dict(zip(rows, scales.unbind(), strict=True))

    def _taken(self, name: str, parts: Mapping[int, Sequence[Tensor]]) -> dict[int, Tensor]:
        """Vectors by row, as parts of one where that of the reading before was."""
        if not parts:
            return {}
        given = [part for several in parts.values() for part in several]
        lengths = [sum(part.numel() for part in several) for several in parts.values()]
        place, first = self._joined.get(name), given[0]
        if place is None or (len(place), place.dtype, place.device) != (sum(lengths), first.dtype, first.device):
            place = self._joined[name] = first.new_empty(sum(lengths))
        torch.cat(given, out=place)
        return dict(zip(parts, place.split(lengths), strict=True))

    @property
    def state(self) -> list[Tensor]:
        """Where everything is that a reading uses."""
        segments = (*self._segments.state, *self._means.state)
        return [*self._joined.values(), *self.gammas.values(), *segments]

    def _form(self, row: int, layer: WatchedLayer) -> Normalizer:
        """What a normalizer is; asked again where its gains or numbers are others, or it uses what it keeps."""
        known = self.forms.get(row)
        module = layer.module
        table = module.__dict__
        known_kind = type(module) in TORCHS
        numbers = (table["eps"],) if known_kind else [value for value in table.values() if type(value) is float]
        held = (module, *module._parameters.values(), *module._buffers.values())
        still = [*map(id, held), module.training, *numbers]
        made = known is not None and known.gamma is not None and known.gamma is not layer.parameter  # 1 + weight
        if known is None or made or self._asked.get(row) != still or not _is_steady(known, module):
            self._asked[row], known = still, layer.form
        return known

    def _where_it_was(self, row: int, gamma: Tensor) -> Tensor:
        """γ that is made anew at every reading in the place of the one before."""
        before, form = self.gammas.get(row), self.forms[row]
        if form.gamma is None or form.gamma.is_leaf or before is None or before.shape != gamma.shape:
            return gamma
        if (before.dtype, before.device) != (gamma.dtype, gamma.device) or before is gamma:
            return gamma
        return before.copy_(gamma)


def _is_steady(form: Normalizer, module: nn.Module) -> bool:
    """Whether what a module is follows from its parameters, buffers, numbers and mode."""
    return form.kind in STEADY or (form.kind == "batch" and type(module) in OF_TORCH["batch"].modules)


def running_sigmas(form: Normalizer) -> ObservedSigma | None:
    """The running statistics, where no pass was heard (a compiled model) and there are some."""
    return None if form.running is None else ObservedSigma([form.below(form.running[1]).reciprocal()])


def groups_of(layer: WatchedLayer, form: Normalizer) -> int:
    """How many scale-free groups a normalizer of this form makes of the rows in front of it."""
    if form.kind in ("batch", "instance"):
        return int(layer.module.num_features if form.gamma is None else form.gamma.numel())  # type: ignore[arg-type]
    return form.count


def _of_one_shape(vectors: Mapping[int, Tensor]) -> list[list[int]]:
    """The keys of tensors that can be stacked."""
    alike: dict[Hashable, list[int]] = {}
    for key, vector in vectors.items():
        alike.setdefault((vector.shape, vector.dtype, vector.device), []).append(key)
    return list(alike.values())


def _largest(vectors: Sequence[Tensor]) -> list[Tensor]:
    """The largest modulus in each vector; of those of one length at once."""
    found: dict[int, Tensor] = {}
    for places in _of_one_shape(dict(enumerate(vectors))):
        together = torch.stack([vectors[place] for place in places]).reshape(len(places), -1)
        found.update(zip(places, torch.linalg.vector_norm(together, math.inf, dim=1).unbind(), strict=True))
    return [found[place] for place in range(len(vectors))]


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
