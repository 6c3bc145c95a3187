"""Claims Akbar makes on earlier work, implications and experiments: sections 2, 8 and 9."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("A", "Akbar")
