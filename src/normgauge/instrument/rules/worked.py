"""How a rule's formula is spelled with one layer's own numbers put in.

Every such text ends with the layer's gain in one of two forms, so that it can be compared with the gain itself:

    sample 3: max|γ|/√(σ²+ε) = 1.21/√(0.35² + 1e-05) = 3.457      (the last number is the gain)
    ‖W‖₂, W 64×128, in [2.3411, 2.3412]                           (the gain is enclosed)

Numbers are put in with six digits and the gain is given with five, so that the arithmetic can be done again by hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import torch
from torch import Tensor

from normgauge.core.interval import INF, LogInterval
from normgauge.core.spelled import LN10

JUMPS = "|Δy|/|Δx| as |Δx| → 0"  # of a discontinuous map; it is infinite
LARGEST = 300 * LN10  # beyond, a number is written as a power of ten
GIVEN = r"(∞|\d[\d.]*(?:e[-+]?\d+)?|10\^-?[\d.]+)"


def number(value: float, digits: int = 6) -> str:
    """A number to be put into a formula.

    >>> number(0.0042133333), number(64.0), number(float("inf")), number(-0.0)
    ('0.00421333', '64', '∞', '0')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value + 0.0:.{digits}g}"


def result(log: float, digits: int = 5) -> str:
    """The number whose logarithm is given; a power of ten where a float could not hold it.

    >>> result(math.log(12.52071)), result(-math.inf), result(1000.0)
    ('12.521', '0', '10^434.2945')
    """
    if math.isfinite(log) and abs(log) > LARGEST:
        return f"10^{log / LN10:.4f}"
    return number(math.exp(log) if log < LARGEST else INF, digits)


def equal(text: str, *logs: Tensor) -> str:
    """``text = gain``: the largest of the gains, over inputs and samples."""
    return f"{text} = {result(max((float(log.max()) for log in logs if log.numel()), default=-INF))}"


def within(text: str, log: LogInterval) -> str:
    """``text, in [lower, upper]``: five digits, rounded outwards."""
    return f"{text}, in [{_rounded(log.lo, -1)}, {_rounded(log.hi, 1)}]"


def _rounded(log: float, way: int) -> str:
    if math.isinf(log) or abs(log) > LARGEST:
        return result(log + way * 1e-4 if math.isfinite(log) else log)
    value = math.exp(log)
    unit = 10.0 ** (math.floor(math.log10(value)) - 4)
    return number((math.ceil(value / unit) if way > 0 else math.floor(value / unit)) * unit, 6)


def worst_sample(*logs: Tensor) -> int:
    """The sample with the largest gain in any input."""
    return int(torch.stack(logs).amax(0).argmax()) if logs and logs[0].numel() else 0


def at_sample(*logs: Tensor) -> str:
    """``sample 3: `` for the sample that decides; empty where all samples have the same gain."""
    top = torch.stack(logs).amax(0)
    return f"sample {int(top.argmax())}: " if len(top) > 1 and bool((top != top[0]).any()) else ""


def largest_term(terms: Iterable[str]) -> str:
    """``max(a, b)``, or the term itself where there is only one.

    >>> largest_term(["2", "3"]), largest_term(["2"])
    ('max(2, 3)', '2')
    """
    items = list(terms)
    return items[0] if len(items) == 1 else f"max({', '.join(items)})"


def shape_words(shape: Iterable[int]) -> str:
    """A shape in words.

    >>> shape_words((64, 128)), shape_words(())
    ('64×128', '1')
    """
    return "×".join(str(n) for n in shape) or "1"


def stated_gain(text: str) -> LogInterval | None:
    """The gain that a text ends with, as an interval from 0 where it gives one number; None where it gives none.

    >>> stated_gain("√n = √4 = 2").hi == math.log(2), stated_gain("about 2")
    (True, None)
    """
    found = re.search(rf"(?:= {GIVEN}|in \[{GIVEN}, {GIVEN}\])$", text)
    if found is None:
        return None
    alone, low, high = found.groups()
    ends = (0.0, alone) if alone is not None else (low, high)
    lo, hi = (_log_of(str(end)) for end in ends)
    return LogInterval(min(lo, hi), hi)


def _log_of(text: str) -> float:
    if text.startswith("10^"):
        return float(text[3:]) * LN10
    value = INF if text == "∞" else float(text)
    return math.log(value) if value > 0 else -INF
