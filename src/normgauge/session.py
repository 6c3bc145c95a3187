"""A traced model, read in one scope after another."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from normgauge.balance import Balanced, balanced_bound, folded_bound
from normgauge.compose import Composition, compose, mixed, samples_of
from normgauge.core.bound import Evidence, Scope
from normgauge.core.reading import Finding, Reading, Witness
from normgauge.core.refute import ROOM, ROUNDING, judged, without_bound
from normgauge.core.spelled import LN10
from normgauge.errors import InputError, UnknownOpError
from normgauge.pictures import picture
from normgauge.probe.screen import focused_search
from normgauge.probe.search import Found, search
from normgauge.records import (
    findings,
    layer_records,
    loss_constants,
    own_gains,
    proof,
    published,
    rule_texts,
    sample_table,
)
from normgauge.replay import in_precision, replay
from normgauge.rules import REGISTRY, Registry
from normgauge.rules.embedding import embedding_facts
from normgauge.rules.expand import expansion_of
from normgauge.rules.flow import INF, Context, Normal, SamplesMixed
from normgauge.rules.recognise import recognise
from normgauge.stretch import Walk, reached, slacks, steepest_direction
from normgauge.trace import Trace, record
from normgauge.trace.again import Own, alike, checked, runs
from normgauge.trace.inputs import Call, mapped, named_tensors, pick_output, pretty
from normgauge.trace.step import Step
from normgauge.trace.untouched import cast_tree

Progress = Callable[[str, float], None]
PICTURES = 8  # most sensitive samples shown
LOST_DIGITS = 1e7  # what a step that cancels may make of the last digit; more is a slope


class Findings(NamedTuple):
    """What has no bound: nothing is known of it, it provably has none, or none was found."""

    unknown: tuple[Finding, ...]
    unbounded: tuple[Finding, ...]
    no_bound: tuple[Finding, ...]


class Asked(TypedDict, total=False):
    """The options of `gauge` and `readings`.

    Attributes:
        mode: ``eval`` (default) or ``train``, which measures the map of the whole batch.
        strict: raise `UnknownOpError` when an operation has no rule.
        balance: minimise the bound over the gauges (default); False stops at the folded bound.
        search: look for steep slopes beyond the samples (default); False takes the Jacobians at the samples only.
        width: relative width asked of the norms of linear maps, 1e-3 by default.
        input: name of the measured input, where there are several.
        output: name of the measured output, where there are several.
        rules: a registry, such as ``REGISTRY.extended({MyLayer: my_rule})``.
        progress: called with a stage and the fraction of it done.
        pictures: keep small pictures of the most sensitive samples where the input is images (default).
    """

    mode: str
    strict: bool
    balance: bool
    search: bool
    width: float
    input: str | None
    output: str | None
    rules: Registry | None
    progress: Progress | None
    pictures: bool


@dataclass(slots=True)
class Options:
    """`Asked` with its defaults, and the CPU seconds of each part."""

    mode: str = "eval"
    strict: bool = False
    balance: bool = True
    search: bool = True
    width: float = 1e-3
    input: str | None = None
    output: str | None = None
    rules: Registry = REGISTRY
    progress: Progress | None = None
    pictures: bool = True
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Asked) -> Options:
        """Defaults filled in.

        Raises:
            InputError: for an option that does not exist or a mode that is none.
        """
        known = {field.name for field in dataclasses.fields(cls)} - {"seconds"}
        strange = sorted(set(asked) - known)
        if strange:
            raise InputError(f"gauge has no option {', '.join(strange)}; it has {', '.join(sorted(known))}")
        chosen = cls(**{k: v for k, v in asked.items() if v is not None})  # type: ignore[arg-type]
        if chosen.mode not in ("eval", "train"):
            raise InputError(f"mode: expected eval or train, got {chosen.mode!r}")
        return chosen

    def stored(self) -> dict[str, Any]:
        """What a stored reading keeps, so that it can be measured again."""
        return {name: getattr(self, name) for name in ("input", "output", "balance", "search", "width")}

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
    found: dict[float, Found] = field(default_factory=dict)
    walks: dict[int, tuple[Trace, ...]] = field(default_factory=dict)

    def read(self, scope: Scope) -> Reading:
        """Compose, balance and probe in one scope.

        Raises:
            UnknownOpError: when asked to be strict and operations have no rule.
        """
        options = self.options
        options.seconds = {"trace": options.seconds["trace"]}
        with options.timed("rules"):
            parts = self.composed(scope)
            self.everywhere(parts)  # kept for the proof
        without = self.findings(parts)
        if options.strict and without.unknown:
            raise UnknownOpError([(f.name, f.why) for f in without.unknown])
        with options.timed("balance"):
            folded, best = self.bounds(parts)
        with options.timed("lower"):
            found = self.sober(self.lower(scope, parts), parts, best)
        return self.reading(parts, folded, best, found, without)

    @property
    def samples(self) -> int:
        """How many samples the measured tensor holds."""
        return samples_of(self.trace)

    def composed(self, scope: Scope) -> Composition:
        """The composition, sample by sample where samples do not interact."""
        alone = scope.kind == "global" or self.together or self.samples == 1
        counts = [1] if alone else [self.samples, 1]
        while True:
            count = counts.pop(0)
            ctx = Context(scope, count, self.options.width, self.cache, self.options.mode == "train", self.native)
            try:
                parts = compose(self.trace, self.options.rules, ctx, self.options.progress)
                if count > 1:
                    self.check_apart(parts)
                return parts
            except SamplesMixed:  # measured as one point, nothing can be mixed
                self.together = True

    def check_apart(self, parts: Composition) -> None:
        """Move half of the samples, then the other half: what was not moved must stay as it was at every step.

        Raises:
            SamplesMixed: when it does not, whatever the rules say.
        """
        key = ("apart", *(flow.axis for flow in parts.flows.values()))
        if key not in self.cache:
            self.cache[key] = self.mixing(parts)
        if self.cache[key] is not None:
            raise SamplesMixed(f"{self.cache[key].name} lets samples influence each other")

    @torch.no_grad()
    def mixing(self, parts: Composition) -> Step | None:
        """The first step at which a sample moves although only others were moved, or that cannot be asked."""
        if any(step.trouble for step in self.trace.steps):  # nothing will be known anyway
            return None
        x, generator = self.trace.sources[0].tensor, torch.Generator().manual_seed(0)
        half = torch.randperm(self.samples, generator=generator) < (self.samples + 1) // 2
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
        far = x + noise * x.square().mean().sqrt().clamp_min(1.0)
        state = torch.get_rng_state()
        try:
            with warnings.catch_warnings():  # seen when the model was traced
                warnings.simplefilter("ignore")
                for moved in (half, ~half):
                    chosen = moved.to(x.device).reshape(-1, *[1] * (x.ndim - 1))
                    found = mixed(parts, runs(self.trace, torch.where(chosen, far, x)), moved)
                    if found is not None:
                        return found
        except (RuntimeError, IndexError, ValueError, TypeError):  # steps that refuse another input
            return self.trace.steps[0]
        finally:
            torch.set_rng_state(state)
        return None

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
        """The largest slope found in the scope; without a search, the Jacobians at the samples."""
        radius = scope.radius if self.options.search else 0.0
        if radius not in self.found:
            with warnings.catch_warnings():  # the model's own warnings were seen when it was traced
                warnings.simplefilter("ignore")
                self.found[radius] = self.searched(radius, parts)
        return self.found[radius]

    def sober(self, found: Found, parts: Composition, best: Balanced) -> Found:
        """Slopes above their bound cut down to it where the rounding of the values on the way can explain them.

        The output may be off by η = Σ ε‖h‖·(bound from h to the output), or by what moves of a few ε show where a
        step loses its digits inside; two outputs, a way ``run`` apart, by 2η.
        """
        upper = best.log_upper if len(best.log_upper) == len(found.log_lower) else best.log_upper.max().reshape(1)
        above = found.log_lower > upper + ROUNDING
        if found.lengths is None or not bool(above.any()):
            return found
        run = found.lengths[0]
        rise = run * found.log_lower.clamp_max(700.0).exp() - 2 * max(self.rounding(parts), self.noise())
        if bool((above & (rise > run * (upper + ROUNDING).clamp_max(700.0).exp())).any()):
            return found
        lower = torch.where(above, upper, found.log_lower)
        least = float(lower.max())
        return dataclasses.replace(found, log_lower=lower, log_best=least, lengths=(run, run * math.exp(least)))

    def rounding(self, parts: Composition) -> float:
        """Bound on what the rounding of every value does to the output, to first order."""
        onward = parts.to_output()
        total = 0.0
        for step in self.trace.steps:
            for out in step.outputs:
                if out.index in onward and out.tensor.is_floating_point():
                    size = float(torch.linalg.vector_norm(out.tensor.detach().double()))
                    total += (
                        torch.finfo(out.tensor.dtype).eps * size * math.exp(min(float(onward[out.index].max()), 700.0))
                    )
        return total

    def noise(self) -> float:
        """What moves of a few ε do to the output, four times over; 0 where that is more than lost digits explain."""
        source = self.trace.sources[0].tensor.detach()
        if not source.is_floating_point():
            return 0.0
        function, eps = self.function(), torch.finfo(source.dtype).eps
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            here = function(source.clone())
            shakes = [torch.randn(source.shape, generator=generator).to(source) * (8 * eps) for _ in range(4)]
            moved = max(float(torch.linalg.vector_norm(function(source * (1 + shake)) - here)) for shake in shakes)
        values = [source, *(out.tensor.detach() for step in self.trace.steps for out in step.outputs)]
        widest = max(float(torch.linalg.vector_norm(v.double())) for v in values if v.is_floating_point())
        return 4 * moved if moved <= LOST_DIGITS * eps * widest else 0.0

    def searched(self, radius: float, parts: Composition) -> Found:
        """`search` with what is known of the model: which samples stand alone, and where they lie in the output."""
        source, function = self.trace.sources[0].tensor, self.function()
        assert self.trace.output is not None
        if parts.ctx.samples < self.samples and not self.together:
            parts = self.composed(Scope.parse("point"))  # a global bound does not notice samples that interact
        together = self.together or self.options.mode == "train"
        if source.dtype != torch.float64:
            source, function = source.double(), in_precision(function, source.dtype)
        only = len(list(named_tensors((self.call.args, self.call.kwargs)))) == 1 and not self.trace.embeddings
        look = focused_search if only and not together and self.samples > 1 and self.alone() else search
        samples = 1 if together else self.samples
        axis = parts.flows[self.trace.output.index].axis
        try:
            return look(function, source, samples, radius, output_axis=axis, progress=self.options.progress)
        except (RuntimeError, TypeError, ValueError, AttributeError, InputError) as error:
            # autograd refuses networks that overwrite what it needs or leave torch
            nothing = torch.full((samples,), -INF, dtype=torch.float64)
            return Found(nothing, -INF, f"none: {str(error).partition(chr(10))[0]}", 0, 0)

    def alone(self) -> bool:
        """Whether a sample by itself gives what it gives in its batch."""
        if "alone" not in self.cache:
            source, output = self.trace.sources[0].tensor, self.trace.output
            assert output is not None
            try:
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    first = self.function()(source[:1].clone())
                axis = self.composed(Scope.parse("point")).flows[output.index].axis
                share = output.tensor.shape[axis] // self.samples
                self.cache["alone"] = alike(first, output.tensor.narrow(axis, 0, share))
            except Exception:  # a model that needs the whole batch
                self.cache["alone"] = False
        return bool(self.cache["alone"])

    def followed(self, best: Balanced, found: Found) -> Walk:
        """What each step made of the steepest direction at the most sensitive sample, and its share of the gap."""
        if self.together or self.trace.embeddings or len(found.log_lower) != self.samples:
            return Walk()
        if self.samples > 1 and not self.alone():
            return Walk()
        worst = int(found.log_lower.argmax())
        if worst not in self.walks:
            self.walks[worst] = self.walk(worst)
        if not self.walks[worst]:
            return Walk()
        here, there = self.walks[worst]
        return Walk(slacks(best, self.trace, here, there), reached(here, there))

    def walk(self, sample: int) -> tuple[Trace, ...]:
        """The model at a sample and a little further in its steepest direction; nothing where that fails."""
        x = self.trace.sources[0].tensor
        x = x if self.samples == 1 else x[sample : sample + 1]
        reach = min(1e-6 * float(x.norm() + 1), ROOM)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                direction = steepest_direction(self.function(), x, reach)
            traces = tuple(map(self.retrace, (x, x + reach * direction)))
        except Exception:  # a model that needs the whole batch, and says so in its own way: no attribution
            return ()
        return traces if all(self.alike(trace) for trace in traces) else ()

    def alike(self, one: Trace) -> bool:
        """Whether a trace of one sample has the measured steps, each with its share of the batch's entries."""
        samples = self.samples
        pairs = list(zip(one.steps, self.trace.steps, strict=False))
        return len(one.steps) == len(self.trace.steps) and all(
            a.outputs[0].tensor.numel() * samples == b.outputs[0].tensor.numel() for a, b in pairs
        )

    def retrace(self, x: Tensor) -> Trace:
        """The steps of the same call with another measured tensor."""
        return recognised(self.recorded(x), self.options)

    def recorded(self, x: Tensor) -> Trace:
        """The same as the tape has it, with nothing recognised."""
        args, kwargs = mapped(
            lambda leaf: x if leaf is self.call.measured else leaf, (self.call.args, self.call.kwargs)
        )
        self.trace.rewind()
        return record_call(self.model, args, kwargs, x, self.options, self.native, self.trace.native is not None)

    def function(self) -> Callable[[Tensor], Tensor]:
        """The measured map from the measured tensor (or the embedding's output) to the measured output."""
        return replay(self.model, self.call, self.trace, self.options.output)

    def findings(self, parts: Composition) -> Findings:
        """What has no bound in the scope, step by step and for the path the data took."""
        unknown, unbounded, no_bound = findings(parts)
        if self.trace.path_dependent and parts.ctx.scope.kind == "global":
            where = "; ".join(self.trace.reads)
            no_bound.append(
                Finding(
                    type(self.model).__name__,
                    f"the path depends on the data, and not every input takes the one that was traced ({where})",
                )
            )
        return Findings(tuple(unknown), tuple(unbounded), tuple(no_bound))

    def reading(self, parts: Composition, folded: Balanced, best: Balanced, found: Found, without: Findings) -> Reading:
        """Turn everything into plain numbers, and hold the bound against the slopes found."""
        scope = parts.ctx.scope
        assert self.trace.output is not None
        notes = [*self.call.notes, *self.trace.notes]
        notes += self.embedding_notes()
        if self.trace.draws and self.options.mode == "train":
            notes.append("random numbers were drawn in the forward: the bound holds for the ones drawn in this run")
        if self.together and self.samples > 1:
            notes.append("samples of the batch influence each other: the whole batch is measured as one point")
        if not self.exact:
            notes.append(
                f"measured as it runs, in {self.native}: a copy in float64 does not run or computes something else, so "
                "numbers off the weights are estimates"
            )
        if found.log_best == -INF and found.witness.startswith("none"):
            notes.append(f"lower bound {found.witness}")
        if self.trace.path_dependent and scope.kind == "global" and best.total < INF:
            notes.append(f"along the path the data took the bound is 10^{best.total / LN10:.4g}")
        displacement = None
        if scope.kind == "ball":
            reached = float(parts.flows[self.trace.output.index].radius.max().log())
            displacement = min(reached, best.total + math.log(scope.radius))
        made = Reading(
            model=type(self.model).__name__,
            mode=self.options.mode,
            scope=scope,
            evidence=self.evidence(scope, without),
            path_dependent=self.trace.path_dependent,
            log_upper=best.total,
            log_folded=folded.total,
            log_lower=found.log_best,
            unknown=without.unknown,
            unbounded=without.unbounded,
            no_bound=without.no_bound,
            published=published(parts),
            layers=layer_records(parts, folded, best, self.followed(best, found)),
            samples=self.pictured(sample_table(best, found, scope)),
            together=self.together,
            precision=str(self.trace.sources[0].tensor.dtype).removeprefix("torch."),
            options=self.options.stored(),
            loss=loss_constants(best.total, self.trace),
            displacement=displacement,
            gauges=best.gauges,
            notes=tuple(notes),
            input_name=pretty(self.call.name),
            seconds={k: round(v, 3) for k, v in self.options.seconds.items()},
            witness=None if found.lengths is None else Witness(found.witness, *found.lengths),
            rules=rule_texts(parts),
            proof=proof(parts, folded, best, self.everywhere(parts)),
        )
        return judged(without_bound(made) if made.evidence is Evidence.UNKNOWN else made)

    def everywhere(self, parts: Composition) -> dict[int, float]:
        """Every step's own gain over all inputs; computed once."""
        if "everywhere" not in self.cache:
            whole = parts if parts.ctx.scope.kind == "global" else self.composed(Scope.parse("global"))
            self.cache["everywhere"] = own_gains(whole)
        whole_gains: dict[int, float] = self.cache["everywhere"]
        here = own_gains(parts)  # a smaller set may be cut into boxes less finely, and its bound be a little larger
        return {index: max(gain, here[index]) for index, gain in whole_gains.items()}

    def pictured(self, table: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
        """The sample table with pictures of the most sensitive ones, where the input is images and they are wanted."""
        images = self.trace.sources[0].tensor
        if not self.options.pictures or self.trace.embeddings or images.ndim != 4 or len(table) != len(images):
            return table
        worst = sorted(table, key=lambda row: -row["log10_lower"])[:PICTURES]
        if "pictures" not in self.cache:
            self.cache["pictures"] = {}
        shown = self.cache["pictures"]
        for row in worst:
            shown.setdefault(row["index"], picture(images[row["index"]]))
        chosen = {row["index"]: shown[row["index"]] for row in worst if shown[row["index"]] is not None}
        return tuple({**row, "picture": chosen[row["index"]]} if row["index"] in chosen else row for row in table)

    def embedding_notes(self) -> list[str]:
        """What the tables of a discrete input do to it, in words; computed once."""
        if "embeddings" not in self.cache:
            notes = []
            for path, _, weight in self.trace.embeddings:
                facts = embedding_facts(weight)
                apart, norm = facts["max_distance"][1], math.exp(facts["log_spectral"].hi)
                notes.append(
                    f"{pretty(self.call.name)} is discrete: measured from its embedding {path} on, "
                    f"whose rows lie at most {apart:.3g} apart; its norm on one-hot input is at most {norm:.3g}; "
                    "what else the model makes of the numbers themselves (masks, lengths) is held as in this batch"
                )
            self.cache["embeddings"] = notes
        return list(self.cache["embeddings"])

    def evidence(self, scope: Scope, without: Findings) -> Evidence:
        """The upper bound's evidence; the weakest part decides."""
        parts = [Evidence.PROVED]
        if without.unknown or without.no_bound:
            parts.append(Evidence.UNKNOWN)
        if not self.exact and scope.kind != "global":
            parts.append(Evidence.ESTIMATED)
        return Evidence.weakest(parts)


def start(
    model: nn.Module,
    call: Call,
    dtype: torch.dtype | None,
    device: torch.device | None,
    options: Options,
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
    trace = record_call(model, args, kwargs, copy.measured, options, call.native, casts)
    if trace.output is None or not trace.sources:
        raise InputError(
            f"no path leads from {pretty(call.name)} to the output: the model's output does not depend on it"
            + (
                ""
                if call.measured.is_floating_point()
                else " (an integer input is measured from its nn.Embedding on, and none was met)"
            )
        )
    exact = trace.sources[0].tensor.dtype == torch.float64
    session = Session(model, copy, trace, options, exact, call.native)
    if own is not None:
        same = own.computed_by(trace, session.function())
        if dtype is not None and not same:
            return None
        session.trace = checked(trace, session.function(), session.recorded)
        if not same:
            session.trace = session.trace.doubted("the model", "with gradients off it computes something else")
    session.trace = recognised(session.trace, options)
    return session


def record_call(
    model: nn.Module,
    args: Any,
    kwargs: Any,
    measured: Tensor,
    options: Options,
    native: torch.dtype,
    casts: bool = False,
) -> Trace:
    """Trace one call with the options' rules and output."""
    return record(
        model,
        args,
        kwargs,
        measured,
        lambda out: pick_output(out, options.output),
        options.rules.is_leaf,
        expansion_of,
        native,
        casts,
    )


def recognised(trace: Trace, options: Options) -> Trace:
    """The trace with formulas written out as single steps; a rule of the user's for an operation is not passed over."""
    given = any(options.rules.is_own(step.target) for step in trace.steps if step.module is None)
    return trace if given else recognise(trace)
