"""Checks of the claims, by what they are about; the claims are in the files beside this folder."""
