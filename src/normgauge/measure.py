"""`gauge`: trace, ask the rules, compose, balance, probe; the whole pipeline on one screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, Unpack

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from normgauge.core.bound import Scope
from normgauge.core.reading import Reading
from normgauge.core.refute import judged
from normgauge.errors import InputError, NormgaugeError
from normgauge.fingerprint import weights_digest
from normgauge.session import Asked, Options, Session, start
from normgauge.trace import untouched, unwrap
from normgauge.trace.again import Own, as_it_runs
from normgauge.trace.inputs import Call, check_finite, check_place, make_call
from normgauge.trace.untouched import default_eps
from normgauge.whatif import Measured

T = TypeVar("T")
Place = tuple[torch.dtype, torch.device]


def gauge(model: nn.Module, batch: Any, *, scope: str | Scope = "global", **options: Unpack[Asked]) -> Reading:
    """Measure the Lipschitz capacity of ``model`` around ``batch``.

    The model is untouched: mode, buffers, gradients, hooks and random state are as before, also after an error.

    Args:
        model: any network; compiled and distributed wrappers are taken off.
        batch: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
        scope: ``global``, ``point`` or ``ball:RADIUS``.
        **options: see `Asked`: mode, strict, balance, search, width, input, output, rules, progress.

    Returns:
        One reading in the scope asked for.
    """
    return readings(model, batch, (scope,), **options)[0]


def readings(
    model: nn.Module,
    batch: Any,
    scopes: Sequence[str | Scope] = ("point", "ball:0.1", "global"),
    **options: Unpack[Asked],
) -> list[Reading]:
    """Measure in several scopes with one trace.

    Raises:
        InputError: for a model, batch or option that cannot be measured.
        UnknownOpError: with ``strict=True``, when operations have no rule.
    """
    wanted = [Scope.parse(s) for s in scopes]
    places: list[Place] = []

    def read(session: Session) -> list[Reading]:
        places.append((session.trace.sources[0].tensor.dtype, session.trace.sources[0].tensor.device))
        return nested_lowers([session.read(scope) for scope in wanted])

    found = opened(model, batch, options, read)
    source = Measured.now(unwrap(model), batch, options, places[-1], readings)
    weights = weights_digest(unwrap(model))
    return [dataclasses.replace(reading, source=source, weights=weights) for reading in found]


def opened(model: nn.Module, batch: Any, asked: Asked, use: Callable[[Session], T]) -> T:
    """Trace the model on copies of its tensors, check the trace, and let ``use`` look at it while they are in place.

    Raises:
        InputError: for a model, batch or option that cannot be measured.
        NormgaugeError: for another mistake that was found on the way.
    """
    chosen = Options.of(asked)
    model = unwrap(model)
    call = make_call(model, batch, chosen.input)
    check_place(model, call)
    check_finite(model, call)
    with sdpa_kernel(SDPBackend.MATH), no_fast_path():
        failure: Exception | None = None
        try:
            with chosen.timed("trace"):
                own = as_it_runs(model, call, chosen.mode == "train", chosen.output)
        except NormgaugeError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"the model's forward raised {type(error).__name__}: {error}") from error
        for dtype, device, casts in precisions(call, own):
            with untouched(model, dtype, device, chosen.mode == "train", call.native if own.eps else None):
                try:
                    with chosen.timed("trace"):
                        session = start(model, call, dtype, device, chosen, casts, own)
                except NormgaugeError:
                    raise
                except Exception as error:  # a forward may raise anything
                    failure = error
                    continue
                if session is not None:  # else the copy is not the model: it looks at its precision in some other way
                    return use(session)
    raise InputError(
        f"the model runs, but not while it is recorded ({type(failure).__name__}: {failure}); measure a part of it"
    ) from failure


@contextmanager
def no_fast_path() -> Iterator[None]:
    """Inside, encoders run by their layers: torch's fast path for inference gives zeros at padded positions."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def nested_lowers(results: list[Reading]) -> list[Reading]:
    """A slope found in a small scope was found in every larger one too, and refutes a bound there that is below it."""
    return [judged(_with_lowers(r, [o for o in results if o.scope.radius <= r.scope.radius])) for r in results]


def _with_lowers(reading: Reading, inner: list[Reading]) -> Reading:
    """The reading with the largest slopes of ``inner``, which it is one of, sample by sample."""
    best = max(inner, key=lambda other: other.log_lower)
    samples = tuple(
        {**row, "log10_lower": max(other.samples[i]["log10_lower"] for other in inner if len(other.samples) > i)}
        for i, row in enumerate(reading.samples)
    )
    return dataclasses.replace(reading, log_lower=best.log_lower, witness=best.witness, samples=samples)


def precisions(call: Call, own: Own) -> list[tuple[torch.dtype | None, torch.device | None, bool]]:
    """float64 on copies in main memory, whatever device the model lives on; failing that, as the model itself runs.

    The third part says whether the run must mind what the program does about precision (`Widened`).
    """
    cpu = torch.device("cpu")
    known = own.eps <= {default_eps(call.native)}  # an RMSNorm in another precision than the model's has its own ε
    plain = [(torch.float64, cpu, minded) for minded in ([True] if own.casts else [False, True])] if known else []
    return [*plain, (None, None, False)]


__all__ = ["Asked", "Options", "Session", "gauge", "opened", "readings", "start"]
