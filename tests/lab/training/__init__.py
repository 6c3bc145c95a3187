"""Tests of normgauge.lab.training."""
