"""Tests of normgauge.lab.zoo."""
