"""What a normalizer is, however it is written: a module of torch's or a subclass, a function, plain operations.

`of_step` reads one off a traced step, `of_torch` off a module of torch's, and `tried.of_module` off any module, by what
it computes. Everyone who asks whether something normalizes, over what, by which ε and with which gains, asks here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.instrument.trace.precision import default_eps
from normgauge.instrument.trace.step import Step, Trace, Value

Arguments = tuple[str, ...]
IsMap = Callable[[Step], bool]


class Torchs(NamedTuple):
    """Modules and functions of torch's that are one kind of normalizer; the functions with what follows the values."""

    modules: tuple[type[nn.Module], ...]
    functions: dict[Any, Arguments]


SHAPED = ("normalized_shape", "weight")
OWN_STATISTICS = ("running_mean", "running_var", "weight", "bias")
OF_TORCH = {
    "batch": Torchs(
        (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
        {
            F.batch_norm: (*OWN_STATISTICS, "training", "momentum", "eps"),
            torch.batch_norm: ("weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"),
        },
    ),
    "instance": Torchs(
        (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        {
            F.instance_norm: (*OWN_STATISTICS, "use_input_stats", "momentum", "eps"),
            torch.instance_norm: (
                *("weight", "bias", "running_mean", "running_var"),
                *("use_input_stats", "momentum", "eps"),
            ),
        },
    ),
    "layer": Torchs((nn.LayerNorm,), dict.fromkeys((F.layer_norm, torch.layer_norm), (*SHAPED, "bias", "eps"))),
    "rms": Torchs((nn.RMSNorm,), dict.fromkeys((F.rms_norm, torch.rms_norm), (*SHAPED, "eps"))),
    "group": Torchs(
        (nn.GroupNorm,), dict.fromkeys((F.group_norm, torch.group_norm), ("num_groups", "weight", "bias", "eps"))
    ),
    "response": Torchs((nn.LocalResponseNorm,), {F.local_response_norm: ("size", "alpha", "beta", "k")}),
    "length": Torchs((), {F.normalize: ("p", "dim", "eps")}),
}
FORWARDS = {base.forward for torchs in OF_TORCH.values() for base in torchs.modules}
FUNCTIONS = {function: kind for kind, torchs in OF_TORCH.items() for function in torchs.functions}
BATCH = "norm_batch."  # how the names of the rules begin that divide all samples by one spread a channel
NORMALIZING = (BATCH, "norm_layer.", "response.", "recognise.written_out_norm")  # and of all that normalize
WITHOUT_SPREAD = ("response",)  # kinds that divide by something else than the spread of a group
EPS = 1e-5  # of torch's functions, where none is given
FLOOR = 1e-12  # of F.normalize
SEVERAL = -99
PASSING = ("Dropout", "dropout", "Identity", "contiguous")  # every entry stays in its channel, at its scale


@dataclass(frozen=True, slots=True)
class Normalizer:
    """Entries in groups, each less its mean and over its spread; then a gain and a shift.

    Attributes:
        kind: ``batch``, ``instance``, ``group``, ``layer``, ``rms``, ``length`` or ``response`` (windows of channels).
        gamma, beta: gains and shifts, None where it has none or they depend on the input.
        eps: added to the variance, to the spread, or its floor, as ``where`` says: inside, outside or floor.
        running: mean and variance that it keeps.
        own: whether values are divided by their own spread; else by the one kept, and it is an affine map.
        count: groups of channels.
        dims: for ``layer``, ``rms`` and ``length`` the axes of a group, counted from the end.
    """

    kind: str
    gamma: Tensor | None
    beta: Tensor | None
    eps: float
    running: tuple[Tensor, Tensor] | None = None
    own: bool = True
    count: int = 1
    dims: tuple[int, ...] = ()
    where: str = "inside"

    @property
    def stored(self) -> tuple[Tensor, Tensor] | None:
        """The mean and variance used instead of the values' own; None where their own are used."""
        return None if self.own else self.running

    @property
    def has_spread(self) -> bool:
        """Whether a group is divided by its spread."""
        return self.kind not in WITHOUT_SPREAD

    @property
    def centred(self) -> bool:
        """Whether the mean is subtracted."""
        return self.kind not in ("rms", "length")

    @property
    def by_channel(self) -> bool:
        """Whether all samples share one spread a channel."""
        return self.kind == "batch" or self.stored is not None

    @property
    def axis(self) -> int:
        """The axis that gain and shift lie on; `SEVERAL` where they span more than one."""
        if self.kind == "batch" or not self.dims:
            return 1
        return self.dims[0] if len(self.dims) == 1 else SEVERAL

    @property
    def least(self) -> float:
        """ε in units of a variance: its square where it is added to the root or is the floor of it."""
        return self.eps if self.where == "inside" else self.eps**2

    def spread_out(self, vector: Tensor, ndim: int) -> Tensor:
        """A gain or shift reshaped so that it broadcasts to values with ``ndim`` axes."""
        if self.axis == SEVERAL or vector.ndim != 1:
            return vector
        return vector.reshape([-1 if d == self.axis % ndim else 1 for d in range(ndim)])

    def grouped(self, data: Tensor) -> Tensor:
        """The values as (independent sets, groups of one set, entries of one group); every group has its own spread."""
        if self.kind == "batch":
            return data.movedim(1, 0).reshape(1, data.shape[1], -1)
        if self.kind == "instance":
            return data.reshape(data.shape[0], data.shape[1], -1)
        if self.kind == "group":
            return data.reshape(data.shape[0], self.count, -1)
        size = math.prod(data.shape[d] for d in self.dims)
        if sorted(self.dims) != list(range(-len(self.dims), 0)):
            data = data.movedim(self.dims, tuple(range(-len(self.dims), 0)))
        return data.reshape(-1, 1, size)

    def variance(self, data: Tensor) -> Tensor:
        """The variance of each group, without ε: (independent sets, groups of one set)."""
        if self.stored is not None:
            return self.stored[1][None]
        groups = self.grouped(data)
        if self.kind == "length":
            return groups.square().sum(2)
        return groups.var(2, correction=0) if self.centred else groups.square().mean(2)

    def below(self, variance: Tensor) -> Tensor:
        """The divisor: √(σ² + ε), σ + ε or max(σ, ε)."""
        if self.where == "inside":
            return (variance + self.eps).sqrt()
        return variance.sqrt() + self.eps if self.where == "outside" else variance.sqrt().clamp_min(self.eps)

    def left(self, variance: Tensor) -> Tensor:
        """The share of a change along the values themselves that ε lets through: 1 − σD'/D, D the divisor."""
        if self.where == "inside":
            return self.eps / (variance + self.eps)
        sigma = variance.sqrt()
        return self.eps / (sigma + self.eps) if self.where == "outside" else (sigma < self.eps).to(sigma)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Slope and offset of each channel where the statistics are stored, in float64.

        γ(x − mean)/√(var + ε) + β = scale·x + offset
        """
        assert self.stored is not None
        mean, variance = (s.detach().double() for s in self.stored)
        scale = self.below(variance).reciprocal()
        scale = scale if self.gamma is None else scale * self.gamma.detach().double()
        return scale, -mean * scale if self.beta is None else self.beta.detach().double() - mean * scale

    def __call__(self, x: Tensor) -> Tensor:
        """The normalized values, for stored statistics and for groups along axes."""
        if self.stored is not None:
            scale, offset = (self.spread_out(part.to(x), x.ndim) for part in self.affine())
            return scale * x + offset
        middle = x - x.mean(self.dims, keepdim=True) if self.centred else x
        out = middle / self.below(middle.square().mean(self.dims, keepdim=True))
        out = out if self.gamma is None else self.spread_out(self.gamma, x.ndim) * out
        return out if self.beta is None else out + self.spread_out(self.beta, x.ndim)


def targets(kind: str) -> tuple[Any, ...]:
    """Everything of torch's that is a normalizer of this kind."""
    return (*OF_TORCH[kind].modules, *OF_TORCH[kind].functions)


def of_step(step: Step, native: torch.dtype) -> Normalizer | None:
    """The normalizer that a traced step is; ``native`` is the precision that an RMSNorm without ε takes it from."""
    if not step.inputs or step.trouble:
        return None
    if step.module is not None:
        return of_torch(step.module, native)
    if step.target in FUNCTIONS:
        return _made(FUNCTIONS[step.target], arguments(step), native, step.inputs[0].tensor.ndim)
    return next((given for given in step.args if isinstance(given, Normalizer)), None)  # it was recognised


def arguments(step: Step) -> dict[str, Any]:
    """The arguments of one of torch's modules or functions other than the values, by name; None where not given."""
    if step.module is not None:
        return _settings(step.module)[1]
    names = OF_TORCH[FUNCTIONS[step.target]].functions[step.target]
    return {name: step.get(k, name) for k, name in enumerate(names, 1)}


def known_normalizer(step: Step, native: torch.dtype) -> Normalizer:
    """The normalizer of a step that has the rule of a normalizer.

    Raises:
        TypeError: for any other step.
    """
    found = of_step(step, native)
    if found is None:
        raise TypeError(f"{step.kind} is no normalizer that this rule knows")
    return found


def of_torch(module: nn.Module, native: torch.dtype = torch.float32) -> Normalizer | None:
    """The normalizer that one of torch's modules, or a subclass with the same forward, is; None for any other."""
    kind, given = _settings(module)
    return _made(kind, given, native) if kind else None


def _settings(module: nn.Module) -> tuple[str, dict[str, Any]]:
    """The kind of one of torch's normalizers and the arguments it passes to its function; "" for any other module."""
    for kind, (bases, functions) in OF_TORCH.items():
        if isinstance(module, bases) and type(module).forward in FORWARDS:
            given = {name: getattr(module, name, None) for name in next(iter(functions.values()), ())}
            if kind == "instance":
                given["use_input_stats"] = module.training or not module.track_running_stats
            return kind, given
    return "", {}


def _made(kind: str, given: dict[str, Any], native: torch.dtype, ndim: int = 0) -> Normalizer | None:
    standard = {"rms": default_eps(native), "length": FLOOR, "response": 0.0}.get(kind, EPS)
    eps = standard if given.get("eps") is None else given["eps"]
    made = Normalizer(kind, _plain(given.get("weight")), _plain(given.get("bias")), eps)
    if kind in ("batch", "instance"):
        mean, variance = _plain(given["running_mean"]), _plain(given["running_var"])
        running = None if mean is None or variance is None else (mean, variance)
        own = given["training"] if kind == "batch" else given["use_input_stats"] is not False
        return replace(made, running=running, own=bool(own) or running is None)
    if kind in ("layer", "rms"):
        shape = given["normalized_shape"]
        return replace(made, dims=tuple(range(-1 if isinstance(shape, int) else -len(tuple(shape)), 0)))
    if kind == "length":
        dim = 1 if given["dim"] is None else given["dim"]
        plain = given["p"] in (None, 2, 2.0) and isinstance(dim, int)
        return replace(made, dims=(dim % ndim - ndim,), where="floor") if plain and ndim else None
    return replace(made, count=given["num_groups"]) if kind == "group" else made


def _plain(tensor: Any) -> Tensor | None:
    """The tensor, if it does not depend on the input, else None."""
    return tensor if isinstance(tensor, Tensor) and not isinstance(tensor, Value) else None


def making_map(value: Value, is_map: IsMap) -> Step | None:
    """The linear map that made a value, perhaps followed by steps that only pass it on; None where there is none."""
    step = value.step
    while step is not None and step.kind in PASSING and len(step.inputs) == 1:
        step = step.inputs[0].step
    return step if step is not None and len(step.inputs) == 1 and is_map(step) else None


def reading_steps(trace: Trace, value: Value) -> list[Step]:
    """The steps that read a value, each once."""
    return list({step.index: step for step in trace.consumers.get(value.index, ())}.values())


def fed_normalizers(trace: Trace, native: torch.dtype, is_map: IsMap) -> Iterator[tuple[Step, Step, Normalizer]]:
    """Every linear map whose output only a normalizer reads: the map's step, the normalizer's step, the normalizer."""
    for step in trace.steps:
        form = of_step(step, native)
        first = None if form is None else making_map(step.inputs[0], is_map)
        if form is not None and first is not None and reading_steps(trace, first.outputs[0]) == [step]:
            yield first, step, form
