"""Advice: what is wrong with a network, in sentences, and a way to follow them.

consult: `advise`; remark: what it returns; insert: `insert_norm`; view, norms, chains: what the checks look at;
drift, normalizers, values: the checks; facts: what asks for no action; thresholds: every limit with its reason.
whatif/ and certified/ answer questions of their own.
"""

from normgauge.advice.consult import advise
from normgauge.advice.insert import insert_norm
from normgauge.advice.remark import Advice, Fix, Remark, Severity

__all__ = ["Advice", "Fix", "Remark", "Severity", "advise", "insert_norm"]
