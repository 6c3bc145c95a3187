"""What can be promised about unseen data: bounds (formulas), facts (what is measured), rows (one family a file).

The formulas in ``bounds`` need no torch, so `certify` is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normgauge.generalization.table import certify

__all__ = ["certify"]


def __getattr__(name: str) -> Any:
    if name == "certify":
        from normgauge.generalization.table import certify

        return certify
    raise AttributeError(f"module 'normgauge.generalization' has no attribute {name!r}")
