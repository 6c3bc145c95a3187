"""From a composition to plain numbers: the layer table, the published products, losses and samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from normgauge.core.bound import Scope
from normgauge.core.interval import LogInterval
from normgauge.core.proof import Logs, Proof, ProofStep
from normgauge.core.reading import Finding, LayerRecord, Sigma
from normgauge.core.rounding import log_above
from normgauge.core.spelled import LN10
from normgauge.instrument.balance import Balanced
from normgauge.instrument.compose import Composition, layer_names, own_gain, samples_of
from normgauge.instrument.probe.search import Found
from normgauge.instrument.rules.flow import INF, Transfer
from normgauge.instrument.rules.normalizer import NORMALIZING
from normgauge.instrument.spectral.dense import to_double
from normgauge.instrument.stretch import SteepestWalk
from normgauge.instrument.trace.step import Step, Trace

# constants of the losses in the network's output for one sample, ℓ2, sums over outputs; n is the number of outputs
LOSSES = {
    "cross_entropy": lambda n: math.sqrt(2),
    "softmax_l1": lambda n: math.sqrt(2) / 2,
    "l1_sum": lambda n: math.sqrt(n),
    "huber_sum_delta_1": lambda n: math.sqrt(n),
    "bce_with_logits_sum": lambda n: math.sqrt(n),
    "bce_with_logits_mean": lambda n: 1 / math.sqrt(n),
}
SINGLE = ("cross_entropy", "softmax_l1")  # of one softmax a sample
NO_REASON = "its rule gave no finite gain here, and no reason"


def loss_constants(log_upper: float, trace: Trace) -> dict[str, float]:
    """Decimal logs of the constants of usual losses in the input: L_f times the network's own."""
    shape = trace.end.tensor.shape
    own = shape[1:] if trace.sources[0].tensor.ndim > 1 else shape
    several = sum(size > 1 for size in own) > 1  # a softmax at each of several places, whose losses add up
    return {
        name: (log_upper + math.log(constant(math.prod(own)))) / LN10
        for name, constant in LOSSES.items()
        if not (several and name in SINGLE)
    }


def sample_table(bounds: Tensor, found: Found, scope: Scope) -> tuple[Mapping[str, Any], ...]:
    """Return one row for each sample, with its lower bound and, where there is one, its own upper bound."""
    uppers = bounds.tolist() if len(bounds) == len(found.log_lower) and scope.kind != "global" else None
    return tuple(
        {"index": i, "log10_lower": low / LN10, "log10_upper": None if uppers is None else uppers[i] / LN10}
        for i, low in enumerate(found.log_lower.tolist())
    )


def layer_records(
    parts: Composition, folded: Balanced, best: Balanced, walk: SteepestWalk, reaching: Mapping[int, float]
) -> tuple[LayerRecord, ...]:
    """Return one record for each step that is shown, in the order of execution; ``reaching`` as of `told_parts`."""
    to_output = parts.to_output()
    names = layer_names(parts)
    records = []
    for step in parts.trace.steps:
        if step.index not in names:
            continue
        out = step.outputs[0]
        transfer = parts.transfers[out.index]
        rule = parts.rules[step.index]
        reach = to_output.get(out.index)
        records.append(
            LayerRecord(
                name=names[step.index],
                kind=step.kind,
                rule=rule.id if rule is not None else "none",
                claim=rule.claim if rule is not None else None,
                gain=own_gain(transfer),
                depth=step.index,
                log_gain_reaching=reaching.get(step.index),
                log_folded=_largest_gain(folded, step),
                log_balanced=_largest_gain(best, step),
                log_cumulative=float(parts.flows[out.index].slope.max()),
                log_reached=walk.reached.get(step.index),
                log_to_output=None if reach is None else float(reach.max()),
                log_weight_lipschitz=weight_lipschitz(parts, step, transfer, reach),
                log_spectral=transfer.spectral,
                log_frobenius=weight_frobenius(transfer.weight),
                log_slack=walk.slack.get(step.index),
                sigma=None if transfer.sigma is None else {k: float(transfer.sigma[k]) for k in Sigma.__annotations__},
                note=transfer.unknown or transfer.unbounded or transfer.no_bound or transfer.note,
                worked=transfer.worked,
            )
        )
    return tuple(records)


