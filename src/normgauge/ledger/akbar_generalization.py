"""Claims of Akbar on implicit bias and generalization: section 7.2."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("A", "Akbar")
