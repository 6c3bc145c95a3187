"""Plain data in the log domain; standard library only.

interval.py, rounding.py   numbers as enclosures; every outward step with its reason
bound.py, proof.py         scopes, evidence, and how a bound is proved
reading.py, certificate.py, curvature.py, symmetry.py, claim.py   what the verbs return
fields.py, stored.py       each field declared once: JSON out and in, checks, docs
checker.py, consistency.py, refute.py   a reading recomputed, trusting nothing
store/                     run files: one line a reading, readable while they are written
reference/                 readings of well-known networks, to compare with
errors.py                  NormgaugeError and its few children
"""
