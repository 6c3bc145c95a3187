"""Experiments: one folder a paper. They use the public names of normgauge, its zoo and its training loop."""
