"""Readings in, text out: no torch, no numpy, nothing measured here."""
