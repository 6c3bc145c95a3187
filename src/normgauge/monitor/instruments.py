"""Everything that is measured at a reading: numbers of every layer, on the device until they are fetched."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.monitor.before import SizesBefore
from normgauge.monitor.current import CurrentWeights, Layout, Weights
from normgauge.monitor.facts import Passes
from normgauge.monitor.launched import Launches, Owned, Work, kernels, owned
from normgauge.monitor.layers import WatchedLayer, is_sharded, is_transposed, looked_up, part_here
from normgauge.monitor.listener import Listener
from normgauge.monitor.maps import TRANSPOSED, frobenius_norms, is_pointwise
from normgauge.monitor.norms import SUM_ROOM, UNDERFLOW, Factors, Norms, Part
from normgauge.monitor.optimizer import settings_of
from normgauge.monitor.proofs import seed_of
from normgauge.monitor.schedule import Level
from normgauge.monitor.shards import Block, agreed
from normgauge.monitor.sheet import Column, Row, Sheet, Totals, fetch_numbers, product_totals
from normgauge.monitor.transformer import Surroundings, Transformers
from normgauge.monitor.updates import SpectralSteps
from normgauge.monitor.vectors import Heard, Normalizers, Staged, Vectors, groups_of

FAST = 1.02  # a norm over that at the reading before: what rises more may be found late

# Numbers that go into a line as they were fetched
PLAIN: frozenset[Column] = frozenset((
    "norm_lower", "frobenius", "gradient", "bias_gradient", "update", "gamma_max", "gain", "folded", "running", "batch",
    "half", "entered", "qk_gain", "ov_gain", "logit_bound", "logit_max", "row_max", "capped",
))  # fmt: skip

# Norms of a weight, which are no numbers where its entries are none
NORMED: tuple[Column, ...] = ("norm_lower", "folded")

# Where the samples of input, target, first layer, output and its gradient that are not finite are written down
BATCHES: tuple[tuple[Column, Column, Column], ...] = (
    ("input_at", "input_bad", "input_of"), ("target_at", "target_bad", "target_of"),
    ("entered_at", "entered_bad", "entered_of"), ("output_at", "output_bad", "output_of"),
    ("slope_at", "slope_bad", "slope_of"),
)  # fmt: skip

# What compares a weight with what it was before the step, and a gradient with the weight it belongs to
OF_STEP: tuple[Column, ...] = ("update", "dot", "step_norm", "sampled_norm", "frobenius_before")

Owner = tuple[nn.Module, nn.Parameter | None]

Sum = tuple[tuple[int, ...], Column, Any]  # rows, where their norms go, and what adds up their squares on a device


class Instruments:
    """The layers of a model and what is measured of each.

    Args:
        model: the network.
        layers: what is measured of it.
        optimizers: where rate, momentum and weight decay are read.
        on_error: told what failed in a hook.
        on_unread: told of a layer whose weight cannot be read.

    Attributes:
        layers: what is measured.
        norms: their matrices and convolutions by shape.
        chance: that an upper end found so far is too small, at most.
        moving: whether a norm rose fast between the last two readings.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: list[WatchedLayer],
        optimizers: Sequence[Any],
        on_error: Callable[[Exception], None],
        on_unread: Callable[[WatchedLayer, Exception], None] = lambda layer, error: None,
    ) -> None:
        self.layers: list[WatchedLayer] = []
        self.norms = Norms()
        self.chance, self.moving = 0.0, False
        self._lowers: dict[int, float] = {}
        self._vectors, self._samples, self._biases = Vectors([]), Vectors([], whole=False), Vectors([])
        self._before = SizesBefore()
        self._armed: Layout | None = None
        self._owners: list[Owner] = []  # of the weights that were kept before the step
        self._normalizers = Normalizers()
        self._ordered: tuple[tuple[int, int], list[int]] = ((0, 0), [])
        self._steps, self._transformers = SpectralSteps(), Transformers()
        self._norms: dict[int, WatchedLayer] = {}
        self._places: dict[int, int] = {}
        self._deaf = False
        self._shares: dict[int, float] = {}
        self._current = CurrentWeights(self.layers, self.norms, on_unread)
        self._level = Level.RICH
        self._attended: set[nn.Module] = set()
        self._optimizers = optimizers
        self._listener = Listener(model, on_error, on_host=_device_of(layers).type == "cpu")
        self._proved: dict[int, int] = {}
        self._launches, self._owned = Launches(), Owned()
        self._block: Block | None = None
        self._launching = False
        self._alive: list[Tensor | None] = []  # gradients of the reading that is being taken
        self._squares: dict[Hashable, Any] = {}  # what adds up the squares of gradients on a device
        self._scales: dict[Level, dict[int, Tensor]] = {}  # of normalizers, where readings of a level leave them
        self._fronts: dict[str, int] = {}  # layer to the row of the normalizer whose output is its input
        self.add(layers)
        # Another training has other weights: its starts have nothing to do with these.
        self._seed = seed_of([layer.size() for layer in layers])

    def add(self, layers: list[WatchedLayer]) -> None:
        """Start watching these layers as well."""
        first = len(self.layers)
        self.layers += layers
        fresh = dict(enumerate(layers, first))
        self._norms |= {row: layer for row, layer in fresh.items() if layer.role == "norm"}
        for row, layer in fresh.items():
            if layer.attribute is not None and layer.tied is None:
                parameter = looked_up(layer.module, layer.attribute)
                self._places[id(parameter)] = row
                if is_sharded(parameter):
                    self._listener.follow(layer.module, layer.attribute, self._places, row)
        self._laid_out()
        self._transformers.follow(self.layers)
        self._listener.attach(layers)

    def move(self, layers: list[WatchedLayer]) -> None:
        """Listen to the modules these layers have now."""
        for row, layer in enumerate(self.layers):
            if layer in layers and layer.attribute is not None:
                self._places[id(looked_up(layer.module, layer.attribute))] = row
        self._listener.attach([layer for layer in layers if layer in self.layers])

    def drop(self, layers: list[WatchedLayer]) -> None:
        """Let go of layers that are no part of the model any more; their rows stay, and stay empty."""
        rows = {row for row, layer in enumerate(self.layers) if layer in layers}
        for known in (self._norms, self._proved, self._lowers):
            for row in rows & known.keys():
                del known[row]
        self._fronts = {name: row for name, row in self._fronts.items() if row not in rows}
        for layer in self.layers:
            layer.normalizer = None if layer.normalizer in rows else layer.normalizer
        self._places = {place: row for place, row in self._places.items() if row not in rows}
        self._transformers.follow(self.layers)

    @property
    def device(self) -> torch.device:
        """Where the first weight lives."""
        return _device_of(self.layers)

    @property
    def passes(self) -> Passes:
        """What the passes tell at no cost."""
        return self._listener.passes

    @property
    def hook_seconds(self) -> float:
        """Seconds the hooks took since this property was last read."""
        seconds, self._listener.seconds = self._listener.seconds, 0.0
        return seconds

    @torch.no_grad()
    def arm(self, level: Level = Level.RICH) -> None:
        """The coming step will be read: listen, and keep what its update will be compared with.

        Args:
            level: a rich one has gains of heads, logits and steps in the operator norm; an alert one logits and no
                norms; a light one none of these, and no updates.
        """
        self._level = level
        self._take_stock()
        self._listener.rich, self._listener.awake = level in (Level.ALERT, Level.RICH), True
        layout = self._laid_out()
        if layout is not self._armed:
            self._armed, self._owners = layout, [(layer.module, layer.parameter) for layer in self.layers]
            self._shares = {row: layout.stands_for(place) for place, (row, _) in enumerate(layout.large)}
            for vectors, weights in ((self._vectors, layout.small), (self._samples, layout.large)):
                vectors.follow([row for row, _ in weights])
                vectors.reduce = self._added(vectors.rows)
        if level is Level.LIGHT:
            return
        small = [weight for _, weight in layout.small]
        if self._block is None:  # sums over processes are taken by all or by none
            self._before.keep([*layout.weights], lambda: self._sizes(layout.weights))
        self._vectors.keep(small)
        self._samples.keep(layout.samples)

        def work(sheet: Sheet, held: bool) -> None:
            self._vectors.copy(small)
            self._samples.copy(layout.samples)

        state = [*self._vectors.state, *self._samples.state]
        if self._launching:  # a layout is another where a weight is
            self._launches.do("kept", layout, state, work, Sheet())
        else:
            work(Sheet(), False)

    @torch.no_grad()
    def read(self, turns: int = 1) -> Sheet:
        """Measure every layer as it is now; directions that were left alone for some steps turn more than once."""
        self._listener.awake = False
        self._take_stock()
        sheet = Sheet()
        self._before.put(sheet)
        self._pair()
        self._read_network(sheet)
        layout = self._laid_out()
        sheet.replaced = self._replaced(layout)
        heard = self._normalizers.hear(self._norms, self._listener, layout.weights, sheet)
        sums: list[Sum] = []
        self._alive.clear()
        small = large = None
        level = min(self._level, Level.PLAIN)
        if level is Level.LIGHT:
            slopes = {row: slope for row in layout.weights if (slope := self.layers[row].gradient) is not None}
            self._read_norms(slopes, "gradient", sums, sheet)
        else:
            small = self._staged(self._vectors, layout.small, [weight for _, weight in layout.small], sums, sheet)
            large = self._staged(self._samples, layout.large, layout.samples, sums, sheet)
        self._read_biases(sums, sheet)
        rich = self._listener.rich and self._block is None
        if rich:
            self._read_logits(sheet)
            self._read_entered(sheet)

        def told(sheet: Sheet, held: bool) -> None:
            for rows, column, squares in sums:
                sheet.put_column(rows, column, squares.norms())
            self._scales[level] = self._scales_of(heard, sheet)
            if small is not None:
                self._vectors.put([weight for _, weight in layout.small], small, sheet)
            if large is not None:
                self._samples.put(layout.samples, large, sheet)
            several = layout.weights.items() if level is Level.LIGHT else layout.large
            alone = [(row, weight) for row, weight in several if level < Level.PLAIN or row not in self.norms]
            self._put_sizes(alone, sheet)

        kept = (self._vectors, self._samples, self._normalizers, *(squares for _, _, squares in sums))
        self._look_up(layout)
        state = [tensor for part in kept for tensor in part.state]
        summed = tuple((rows, column) for rows, column, _ in sums)
        self._launch(("told", level), (small, large, summed), told, sheet, state)
        self._alive.clear()  # what was launched is done before their memory is anybody else's
        if level is Level.PLAIN:
            self._read_weights(layout, turns, rich, sheet)
        self._listener.forget()
        return sheet

    def _replaced(self, layout: Layout) -> frozenset[int]:
        """Rows whose weight is another parameter than the one kept before the step: no step led from that to it."""
        if layout is self._armed:
            return frozenset()
        pairs = enumerate(zip(self.layers, self._owners, strict=False))
        return frozenset(
            row
            for row, (x, owner) in pairs
            if x.held is None and (x.module is not owner[0] or x.parameter is not owner[1])
        )

    def _scales_of(self, heard: Heard, sheet: Sheet) -> dict[int, Tensor]:
        """|γ|/σ of each normalizer, the same on all processes that share weights."""
        scales = self._normalizers.read(heard, sheet)
        if self._block is None or not scales:
            return scales
        return dict(zip(scales, agreed(list(scales.values()), self._block), strict=True))

    def _read_weights(self, layout: Layout, turns: int, rich: bool, sheet: Sheet) -> None:
        """Write down what weights tell, with the normalizers beside them, and the last step of samples of them."""
        scales = self._scales[Level.PLAIN]
        forms, fold = self._normalizers.forms, lambda row: self._fold(self.layers[row], scales)
        around = Surroundings(
            self.layers, layout.weights.get, lambda row: self._fronts.get(self.layers[row].name), forms.__getitem__
        )

        def richly(sheet: Sheet, held: bool) -> None:
            self._transformers.read(around, sheet, frugal=held)
            self._read_steps(layout, sheet)

        def turned(sheet: Sheet, held: bool) -> None:
            self.norms.read(layout.weights, fold, 1, Sheet(), frugal=held)

        def looked(sheet: Sheet, held: bool) -> None:
            self.norms.read(layout.weights, fold, 0, sheet, frugal=held)

        parts = (self._normalizers, self._steps, self.norms)
        state = [*self._samples.steps, *(tensor for part in parts for tensor in part.state)]
        settled = tuple(self._fronts.items()), len(self._attended)
        if rich:
            self._launch("rich", settled, richly, sheet, state)
        state += scales.values()
        pairs = tuple(layer.normalizer for layer in self.layers)
        key = *settled, pairs, tuple(layout.sizes.values())
        if not self._launching or not self._launches.ready("norms", key, state, self._owned):
            self.norms.read(layout.weights, fold, turns, sheet)
            return
        for name, work, to in (*[("turn", turned, Sheet())] * turns, ("norms", looked, sheet)):
            if name == "norms" or self._launches.ready(name, key, state, self._owned, first=0):
                self._launches.launch(name, work, to)
            else:
                work(to, False)

    def _take_stock(self) -> None:
        """See whether weights are sharded, and whether work on them is launched at once."""
        self._block = next((layer.block for layer in self.layers if layer.block is not None), None)
        self._launching = self._launches_all

    @property
    def _launches_all(self) -> bool:
        """Whether work on weights is launched at once: on a device of which one process has everything."""
        if self.device.type != "cuda" or self._launches.why:
            return False
        return self._block is None and all(layer.held is None for layer in self.layers)

    def _launch(self, name: Hashable, key: Hashable, work: Work, sheet: Sheet, state: Sequence[Tensor]) -> None:
        """Do some work on weights, and on what is kept besides; in one launch where all of that is where it was."""
        if self._launching:
            self._launches.do(name, key, state, work, sheet, self._owned)
        else:
            work(sheet, False)

    def _look_up(self, layout: Layout) -> None:
        """Take in where all weights and other parameters are now."""
        if self._launching:
            parameters = (p for layer in self.layers for p in layer.module._parameters.values() if p is not None)
            self._owned = owned([*layout.weights.values(), *parameters])

    def _put_sizes(self, weights: Weights, sheet: Sheet) -> None:
        if weights:
            sheet.put_column([row for row, _ in weights], "frobenius", self._sizes(dict(weights)))

    @torch.no_grad()
    def prove(self, part: Part, step: int, sheet: Sheet) -> None:
        """Begin to prove the norms of these layers from above, as they are at this reading."""
        began = time.thread_time()
        weights = [self._weight(row) for row in part.rows]
        fresh = self._level >= Level.PLAIN
        begun, chance = part.factored(weights, step, fresh=fresh), self.norms.chance(step)
        if begun is None:
            begun = part.prove(weights, step, chance, seed_of(self._seed, step, part.rows))
        sheet.proofs.append(begun)
        self.norms.book(part, begun, time.thread_time() - began)

    def listen_again(self) -> None:
        """Hear the modules of a compiled model; to be asked before ``unheard`` and ``read``."""
        self._listener.listen_again()

    def unheard(self) -> list[WatchedLayer]:
        """Normalizers and convolutions of which no pass was heard in this step; to be asked before ``read``."""
        heard = {module for module, spread in self._listener.spreads.items() if spread.inverse}
        heard |= self._listener.sizes.keys()
        silent = [layer for layer in self.layers if layer.role in ("norm", "conv") and layer.module not in heard]
        # a pointwise convolution needs no size of its input, a tied one is measured elsewhere
        return [x for x in silent if x.role == "norm" or (x.tied is None and not is_pointwise(x.module))]

    def finish(self, sheet: Sheet, lr: float | None, step: int) -> list[Row]:
        """The numbers of each layer as a line holds them, from those fetched; bounds are rounded outward."""
        self._deaf = any("gain" not in sheet.layers[row] for row in self._norms)
        settings = settings_of(self._optimizers)
        rows = []
        for row, layer in enumerate(self.layers):
            known = settings.get(id(layer.parameter), {})
            rate = known.get("rate") if lr is None else lr
            raw = sheet.layers[row]
            if row in sheet.replaced:
                raw = {name: value for name, value in raw.items() if name not in OF_STEP}
                self._before.forget(row)
            rows.append(self._row(row, layer, raw, rate, step) | known)
        self._before.take(rows, step)
        self._put_proofs(sheet, rows, step)
        lowers = {row: line["norm_lower"] for row, line in enumerate(rows) if "norm_lower" in line}
        self.moving = any(lower > FAST * self._lowers.get(row, math.inf) for row, lower in lowers.items())
        self._lowers |= lowers
        return rows

    def _put_proofs(self, sheet: Sheet, rows: list[Row], step: int) -> None:
        """Write down the upper ends that were proved for the weights of this reading, and how old all others are."""
        for proof in sheet.proofs:
            lost = {row: math.sqrt(math.prod(self.layers[row].shape)) * UNDERFLOW for row in proof.rows}
            sizes = [SUM_ROOM * sheet.layers[row].get("frobenius", math.nan) + lost[row] for row in proof.rows]
            self.chance += proof.chance * len(proof.rows)
            for (row, (lower, proved)), size in zip(proof.ends(sizes).items(), sizes, strict=True):
                upper = min(proved, size * proof.spread)  # no norm is longer: all that is known of one that is 0
                if math.isfinite(upper):
                    rows[row]["norm_lower"] = max(lower, rows[row].get("norm_lower", 0.0))
                    rows[row]["norm_upper"], self._proved[row] = upper, proof.step
        for row, at in self._proved.items():
            rows[row]["proof_age"] = float(step - at)

    def warm_up(self) -> None:
        """Turn new directions until they are warm, and read once: what is loaded then is not loaded in a step."""
        with torch.no_grad():
            weights = self._laid_out().weights
            if self.device.type == "cuda":
                with suppress(Exception):  # as below
                    self._load(weights)
            self.norms.read(weights, lambda row: (None, None), 1, Sheet())
        self.arm()
        with suppress(Exception):  # what fails here fails again at the first reading, and is said there
            dry = fetch_numbers(self.read(), lambda sheet, reading, proving: None)
            if self.device.type == "cpu":
                dry.deliver()
                self.finish(dry.sheet, None, 0)

    def _load(self, weights: Mapping[int, Tensor]) -> None:
        """Let a device compile and load what the first reading beside normalizers and the first proof need."""

        def ones(row: int) -> Factors:
            weight = weights[row]
            return (weight.new_ones(len(weight)), weight.new_ones(weight.shape[1])) if weight.ndim == 2 else (None,) * 2

        if self._norms:
            self.norms.read(weights, ones, 1, Sheet())
        for part in self.norms.parts[:1]:
            part.prove([self._weight(row) for row in part.rows], 0, self.norms.chance(0), 0)

    def totals(self, rows: list[Row]) -> Totals:
        """Products over the layers; normalizers with no weight straight in front of them count by themselves."""
        maps = [r for r, x in enumerate(self.layers) if x.role in ("matrix", "conv") and x.tied is None and not x.gone]
        folded = {layer.normalizer for layer in self.layers}
        lone = [row for row in self._norms if row not in folded]
        bare = [row for row in lone if row in self._fronts.values()]  # its γ is folded into the weight behind it
        return product_totals(rows, maps, list(self._norms), lone, bare) | {"chance": self.chance}

    def close(self) -> None:
        """Take the hooks off, and let go of what a device holds."""
        self._listener.close()
        self._launches, self._owned, self._scales, self._squares = Launches(), Owned(), {}, {}

    def _row(self, row: int, layer: WatchedLayer, raw: Row, rate: float | None, step: int) -> Row:
        line = {name: value for name, value in raw.items() if name in PLAIN}
        if not math.isfinite(line.get("frobenius", 0.0)):  # what is proved from below is 0 then, which the norm is not
            line |= {name: math.nan for name in NORMED if name in line}
        if "update" in line:
            line["update"] *= math.sqrt(self._part(row))  # from a sample of the rows
        if not math.isfinite(line.get("bias_gradient", 0.0)):
            line["gradient"] = math.nan  # a broken bias is seen at its layer
        if self._deaf:
            line.pop("folded", None)  # without every σ it would not be folded
        if "inverse_max" in raw:
            line["sigma_min"], line["sigma_max"] = _inverse(raw["inverse_max"]), _inverse(raw["inverse_min"])
            line["sigma_rms"] = math.sqrt(raw["square"])
        before = self._before.of(row, raw, line.get("update"), step) if "gradient" in raw else None
        if before is not None:
            line["scale_free_gradient"] = before * line["gradient"]
            if "dot" in raw:
                size = before / math.sqrt(self._part(row)) * raw.get("sampled_gradient", raw["gradient"])
                line["radial"] = raw["dot"] / size if size else 0.0
        if raw.get("sampled_norm"):
            line["spectral_update"] = raw["step_norm"] / raw["sampled_norm"]
        if "adapter" in raw and raw.get("norm_lower"):
            line["adapter"] = raw["adapter"] / raw["norm_lower"]
        forms = self._normalizers.forms
        if row in forms:
            line["eps"] = float(forms[row].least)
            if "square" in raw and ("mean_square" in raw or forms[row].kind == "rms") and forms[row].where == "inside":
                line["input_rms"] = math.sqrt(max(0.0, raw["square"] - line["eps"]) + raw.get("mean_square", 0.0))
        if rate is not None and layer.normalizer in forms and "frobenius" in raw:
            groups = groups_of(self.layers[layer.normalizer], forms[layer.normalizer])
            line["effective_lr"] = _inverse(raw["frobenius"] ** 2 / (rate * groups)) if rate else 0.0
        return line

    def _part(self, row: int) -> float:
        """How many rows of a weight each sampled row stands for."""
        return self._shares.get(row, 1.0)

    def _laid_out(self) -> Layout:
        """Take in which weights there are now."""
        return self._current.laid_out(self._listener.sizes)

    def _fold(self, layer: WatchedLayer, scales: dict[int, Tensor]) -> Factors:
        """What the normalizers on either side of a layer make of its outputs and inputs."""
        behind = None if layer.normalizer is None else scales.get(layer.normalizer)
        front = self._fronts.get(layer.name)
        gamma = None if front is None else self._normalizers.gammas.get(front)
        transposed = is_transposed(layer.module)
        fits = gamma is not None and gamma.ndim == 1 and gamma.numel() == layer.shape[0 if transposed else 1]
        inner = gamma if fits else None
        return (inner, behind) if transposed else (behind, inner)

    def _weight(self, row: int) -> Tensor:
        weight = self.layers[row].weight
        assert weight is not None  # what has a proof has a weight
        return weight

    def _pair(self) -> None:
        """Note which weight goes straight into which normalizer, as heard in this step."""
        for row, layer in self._norms.items():
            spread = self._listener.spreads.get(layer.module)
            if spread is not None and spread.feeding in self._places:
                self.layers[self._places[spread.feeding]].normalizer = row
        norms = {layer.module: row for row, layer in self._norms.items()}
        for layer in self.layers:
            front = norms.get(self._listener.fed_by.get(layer.module, layer.module))
            if front is not None and layer.role in ("matrix", "conv") and takes_its_input(layer):
                self._fronts[layer.name] = front

    def _staged(
        self, vectors: Vectors, weights: Weights, samples: Sequence[Tensor], sums: list[Sum], sheet: Sheet
    ) -> Staged | None:
        """Take in the gradients of all these weights together, and write down their norms where samples are read."""
        if not weights or vectors.rows != [row for row, _ in weights]:
            return None  # others came since the step before: they are in the next reading
        gradients = [self.layers[row].gradient for row, _ in weights]
        self._alive += (
            gradients  # some are made here, as dense ones of sparse ones, and kernels are told where they lie
        )
        if vectors is self._samples:
            known = {row: slope for row, slope in zip(vectors.rows, gradients, strict=True) if slope is not None}
            self._read_norms(known, "gradient", sums, sheet)

        def cut(place: int, slope: Tensor) -> Tensor:
            return self._current.sample(vectors.rows[place], slope) if vectors is self._samples else slope

        return vectors.stage(samples, gradients, cut)

    def _read_network(self, sheet: Sheet) -> None:
        """Write down the size of the network's input and whether it runs in float16."""
        sheet.half = self._listener.half
        passes = self._listener.passes
        entered = passes.entered
        if entered is not None and entered.shape[:1] != passes.shape[:1]:
            entered = None  # its rows are not the samples
        kept = (self._listener.given, passes.target, entered, passes.made, passes.slope)
        given, *others = map(part_here, kept)
        if given is not None and given.numel():
            size = torch.linalg.vector_norm(_wide(given)) / math.sqrt(given.numel())
            sheet.put(sheet.network, "input", size)
        if self._listener.taken:
            sheet.put(sheet.network, "taken", torch.stack(self._listener.taken).amax())
        for name, batch in zip(BATCHES, (given, *others), strict=True):
            if batch is not None and batch.numel() and batch.ndim > 0 and batch.is_floating_point():
                at, bad, of = name
                sheet.put(sheet.network, of, len(batch))
                if batch.device.type == "cpu" and math.isfinite(_wide(batch).sum()):  # at hand, and then so are all
                    sheet.network |= {at: 0.0, bad: 0.0}
                    continue
                broken = ~torch.isfinite(_wide(batch).reshape(batch.shape[0], -1).sum(1))
                sheet.put(sheet.network, at, broken.int().argmax())
                sheet.put(sheet.network, bad, broken.sum())

    def _read_steps(self, layout: Layout, sheet: Sheet) -> None:
        """Write down how far the last step moved each matrix, in the operator norm."""
        moved = dict(zip(self._samples.rows, self._samples.steps, strict=False))
        pairs = zip(layout.large, layout.samples, strict=True)
        matrices = {row: x for (row, _), x in pairs if row in moved and self.layers[row].role == "matrix"}
        self._steps.read({row: moved[row] for row in matrices}, matrices, sheet)

    def _read_entered(self, sheet: Sheet) -> None:
        """Write down the size of what each matrix and convolution was given."""
        known = self._listener.entered
        sizes = {row: known[layer.module] for row, layer in enumerate(self.layers) if layer.module in known}
        if sizes:
            sheet.put_column(sizes, "entered", torch.stack(list(sizes.values())))

    def _read_logits(self, sheet: Sheet) -> None:
        """Take in the attentions that were heard, and write down their largest logits."""
        found = self._listener.attentions
        if found and set(found) != self._attended:
            self._attended = set(found)
            self._transformers.attend(found, self.layers)
        self._transformers.read_logits(self._listener.logits, sheet)

    @property
    def order(self) -> list[int]:
        """The rows in the order of the forward pass; parameters that lie beside layers count as used before them."""
        heard = self._listener.order
        known = len(heard), len(self.layers)
        if self._ordered[0] != known:
            places, last = [], -1.0
            for layer in self.layers:
                inner = [heard[m] for m in layer.module.modules() if m is not layer.module and m in heard]
                last = min(inner) - 0.5 if inner else float(heard.get(layer.module, last))
                places.append(last)
            self._ordered = known, sorted(range(len(places)), key=places.__getitem__)
        return self._ordered[1]

    @property
    def scaled(self) -> dict[int, float]:
        """What attention logits are multiplied with over 1/√d, where it is known."""
        return self._transformers.scaled

    @property
    def left_out(self) -> str:
        """A sentence about attentions that were found and could not be told apart; empty where there are none."""
        return self._transformers.left_out

    def heads(self, sheet: Sheet) -> dict[str, dict[str, list[float]]]:
        """Gains of all heads, by the name of the layer that makes their queries."""
        told: dict[str, dict[str, list[float]]] = {}
        for row, cells in sheet.heads.items():
            for (column, _), value in cells.items():  # in the order of the heads
                told.setdefault(self.layers[row].name, {}).setdefault(column, []).append(value)
        return told

    def _added(self, rows: Sequence[int]) -> Callable[[Tensor], Tensor] | None:
        """What adds sums of the parts here up over all processes; None where weights are not sharded."""
        known = [block for row in rows if (block := self.layers[row].block) is not None]
        if not known:
            return None
        factors = torch.tensor([block.factor for block in known], device=self.device)
        return lambda sums: known[0].reduce(sums * factors.to(sums.dtype))

    def _sizes(self, tensors: Mapping[int, Tensor]) -> Tensor:
        """Frobenius norm of each tensor, over all processes."""
        added, norms = self._added(list(tensors)), frobenius_norms(list(tensors.values()))
        return norms if added is None else added(norms.square()).sqrt()

    def _read_norms(self, tensors: Mapping[int, Tensor], column: Column, sums: list[Sum], sheet: Sheet) -> None:
        """Write down norms of tensors that lie elsewhere at every step, or note what is to add up their squares."""
        if not tensors:
            return
        several, made, name = list(tensors.values()), kernels(self.device), (column, self._level is Level.LIGHT)
        known = self._squares.get(name)
        if made is not None and self._block is None and (known is None or not known.fit(several)):
            known = self._squares[name] = made.Squares(several) if made.can_square(several) else None
        if made is None or self._block is not None or known is None:
            sheet.put_column(tensors, column, self._sizes(tensors))
            return
        known.meet(several)
        sums.append((tuple(tensors), column, known))

    def _read_biases(self, sums: list[Sum], sheet: Sheet) -> None:
        """Write down the gradient norms of biases, which count in the total."""
        found = {row: layer.bias_gradient for row, layer in enumerate(self.layers) if layer.tied is None}
        slopes = {row: slope for row, slope in found.items() if slope is not None}
        if not slopes:
            return
        self._biases.reduce = self._added(list(slopes))
        if next(iter(slopes.values())).device.type == "cpu":
            sheet.put_column(slopes, "bias_gradient", self._biases.norms(list(slopes.values())))
        else:
            self._read_norms(slopes, "bias_gradient", sums, sheet)


def _device_of(layers: Sequence[WatchedLayer]) -> torch.device:
    owned = (p.device for layer in layers for p in layer.module._parameters.values() if p is not None)
    return next(owned, torch.device("cpu"))


def takes_its_input(layer: WatchedLayer) -> bool:
    """Whether a weight multiplies what its module is given, as it is: columns of the weight are inputs."""
    if isinstance(layer.module, nn.MultiheadAttention):
        return layer.attribute == "in_proj_weight"
    module: Any = layer.module
    plain = isinstance(module, nn.Linear) or is_transposed(module) or (layer.role == "conv" and module.groups == 1)
    return plain and layer.attribute == "weight" and not isinstance(module, TRANSPOSED)


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
