"""Hooks that are on a module only while someone listens: one that only sleeps still costs microseconds a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Register = Callable[[], Any]


class Hooks:
    """Hooks that go on and come off together."""

    def __init__(self) -> None:
        self._registers: list[Register] = []
        self._handles: list[Any] = []
        self._on = False

    @property
    def on(self) -> bool:
        """Whether they are meant to be heard."""
        return self._on

    def add(self, register: Register) -> None:
        """One more, given by what puts it on and returns its handle."""
        self._registers.append(register)
        if self._handles:
            self._handles.append(register())

    def put_on(self) -> None:
        """Put all of them on, once."""
        self._on = True
        if not self._handles:
            self._handles = [register() for register in self._registers]

    def rest(self) -> None:
        """Take all of them off; where something is compiled they stay, since a change of hooks compiles it anew."""
        self._on = False
        if not _compiled():
            self.take_off()

    def take_off(self) -> None:
        """Take all of them off for good."""
        self._on = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class Sleeper:
    """Someone whose hooks are on only while awake."""

    def __init__(self) -> None:
        self._hooks = Hooks()

    @property
    def awake(self) -> bool:
        """Whether the coming passes are heard."""
        return self._hooks.on

    @awake.setter
    def awake(self, value: bool) -> None:
        self._hooks.put_on() if value else self._hooks.rest()


def _compiled() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters) and counters["frames"]["total"] > 0
