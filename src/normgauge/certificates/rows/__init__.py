"""One family of rows a file; each gives every row it knows, with the reason where one does not apply."""
