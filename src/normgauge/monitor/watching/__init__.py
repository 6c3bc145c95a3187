"""Runs followed while they grow: the scene of files, and a page of it served on this machine alone."""
