"""Files of a run: results as JSON, claims, and a log; each written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Write compact JSON with five digits a number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text(json.dumps(short(content), allow_nan=False, separators=(",", ":")) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def short(value: Any) -> Any:
    """The same data with floats cut to five digits and non-finite ones spelled out."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [short(item) for item in value]
    return value


def log(state: Path, text: str) -> None:
    """Append one line, with the time, to the log of all processes."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "log.txt").open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%H:%M:%S')} [{os.getpid()}] {text}\n")


def claim(path: Path) -> bool:
    """Make a file that was not there; False if it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True
