"""What is measured on a network and its data."""
