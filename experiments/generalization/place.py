"""Where a unit works: its device, its folder, its time; and results as strict JSON, whole or not at all."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normgauge import NormgaugeError

SPELLED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class LateError(NormgaugeError):
    """The time is up; what is done is kept, and the same command goes on."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a unit works.

    Attributes:
        state: a folder of its own for parts and checkpoints; it may be deleted once the unit's result is written.
        device: "cpu" or "cuda".
        until: seconds since the epoch after which nothing new is begun.
        folder: of the data sets; None for NORMGAUGE_DATA.
    """

    state: Path
    device: str = "cpu"
    until: float = math.inf
    folder: str | None = None

    def late(self) -> bool:
        """Whether the time is up."""
        return time.time() > self.until

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part of the result: made and written down the first time, read afterwards.

        Raises:
            LateError: if it would have to be made and the time is up.
        """
        path = self.state / f"{name}.json"
        if path.exists():
            return dict(read(path))
        if self.late():
            raise LateError(f"no time left for {name}; run the command again to go on")
        write(path, make())
        return dict(read(path))


def write(path: Path, content: Any) -> None:
    """Write JSON at full precision, infinities spelled out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text(json.dumps(_spelled(content), allow_nan=False, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def read(path: Path) -> Any:
    """Read what `write` wrote."""
    return _read(json.loads(path.read_text(encoding="utf-8")))


def _spelled(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list | tuple) else value


def _read(value: Any) -> Any:
    if isinstance(value, str):
        return SPELLED.get(value, value)
    if isinstance(value, dict):
        return {key: _read(item) for key, item in value.items()}
    return [_read(item) for item in value] if isinstance(value, list) else value
