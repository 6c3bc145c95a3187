"""What runs attempts: the small protocol that local processes and Ray share."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from normgauge.sweep.attempt import Ended


class Engine(Protocol):
    """Keeps some attempts going; a context manager that ends them when it is left."""

    @property
    def free(self) -> int:
        """How many more attempts it takes now."""

    def start(self, place: Path) -> None:
        """Begin an attempt at the trial of a folder."""

    def ended(self) -> list[Ended]:
        """Those that ended since the last call; waits a moment where there are none."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
