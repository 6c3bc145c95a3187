"""`gauge`: trace, ask the rules, compose, balance, probe; the whole pipeline on one screen."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from normgauge.balance import Balanced, balanced_bound, folded_bound
from normgauge.compose import Composition, compose
from normgauge.core.bound import Evidence, Scope
from normgauge.core.reading import Finding, Reading
from normgauge.errors import InputError, UnknownOpError
from normgauge.probe.screen import focused_search
from normgauge.probe.search import Found, search
from normgauge.records import layer_records, loss_constants, published, sample_table
from normgauge.rules import REGISTRY, Registry
from normgauge.rules.expand import expansion_of
from normgauge.rules.flow import INF, Context, Normal, SamplesMixed
from normgauge.rules.recognise import recognise
from normgauge.stretch import slacks, steepest_direction
from normgauge.trace import Trace, record, untouched, unwrap
from normgauge.trace.inputs import Call, check_finite, check_place, make_call, named_tensors, pick_output, pretty
from normgauge.trace.step import function_name
from normgauge.trace.untouched import cast_tree

Progress = Callable[[str, float], None]


@dataclass(slots=True)
class Options:
    """What the caller asked for; see `gauge`."""

    mode: str = "eval"
    strict: bool = False
    balance: bool = True
    search: bool = True
    width: float = 1e-3
    input: str | None = None
    output: str | None = None
    rules: Registry = REGISTRY
    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the CPU time of the body to ``seconds[part]`` and announce the part."""
        if self.progress is not None:
            self.progress(part, 0.0)
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - start


def gauge(model: nn.Module, batch: Any, *, scope: str | Scope = "global", **options: Any) -> Reading:
    """Measure the Lipschitz capacity of ``model`` around ``batch``.

    The model is untouched: mode, buffers, gradients, hooks and random state are as before, also after an error.

    Args:
        model: any network; compiled and distributed wrappers are taken off.
        batch: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
        scope: ``global``, ``point`` or ``ball:RADIUS``.
        **options: mode ("eval" or "train"), strict, balance, search, width, input, output, rules, progress.

    Returns:
        One reading in the scope asked for.
    """
    return readings(model, batch, (scope,), **options)[0]


def readings(
    model: nn.Module, batch: Any, scopes: Sequence[str | Scope] = ("point", "ball:0.1", "global"), **options: Any
) -> list[Reading]:
    """Measure in several scopes with one trace.

    Raises:
        InputError: for a model, batch or option that cannot be measured.
        UnknownOpError: with ``strict=True``, when operations have no rule.
    """
    if options.get("rules") is None:
        options.pop("rules", None)
    try:
        chosen = Options(**options)
    except TypeError as error:
        raise InputError(f"gauge: {error}") from None
    if chosen.mode not in ("eval", "train"):
        raise InputError(f"mode: expected eval or train, got {chosen.mode!r}")
    wanted = [Scope.parse(s) for s in scopes]
    model = unwrap(model)
    call = make_call(model, batch, chosen.input)
    check_place(model, call)
    check_finite(model, call)
    session, failure = None, None
    for dtype, device in precisions(call.measured):
        with untouched(model, dtype, device, chosen.mode == "train"), sdpa_kernel(SDPBackend.MATH):
            try:
                with chosen.timed("trace"):
                    session = start(model, call, dtype, device, chosen)
            except (
                RuntimeError,
                TypeError,
                ValueError,
                IndexError,
                KeyError,
                AttributeError,
                NotImplementedError,
            ) as error:
                failure = error
                continue
            return nested_lowers([session.read(scope) for scope in wanted])
    raise InputError(f"the model's forward raised {type(failure).__name__}: {failure}") from failure


def nested_lowers(results: list[Reading]) -> list[Reading]:
    """A slope found in a small scope was found in every larger one too."""
    return [
        dataclasses.replace(r, log_lower=max(o.log_lower for o in results if o.scope.radius <= r.scope.radius))
        for r in results
    ]


def precisions(measured: Tensor) -> list[tuple[torch.dtype, torch.device]]:
    """float64 on the input's device where it has it, else on the CPU; failing that, the model's own precision."""
    device = measured.device if measured.device.type in ("cpu", "cuda", "xpu") else torch.device("cpu")
    own = measured.dtype if measured.is_floating_point() else torch.float32
    return [(torch.float64, device)] if own == torch.float64 else [(torch.float64, device), (own, measured.device)]


