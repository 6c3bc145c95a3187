"""Claims of Than 2025 on normalizers: definitions, Lemmas 1-3 and 23, activations."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("T", "Than 2025")
