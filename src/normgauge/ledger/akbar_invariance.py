"""Claims of Akbar on definitions, gradients and invariances: sections 3 and 4."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("A", "Akbar")
