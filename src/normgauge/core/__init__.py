"""Plain data in the log domain; standard library only."""
