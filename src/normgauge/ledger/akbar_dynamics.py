"""Claims of Akbar on gradient flow and convergence: sections 5 and 7.1."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("A", "Akbar")
