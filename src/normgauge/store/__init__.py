"""Run files: one JSON object a line, readable while they are written and after a kill; standard library only."""

from normgauge.errors import StoreError
from normgauge.store.numbers import rounded_down, rounded_up
from normgauge.store.places import find, newest
from normgauge.store.run import Collector, Follower, Run, follow, read
from normgauge.store.writer import Writer, create, resume

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
