"""A network as a map of independent samples, and the two products with its Jacobian at a point."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.core.errors import InputError
from normgauge.core.rounding import SQUARED, TINY
from normgauge.instrument.probe.convolution import TwiceConvolved
from normgauge.instrument.probe.kinks import TwiceKinked
from normgauge.instrument.probe.work import CALL, Work, counted
from normgauge.instrument.trace.again import tensors_alike

Function = Callable[[Tensor], Tensor]
Progress = Callable[[str, float], None]
Quick = Callable[[], AbstractContextManager[Function]]

DIFFERENCE = 1e-6  # step of a finite difference as a part of the sample's norm
ROUNDING = 1e-7  # relative error granted to a product with the Jacobian in float64
ROUNDING_LOW = 1e-3  # where the output is not float64
MOST_CHAINS, FEWEST_COPIES = 256, 4  # of a widened map; with fewer copies of a sample it is not worth it
CROWDED = 4.0  # arithmetic of a widened run, in units of what its calls cost by themselves
POWERS = 1000  # of two, by which a row may be brought to size
WORTH = 3e-3  # seconds of counted work in one run from which on single precision saves more than it takes


def row_norms(flat: Tensor) -> Tensor:
    """Euclidean norm of every row; rows whose squares would be lost are brought to size by powers of two first."""
    norms = torch.linalg.vector_norm(flat, dim=1)
    if not flat.numel() or bool(((norms > SQUARED[0]) & (norms < SQUARED[1])).all()):
        return norms
    top = flat.detach().abs().amax(1)
    power = torch.where(top.isfinite(), torch.frexp(top).exponent, 0).clamp(-POWERS, POWERS)
    scale = torch.ldexp(torch.ones_like(top), -power)
    return torch.linalg.vector_norm(flat * scale[:, None], dim=1) / scale


def unit_rows(flat: Tensor) -> Tensor:
    """Every row divided by its norm; a zero or diverged row becomes zero."""
    return (flat / row_norms(flat)[:, None]).nan_to_num(0.0, 0.0, 0.0)  # entries over an infinite norm are 0 already


def check_samples(x: Tensor, samples: int) -> None:
    """Refuse a batch that cannot be read as ``samples`` float64 samples along axis 0.

    Raises:
        InputError: saying what was expected.
    """
    if x.dtype != torch.float64:
        raise InputError(f"x: expected a float64 tensor, got {x.dtype}; cast the model and the batch first")
    if samples < 1 or x.numel() == 0 or (samples > 1 and (x.ndim == 0 or x.shape[0] % samples)):
        raise InputError(f"x: expected {samples} (at least 1) samples along axis 0, got shape {tuple(x.shape)}")


class SampleMap:
    """``function`` seen as rows to rows: (samples, inputs) to (samples, outputs), both flattened.

    Attributes:
        samples: number of samples; 1 when the output cannot be split into as many parts as asked for.
        start: the given points, (samples, inputs).
        outputs: numbers in one sample's output.
        rounding: relative error granted to a product.
        eps: the relative step between two numbers of the precision the function answers in.
        reach: most that a finite difference may step away from a point.
        calls: how often ``function`` ran.
        work: what one run consists of; known once it ran.
    """

    def __init__(
        self,
        function: Function,
        x: Tensor,
        samples: int,
        output_axis: int = 0,
        reach: float = float("inf"),
        output: Tensor | None = None,
    ) -> None:
        check_samples(x, samples)
        self._function, self._shape, self._axis = function, x.shape, output_axis
        self.reach, self.calls, self.work = reach, 0, Work()
        if output is None:
            with torch.no_grad():
                output = self._call(x.detach().clone())
        axis_fits = -output.ndim <= output_axis < output.ndim
        splits = samples == 1 or (axis_fits and output.shape[output_axis] % samples == 0)
        self.samples = samples if splits else 1
        self.start = x.detach().reshape(self.samples, -1)
        self.outputs = output.numel() // self.samples
        self.rounding = ROUNDING if output.dtype == torch.float64 else ROUNDING_LOW
        self.eps = torch.finfo(output.dtype).eps

    @contextmanager
    def scouted(self, quick: Quick | None) -> Iterator[SampleMap]:
        """Inside, the same map in single precision, where it has one and a run is long enough to be worth it.

        What is found with it says where to look, and never how steep it is there.
        """
        if quick is None or self.work.seconds < WORTH:
            yield self
            return
        with quick() as function:
            scout = copy.copy(self)
            scout._function, scout.calls = lambda x: function(x.to(torch.float32)), 0
            scout.rounding, scout.eps = ROUNDING_LOW, torch.finfo(torch.float32).eps
            yield scout
            self.calls += scout.calls

    @property
    def curved(self) -> bool:
        """Whether the Jacobian changes at the start by more than kinks: the network has second derivatives."""
        plain = copy.copy(self)
        plain.work = replace(self.work, kinks=0)
        ones = torch.ones(self.samples, self.outputs, dtype=torch.float64, device=self.start.device)
        _, slope = plain.at(self.start).climb(ones)
        self.calls += 1
        return slope is not None and bool((slope != 0).any())

    def widened(self) -> SampleMap:
        """The same map with every sample several times, row k a copy of sample k modulo ``samples``.

        For piecewise linear networks so small that a run costs hardly more with many samples than with few. The map
        itself where it is not one, or where a copy's output depends on the other copies.
        """
        room = CROWDED * CALL * self.work.calls / max(self.work.arithmetic, TINY)
        copies = int(min(room, MOST_CHAINS / self.samples))
        whole = self.samples == 1 and self._shape[:1] != (1,)  # a batch that is one point has no axis for copies
        if not self.work.kinks or copies < FEWEST_COPIES or whole or self.curved:
            return self
        wide = copy.copy(self)
        wide._shape = torch.Size((self._shape[0] * copies, *self._shape[1:]))
        wide.samples, wide.start = self.samples * copies, self.start.repeat(copies, 1)
        wide.work, wide.calls = Work(), 0
        return wide if wide._apart(self.values(self.start).repeat(copies, 1)) else self

    def _apart(self, known: Tensor) -> bool:
        """Whether the rows give ``known`` at the start, and some of them still do when the others move."""
        still = torch.arange(self.samples, device=known.device) % 2 == 0
        try:
            here = self.values(self.start)
            moved = self.values(torch.where(still[:, None], self.start, 2 * self.start + 1))
        except Exception:  # a program that is made for one size of batch
            return False
        return tensors_alike(here, known) and tensors_alike(moved[still], known[still])

    def values(self, points: Tensor) -> Tensor:
        """The outputs at ``points``, without a graph."""
        with torch.no_grad():
            return self._rows(self._call(points.reshape(self._shape).clone()))

    def at(self, points: Tensor, *, once: bool = False) -> Linearization:
        """The map's Jacobians at ``points``, (samples, inputs); ``once`` where only Jᵀu is asked of them."""
        return Linearization(self, points, once)

    def steps(self, points: Tensor) -> Tensor:
        """Length of a finite-difference step from each point."""
        size = row_norms(points)
        return torch.where(size > 0, size * DIFFERENCE, DIFFERENCE).clamp(max=self.reach)

    def graph(self, leaf: Tensor, once: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Outputs (samples, outputs) that depend on ``leaf`` (samples, inputs), and what its kinks were given."""
        kinked = TwiceKinked() if self.work.kinks and not once else None
        # A copy, since the network may begin with an in-place operation, which a leaf does not allow.
        with TwiceConvolved() if self.work.convolutions and not once else nullcontext(), kinked or nullcontext():
            return self._rows(self._call(leaf.reshape(self._shape).clone())), kinked.inputs if kinked else []

    def _call(self, x: Tensor) -> Tensor:
        self.calls += 1
        # The fused attention kernels have no second derivative, which the product J v needs.
        with sdpa_kernel(SDPBackend.MATH):
            if self.work.calls:
                output = self._function(x)
            else:
                output, self.work = counted(self._function, x)
        if not isinstance(output, Tensor):
            raise InputError(f"function: expected it to return a tensor, got {type(output).__name__}")
        return output

    def _rows(self, output: Tensor) -> Tensor:
        if self.samples > 1:
            output = output.movedim(self._axis, 0)
        return output.reshape(self.samples, -1).to(torch.float64)


class Linearization:
    """The Jacobians J of a `SampleMap` at one point of every sample.

    Jᵀu is one backward pass. J v is the derivative of the linear map u ↦ Jᵀu, a backward pass through the backward
    pass; where the network does not support that, a difference quotient. Gradients are taken in the input only.

    Source: J. Townsend, "A new trick for calculating Jacobian vector products", 2017.
    """

    def __init__(self, network: SampleMap, points: Tensor, once: bool = False) -> None:
        self._network = network
        self.outputs, self.rounding, self.eps = network.outputs, network.rounding, network.eps
        self._leaf = points.detach().requires_grad_(True)
        with torch.enable_grad():
            self._output, self._kinked = network.graph(self._leaf, once)
        self._finite = self._output.detach().isfinite().all(1, keepdim=True)
        self._transposed: tuple[Tensor, Tensor] | None = None
        self._differentiable_twice = True

    @property
    def value(self) -> Tensor:
        """The outputs at the points, (samples, outputs)."""
        return self._output.detach()

    @property
    def tracked(self) -> bool:
        """Whether autograd followed the network at all; it does not through torch.no_grad."""
        return self._output.requires_grad

    def pull(self, left: Tensor) -> Tensor:
        """Jᵀu for the rows u of ``left``; NaN where the output diverged, whatever its derivative claims."""
        if not self._output.requires_grad:
            return torch.zeros_like(self._leaf.detach())
        height = _paired(self._output, left)
        (pulled,) = torch.autograd.grad(height, self._leaf, retain_graph=True, allow_unused=True)
        pulled = torch.zeros_like(self._leaf.detach()) if pulled is None else pulled
        return torch.where(self._finite, pulled, torch.nan)

    def push(self, right: Tensor) -> Tensor:
        """J v for the rows v of ``right``: a direction to follow, never the number that is reported."""
        if self._differentiable_twice:
            try:
                return self._push_exactly(right)
            except RuntimeError:
                self._differentiable_twice = False
        points = self._leaf.detach()
        step = self._network.steps(points)[:, None]
        return (self._network.values(points + step * right) - self._output.detach()) / step

    def _push_exactly(self, right: Tensor) -> Tensor:
        if self._transposed is None:
            seed = torch.zeros_like(self._output, requires_grad=True)
            with torch.enable_grad():
                (pulled,) = torch.autograd.grad(_paired(self._output, seed), self._leaf, create_graph=True)
            self._transposed = seed, pulled
        seed, pulled = self._transposed
        (pushed,) = torch.autograd.grad(_paired(pulled, right), seed, retain_graph=True)
        return pushed

    @property
    def units(self) -> Tensor | None:
        """What the units with kinks are given, (samples, units); None where there are none."""
        samples = len(self._leaf)
        with torch.enable_grad():
            layers = [z.reshape(samples, -1).to(torch.float64) for z in self._kinked if z.numel() % samples == 0]
            return torch.cat(layers, 1) if layers else None

    def crossings(self, units: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """What the ``chosen`` ones of `units`, (samples, k), are given, and its gradients, (samples, k, inputs)."""
        with torch.enable_grad():
            given = units.gather(1, chosen)
            sums = [given[:, k].sum() for k in range(chosen.shape[1])]
        slopes = [torch.autograd.grad(one, self._leaf, retain_graph=True)[0] for one in sums]
        return given.detach(), torch.stack(slopes, 1)

    def climb(self, left: Tensor) -> tuple[Tensor, Tensor | None]:
        """Jᵀu and the gradient of log‖J(x)ᵀu‖ in x; None where there is none, as in a piecewise linear network."""
        if self._output.requires_grad:
            try:
                with torch.enable_grad():
                    (pulled,) = torch.autograd.grad(_paired(self._output, left), self._leaf, create_graph=True)
                    height = row_norms(pulled).clamp(min=TINY).log().sum()
                (slope,) = torch.autograd.grad(height, self._leaf, allow_unused=True)
                return torch.where(self._finite, pulled.detach(), torch.nan), slope
            except RuntimeError:
                pass
        return self.pull(left), None


def _paired(output: Tensor, weights: Tensor) -> Tensor:
    # A scalar, since autograd loads sympy (3 s) when it is given weights for a tensor.
    with torch.enable_grad():
        return (output * weights).sum()