@dataclass(slots=True)
class Session:
    """A traced model, ready to be read in any scope."""

    model: nn.Module
    call: Call
    trace: Trace
    options: Options
    exact: bool
    native: torch.dtype
    cache: dict[Any, Any] = field(default_factory=dict)
    together: bool = False

    def read(self, scope: Scope) -> Reading:
        """Compose, balance and probe in one scope.

        Raises:
            UnknownOpError: when asked to be strict and operations have no rule.
        """
        options = self.options
        options.seconds = {"trace": options.seconds["trace"]}
        with options.timed("rules"):
            parts = self.composed(scope)
        unknown, unbounded = findings(parts)
        if options.strict and unknown:
            raise UnknownOpError([(f.name, f.why) for f in unknown])
        with options.timed("balance"):
            folded, best = self.bounds(parts)
        with options.timed("lower"):
            found = self.lower(scope, parts)
        return self.reading(parts, folded, best, found, unknown, unbounded)

    def composed(self, scope: Scope) -> Composition:
        """The composition, sample by sample where samples do not interact."""
        samples = self.trace.sources[0].tensor.shape[0]
        alone = scope.kind == "global" or self.together or samples == 1
        counts = [1] if alone else [samples, 1]
        while True:
            count = counts.pop(0)
            ctx = Context(scope, count, self.options.width, self.cache, self.options.mode == "train", self.native)
            try:
                return compose(self.trace, self.options.rules, ctx, self.options.progress)
            except SamplesMixed:  # measured as one point, nothing can be mixed
                self.together = True

    def bounds(self, parts: Composition) -> tuple[Balanced, Balanced]:
        """The folded and the balanced bound; scopes in which every gain is the same share them."""
        gains = [g for step in parts.trace.steps for out in step.outputs for g in parts.transfers[out.index].gains]
        even = all(bool((g.log == g.log[0]).all()) and not isinstance(g.form, Normal) for g in gains)
        key = ("bounds", self.options.balance, *(float(g.log[0]) for g in gains)) if even else None
        if key is None or key not in self.cache:
            folded = folded_bound(parts)
            pair = folded, balanced_bound(parts, folded) if self.options.balance else folded
            if key is None:
                return pair
            self.cache[key] = pair
        folded, best = (
            dataclasses.replace(b, log_upper=b.log_upper[:1].expand(parts.ctx.samples)) for b in self.cache[key]
        )
        return folded, best

    def lower(self, scope: Scope, parts: Composition) -> Found:
        """The largest slope found in the scope."""
        source = self.trace.sources[0].tensor
        assert self.trace.output is not None
        axis = parts.flows[self.trace.output.index].axis
        radius = {"global": INF, "point": 0.0}.get(scope.kind, scope.radius)
        if scope.kind == "global" and source.shape[0] > 1 and not self.together:
            self.composed(Scope.parse("point"))  # the global bound does not notice samples that interact
        together = self.together or self.options.mode == "train"
        function = self.function()
        if source.dtype != torch.float64:
            source, function = source.double(), in_precision(function, source.dtype)
        alone = len(list(named_tensors((self.call.args, self.call.kwargs)))) == 1 and not self.trace.embeddings
        samples = 1 if together else source.shape[0]
        try:
            with warnings.catch_warnings():  # the model's own warnings were seen when it was traced
                warnings.simplefilter("ignore")
                return (focused_search if alone and not together else search)(
                    function,
                    source,
                    samples,
                    radius,
                    budget_seconds=2.0 if self.options.search else 0.0,
                    output_axis=axis,
                    progress=self.options.progress,
                )
        except (RuntimeError, TypeError, ValueError, AttributeError, InputError) as error:
            # autograd refuses networks that overwrite what it needs or leave torch
            nothing = torch.full((samples,), -INF, dtype=torch.float64)
            return Found(nothing, -INF, f"none: {str(error).partition(chr(10))[0]}", 0, 0)

    def slack(self, best: Balanced, found: Found) -> dict[int, float]:
        """Each step's share of the gap, along the steepest direction at the most sensitive sample."""
        if self.together or self.trace.embeddings or len(found.log_lower) != self.trace.sources[0].tensor.shape[0]:
            return {}
        worst = int(found.log_lower.argmax())
        x = self.trace.sources[0].tensor[worst : worst + 1]
        reach = 1e-6 * float(x.norm() + 1)
        try:
            direction = steepest_direction(self.function(), x, reach)
            here, there = (self.retrace(x + t * direction) for t in (0.0, reach))
        except (RuntimeError, ValueError, TypeError):  # a model that needs the whole batch: no attribution
            return {}
        if not len(here.steps) == len(there.steps) == len(self.trace.steps):
            return {}
        return slacks(best, self.trace, here, there)

    def retrace(self, x: Tensor) -> Trace:
        """The steps of the same call with another measured tensor."""
        args, kwargs = tree_map(
            lambda leaf: x if leaf is self.call.measured else leaf, (self.call.args, self.call.kwargs)
        )
        return record_call(self.model, args, kwargs, x, self.options)

    def function(self) -> Callable[[Tensor], Tensor]:
        """The measured map from the measured tensor (or the embedding's output) to the measured output."""
        return replay(self.model, self.call, self.trace, self.options.output)

    def reading(
        self,
        parts: Composition,
        folded: Balanced,
        best: Balanced,
        found: Found,
        unknown: list[Finding],
        unbounded: list[Finding],
    ) -> Reading:
        """Turn everything into plain numbers."""
        scope = parts.ctx.scope
        assert self.trace.output is not None
        notes = [*self.call.notes, *self.trace.notes]
        if self.together and parts.trace.sources[0].tensor.shape[0] > 1:
            notes.append("samples of the batch influence each other: the whole batch is measured as one point")
        if not self.exact:
            notes.append(
                f"the model does not run in float64; traced in {self.native}, so numbers off the weights are estimates"
            )
        if found.log_best == -INF and found.witness.startswith("none"):
            notes.append(f"lower bound {found.witness}")
        flow = parts.flows[self.trace.output.index]
        return Reading(
            model=type(self.model).__name__,
            mode=self.options.mode,
            scope=scope,
            evidence=self.evidence(scope, unknown),
            log_upper=best.total,
            log_folded=folded.total,
            log_lower=found.log_best,
            unknown=tuple(unknown),
            unbounded=tuple(unbounded),
            published=published(parts),
            layers=layer_records(parts, folded, best, self.slack(best, found)),
            samples=sample_table(best, found, scope),
            loss=loss_constants(best.total, self.trace.output.tensor.shape),
            displacement=float(flow.radius.max().log()) if scope.kind == "ball" else None,
            gauges=best.gauges,
            notes=tuple(notes),
            input_name=pretty(self.call.name),
            seconds={k: round(v, 3) for k, v in self.options.seconds.items()},
        )

    def evidence(self, scope: Scope, unknown: list[Finding]) -> Evidence:
        """The upper bound's evidence; the weakest part decides."""
        parts = [Evidence.PROVED]
        if unknown:
            parts.append(Evidence.UNKNOWN)
        if (not self.exact and scope.kind != "global") or (self.trace.branches and scope.kind != "point"):
            parts.append(Evidence.ESTIMATED)
        return Evidence.weakest(parts)


