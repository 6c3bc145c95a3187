"""From certified radii of a hold-out to a bound on the robust error of unseen inputs."""

from __future__ import annotations

import math

from normgauge.certificates.bounds.holdout import clopper_pearson
from normgauge.core.certified import CertifiedRadii
from normgauge.core.errors import InputError


def robust_error(found: CertifiedRadii, radius: float, delta: float = 0.05, *, radii: int = 1) -> float:
    """Bound the share of unseen inputs that are wrong, or that a change of at most ``radius`` could make wrong.

    P(wrong or not certified) ≤ Bin⁻¹(failures, n, δ/k), and a sample that is right and certified cannot be made wrong.

    Holds:  with probability 1 − δ, for labelled samples that no part of the training saw, drawn independently from the
            source of the unseen inputs, and a radius fixed before the radii were looked at. Where k radii are asked for
            and all answers are to hold at once, each has δ/k: say so with ``radii``.
    Source: Clopper & Pearson 1934; the union bound.

    Args:
        found: radii of the hold-out, with labels.
        radius: l2 length of the changes.
        delta: chance that the bound fails; that of the radii themselves is taken off it.
        radii: k, how many radii are asked for in all.

    Returns:
        The bound; 1 where it says nothing.

    Raises:
        InputError: for radii without labels, or numbers out of their range.
    """
    if not found.samples or any(sample.label is None for sample in found.samples):
        raise InputError(
            "expected radii of labelled samples, got none or some without a label; give ng.radius the labels"
        )
    if not 0 < delta < 1 or radii < 1:
        raise InputError(f"expected delta between 0 and 1 and radii of 1 or more, got {delta} and {radii}")
    share = (delta - found.failure_probability) / radii
    if share <= 0:
        return 1.0
    count = len(found.samples)
    certain = round(found.verified_accuracy(radius) * count)
    return clopper_pearson(count - certain, count, math.log(share))
