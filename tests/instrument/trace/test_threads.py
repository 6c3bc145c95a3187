"""What another thread computes is followed by nothing: the reading is unknown and says so."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.trace.threads import ELSEWHERE, HANDS_OVER, hand_overs
from tests.instrument.trace.nets import Net, batch, linear


def started(function: Callable[[], Any]) -> Any:
    out: list[Any] = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]


@pytest.fixture(scope="module", name="ways")
def pools() -> Iterator[dict[str, Callable[[Callable[[], Any]], Any]]]:
    """Ways to have a function computed in another thread; all but the first were started before."""
    asked: queue.Queue[Any] = queue.Queue()
    answered: queue.Queue[Any] = queue.Queue()

    def serve() -> None:
        while (function := asked.get()) is not None:
            answered.put(function())

    def queued(function: Callable[[], Any]) -> Any:
        asked.put(function)
        return answered.get()

    server = threading.Thread(target=serve)
    server.start()
    with ThreadPoolExecutor(1) as pool, ThreadPool(1) as other:
        pool.submit(int).result()
        yield {
            "thread": started,
            "submit": lambda function: pool.submit(function).result(),
            "map": lambda function: next(iter(pool.map(lambda _: function(), [0]))),
            "ThreadPool": other.apply,
            "queue": queued,
        }
    asked.put(None)
    server.join()


@pytest.mark.parametrize("way", ["thread", "submit", "map", "ThreadPool", "queue"])
def test_what_a_thread_computes_or_decides_is_unknown(way: str, ways: dict[str, Callable[..., Any]]) -> None:
    run, layer = ways[way], linear()
    functions: list[Callable[[Tensor, nn.Module], Tensor]] = [
        lambda x, one: one(x) + run(lambda: torch.relu(x - 30) * 10),
        lambda x, one: one(x) * (100 if run(lambda: bool(x.max() > 30)) else 1),
    ]
    for function in functions:
        reading = ng.gauge(Net(function, layer), batch(), scope="global", search=False)
        assert reading.log_upper == math.inf and str(reading.evidence) == "unknown"
        assert ELSEWHERE in reading.unknown[0].why


def test_only_what_this_thread_hands_over_is_told_and_everything_is_put_back() -> None:
    before = threading.Thread.start, ThreadPoolExecutor.submit
    found: list[str] = []
    with hand_overs(found.append):
        assert threading.Thread.start is not before[0]
        with threading.Lock():
            assert found == []
        started(lambda: started(int))
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before
    assert "Thread.start" in found and len({name for _, _, name in HANDS_OVER}) > 10
    found.clear()
    started(int)
    assert not found
