"""Tests of normgauge.zoo."""