def rule_texts(parts: Composition) -> dict[str, dict[str, str]]:
    """Formula, validity and source of every rule used, by its id."""
    used = {rule.id: rule for rule in parts.rules.values() if rule is not None}
    return {
        name: {"formula": rule.formula, "holds": rule.holds, "source": rule.source}
        for name, rule in sorted(used.items())
    }


def proof(parts: Composition, folded: Balanced, best: Balanced, everywhere: Mapping[int, float]) -> Proof:
    """The composition as plain numbers: every gain that entered the two totals, and what ties them to the scope.

    Args:
        parts: the composition.
        folded: the folded bound.
        best: the balanced bound.
        everywhere: `own_gains` of the same steps over all inputs.
    """
    names = layer_names(parts)
    steps = tuple(
        ProofStep(
            layer=names.get(step.index, ""),
            output=out.index,
            inputs=tuple(value.index for value in step.inputs),
            disjoint=parts.transfers[out.index].disjoint,
            folded=tuple(_logs(folded.table[(out.index, k)]) for k in range(len(step.inputs))),
            balanced=tuple(_logs(best.table[(out.index, k)]) for k in range(len(step.inputs))),
            radius=_radius(parts, out.index),
            everywhere=everywhere[out.index],
        )
        for step in parts.trace.steps
        for out in step.outputs
    )
    sources = tuple(source.index for source in parts.trace.sources)
    radii = tuple(_radius(parts, source) for source in sources)
    return Proof(parts.ctx.samples, sources, parts.trace.end.index, steps, radii=radii)


def _radius(parts: Composition, index: int) -> float:
    """log of how far a value moves in the scope, the largest over the samples."""
    return float(parts.flows[index].radius.max().log())


def _logs(table: Tensor) -> Logs:
    """Return one number where all samples share it, else one for each sample."""
    logs = [float(log) for log in table.reshape(-1)]
    return logs[0] if len(set(logs)) == 1 else tuple(logs)


def _largest_gain(bound: Balanced, step: Step) -> float | None:
    values = [
        bound.gains[(out.index, k)]
        for out in step.outputs
        for k in range(len(step.inputs))
        if (out.index, k) in bound.gains
    ]
    return max(values, default=None)


def weight_frobenius(weight: Tensor | None) -> float | None:
    """Return log ‖W‖_F; None without a weight."""
    if weight is None:
        return None
    value = float(torch.linalg.vector_norm(to_double(weight)))
    return math.log(value) if value > 0 else -INF


