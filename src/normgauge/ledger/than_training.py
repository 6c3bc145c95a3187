"""Claims of Than 2025 on training: quoted rates, Corollaries 18 and 19."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("T", "Than 2025")
