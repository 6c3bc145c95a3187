"""Claims of Than 2025 on networks: Definition 4 to Remark 17, and the extremal networks."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("T", "Than 2025")
