"""What leaves a network as it is: found, checked, and fixed in canonical scales."""
