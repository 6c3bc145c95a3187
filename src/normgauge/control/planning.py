"""The formula of the folded bound read off a traced model: what folds into what, and where slopes add."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from normgauge.control.bounded_norms import BoundedNorm
from normgauge.control.channel_scales import NORMALIZERS, LiveNormalizer
from normgauge.control.live_weights import live_weight
from normgauge.control.plan import Arm, Join, MapTerm, Plan, RowTerm, ScaleTerm, SpreadTerm, Term
from normgauge.core.rounding import log_root
from normgauge.instrument.compose import Composition
from normgauge.instrument.rules.attention import arrange
from normgauge.instrument.rules.flow import Commute, Diagonal, Kernel, Matrix, Move
from normgauge.instrument.rules.normalizer import PASSING, making_map, of_step, reading_steps
from normgauge.instrument.rules.shape import rerun_step
from normgauge.instrument.trace.step import Step, Value, tensors_in

ATTENTION = "scaled_dot_product_attention"
SHIFTS = ("add", "sub")  # in the names of steps whose own tensors do not change a slope


class Carried(NamedTuple):
    """Normalizers whose scales are still to be taken up, and the axis they lie on."""

    axis: int
    norms: list[LiveNormalizer]


def make_plan(model: nn.Module, parts: Composition) -> Plan:
    """Return the formula of a composition's folded bound, over the tensors of ``model``, which was traced."""
    return _Planner(model, parts).plan()


