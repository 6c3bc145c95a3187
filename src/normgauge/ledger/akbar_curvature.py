"""Claims of Akbar on Hessians: section 6 and the appendix."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("A", "Akbar")
