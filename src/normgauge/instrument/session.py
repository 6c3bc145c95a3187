"""A traced model, ready to be read in any scope, and the way there: trace on copies, check, recognise formulas."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.core.bound import Scope
from normgauge.core.errors import InputError, NormgaugeError
from normgauge.core.rounding import size_up
from normgauge.instrument.balance import Balanced, WeightedRadii, both_bounds, folded_bound
from normgauge.instrument.balance.narrowing import Norms
from normgauge.instrument.compose import Composition, compose, mixing_step, own_gains, samples_of
from normgauge.instrument.replay import replay_model
from normgauge.instrument.rules import REGISTRY, Registry
from normgauge.instrument.rules.expand import expansion_of
from normgauge.instrument.rules.flow import CHANCES, Context, NormalizerMap, SamplesMixed
from normgauge.instrument.rules.recognise import recognise
from normgauge.instrument.rules.tried import with_stored
from normgauge.instrument.trace import Trace, record_trace, untouched, unwrap
from normgauge.instrument.trace.again import Own, as_it_runs, checked_trace, remembering, replayed_steps
from normgauge.instrument.trace.batch_size import size_matters
from normgauge.instrument.trace.decoder import decoder_cure
from normgauge.instrument.trace.inputs import (
    Call,
    argument_name,
    check_finite,
    check_place,
    make_call,
    map_tensors,
    pick_output,
    unfit_names,
)
from normgauge.instrument.trace.lent import lends
from normgauge.instrument.trace.place import is_out_of_memory, knows_float64, seconds_on, set_torch_random, torch_random
from normgauge.instrument.trace.precision import default_eps
from normgauge.instrument.trace.step import Step
from normgauge.instrument.trace.untouched import cast_tree

Progress = Callable[[str, float], None]
CPU = torch.device("cpu")
T = TypeVar("T")
EFFORTS = ("quick", "default", "long")


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is measured; `gauge` explains each option.

    ``multipliers`` are given, by the radius of the scope and by sample, where a stored bound is to be proved again:
    then none are looked for. So are ``channel_weights``, by the radius, for the balanced bound; those of the points
    measure the radii in balls too.

    Raises:
        InputError: for a mode that is neither eval nor train.
    """

    mode: str = "eval"
    strict: bool = False
    balance: bool = True
    search: bool = True
    width: float = 1e-3
    input: str | None = None
    output: str | None = None
    rules: Registry | None = None
    progress: Progress | None = None
    pictures: bool = True
    effort: str = "default"
    multipliers: Mapping[float, Mapping[int, tuple[float, ...]]] = field(default_factory=dict)
    channel_weights: Mapping[float, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in ("eval", "train"):
            raise InputError(f"mode: expected eval or train, got {self.mode!r}")
        if self.effort not in EFFORTS:
            raise InputError(f"effort: expected {', '.join(EFFORTS)}, got {self.effort!r}")

    @property
    def registry(self) -> Registry:
        """The registry in use: the user's, or the library's own."""
        return REGISTRY if self.rules is None else self.rules

    def stored(self) -> dict[str, Any]:
        """Return the options that a stored reading keeps, so that it can be measured again."""
        return {name: getattr(self, name) for name in ("input", "output", "balance", "search", "width", "effort")}


@dataclass(slots=True)
class Clock:
    """Counts the seconds of each part of a measurement, on the clock of the model's device, and reports which runs."""

    progress: Progress | None
    device: torch.device = CPU
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the body to ``seconds[part]`` and announce the part."""
        if self.progress is not None:
            self.progress(part, 0.0)
        start = seconds_on(self.device)
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds_on(self.device) - start

    def restart(self) -> None:
        """Forget all parts but the trace, before another reading of the same trace."""
        self.seconds = {"trace": self.seconds["trace"]}


@dataclass(slots=True)
class Session:
    """A traced model, ready to be read in any scope.

    Attributes:
        model: with its copied tensors in place.
        call: the arguments, copied likewise.
        trace: checked, with formulas recognised.
        options: how to measure.
        clock: what each part takes.
        native: the precision the model itself runs in.
        cache: what rules and `once` keep from one scope to the next.
        together: the samples influence each other: the batch is one point.
    """

    model: nn.Module
    call: Call
    trace: Trace
    options: Options
    clock: Clock
    native: torch.dtype
    cache: dict[Any, Any] = field(default_factory=dict)
    together: bool = False

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned the first time it was called for this key."""
        if key not in self.cache:
            self.cache[key] = make()
        found: T = self.cache[key]
        return found

    @property
    def exact(self) -> bool:
        """Whether the model was traced in float64."""
        return self.trace.sources[0].tensor.dtype == torch.float64

    @property
    def failure_probability(self) -> float:
        """Of all proofs with a random start that were accepted until now: their sum."""
        return min(1.0, size_up(math.fsum(self.cache.get(CHANCES, ()))))

    @property
    def samples(self) -> int:
        """How many samples the measured tensor holds."""
        return samples_of(self.trace)

    def composed(self, scope: Scope) -> Composition:
        """Return the composition in a scope, made once, with one entry a sample where samples do not interact."""
        # a session of a shorter trace shares this cache; the trace is kept, so that no other one has its identity
        key = ("composed", scope, self.together, id(self.trace))
        return self.once(key, lambda: (self.trace, self._composed(scope)))[1]

    def _composed(self, scope: Scope) -> Composition:
        alone = scope.kind == "global" or self.together or self.samples == 1
        counts = [1] if alone else [self.samples, 1]
        while True:
            count = counts.pop(0)
            ctx = Context(scope, count, self.options.width, self.cache, self.options.mode == "train", self.native)
            try:
                parts = compose(self.trace, self.options.registry, ctx, self.options.progress)
                if count > 1:
                    self.check_apart(parts)
                return self._narrowed(parts) if scope.kind == "ball" else parts
            except SamplesMixed:  # measured as one point, nothing can be mixed
                self.together = True

    def _narrowed(self, parts: Composition) -> Composition:
        """The composition of a ball with radii that do not depend on the gauge, where a gain rests on a radius."""
        point = self.composed(Scope.parse("point"))
        pairs = ((t.gains, point.transfers[index].gains) for index, t in parts.transfers.items())
        if all(torch.equal(a.log, b.log) for here, there in pairs for a, b in zip(here, there, strict=True)):
            return parts
        theta = self.bounds(point)[1].theta
        norms: Norms = self.once(("weighted norms", id(self.trace)), dict)
        radii = WeightedRadii(parts, theta, norms)
        found = compose(self.trace, self.options.registry, parts.ctx, self.options.progress, radii)
        return dataclasses.replace(found, radius_weights=theta)

    def check_apart(self, parts: Composition) -> None:
        """Check that samples do not interact: move half of them, and the others must stay the same at every step.

        Raises:
            SamplesMixed: when one changes, whatever the rules say.
        """
        axes = tuple(flow.axis for flow in parts.flows.values())
        step = self.once(("apart", axes), lambda: self.mixing(parts))
        if step is not None:
            raise SamplesMixed(f"{step.name} lets samples influence each other")

    @torch.no_grad()
    def mixing(self, parts: Composition) -> Step | None:
        """Return the first step at which a sample changes though only others were moved, or which cannot run again."""
        if any(step.trouble for step in self.trace.steps):  # nothing will be known anyway
            return None
        x, generator = self.trace.measured, torch.Generator().manual_seed(0)
        half = torch.randperm(self.samples, generator=generator) < (self.samples + 1) // 2
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
        far = x + noise * x.square().mean().sqrt().clamp_min(1.0)
        state = torch_random()
        try:
            with warnings.catch_warnings():  # seen when the model was traced
                warnings.simplefilter("ignore")
                for moved in (half, ~half):
                    chosen = moved.to(x.device).reshape(-1, *[1] * (x.ndim - 1))
                    found = mixing_step(parts, replayed_steps(self.trace, torch.where(chosen, far, x)), moved)
                    if found is not None:
                        return found
        except (RuntimeError, IndexError, ValueError, TypeError):  # steps that refuse another input
            return self.trace.steps[0]
        finally:
            set_torch_random(state)
        return None

    def bounds(self, parts: Composition) -> tuple[Balanced, Balanced]:
        """Return the folded and the balanced bound, found once; scopes with equal gains share them."""
        return self.once(("bounds", id(parts)), lambda: (parts, self._bounds(parts)))[1]

    def _bounds(self, parts: Composition) -> tuple[Balanced, Balanced]:
        logs = self.options.channel_weights.get(parts.ctx.scope.radius)
        given = None if logs is None else torch.tensor(logs, dtype=torch.float64)

        def both() -> tuple[Balanced, Balanced]:
            if self.options.balance:
                return both_bounds(parts, given)
            folded = folded_bound(parts)
            return folded, folded

        gains = [g for step in parts.trace.steps for out in step.outputs for g in parts.transfers[out.index].gains]
        if not all(bool((g.log == g.log[0]).all()) and not isinstance(g.form, NormalizerMap) for g in gains):
            return both()
        shared = self.once(("bounds", logs, *(float(g.log[0]) for g in gains)), both)
        folded, best = (dataclasses.replace(b, log_upper=b.log_upper[:1].expand(parts.ctx.samples)) for b in shared)
        return folded, best

    def everywhere(self, parts: Composition) -> dict[int, float]:
        """Return the gain of every step over all inputs, by the index of its output."""

        def whole() -> dict[int, float]:
            return own_gains(parts if parts.ctx.scope.kind == "global" else self.composed(Scope.parse("global")))

        here = own_gains(parts)  # a smaller set may be cut into boxes less finely, and its bound be a little larger
        return {index: max(gain, here[index]) for index, gain in self.once("everywhere", whole).items()}

    def retrace(self, x: Tensor, only: int | None = None) -> Trace:
        """Trace the same call with another measured tensor, and recognise its formulas; ``only`` as for `recorded`."""
        return recognised_trace(self.recorded(x, only), self.options, self.model)

    def recorded(self, x: Tensor, only: int | None = None) -> Trace:
        """Trace the same call with another measured tensor, and leave the steps as the tape wrote them.

        With ``only``, the other inputs of as many rows as there are samples are cut to the row of this sample.
        """
        x = x.detach().clone()  # a program may write to what it is given, and the caller's tensor is not its own
        args, kwargs = self._called(x, only)
        self.trace.rewind()
        return trace_call(self.model, args, kwargs, x, self.options, self.native, self.trace.native is not None)

    def _called(self, x: Tensor, only: int | None) -> Any:
        """The arguments of the call with another measured tensor, as `recorded` explains it."""

        def given(leaf: Tensor) -> Tensor:
            if leaf is measured:
                return x
            beside = only is not None and leaf.ndim > 0 and len(leaf) == self.samples
            return leaf[only : (only or 0) + 1] if beside else leaf

        measured = self.call.measured
        return map_tensors(given, (self.call.args, self.call.kwargs))

    @property
    def size_notes(self) -> tuple[str, ...]:
        """That the output of a sample depends on how many there are, in words, where that is seen."""
        trace = self.trace
        if not self.once(("sized", id(trace)), lambda: (trace, size_matters(trace, self._at, self.call.measured)))[1]:
            return ()
        n = len(self.call.measured)
        return (
            f"a sample alone has another output than in a batch of {n}: all numbers hold for batches of {n} samples",
        )

    def _at(self, x: Tensor, cut: bool) -> Tensor:
        """The output at other samples, of an integer input too; with ``cut`` others are those of the first."""
        args, kwargs = self._called(x, 0 if cut else None)
        call = dataclasses.replace(self.call, args=args, kwargs=kwargs)
        trace = dataclasses.replace(self.trace, embeddings=(), consumers={})
        return replay_model(self.model, call, trace, self.options.output)(x)

    def function(self) -> Callable[[Tensor], Tensor]:
        """Return the model as a function from the measured tensor (or its embeddings) to the measured output."""
        return replay_model(self.model, self.call, self.trace, self.options.output)

    @contextmanager
    def single_function(self) -> Iterator[Callable[[Tensor], Tensor]]:
        """Inside, the model runs in float32 copies of what it holds; yields it as a function like `function`."""
        with untouched(self.model, torch.float32, None, self.options.mode == "train", None):
            args, kwargs = cast_tree((self.call.args, self.call.kwargs), torch.float32, None)
            call = dataclasses.replace(self.call, args=args, kwargs=kwargs)
            trace = dataclasses.replace(self.trace, native=None, consumers={})
            yield replay_model(self.model, call, trace, self.options.output)


@contextmanager
def opened(model: nn.Module, batch: Any, options: Options | None = None) -> Iterator[Session]:
    """Open a model: inside, it holds copies of its tensors, and its checked trace is ready to be read.

    Raises:
        InputError: for a model or batch that cannot be measured.
        NormgaugeError: for another mistake that was found on the way.
    """
    options = options or Options()
    model = unwrap(model)
    call = make_call(model, batch, options.input)
    clock, train = Clock(options.progress, call.measured.device), options.mode == "train"
    check_place(model, call)
    check_finite(model, call)
    with sdpa_kernel(SDPBackend.MATH), no_fast_path(), plain_recurrence(model):
        failure: Exception | None = None
        try:
            with clock.timed("trace"):
                own = as_it_runs(
                    model,
                    call,
                    train,
                    options.output,
                    lends(model),
                    lambda args, kwargs, x: trace_call(model, args, kwargs, x, options, call.native),
                )
        except NormgaugeError:
            raise
        except (Exception, SystemExit) as error:
            cure = decoder_cure(model, call.args, call.kwargs, str(error))
            said = f"the model's forward raised {type(error).__name__}: {error}"
            raise InputError(cure or said + unfit_names(model, call)) from error
        for dtype, device, casts, lend in precisions(call, own, lends(model)):
            with untouched(model, dtype, device, train, call.native if own.eps else None, lend):
                try:
                    with clock.timed("trace"):
                        session = start(model, call, dtype, device, options, clock, casts, own)
                except NormgaugeError:
                    raise
                except Exception as error:  # a forward may raise anything
                    failure = error
                    continue
                if session is not None:  # else the copy is not the model: it looks at its precision in some other way
                    yield session
                    return
    if is_out_of_memory(failure):
        raise InputError(
            f"the model runs, but {call.measured.device} has too little memory left to measure it; give a smaller "
            "batch, a part of the model, or move it to a larger device"
        ) from failure
    raise InputError(
        f"the model runs, but not while it is recorded ({type(failure).__name__}: {failure}); measure a part of it"
    ) from failure


@contextmanager
def no_fast_path() -> Iterator[None]:
    """Inside, torch's fast path for encoders is off, since it returns zeros at padded positions."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def plain_recurrence(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, recurrent layers run by torch's own kernels: those of cuDNN have no derivative in eval mode."""
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    return torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext()


def precisions(
    call: Call, own: Own, large: bool = False
) -> list[tuple[torch.dtype | None, torch.device | None, bool, bool]]:
    """List the precisions and devices to try: float64 copies where the model lives first, then as it runs itself.

    A device without float64 leaves them to main memory.

    The third part says whether the run must imitate the casts of the program (`Widened`), the fourth whether its
    weights are lent: those of a ``large`` model are, and copied only where its program does not run with lent ones.
    """
    place = None if knows_float64(call.measured.device) else CPU
    known = own.eps <= {default_eps(call.native)}  # an RMSNorm in another precision than the model's has its own ε
    minded = ([True] if own.casts else [False, True]) if known else []
    lent = [True, False] if large and place is None else [False]
    return [*((torch.float64, place, casts, lend) for lend in lent for casts in minded), (None, None, False, False)]


def start(
    model: nn.Module,
    call: Call,
    dtype: torch.dtype | None,
    device: torch.device | None,
    options: Options,
    clock: Clock | None = None,
    casts: bool = False,
    own: Own | None = None,
) -> Session | None:
    """Trace the model on copies of its tensors.

    With ``own``, what the model gave by itself, the trace is checked (`trace.again`): the steps run again, and nothing
    is returned where the copy does not compute what the model does.

    Raises:
        InputError: when no path leads from the measured input to the output.
    """
    args, kwargs = cast_tree((call.args, call.kwargs), dtype, device)
    copy = dataclasses.replace(call, args=args, kwargs=kwargs)
    trace = trace_call(model, args, kwargs, copy.measured, options, call.native, casts)
    if trace.output is None or not trace.sources:
        raise InputError(
            f"no path leads from {argument_name(call.name)} to the output: the model's output does not depend on it"
            + (
                ""
                if call.measured.is_floating_point()
                else " (an integer input is measured from its nn.Embedding on, and none was met)"
            )
        )
    session = Session(model, copy, trace, options, clock or Clock(None), call.native)
    if own is not None:
        function = remembering(session.function())
        same = own.computed_by(trace, function)
        if dtype is not None and not same:
            return None
        session.trace = checked_trace(trace, function, session.recorded, own.other)
        if own.narrowest is not None:
            note = f"a cast to {own.narrowest} on the way is taken as exact: its rounding is no part of any bound"
            session.trace = dataclasses.replace(session.trace, notes=(*session.trace.notes, note))
        if own.trouble:
            session.trace = session.trace.doubted("the model", own.trouble)
        if not same:
            session.trace = session.trace.doubted("the model", "with gradients off it computes something else")
    session.trace = recognised_trace(session.trace, options, model)
    return session


def trace_call(
    model: nn.Module,
    args: Any,
    kwargs: Any,
    measured: Tensor,
    options: Options,
    native: torch.dtype,
    casts: bool = False,
) -> Trace:
    """Trace one call with the options' rules and output."""
    return record_trace(
        model,
        args,
        kwargs,
        measured,
        lambda out: pick_output(out, options.output),
        options.registry.is_leaf,
        expansion_of,
        native,
        casts,
    )


def recognised_trace(trace: Trace, options: Options, model: nn.Module) -> Trace:
    """Return the trace with known formulas as single steps; unchanged where the user gave rules for operations."""
    given = any(options.registry.is_own(step.target) for step in trace.steps if step.module is None)
    return trace if given else recognise(with_stored(trace, model))
