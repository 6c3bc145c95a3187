"""Training under a budget of capacity: digits, CIFAR-10 and text, ours against its rivals."""
