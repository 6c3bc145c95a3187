"""Tests of the rule families."""
