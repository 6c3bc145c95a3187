"""A network read as a chain of affine maps and activations: what the classical norm bounds are about.

The network is traced, every step is recognised by its type or refused by name, and the chain is run beside the network:
where they differ there is no chain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.certificates.facts.links import Affine, Link
from normgauge.certificates.facts.sample import DataSample, device_of
from normgauge.core.errors import InputError
from normgauge.instrument.rules.conv import conv_layer
from normgauge.instrument.rules.normalizer import Normalizer, of_step
from normgauge.instrument.rules.pooling import overlap
from normgauge.instrument.rules.shape import rerun_step
from normgauge.instrument.session import Session, opened
from normgauge.instrument.spectral.conv_operator import per_axis
from normgauge.instrument.trace.step import Step

TRACED = 8  # samples in the batch that is traced, and in the one that is compared
AGREE = 1e-5  # relative difference allowed between chain and network, both in float64

SHAPES = (nn.Flatten, nn.Unflatten, torch.flatten, torch.reshape, Tensor.flatten, Tensor.reshape, Tensor.view)
RELUS = (nn.ReLU, F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)
LEAKY = (nn.LeakyReLU, F.leaky_relu, F.leaky_relu_)
CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, F.conv1d, F.conv2d, F.conv3d)
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, F.max_pool1d, F.max_pool2d, torch.max_pool1d, torch.max_pool2d)
AVERAGES = (nn.AvgPool1d, nn.AvgPool2d, F.avg_pool1d, F.avg_pool2d)
ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d)
MEANS = (torch.mean, Tensor.mean)


class BrokenChainError(InputError):
    """Raised for a network that is not such a chain; the message names the first layer that breaks it."""


@dataclass(frozen=True, slots=True)
class MatrixChain:
    """x ↦ A_d σ(A_{d−1} σ(… σ(A_1 x))), σ 1-Lipschitz and positively homogeneous.

    Attributes:
        links: the matrices, biases taken in; parameter-free maps between them have norms of at most 1.
        constant: whether inputs carry one more coordinate that is always 1, since some layer has a bias.
        elementwise: whether all of σ acts on single numbers; max pooling does not.
    """

    links: tuple[Link, ...]
    constant: bool
    elementwise: bool

    @property
    def width(self) -> int:
        """The largest number of rows or columns."""
        return max(max(link.inputs, link.outputs) for link in self.links)

    @property
    def log_product(self) -> float:
        """Ln of the product of the spectral norms."""
        return math.fsum(link.log_spectral for link in self.links)

    @property
    def log_frobenius(self) -> float:
        """Ln of the product of the Frobenius norms; of the last matrix the largest row, since one output is read."""
        return math.fsum(link.log_frobenius for link in self.links[:-1]) + self.links[-1].log_row


@dataclass(slots=True)
class ChainWalk:
    """What has been recognised of the chain so far."""

    maps: list[Affine | Step]
    elementwise: bool = True
    windows: dict[str, int] = field(default_factory=dict)  # numbers a max pool compares, by the layer before it


def read_chain(model: nn.Module, sample: DataSample) -> MatrixChain:
    """Read the network as a chain of matrices, with upper bounds of their norms.

    Args:
        model: any network; it is left as it is found.
        sample: inputs to trace it on and to compare the chain with it.

    Returns:
        The chain.

    Raises:
        BrokenChainError: names the first layer that is not of a chain.
    """
    count = min(TRACED, len(sample))
    place = device_of(model)
    traced, others = sample.take(range(count)).to(place), sample.take(range(len(sample) - count, len(sample)))

    if not traced.is_floating_point():
        raise BrokenChainError("its inputs are whole numbers; the norm rows need real ones")

    try:
        with torch.no_grad(), opened(model, traced) as session:
            walk = _walk(session)
            _compare(session, walk, others)
            return _chain(walk)
    except BrokenChainError:
        raise
    except InputError as error:
        raise BrokenChainError(f"it could not be traced: {error}") from error


def _walk(session: Session) -> ChainWalk:
    trace = session.trace
    if trace.path_dependent:
        raise BrokenChainError("its control flow looks at data")
    if trace.output is None or not trace.steps or len(trace.sources) != 1:
        raise BrokenChainError("its output does not come from one input")
    walk, last = ChainWalk([]), trace.sources[0]
    for step in trace.steps:
        if step.trouble or len(step.inputs) != 1 or step.inputs[0] is not last or not step.outputs:
            raise BrokenChainError(f"{step.name} ({step.kind}) joins or follows more than the layer before it")
        _add(walk, step)
        last = step.outputs[0]
    if last is not trace.output:
        raise BrokenChainError("its output is not that of its last layer")
    return walk


def _add(walk: ChainWalk, step: Step) -> None:
    """Recognise one step by its exact type, or refuse it.

    Raises:
        BrokenChainError: for any other step.
    """
    target: Any = type(step.module) if step.module is not None else step.target
    data = step.inputs[0].tensor
    form = of_step(step, data.dtype)
    reshapes = target in SHAPES and step.outputs[0].tensor.shape[0] == data.shape[0]  # no number leaves its sample
    if target in (nn.Linear, F.linear):
        walk.maps.append(_linear(step, data))
    elif target in CONVS:
        walk.maps.append(_conv(step, data))
    elif form is not None and form.by_channel:
        _normalize(walk, step, form)
    elif _activates(step, target) or reshapes or _short_pool(step, target):
        if target in MAX_POOLS:
            _compared(walk, step)
        walk.maps.append(step)
    else:
        raise BrokenChainError(f"{step.name} ({step.kind}) is no linear map, ReLU, reshaping or plain pooling")


def _compared(walk: ChainWalk, step: Step) -> None:
    """Note how many outputs of the layer before it a max pool compares at a time."""
    walk.elementwise = False
    layers = [m.name for m in walk.maps if isinstance(m, Affine)]
    if layers:
        window = math.prod(per_axis(step.option(1, "kernel_size"), step.inputs[0].tensor.ndim - 2))
        walk.windows[layers[-1]] = walk.windows.get(layers[-1], 1) * window


def _activates(step: Step, target: Any) -> bool:
    """Whether it is a ReLU, or a leaky one: it never falls, and never rises faster than 1."""
    if target not in LEAKY:
        return target in RELUS
    return 0.0 <= float(step.option(1, "negative_slope", 0.01)) <= 1.0


def _linear(step: Step, data: Tensor) -> Affine:
    weight, bias = step.option(1, "weight"), step.option(2, "bias")
    if data.ndim != 2 or not isinstance(weight, Tensor):
        raise BrokenChainError(f"{step.name} ({step.kind}) is applied to more than one vector a sample")
    return Affine(step.name, weight.detach(), _detached(bias), None, tuple(data.shape[1:]))


def _conv(step: Step, data: Tensor) -> Affine:
    layer = conv_layer(step, data)
    if isinstance(layer, str) or layer.spec.padding_mode != "zeros" or data.ndim != layer.spec.axes + 2:
        raise BrokenChainError(f"{step.name} ({step.kind}) is no convolution with a fixed kernel and zero padding")
    return Affine(step.name, layer.weight.detach(), _detached(layer.bias), layer.spec, tuple(data.shape[1:]))


def _normalize(walk: ChainWalk, step: Step, form: Normalizer) -> None:
    """Stored statistics, as of BatchNorm in eval mode: into the map before them, or a map of its own.

    Raises:
        BrokenChainError: without running statistics.
    """
    if form.stored is None:
        raise BrokenChainError(f"{step.name} ({step.kind}) takes statistics of the batch; samples are not apart")
    scale, shift = form.affine()
    before = walk.maps[-1] if walk.maps else None
    if isinstance(before, Affine) and before.weight.ndim > 1:
        walk.maps[-1] = before.folded(scale, shift)
    else:
        walk.maps.append(Affine(step.name, scale, shift, None, tuple(step.inputs[0].tensor.shape[1:])))


def _short_pool(step: Step, target: Any) -> bool:
    """Whether it pools windows that do not overlap, or averages over a whole axis: then its norm is at most 1."""
    data, out = step.inputs[0].tensor, step.outputs[0].tensor
    if target in MEANS:
        return out.ndim >= 2 and out.shape[:2] == data.shape[:2]
    axes = data.ndim - 2
    if target in ADAPTIVE:
        return axes >= 1 and all(n % m == 0 for n, m in zip(data.shape[2:], out.shape[2:], strict=True))
    if target not in (*MAX_POOLS, *AVERAGES) or axes < 1 or len(step.outputs) != 1:
        return False
    kernel = per_axis(step.option(1, "kernel_size"), axes)
    stride, padding = per_axis(step.option(2, "stride") or kernel, axes), per_axis(step.option(3, "padding", 0), axes)
    dilation = per_axis(step.option(4, "dilation", 1) if target in MAX_POOLS else 1, axes)
    if target in AVERAGES and any(padding):
        return False  # with its divisor at the border it may be more than an average
    lines = zip(data.shape[2:], out.shape[2:], kernel, stride, padding, dilation, strict=True)
    return all(overlap(*line)[0] <= 1 for line in lines)


def _detached(tensor: Any) -> Tensor | None:
    return tensor.detach() if isinstance(tensor, Tensor) else None


def _compare(session: Session, walk: ChainWalk, inputs: Tensor) -> None:
    """Run the chain beside the network on samples that were not traced.

    Raises:
        BrokenChainError: where they differ.
    """
    x = inputs.to("cpu", torch.float64)
    wanted, got = session.model(x), x
    for run in walk.maps:
        got = run(got) if isinstance(run, Affine) else rerun_step(run, [got])[0]
    size = float(wanted.abs().max()) + 1e-30
    if got.shape != wanted.shape or not float((got - wanted).abs().max()) <= AGREE * size:
        raise BrokenChainError("its layers in a row do not give what the network gives")


def _chain(walk: ChainWalk) -> MatrixChain:
    maps = [m for m in walk.maps if isinstance(m, Affine)]
    if not maps:
        raise BrokenChainError("it has no linear layer")
    if not isinstance(walk.maps[-1], Affine) or maps[-1].spec is not None or maps[-1].weight.ndim != 2:
        raise BrokenChainError("it does not end with a linear layer")
    constant = any(m.bias is not None for m in maps)
    links = tuple(m.link(constant=constant, last=m is maps[-1], window=walk.windows.get(m.name, 1)) for m in maps)
    return MatrixChain(links, constant, walk.elementwise)
