"""What a program computes in another thread is followed by no mode: that it hands work to one is noticed."""

from __future__ import annotations

import _thread
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ELSEWHERE = "a thread computes outside what is followed"
HANDS_OVER: tuple[tuple[str, str | None, str], ...] = (  # module, class, name: by which work reaches another thread
    ("threading", "Thread", "start"),
    ("threading", "Condition", "notify"),  # below queues, events, semaphores and barriers
    ("threading", "Condition", "wait"),
    ("_thread", None, "start_new_thread"),
    ("_thread", None, "start_joinable_thread"),
    ("threading", None, "_start_new_thread"),
    ("threading", None, "_start_joinable_thread"),
    ("concurrent.futures.thread", "ThreadPoolExecutor", "submit"),
    ("concurrent.futures.process", "ProcessPoolExecutor", "submit"),
    ("concurrent.futures._base", "Future", "result"),
    ("multiprocessing.pool", "Pool", "_check_running"),  # asked by each of its methods
    ("multiprocessing.process", "BaseProcess", "start"),
    ("multiprocessing.connection", "_ConnectionBase", "send"),
    ("multiprocessing.connection", "_ConnectionBase", "send_bytes"),
    ("asyncio.base_events", "BaseEventLoop", "call_soon_threadsafe"),
    ("subprocess", "Popen", "__init__"),
)
LOCK = threading.RLock()


@contextmanager
def hand_overs(found: Callable[[str], None]) -> Iterator[None]:
    """Inside, tell ``found`` by what name this thread hands work to another one, or waits for one."""
    here = _thread.get_ident()
    put: list[tuple[Any, str, Any, Any]] = []

    def wrapped(function: Any, name: str) -> Any:
        @functools.wraps(function)
        def told(*args: Any, **kwargs: Any) -> Any:
            if _thread.get_ident() == here:
                found(name)
            return function(*args, **kwargs)

        return told

    with LOCK:
        for module, kind, name in HANDS_OVER:
            owner = sys.modules.get(module)
            owner = getattr(owner, kind, None) if kind is not None else owner
            function = None if owner is None else vars(owner).get(name)
            if function is not None:
                instead = wrapped(function, name if kind is None else f"{kind}.{name}")
                put.append((owner, name, function, instead))
                setattr(owner, name, instead)
        try:
            yield
        finally:
            for owner, name, function, _ in reversed(put):
                setattr(owner, name, function)


def busy_clocks() -> dict[int, float]:
    """Return the seconds that each other Python thread has computed so far, where the system tells."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    if clock is None or not hasattr(time, "clock_gettime"):
        return {}
    found = {}
    for thread in threading.enumerate():
        if thread.ident is not None and thread.ident != threading.get_ident() and thread.is_alive():
            try:
                found[thread.ident] = time.clock_gettime(clock(thread.ident))
            except OSError:  # it has just ended
                continue
    return found
