"""What is found rather than proved: Jacobian norms, secants and a search for the steepest point."""

from normgauge.instrument.probe.search import Found, search

__all__ = ["Found", "search"]