class _Planner:
    """One walk over the steps of a trace."""

    def __init__(self, model: nn.Module, parts: Composition) -> None:
        self.model, self.parts, self.trace = model, parts, parts.trace
        self.everywhere = parts.ctx.scope.kind == "global"
        self.terms: list[Term] = []
        self.uncontrolled: list[str] = []
        self.norms: dict[str, LiveNormalizer] = {}
        self.maps: dict[int, MapTerm] = {}  # by step index
        self.chains: dict[int, Arm] = {}  # by value index: how it is reached from a join or a source
        self.carried: dict[int, Carried] = {}  # by value index: scales that a map behind will take up
        self.own = {p.data_ptr() for p in model.parameters()}
        self.constants: dict[tuple[str, int], float] = {}

    def plan(self) -> Plan:
        """Walk, and keep only joins: chains between them are summed up."""
        for step in self.trace.steps:
            self._map_of(step)
        joins: list[Join] = []
        for source in self.trace.sources:
            self.chains[source.index] = Arm(source.index, 0.0, ())
        for step in self.trace.steps:
            for out in step.outputs:
                arms = tuple(self._arms(step, out))
                if len(arms) == 1:
                    self.chains[out.index] = arms[0]
                    continue
                joins.append(Join(out.index, arms, self.parts.transfers[out.index].disjoint))
                self.chains[out.index] = Arm(out.index, 0.0, ())
        end = self.trace.end.index
        joins.append(Join(-1, (self.chains[end],)))
        self._link()
        paths = {id(module): path for path, module in self.model.named_modules()}
        places = {
            f"{index} {term.name}": (paths.get(id(term.weight.module)), *term.weight.part)
            for index, term in self.maps.items()
        }
        sources = tuple(s.index for s in self.trace.sources)
        return Plan(self.terms, joins, sources, self.uncontrolled, self.constants, places, self.trace.reads)

    def _map_of(self, step: Step) -> None:
        """Make the term of a step that is a linear map with a weight of the model's."""
        gains = self.parts.transfers[step.outputs[0].index].gains
        form = gains[0].form if len(gains) == 1 else None
        if not isinstance(form, Matrix | Kernel):
            return
        weight = live_weight(self.model, step, form.weight)
        if weight is None:
            self.uncontrolled.append(f"{step.name}: its weight is no parameter of the model")
            return
        if weight.frozen:
            self.uncontrolled.append(f"{step.name}: its weight is frozen, and counts as it is")
        self.maps[step.index] = MapTerm(step.name, weight, form.spec if isinstance(form, Kernel) else None)
        self.terms.append(self.maps[step.index])

    def _arms(self, step: Step, out: Value) -> Iterator[Arm]:
        """The chains into one output, one for each input."""
        transfer = self.parts.transfers[out.index]
        if step.kind == ATTENTION and len(step.inputs) == 3:
            yield from self._attention(step, out)
            return
        own = self._own_terms(step, out) if len(transfer.gains) == 1 else None
        for place, (value, gain) in enumerate(zip(step.inputs, transfer.gains, strict=True)):
            const, terms = (float(gain.log.max()), ()) if own is None else own
            if own is None:
                self.constants[f"{step.name} ({step.kind})", out.index * len(step.inputs) + place] = const
            if math.isinf(const) and const > 0:
                why = transfer.unknown or transfer.no_bound or transfer.unbounded or "no finite bound"
                self.uncontrolled.append(f"{step.name} ({step.kind}): {why}")
                const = 0.0
            before = self.chains[value.index]
            yield Arm(before.source, before.const + const, (*before.terms, *terms))

    def _own_terms(self, step: Step, out: Value) -> tuple[float, tuple[int, ...]] | None:
        """The terms of a map or a normalizer; None for any other step, which is a constant."""
        value = step.inputs[0]
        if step.index in self.maps:
            term = self.maps[step.index]
            term.before = self.carried[value.index].norms if value.index in self.carried else []
            return 0.0, (self.terms.index(term),)
        norm = self._norm_of(step)
        if norm is None:
            if value.index in self.carried and self._passes(step, out, self.carried[value.index].axis):
                self.carried[out.index] = self.carried[value.index]
            self._name_own(step)
            return None
        found: list[Term] = []
        first = making_map(value, lambda s: s.index in self.maps)
        alone = first is not None and reading_steps(self.trace, first.outputs[0]) == [step]
        feeding = self.maps[first.index] if first is not None and alone else None
        axis = self._axis(step, norm)
        if norm.stored and feeding is not None and axis == _channels(feeding, value):
            feeding.behind = norm
        elif norm.scale() is not None:
            if axis is not None and value.index not in self.carried and self._absorbed(out, axis):
                self.carried[out.index] = Carried(axis, [norm])
            else:
                found.append(ScaleTerm(norm))
        if not norm.stored:
            norm.look(value.tensor)
            centring = norm.form.centred and norm.form.kind != "batch"  # which centres over samples, not channels
            if feeding is not None and feeding.spec is None and centring and axis == value.tensor.ndim - 1:
                feeding.centred = True
            found.append(SpreadTerm(norm, feeding))
        self.terms.extend(found)
        return 0.0, tuple(self.terms.index(term) for term in found)

    def _norm_of(self, step: Step) -> LiveNormalizer | None:
        """The live normalizer that a step is; None for none, and for one that is not a module of a known kind."""
        form = of_step(step, self.parts.ctx.dtype)
        if form is None or len(step.inputs) != 1:
            return None
        live = self.model.get_submodule(step.path)
        if not isinstance(live, (BoundedNorm, *NORMALIZERS)) or (
            step.module is None and not isinstance(live, BoundedNorm)
        ):
            self.uncontrolled.append(f"{step.name}: a normalizer whose gains are not controlled")
            return None
        return self.norms.setdefault(step.path, LiveNormalizer(step.path, live))

    def _axis(self, step: Step, norm: LiveNormalizer) -> int | None:
        """The axis that its scales lie on; None where they span several."""
        axis, ndim = norm.form.axis, step.outputs[0].tensor.ndim
        return axis % ndim if -ndim <= axis < ndim else None

    def _name_own(self, step: Step) -> None:
        """Say that a step's own parameters change its gain, which counts as it was when the model was traced."""
        given = tensors_in(tree_leaves((step.args, step.kwargs)))
        held = list(step.module.parameters()) if step.module is not None else []
        if held or (any(t.data_ptr() in self.own for t in given) and not any(w in step.kind for w in SHIFTS)):
            self.uncontrolled.append(f"{step.name} ({step.kind}): its parameters count as when the model was traced")

    def _passes(self, step: Step, out: Value, axis: int) -> bool:
        """Whether a step keeps the channels along an axis apart and at their scale."""
        if len(step.inputs) != 1:
            return False
        form, given = self.parts.transfers[out.index].gains[0].form, step.inputs[0].tensor
        if step.kind in PASSING:
            return True
        if isinstance(form, Commute):
            return given.ndim == out.tensor.ndim and axis not in {a % given.ndim for a in form.axes}
        return isinstance(form, Diagonal) and form.scale is None and given.shape == out.tensor.shape

    def _absorbed(self, value: Value, axis: int) -> bool:
        """Whether every reader of a value, perhaps behind steps that pass channels on, is a map along that axis."""
        readers = reading_steps(self.trace, value)
        if not readers or value is self.trace.end:
            return False
        for step in readers:
            if step.index in self.maps:
                if axis != _channels(self.maps[step.index], value):
                    return False
            elif not (self._passes(step, step.outputs[0], axis) and self._absorbed(step.outputs[0], axis)):
                return False
        return True

    def _attention(self, step: Step, out: Value) -> Iterator[Arm]:
        """Chains through attention: in q with s·R_v·R_k, in k with s·R_v·R_q·√queries, in v with √queries.

        At given data the rule's own gains stand for the constants: they move with the rows' lengths.
        """
        roles = [step.get(i, name) for i, name in enumerate(("query", "key", "value"))]
        rows = [self._row(role) if isinstance(role, Value) else None for role in roles]
        blocks = arrange(step)
        gains = self.parts.transfers[out.index].gains
        if isinstance(blocks, str) or any(row is None for row in rows) or len(set(step.inputs)) != 3:
            self.uncontrolled.append(f"{step.name}: queries, keys and values that are not made by linear maps")
            for place, (value, gain) in enumerate(zip(step.inputs, gains, strict=True)):
                const, before = float(gain.log.max()), self.chains[value.index]
                self.constants[f"{step.name} ({step.kind})", 3 * out.index + place] = const
                yield Arm(before.source, before.const + (const if math.isfinite(const) else 0.0), before.terms)
            return
        size, root = math.log(abs(blocks.scale)), log_root(blocks.q.shape[1])
        consts = [size, size + root, root] if self.everywhere else [float(gain.log.max()) for gain in gains]
        for role, const, others in zip(roles, consts, ((1, 2), (0, 2), ()), strict=True):
            before = self.chains[role.index]
            lengths = tuple(rows[i] for i in others)
            yield Arm(before.source, before.const + const, (*before.terms, *(r for r in lengths if r is not None)))

    def _row(self, value: Value) -> int | None:
        """The term of the longest row of queries, keys or values; None where no map makes them row by row.

        In every scope but a point, the map's input must be rows of a normalizer, whose lengths are bounded.
        """
        step = self._maker(value, lambda s: s.index in self.maps)
        if step is None:
            return None
        before = self._maker(step.inputs[0], lambda s: of_step(s, self.parts.ctx.dtype) is not None)
        norm = None if before is None else self._norm_of(before)
        if self.everywhere and (norm is None or norm.stored or norm.form.dims != (-1,)):
            return None
        self.terms.append(RowTerm(self.maps[step.index], norm))
        return len(self.terms) - 1

    def _maker(self, value: Value, wanted: Callable[[Step], bool]) -> Step | None:
        """The step that made a value's rows, behind steps that move rows, or parts of them, as a whole."""
        moves: list[Step] = []
        step, position = value.step, value.position
        while step is not None and not wanted(step) and len(step.inputs) == 1:
            form = self.parts.transfers[step.outputs[position].index].gains[0].form
            if not isinstance(form, Move) and step.kind not in PASSING:
                return None
            moves.insert(0, step)
            position = step.inputs[0].position
            step = step.inputs[0].step
        if step is None or not wanted(step):
            return None
        return step if self._keep_rows(moves, value) else None

    def _keep_rows(self, moves: list[Step], value: Value) -> bool:
        """Whether copies take every row of the result from one row: the steps are run on the rows' numbers."""
        if not moves:
            return True
        start = moves[0].inputs[0].tensor
        count = start.numel() // start.shape[-1]
        labels = torch.arange(count, dtype=torch.float64, device=start.device)
        labels = labels.reshape(*start.shape[:-1], 1).expand(start.shape).contiguous()
        for step, after in zip(moves, [*moves[1:], None], strict=True):
            results = rerun_step(step, [labels])
            position = value.position if after is None else after.inputs[0].position
            labels = results[position if len(results) > 1 else 0]
        return bool((labels == labels[..., :1]).all())

    def _link(self) -> None:
        """Find which map alone reads which, and whose scale is divided away by what follows."""
        for step in self.trace.steps:
            if step.index not in self.maps:
                continue
            term, out = self.maps[step.index], step.outputs[0]
            readers = self._map_readers(out, _channels(term, out))
            if readers and all(reader.behind is not None for reader in readers if reader is not None):
                term.renormed = None not in readers
            if len(readers) == 1 and readers[0] is not None and _plain(term) and _plain(readers[0]):
                term.next = readers[0]

    def _map_readers(self, value: Value, axis: int) -> list[MapTerm | None]:
        """The maps that read a value through steps that keep channels apart; None stands for any other reader."""
        found: list[MapTerm | None] = [None] if value is self.trace.end else []
        for step in reading_steps(self.trace, value):
            form = self.parts.transfers[step.outputs[0].index].gains[0].form
            if step.index in self.maps:
                reader = self.maps[step.index]
                found.append(reader if axis == _channels(reader, value) else None)
            elif self._passes(step, step.outputs[0], axis) or (isinstance(form, Diagonal) and self._folded(step)):
                found += self._map_readers(step.outputs[0], axis)
            else:
                found.append(None)
        return found

    def _folded(self, step: Step) -> bool:
        norm = self.norms.get(step.path)
        return norm is not None and any(m.behind is norm for m in self.maps.values())


def _channels(term: MapTerm, value: Value) -> int:
    """The axis of a map's input or output along which it mixes."""
    return value.tensor.ndim - 1 - (0 if term.spec is None else term.spec.axes)


def _plain(term: MapTerm) -> bool:
    return term.spec is None or (term.spec.groups == 1 and not term.spec.transposed)
