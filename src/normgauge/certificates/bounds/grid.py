"""Norms and margins that are known only after training: rounded up to a grid, whose points share δ."""

from __future__ import annotations

import math

STEP = math.log(2) / 8  # neighbouring grid points differ by a factor 2^(1/8)
LOWEST = -1e6  # where a norm is 0


def round_up(log_value: float) -> tuple[float, float]:
    """The logarithm of the next grid point 2^(j/8) above, j any integer, and the price of it.

    Point j gets the share (2/3)/((|j|+1)(|j|+2)) of δ: these add up to 1 over all integers, since
    Σ_{j ≥ 0} 1/((j+1)(j+2)) = 1 and the point 0 counts once.

    Args:
        log_value: ln of a norm, or of a ratio of a norm and a margin.

    Returns:
        ln of the grid point, and −ln of its share of δ.

    >>> log_point, price = round_up(math.log(1.5))
    >>> round(math.exp(log_point), 4), round(price, 4)  # 2^(5/8), ln(1.5·6·7)
    (1.5422, 4.1431)
    """
    if math.isinf(log_value) and log_value > 0:
        return math.inf, math.inf
    index = math.ceil(max(log_value, LOWEST) / STEP - 1e-12)
    point = index * STEP
    if point < log_value:  # the quotient was rounded down onto the grid point below
        index += 1
        point = index * STEP
    return point, math.log(1.5 * (abs(index) + 1) * (abs(index) + 2))
