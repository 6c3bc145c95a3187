"""Run files: one JSON object a line, readable while they are written and after a kill; standard library only."""

from normgauge.core.errors import StoreError
from normgauge.core.store.collector import Collector, read
from normgauge.core.store.follower import Follower, follow
from normgauge.core.store.numbers import rounded_down, rounded_up
from normgauge.core.store.places import find, newest
from normgauge.core.store.resuming import resume
from normgauge.core.store.run import Run
from normgauge.core.store.writer import Writer, create

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
