"""The formulas, one file a paper: plain numbers in and out, every constant written."""
