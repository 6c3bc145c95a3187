"""Statements of our own that the rules rest on: convolutions, attention, log arithmetic, balance."""

from __future__ import annotations

from normgauge.ledger.claim import Family

claims = Family("X", "this project")
