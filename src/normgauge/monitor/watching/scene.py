"""The run files being watched: new ones are found, and of old ones only what is new is read."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path

from normgauge.core.errors import StoreError
from normgauge.core.store import Collector, Follower, find
from normgauge.core.store.collector import uncollected
from normgauge.render.numbers import plural
from normgauge.render.runs_curves import COLOURS
from normgauge.render.runs_data import LabelledRun, labelled_runs

LOOK = 2.0  # seconds between two looks for new files


class Scene:
    """Follows every run at some paths.

    Attributes:
        paths: files, folders of a run, folders of runs; they need not be there yet.
        most: how many runs of a folder are followed at once; the newest. Those that are named are all followed.
        version: grows with every line read.
        left_out: older runs that are not followed.
    """

    def __init__(self, paths: Sequence[str | Path], most: int = COLOURS) -> None:
        self.paths = [Path(path) for path in paths]
        self.most = most
        self.version = 0
        self.left_out = 0
        self._open: dict[Path, tuple[Follower, Collector]] = {}
        self._looked = float("-inf")

    def refresh(self) -> bool:
        """Read what is new; returns whether there was anything.

        Raises:
            StoreError: when a file that was named is no run file.
        """
        before = self.version
        self._find()
        for path, (follower, collector) in list(self._open.items()):
            with uncollected():
                for line in follower.lines():
                    collector.add(line)
                    self.version += 1
            if path in self.paths:  # of a folder, what is no run is left out
                collector.check()
            if not follower.there:  # deleted while it was watched
                del self._open[path]
                self.version += 1
        return self.version > before

    def _find(self) -> None:
        now = time.monotonic()
        if self._open and now - self._looked < LOOK:
            return
        self._looked = now
        found = [find(path) for path in self.paths]
        wanted = list(dict.fromkeys(file for files in found for file in files[-self.most :]))
        self.left_out = len({file for files in found for file in files}.difference(wanted))
        for path in [path for path in self._open if path not in wanted]:
            del self._open[path]
        # in the order found, so that colours follow age
        self._open = {path: self._open.get(path) or (Follower(path), Collector(path)) for path in wanted}

    def items(self) -> list[LabelledRun]:
        """The runs so far, with their labels; those without a header yet are left out.

        A half line at the end of a file is one being written, so it is not called torn here.
        """
        return labelled_runs([collector.run() for _, collector in self._open.values() if collector.begun])

    def waiting(self) -> str:
        """What is waited for, as a sentence; empty once there is a run."""
        if any(collector.begun for _, collector in self._open.values()):
            return ""
        named = ", ".join(map(str, self.paths))
        return f"Waiting for a run at {named}: there is none yet."

    def age(self) -> float | None:
        """Seconds since any of the files was written."""
        times = []
        for path in self._open:
            try:
                times.append(path.stat().st_mtime)
            except OSError:
                continue
        return max(time.time() - max(times), 0.0) if times else None

    def note(self) -> str:
        """Which runs are not shown; empty where all are."""
        if not self.left_out:
            return ""
        return f"{plural(self.left_out, 'older run')} not shown: of a folder the newest {self.most} are; name others."


def read_runs(paths: Sequence[str | Path]) -> tuple[list[LabelledRun], str]:
    """The runs at some paths, read once, and a sentence about those left out.

    Raises:
        StoreError: when there is none at one of the paths.
    """
    for path in paths:
        if not find(path):
            raise StoreError(f"no run at {path}: expected a run file, its folder, or a folder of runs")
    scene = Scene(paths)
    scene.refresh()
    gc.freeze()  # what was read stays to the end: nothing of it needs to be looked at again
    items = scene.items()
    if not items:
        raise StoreError(f"{paths[0]} holds no complete header: no run, or one that was killed as it began")
    return items, scene.note()
