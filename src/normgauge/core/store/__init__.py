"""Run files: one JSON object a line, readable while they are written and after a kill; standard library only."""

from normgauge.core.errors import StoreError
from normgauge.core.store.numbers import rounded_down, rounded_up
from normgauge.core.store.places import find, newest
from normgauge.core.store.run import Collector, Follower, Run, follow, read
from normgauge.core.store.writer import Writer, create, resume

__all__ = [
    "Collector",
    "Follower",
    "Run",
    "StoreError",
    "Writer",
    "create",
    "find",
    "follow",
    "newest",
    "read",
    "resume",
    "rounded_down",
    "rounded_up",
]