def weight_lipschitz(parts: Composition, step: Step, transfer: Transfer, reach: Tensor | None) -> float | None:
    """log of the slope of W ↦ output at the W there is, for one sample: ‖h_{i−1}‖ times the constant from there on.

    Both over the scope. It is no constant over all W: behind a LayerNorm c·W has 1/c times the slope, ε aside.

    For several rows a sample (tokens, pixels) the spectral norm of the matrix of rows takes the place of ‖h‖; it is at
    most the Frobenius norm, which is what is used. For a convolution ‖unfold(h)‖ ≤ √windows·‖h‖ (`input_gain`).
    """
    if transfer.weight is None or reach is None or len(step.inputs) != 1:
        return None
    flow = parts.flows[step.inputs[0].index]
    rows = parts.ctx.rows(step.inputs[0].tensor, flow.axis)
    centre = torch.linalg.vector_norm(rows.reshape(rows.shape[0], -1), dim=1).cpu()
    size = torch.minimum(centre + flow.radius, flow.norm * math.sqrt(rows.shape[1]))
    if parts.ctx.scope.kind == "global":
        size = flow.norm * math.sqrt(max(rows.shape[1] // samples_of(parts.trace), 1))
    value = float((size.log() + transfer.input_gain + reach).max())
    return INF if math.isnan(value) else log_above(value)


def published_table(parts: Composition, everywhere: Mapping[int, float]) -> dict[str, Any]:
    """The papers' gauge-dependent products, decimal logs; not bounds to rely on.

    None where the network's normalizers are not those that a statement is about. What a statement asks for over all
    inputs is there twice: as printed, and with what the normalizers do in the scope.

    Args:
        parts: the composition.
        everywhere: `own_gains` of the same steps over all inputs.
    """
    steps = [(step, parts.transfers[step.outputs[0].index]) for step in parts.trace.steps]
    weights = [t for _, t in steps if t.weight is not None and isinstance(t.spectral, LogInterval)]
    norms = [(t, t.sigma) for _, t in steps if t.sigma is not None]
    widest = [everywhere[step.outputs[0].index] for step, t in steps if t.sigma is not None]
    log_pw = sum_logs(t.spectral.hi for t in weights)
    reduced = {k: -sum_logs(math.log(s[k]) for _, s in norms if s[k] > 0) for k in ("min", "rms", "max")}
    whole = not any(t.sigma is None and _normalizes(parts, step) for step, t in steps)  # the σ of all are known
    facts = {
        key: [s[key] for _, s in norms] for key in ("log_l2", "log_inverse_l2", "log_inverse", "log_sum", "log_count")
    }
    told = {key: logs if whole and norms and None not in logs else None for key, logs in facts.items()}
    floors = [-math.log(s["eps"]) / 2 if s["eps"] > 0 else INF for _, s in norms]
    counted = told["log_count"] and [log + floor for log, floor in zip(told["log_count"], floors, strict=True)]
    largest = told["log_inverse_l2"] and [len(norms) * max(told["log_inverse_l2"])]
    table = {
        "log10_P_w": log_pw,
        "log10_P_w_frobenius": sum_logs(weight_frobenius(t.weight) or 0.0 for t in weights),
        "log10_prod_l2": _product(0.0, told["log_l2"]),
        "log10_theorem9": _product(log_pw, [own_gain(t).hi for t, _ in norms] if whole else None),
        "log10_theorem9_published": _product(log_pw, widest if whole else None),
        "log10_corollary10_1": _product(log_pw, told["log_l2"]),
        "log10_corollary10_2": _product(log_pw, largest),
        "log10_corollary11": _product(log_pw, told["log_inverse"]),
        "log10_corollary11_published": _product(log_pw, told["log_inverse"] and floors),
        "log10_lemma3_sum": _product(log_pw, told["log_sum"]),
        "log10_lemma3_published": _product(log_pw, counted),
    }
    return {
        **{k: None if v is None else v / LN10 for k, v in table.items()},
        "log10_prod_inv_sigma": {k: v / LN10 for k, v in reduced.items()},
    }


def _normalizes(parts: Composition, step: Step) -> bool:
    rule = parts.rules[step.index]
    return rule is not None and rule.id.startswith(NORMALIZING)


def _product(log: float, factors: list[Any] | None) -> float | None:
    """A product in logs; None without its factors."""
    return None if factors is None else sum_logs([log, *factors])


def sum_logs(logs: Iterable[float]) -> float:
    """Return the sum of logs; +inf wins over −inf."""
    terms = list(logs)
    return INF if INF in terms else -INF if -INF in terms else math.fsum(terms)


def findings(parts: Composition) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """The steps without a bound: nothing is known of them, they provably have none, or none was found.

    Behind a step of which nothing is proved, an infinite gain may be its echo and is not listed.
    """
    unknown, unbounded, no_bound = dict[str, Finding](), dict[str, Finding](), dict[str, Finding]()
    behind, infinite = set[int](), set[int]()
    for step in parts.trace.steps:
        echo = any(value.index in behind for value in step.inputs)
        for out in step.outputs:
            if out is not parts.trace.output and out.index not in parts.trace.consumers:
                continue  # the indices beside a maximum, which nothing reads
            transfer = parts.transfers[out.index]
            endless = any(bool((g.log == INF).any()) for g in transfer.gains)
            silent = endless and not transfer.unbounded and not any(value.index in infinite for value in step.inputs)
            why = transfer.no_bound or (NO_REASON if silent else "")
            if transfer.unknown:
                unknown.setdefault(step.name, Finding(step.name, transfer.unknown))
            elif not echo and endless and transfer.unbounded:
                unbounded.setdefault(step.name, Finding(step.name, transfer.unbounded))
            elif not echo and endless and why:
                no_bound.setdefault(step.name, Finding(step.name, why))
            if transfer.unknown or echo or (endless and not transfer.unbounded):
                behind.add(out.index)
            if endless or any(value.index in infinite for value in step.inputs):
                infinite.add(out.index)
    return list(unknown.values()), list(unbounded.values()), list(no_bound.values())