def start(model: nn.Module, call: Call, dtype: torch.dtype, device: torch.device, options: Options) -> Session:
    """Trace the model on copies of its tensors.

    Raises:
        InputError: when no path leads from the measured input to the output.
    """
    native = (
        call.measured.dtype
        if call.measured.is_floating_point()
        else next((p.dtype for p in model.parameters()), torch.float32)
    )
    args, kwargs = cast_tree((call.args, call.kwargs), dtype, device)
    copy = Call(args, kwargs, call.name, call.notes)
    trace = record_call(model, args, kwargs, copy.measured, options)
    if trace.output is None or not trace.sources:
        raise InputError(
            f"no path leads from {pretty(call.name)} to the output: the model's output does not depend on it"
            + (
                ""
                if call.measured.is_floating_point()
                else " (an integer input is measured from its nn.Embedding on, and none was met)"
            )
        )
    return Session(model, copy, trace, options, dtype == torch.float64, native)


def record_call(model: nn.Module, args: Any, kwargs: Any, measured: Tensor, options: Options) -> Trace:
    """Trace one call with the options' rules and output."""
    return recognise(
        record(
            model,
            args,
            kwargs,
            measured,
            lambda out: pick_output(out, options.output),
            options.rules.is_leaf,
            expansion_of,
        )
    )


class Substitute(TorchFunctionMode):
    """Puts a tensor in the place of the result of one embedding lookup."""

    def __init__(self, tensor: Tensor, which: int) -> None:
        super().__init__()
        self.tensor, self.which, self.count = tensor, which, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function_name(func) == "embedding":
            self.count += 1
            if self.count == self.which:
                return self.tensor
        return func(*args, **(kwargs or {}))


def replay(model: nn.Module, call: Call, trace: Trace, output: str | None) -> Callable[[Tensor], Tensor]:
    """The model as a function of the measured tensor alone, or of its first embedding for an integer input."""
    measured = call.measured

    def run(x: Tensor) -> Tensor:
        if not trace.embeddings:
            args, kwargs = tree_map(lambda leaf: x if leaf is measured else leaf, (call.args, call.kwargs))
            return pick_output(model(*args, **kwargs), output)[0]  # type: ignore[return-value]
        with Substitute(x, trace.embeddings[0][1]):
            return pick_output(model(*call.args, **call.kwargs), output)[0]  # type: ignore[return-value]

    return run


def in_precision(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A function of float64 tensors that works in ``dtype``."""
    return lambda x: function(x.to(dtype))


def findings(parts: Composition) -> tuple[list[Finding], list[Finding]]:
    """The steps without a bound: those without a rule, and those that provably have none."""
    unknown: dict[str, Finding] = {}
    unbounded: dict[str, Finding] = {}
    for step in parts.trace.steps:
        for out in step.outputs:
            transfer = parts.transfers[out.index]
            if transfer.unknown:
                unknown.setdefault(step.name, Finding(step.name, transfer.unknown))
            elif transfer.unbounded and any(bool((g.log == INF).any()) for g in transfer.gains):
                unbounded.setdefault(step.name, Finding(step.name, transfer.unbounded))
    return list(unknown.values()), list(unbounded.values())


__all__ = ["Options", "Session", "gauge", "named_tensors", "readings"]
