"""What several commands take: numbers, and the readings of a file or a reference."""

from __future__ import annotations

import argparse
import math

from normgauge import reference
from normgauge.core.reading import Reading
from normgauge.core.stored import read_items
from normgauge.errors import ReadingError


def finite(text: str) -> float:
    """A finite number.

    Raises:
        ArgumentTypeError: for anything else.
    """
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a finite number, got {text!r}")
    return value


def positive(text: str) -> float:
    """A finite number above zero.

    Raises:
        ArgumentTypeError: for anything else.
    """
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return value


def readings_at(name: str) -> list[Reading]:
    """The readings of a file or a reference.

    Raises:
        ReadingError: when there are none; the file is named.
    """
    if name.startswith(reference.PREFIX):
        return reference.load(name)
    items = read_items(name)
    try:
        return [Reading.from_json(item) for item in items]
    except ReadingError as error:
        raise ReadingError(f"{name}: {error}") from None
