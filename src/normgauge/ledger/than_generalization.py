"""Claims of Than 2025 on generalization: Theorem 20 to Corollary 22, rivals, figures."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("T", "Than 2025")
