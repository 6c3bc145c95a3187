"""Tests of normgauge.training."""
