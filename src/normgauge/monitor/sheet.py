"""One reading as a typed record: the numbers of every layer, of the network and of the team, and what each is worth.

Numbers come from a device without waiting for it: copied in the background, looked at when they have come.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from normgauge.monitor.proofs import Begun

# Everything that may be known of a layer or of the network
Column = Literal[
    # the columns of a line, which COLUMNS describes
    "norm_lower", "norm_upper", "proof_age", "frobenius", "gradient", "scale_free_gradient", "radial", "update",
    "effective_lr", "sigma_min", "sigma_rms", "sigma_max", "gamma_max", "folded", "spectral_update", "input_rms",
    "qk_gain", "ov_gain", "logit_bound", "logit_max", "row_max", "adapter", "capped",
    # what these are made of: for weights, for normalizers, for normalizers of several processes
    "dot", "sampled_gradient", "bias_gradient", "step_norm", "sampled_norm", "frobenius_before",
    "inverse_max", "inverse_min", "square", "gain", "mean_square",
    "present", "inverse_here", "entered",
    # shown to the watch besides: of normalizers, of the optimizer, of the network's input
    "running", "batch", "eps", "half", "rate", "momentum", "weight_decay", "input", "taken",
    # of the network's input, of what its first layer is given, of its output, of the gradient there and of the loss's
    # target: first sample that is not finite, how many, of how many
    "input_at", "input_bad", "input_of", "entered_at", "entered_bad", "entered_of",
    "output_at", "output_bad", "output_of", "slope_at", "slope_bad", "slope_of", "target_at", "target_bad", "target_of",
]  # fmt: skip

COLUMNS: Mapping[Column, tuple[str, str]] = {
    "norm_lower": ("proved", "operator norm of the layer, from below"),
    "norm_upper": ("proved", "operator norm of the layer, from above; only at steps at which it was proved anew"),
    "proof_age": ("observed", "steps since the norm was last proved from above"),
    "frobenius": ("observed", "Frobenius norm of the weight"),
    "gradient": (
        "observed",
        "Euclidean norm of the weight's gradient as the step took it: clipped, where it is clipped",
    ),
    "scale_free_gradient": (
        "observed",
        "‖w‖·‖∇‖ with w before the step: the same whatever the scale of scale-free weights; after a step of at most a "
        "tenth of ‖w‖, w may be that after it",
    ),
    "radial": (
        "estimated",
        "cosine between gradient and the weight before the step, 0 for scale-free ones; sampled as the update",
    ),
    "update": ("estimated", "length of the last optimizer step; from every eighth row of a large weight"),
    "effective_lr": ("observed", "learning rate over the mean ‖w‖² of a scale-free group"),
    "sigma_min": ("observed", "smallest √(σ² + ε) of a normalizer at this step"),
    "sigma_rms": ("observed", "root mean square of √(σ² + ε)"),
    "sigma_max": ("observed", "largest √(σ² + ε)"),
    "gamma_max": ("observed", "largest |γ|"),
    "folded": (
        "estimated",
        "norm of the layer with the normalizer behind it and the γ in front of it, from below; free of their gauge",
    ),
    "spectral_update": (
        "estimated",
        "operator norm of the last step of a matrix over that of the matrix, both of every eighth row of a large one",
    ),
    "input_rms": ("observed", "root mean square of what a LayerNorm or RMSNorm is given: the residual stream by depth"),
    "qk_gain": ("computed", "largest ‖Wqᵀ Wk‖ of a head, with the γ in front; at the layer that makes the queries"),
    "ov_gain": ("computed", "largest ‖Wo Wv‖ of a head, with the γ in front; at the layer that makes the queries"),
    "logit_bound": ("computed", "what no attention logit exceeds behind this normalizer, whatever its input"),
    "logit_max": ("observed", "largest attention logit of the first sample, masked ones too"),
    "row_max": ("observed", "longest row of an embedding, and of the last matrix behind one"),
    "adapter": ("estimated", "norm of a correction of low rank, BA with its scale, over the norm of the weight"),
    "capped": ("observed", "decades that the budget of `cap` has taken from the layer up to this step"),
}

# Columns of every line, and those that a line has where one of their numbers is known
ALWAYS, OPTIONAL = tuple(COLUMNS)[:14], tuple(COLUMNS)[14:]

# What leaves a column as it is: γ against the weight behind it, or a weight against the normalizer behind it; units of
# a ReLU rescaled between two weights; queries against keys, and values against the output, head by head
LOG_ROOM = 1e-12  # part of a sum of logs that its rounding does not come to
ALL_GAUGES = "normalizers, pairs, heads"
UNCHANGED: Mapping[str, str] = {
    "folded": "normalizers", "log10_folded": "normalizers", "qk_gain": ALL_GAUGES, "ov_gain": ALL_GAUGES,
    "logit_bound": ALL_GAUGES, "logit_max": ALL_GAUGES,
}  # fmt: skip

TOTALS: Mapping[str, tuple[str, str]] = {
    "log10_P_w": ("proved", "product of the layers' norms, from above, where all were proved; depends on the gauge"),
    "log10_P_w_lower": ("proved", "product of the layers' norms, from below; depends on the gauge"),
    "log10_prod_inv_sigma_min": ("observed", "Π 1/σ with the smallest σ of each normalizer; depends on the gauge"),
    "log10_prod_inv_sigma_rms": ("observed", "Π 1/σ with the root mean square σ; depends on the gauge"),
    "log10_prod_inv_sigma_max": ("observed", "Π 1/σ with the largest σ; depends on the gauge"),
    "log10_folded": (
        "estimated",
        "product of the folded gains, lone normalizers by max γ/σ; free of the scale in front of them",
    ),
    "gradient": (
        "observed",
        "Euclidean norm of all gradients together as the step took them, clipped where they are; biases too, not "
        "those of computed weights",
    ),
    "chance": ("proved", "that one of the upper ends up to this line is too small, at most"),
}

SIGMAS: tuple[Column, ...] = ("sigma_min", "sigma_rms", "sigma_max")
GRADIENTS: tuple[Column, ...] = ("gradient", "bias_gradient")

Row = dict[Column, float]
Totals = dict[str, float | None]
Then = Callable[["Sheet", float, float], None]
Marks = tuple[Any, Any] | None
Key = TypeVar("Key")


@dataclass(slots=True)
class Exchanged:
    """What the processes of a team told each other.

    Attributes:
        wishes: steps that each would like to wait, by rank.
        failures: how often measuring failed on each, by rank.
        given: how many of them had a loss, by step.
    """

    wishes: dict[int, float] = field(default_factory=dict)
    failures: dict[int, float] = field(default_factory=dict)
    given: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class Sheet:
    """The numbers of one reading; those that are tensors are filled in when they have come.

    Attributes:
        layers: the numbers of each layer, by its row in every column.
        heads: gains of the heads of each attention, by the row of its queries; keys are column and head.
        network: the numbers of the whole network.
        half: whether a product of it came out in float16.
        losses: by step, since the reading before.
        told: empty where one process trains alone.
        cells: for each number of ``tensors`` the part of this sheet it goes to, and its key there.
        tensors: of one axis or none, on any device.
        proofs: that were begun at this reading; their numbers come with the others.
        finite: whether all numbers that came were.
        replaced: rows whose weight is another parameter than before the step.
    """

    layers: defaultdict[int, Row] = field(default_factory=lambda: defaultdict(dict))
    heads: defaultdict[int, dict[tuple[str, int], float]] = field(default_factory=lambda: defaultdict(dict))
    network: Row = field(default_factory=dict)
    half: bool = False
    losses: dict[int, float] = field(default_factory=dict)
    told: Exchanged = field(default_factory=Exchanged)
    cells: list[tuple[dict[Any, float], Any]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    proofs: list[Begun] = field(default_factory=list)
    finite: bool = True
    replaced: frozenset[int] = frozenset()

    def put(self, part: dict[Key, float], key: Key, value: Tensor | float) -> None:
        """Write down one number."""
        if isinstance(value, Tensor):
            self.put_part(part, [key], value)
        else:
            part[key] = float(value)

    def put_part(self, part: dict[Key, float], keys: Iterable[Key], values: Tensor) -> None:
        """Write down the numbers of a vector in one part."""
        self.cells += [(part, key) for key in keys]
        self.tensors.append(values)

    def put_column(self, rows: Iterable[int], column: Column, values: Tensor) -> None:
        """Write down one number for each of several layers."""
        self.cells += [(self.layers[row], column) for row in rows]
        self.tensors.append(values)

    def packed(self) -> Tensor | None:
        """One vector of all numbers in the order of the cells; on the device that some of them are on."""
        if not self.tensors:
            return None
        device = next((t.device for t in self.tensors if t.device.type != "cpu"), torch.device("cpu"))
        # One that lives on the CPU beside others on a device goes over pinned, so that nothing waits.
        near = [t if t.device == device else t.to(device, non_blocking=True) for t in self.tensors]
        return torch.hstack(near).to(torch.float32 if device.type == "mps" else torch.float64)  # promotes types


@dataclass(slots=True)
class Pending:
    """A sheet of numbers on its way.

    Attributes:
        sheet: what was measured.
        buffer: its numbers in main memory, once ``event`` has passed.
        event: None where there is nothing to wait for.
        then: what to do with the sheet.
        marks: events recorded on the device when the work began and when the proofs did, or nothing.
    """

    sheet: Sheet
    buffer: Tensor
    event: Any
    then: Then
    marks: Marks

    def ready(self, wait: bool) -> bool:
        """Whether the numbers have arrived; waits for them only where asked to."""
        if wait and self.event is not None:
            self.event.synchronize()
        return self.event is None or bool(self.event.query())

    def deliver(self) -> None:
        """Fill in the sheet and pass it on, with the seconds the device took for the reading and for the proofs."""
        values = self.buffer.tolist()
        self.sheet.finite = math.isfinite(sum(values))
        for (part, key), value in zip(self.sheet.cells, values, strict=True):
            part[key] = value
        reading = proving = 0.0
        if self.event is not None and self.marks is not None:
            began, middle = self.marks
            reading, proving = began.elapsed_time(middle) / 1000.0, middle.elapsed_time(self.event) / 1000.0
        self.then(self.sheet, reading, proving)


def fetch_numbers(sheet: Sheet, then: Then, marks: Marks = None) -> Pending:
    """Start bringing the numbers of a sheet to main memory.

    Args:
        sheet: the numbers.
        then: called by ``Pending.deliver`` with the sheet and the device's seconds.
        marks: CUDA events recorded when the work began and when the proofs did, or None.

    Returns:
        What to ask whether it is ready.
    """
    packed = sheet.packed()
    if packed is None:
        return Pending(sheet, torch.empty(0), None, then, None)
    sheet.proofs = [proof.fetched([_brought(t) for t in proof.tensors()]) for proof in sheet.proofs]
    return Pending(sheet, _brought(packed), recorded_event(packed.device), then, marks)


def _brought(tensor: Tensor) -> Tensor:
    """The numbers in main memory: at once, or from CUDA once an event recorded after this has passed."""
    if tensor.device.type != "cuda":
        return tensor.cpu()
    buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return buffer.copy_(tensor, non_blocking=True)


def recorded_event(device: torch.device) -> Any:
    """An event of a CUDA device, recorded now; None for any other device."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def is_ahead(event: Any) -> bool:
    """Whether the host is ahead of its device, which has not come to what was recorded here."""
    return event is not None and not event.query()


