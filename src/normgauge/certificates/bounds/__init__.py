"""The formulas: plain numbers in and out, every constant written; a file is a paper, or an idea several share."""
