"""What a program computes in another thread is followed by no mode: that it hands work to one is noticed."""

from __future__ import annotations

import _thread
import functools
import sys
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
LOCK = _thread.allocate_lock()
LISTENERS: dict[int, list[Callable[[str], None]]] = {}  # thread -> who is told of what it hands over, innermost last
CHANGED: list[tuple[Any, str, Any]] = []


@contextmanager
def hand_overs(found: Callable[[str], None]) -> Iterator[None]:
    """Inside, tell ``found`` by what name this thread hands work to another one, or waits for one."""
    here = _thread.get_ident()
    with LOCK:
        if not LISTENERS:
            change()
        LISTENERS.setdefault(here, []).append(found)
    try:
        yield
    finally:
        with LOCK:
            LISTENERS[here].pop()
            if not LISTENERS[here]:
                del LISTENERS[here]
            if not LISTENERS:
                change_back()


def change() -> None:
    """Put functions that tell the listeners in the place of those in `HANDS_OVER`."""
    for module, kind, name in HANDS_OVER:
        owner = sys.modules.get(module)
        owner = getattr(owner, kind, None) if kind is not None else owner
        function = None if owner is None else vars(owner).get(name)
        if function is not None:
            CHANGED.append((owner, name, function))
            setattr(owner, name, telling(function, name if kind is None else f"{kind}.{name}"))


def change_back() -> None:
    """Put the functions themselves back."""
    while CHANGED:
        setattr(*CHANGED.pop())


def telling(function: Any, name: str) -> Any:
    """The same function, which tells the listeners of the thread that calls it."""

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        for found in LISTENERS.get(_thread.get_ident(), ()):
            found(name)
        return function(*args, **kwargs)

    return told
