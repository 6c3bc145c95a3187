"""The repository this package runs from, where it does: experiments and their results are not installed."""

from __future__ import annotations

from pathlib import Path

from normgauge.core.errors import InputError


def checkout() -> Path:
    """The repository this package runs from.

    Raises:
        InputError: when it was installed without one.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / "experiments" / "__init__.py").is_file():
        raise InputError(
            "the experiments and their results are not part of the installed package, from whatever folder it is run; "
            "in a checkout of the repository: pip install -e . (or PYTHONPATH=src)"
        )
    return root
