"""Operator norms of tensors: proved from both sides, one algorithm a file; knows torch, not layers."""
