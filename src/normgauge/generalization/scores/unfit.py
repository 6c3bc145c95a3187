"""Why a score cannot be taken of a network."""

from __future__ import annotations

from normgauge.errors import NormgaugeError


class Unfit(NormgaugeError):
    """The network or the data lack what a score needs; the message says what, and what to do."""
