"""Where an increasing function crosses zero."""

from __future__ import annotations

from collections.abc import Callable

from normgauge.errors import InputError

DOUBLINGS = 500
"""Most doublings or halvings in search of a bracket: 150 decades either way."""


def increasing_root(function: Callable[[float], float], low: float, guess: float) -> float:
    """The x > ``low`` with function(x) = 0, by doubling and halving.

    >>> round(increasing_root(lambda x: x**3 - 2, 0.0, 1.0), 12)
    1.259921049895

    Args:
        function: negative just above ``low``, positive from its one root on.
        low: where the search begins; not itself evaluated.
        guess: how far above ``low`` the root may be; the nearer, the faster.

    Returns:
        The root, to rounding.

    Raises:
        InputError: if no change of sign is found.
    """
    width = guess
    factor = 0.5 if function(low + width) >= 0 else 2.0
    for _ in range(DOUBLINGS):
        width *= factor
        if (function(low + width) >= 0) is (factor > 1):
            break
    else:
        raise InputError("no equilibrium: nothing balances the growth of the norm for these settings.")
    low, high = low + min(width, width / factor), low + max(width, width / factor)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return high
