"""Certified radii: how far a sample may be moved before its prediction could change, and where an attack changed it.

predictions: `radius`, the pipeline; labelled: what may be given; margin_bounds: what an engine offers, and the table of
them; largest_radius: the search; output_rounding: what float64 does to the margins; attack: the other side.
"""

from normgauge.advice.certified.predictions import radius

__all__ = ["radius"]