def header_table(table: Mapping[Any, tuple[str, str]]) -> dict[str, Any]:
    """A table as the header of a run file has it."""
    return {
        name: {"evidence": evidence, "what": what, **({"unchanged": UNCHANGED[name]} if name in UNCHANGED else {})}
        for name, (evidence, what) in table.items()
    }


def product_totals(
    rows: Sequence[Row], maps: Sequence[int], norms: Sequence[int], lone: Sequence[int], bare: Sequence[int] = ()
) -> Totals:
    """Products over the layers, as decimal logs; None where there is nothing to multiply or a factor is missing.

    Args:
        rows: the finished numbers of each layer.
        maps: which of them are matrices and convolutions.
        norms: which are normalizers.
        lone: which of those were not folded into the weight in front of them.
        bare: which of those count without their γ, since it is folded into the weight behind them.
    """
    linear = [rows[i] for i in maps]
    found: Totals = {
        "log10_P_w": _moved(log10_product(row.get("norm_upper") for row in linear), LOG_ROOM),
        "log10_P_w_lower": _moved(log10_product(row.get("norm_lower") for row in linear), -LOG_ROOM),
    }
    for column in SIGMAS:
        product = log10_product(rows[i].get(column) for i in norms)
        found[f"log10_prod_inv_{column}"] = None if product is None else -product
    gains = [row.get("folded") for row in linear] + [rows[i].get("gain") for i in lone if i not in bare]
    sigmas = [rows[i].get("sigma_min") for i in bare]
    gains += [1 / sigma if sigma else None for sigma in sigmas]
    found["log10_folded"] = log10_product(gains)
    slopes = [row[column] for row in rows for column in GRADIENTS if column in row]
    found["gradient"] = math.hypot(*slopes) if slopes else None
    return found


def _moved(log: float | None, room: float) -> float | None:
    """An end of a sum of logs, moved outward by more than its rounding."""
    return None if log is None else log + room * (1.0 + abs(log)) if math.isfinite(log) else log


def log10_product(factors: Iterable[float | None]) -> float | None:
    """Decimal log of a product; None where there are no factors or one is missing, nan where one is nan or negative.

    Infinity absorbs, as in every product of gains.
    """
    given = list(factors)
    if not given or None in given:
        return None
    try:
        return math.fsum(map(math.log10, given))  # type: ignore[arg-type]
    except ValueError:  # as of 0
        known = [factor for factor in given if factor is not None]
    if any(math.isnan(factor) or factor < 0.0 for factor in known):
        return math.nan
    if math.inf in known:
        return math.inf
    return -math.inf if 0.0 in known else math.fsum(map(math.log10, known))
