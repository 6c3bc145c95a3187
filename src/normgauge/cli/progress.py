"""A progress bar on standard error, for a person, and only when the work takes its time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

PATIENCE = 2.0
Report = Callable[[str, float], None]


@contextlib.contextmanager
def progress_bar(clock: Callable[[], float] = time.monotonic) -> Iterator[Report | None]:
    """A callback ``(stage, fraction)`` that begins to draw after two seconds; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield None
        return
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=1.0)
    begun = clock()

    def report(stage: str, fraction: float) -> None:
        if not bar.live.is_started and clock() - begun > PATIENCE:
            bar.start()
        bar.update(task, description=stage, completed=fraction)

    try:
        yield report
    finally:
        bar.stop()
