"""Scores: numbers that rank networks by how badly they may generalize, and promise nothing.

fold: BatchNorm into the maps before it; ground: every fact measured once.
norms, flatness, function: the facts; catalogue_norms, catalogue_function: what the scores make of them.
score: one score and its row; measure: all of them, as rows or as plain numbers.
"""

from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.scores.ground import Ground, cells_of
from normgauge.certificates.scores.measure import SCORES, score_rows, score_values
from normgauge.certificates.scores.score import Score

__all__ = ["SCORES", "DataSample", "Ground", "Score", "cells_of", "score_rows", "score_values"]
