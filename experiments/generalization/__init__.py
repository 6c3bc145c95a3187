"""Generalization: certificates of trained networks, and what the constants in them have to do with the gap."""
