"""Claims of the 2023 slides."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("S", "Than 2023 (slides)")
