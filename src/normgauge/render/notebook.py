"""A reading as a fragment of HTML for notebooks."""

from __future__ import annotations

from html import escape

from normgauge.core.reading import Reading


def fragment(reading: Reading) -> str:
    """The reading as HTML that may stand among other output."""
    return f"<pre>{escape(str(reading))}</pre>"
