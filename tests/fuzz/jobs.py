"""One seed's work, and many of them shared by several processes (which import this module, never ``__main__``)."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import Any

import torch

from normgauge.instrument.rules import REGISTRY
from tests.fuzz.mutants import mutated
from tests.fuzz.nets import make_case
from tests.fuzz.run import Outcome, fuzz_one
from tests.fuzz.tracer import Attempt, attack
from tests.fuzz.tracing import make_subject

CHUNK = 4  # seeds a process takes at once


def shared(work: Callable[[int], Any], seeds: Sequence[int], jobs: int) -> Iterator[Any]:
    """The outcomes in the order of their seeds, from one process or several."""
    if jobs == 1:
        yield from map(work, seeds)
        return
    jobs = min(jobs, -(-len(seeds) // CHUNK))
    with get_context("spawn").Pool(jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.imap(work, seeds, chunksize=CHUNK)


def network(mutate: str | None, seed: int) -> Outcome:
    """One random network; a crash is a violation."""
    registry = mutated(mutate) if mutate else REGISTRY
    try:
        outcome = fuzz_one(seed, registry, balance=not mutate and seed % 3 == 0)
    except Exception:
        outcome = Outcome(seed, broken=["crash: " + traceback.format_exc()])
    if outcome.broken:
        outcome.what = make_case(seed).describe()
    return outcome


def awkward(trick: str | None, seed: int) -> Attempt:
    """One network that is hard to trace; a crash is a violation."""
    try:
        attempt = attack(seed, trick)
    except Exception:
        attempt = Attempt(seed, trick or "unknown", broken=["crash: " + traceback.format_exc()])
    if attempt.broken:
        attempt.what = make_subject(seed, trick).describe()
    return attempt
