"""`gauge`: trace, check, ask the rules, compose, balance, probe; the whole pipeline on one screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import nn

from normgauge.core.answers import MEASURE, answered
from normgauge.core.bound import Scope
from normgauge.core.errors import UnknownOpError
from normgauge.core.interrupted import Interrupted
from normgauge.core.reading import Reading
from normgauge.core.refute import judged_reading
from normgauge.instrument.assembly import find_missing
from normgauge.instrument.fingerprint import batch_digest, digest_beside
from normgauge.instrument.known import Known
from normgauge.instrument.rules import Registry
from normgauge.instrument.session import Options, Progress, Session, opened
from normgauge.instrument.trace import unwrap
from normgauge.instrument.trace.place import is_out_of_memory


@answered(MEASURE)
def gauge(
    model: nn.Module,
    batch: Any,
    scope: str | Scope = "point",
    *,
    mode: str = "eval",
    strict: bool = False,
    balance: bool = True,
    search: bool = True,
    width: float = 1e-3,
    input: str | None = None,
    output: str | None = None,
    rules: Registry | None = None,
    progress: Progress | None = None,
    pictures: bool = True,
    effort: str = "default",
) -> Reading:
    """Measure the Lipschitz capacity of ``model`` around ``batch``.

    The model is untouched: mode, buffers, gradients, hooks and random state are as before, also after an error.

    Args:
        model: any network; compiled and distributed wrappers are taken off.
        batch: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
        scope: ``point``, the samples themselves; ``ball:RADIUS`` around each of them; ``global``, all inputs.
        mode: ``eval``, or ``train``, which measures the map of the whole batch.
        strict: raise `UnknownOpError` when an operation has no rule.
        balance: minimise the bound over the gauges; False stops at the folded bound.
        search: look for steep slopes beyond the samples; False takes the Jacobians at the samples only.
        width: relative width asked of the norms of linear maps.
        input: name of the measured input, where there are several.
        output: name of the measured output, where there are several.
        rules: a registry, such as ``REGISTRY.extended({MyLayer: my_rule})``.
        progress: called with a stage and the fraction of it done.
        pictures: keep small pictures of the most sensitive samples where the input is images.
        effort: ``quick``, ``default`` or ``long``: how much work goes into a bound below the balanced one.

    Returns:
        One reading in the scope asked for: ``upper`` is at most its slope, ``lower`` was found, ``print`` shows all.
    """
    options = Options(mode, strict, balance, search, width, input, output, rules, progress, pictures, effort)
    return measured(model, batch, (scope,), options)[0]


@answered(MEASURE)
def readings(
    model: nn.Module,
    batch: Any,
    scopes: Sequence[str | Scope] = ("point", "ball:0.1", "global"),
    *,
    mode: str = "eval",
    strict: bool = False,
    balance: bool = True,
    search: bool = True,
    width: float = 1e-3,
    input: str | None = None,
    output: str | None = None,
    rules: Registry | None = None,
    progress: Progress | None = None,
    pictures: bool = True,
    effort: str = "default",
) -> list[Reading]:
    """Measure in several scopes with one trace; everything else is as for `gauge`.

    Raises:
        InputError: for a model, batch or option that cannot be measured.
        UnknownOpError: with ``strict=True``, when operations have no rule.
    """
    options = Options(mode, strict, balance, search, width, input, output, rules, progress, pictures, effort)
    return measured(model, batch, scopes, options)


def measured(model: nn.Module, batch: Any, scopes: Sequence[str | Scope], options: Options) -> list[Reading]:
    """Return one reading for each scope, all from one trace."""
    wanted = [Scope.parse(scope) for scope in scopes]
    with digest_beside(unwrap(model)) as weights_digest:
        with opened(model, batch, options) as session:  # traced, and the trace checked
            found = nested_lowers(read_scopes(session, wanted))
            samples = batch_digest(session.call.measured)
        weights = weights_digest()
    return [dataclasses.replace(reading, weights=weights, batch=samples) for reading in found]


def read_scopes(session: Session, scopes: Sequence[Scope]) -> list[Reading]:
    """Return the reading of each scope; balls are read last, for what holds for all inputs holds in them too.

    Raises:
        Interrupted: with those that are known.
    """
    found: dict[Scope, Reading] = {}
    for scope in sorted(scopes, key=lambda scope: scope.kind == "ball"):
        try:
            found[scope] = read_scope(session, scope)
        except Interrupted as stopped:
            raise Interrupted(stopped.stage, [*found.values(), *stopped.readings]) from stopped
    return [found[scope] for scope in scopes]


def read_scope(session: Session, scope: Scope) -> Reading:
    """Return the reading of a traced model in one scope: rules, bounds, slopes, then plain numbers.

    Raises:
        UnknownOpError: when asked to be strict and operations have no rule.
        Interrupted: on Ctrl-C, with what is known by then.
    """
    session.clock.restart()
    with session.clock.timed("rules"):
        parts = session.composed(scope)
        everywhere = session.everywhere(parts)
    missing = find_missing(session, parts)
    if session.options.strict and missing.unknown:
        raise UnknownOpError([(finding.name, finding.why) for finding in missing.unknown])
    known = Known(session, parts, missing, everywhere)
    for stage, look in known.stages():
        try:
            with session.clock.timed(stage):
                look()
        except KeyboardInterrupt as stopped:
            raise Interrupted(stage, [known.reading()]) from stopped
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            known.notes.append(f"memory ran out ({stage}): what it would have found is missing")
    return known.reading()


def nested_lowers(results: list[Reading]) -> list[Reading]:
    """Give larger scopes the slopes found in smaller ones, which lie inside them, and judge the bounds again."""
    return [judged_reading(_with_lowers(r, [o for o in results if o.scope.radius <= r.scope.radius])) for r in results]


def _with_lowers(reading: Reading, inner: list[Reading]) -> Reading:
    """Return the reading with the largest slope of all ``inner`` readings, sample by sample; it is one of them."""
    best = max(inner, key=lambda other: other.log_lower)
    samples = tuple(
        {**row, "log10_lower": max(other.samples[i]["log10_lower"] for other in inner if len(other.samples) > i)}
        for i, row in enumerate(reading.samples)
    )
    return dataclasses.replace(reading, log_lower=best.log_lower, witness=best.witness, samples=samples)
