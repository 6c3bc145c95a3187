"""Files of a run: results as JSON, claims, and a log; each written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

COLUMNS = 3  # digits: the numbers of single layers are for plots, and there are many


def write_json(path: Path, content: Any) -> None:
    """Write compact JSON: five digits a number, three in the columns of single layers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text(json.dumps(short(content), allow_nan=False, separators=(",", ":")) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def short(value: Any, digits: int = 5) -> Any:
    """The same data with floats cut to a few digits and non-finite ones spelled out."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: short(item, COLUMNS if key == "columns" else digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [short(item, digits) for item in value]
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
