"""The network near a sample: which of its slopes a ball leaves open, and what the open ones can do together."""
