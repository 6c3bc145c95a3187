"""Claims, open questions and experiments of the summary page."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("Q", "summary page")
