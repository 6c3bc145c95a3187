"""How steep the margin is: constants of the gauge, everywhere and near points the training never saw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from normgauge.certificates.bounds.parts import exp_up
from normgauge.certificates.facts.sample import device_of
from normgauge.core.bound import Evidence
from normgauge.core.errors import NormgaugeError
from normgauge.core.reading import LayerRecord, Reading
from normgauge.instrument.measure import readings
from normgauge.instrument.rules.normalizer import NORMALIZING

ROOT2 = math.sqrt(2.0) * (1 + 1e-15)  # |margin(x) − margin(x')| ≤ √2 ‖f(x) − f(x')‖
LN10 = math.log(10.0)


@dataclass(frozen=True, slots=True)
class MarginSlopes:
    """Lipschitz constants of the margin f_y − max over the others.

    Attributes:
        balanced: proved, over all inputs; inf if none is proved.
        folded: proved, linear maps with their normalizers but not balanced.
        published: the constants as printed in Than 2025, by name; not all are bounds.
        normalizers: rows of the normalizers in the network.
        gap: why nothing is proved, where nothing is: the layers without a rule.
        reading: of scope global; ``point`` the one at single inputs; None where the gauge could not run.
    """

    balanced: float = math.inf
    folded: float = math.inf
    published: dict[str, float] = field(default_factory=dict)
    normalizers: tuple[LayerRecord, ...] = ()
    gap: str = ""
    reading: Reading | None = None
    point: Reading | None = None


def slopes_of(model: nn.Module, probe: Tensor) -> MarginSlopes:
    """Measure the network; a failure becomes the gap, with its reason."""
    try:
        point, whole = readings(
            model, probe.to(device_of(model)), ("point", "global"), search=False, pictures=False, effort="quick"
        )
    except NormgaugeError as error:
        return MarginSlopes(gap=f"the gauge could not measure this network: {error}")
    except Exception as error:  # the rows that need no slope must not fall with it
        return MarginSlopes(gap=f"the gauge could not measure this network: {type(error).__name__}: {error}")
    unknown = ", ".join(f"{one.name} ({one.why})" for one in whole.unknown)
    if unknown:
        return MarginSlopes(gap=f"no slope is proved: there is no rule for {unknown}", reading=whole, point=point)
    if whole.evidence is not Evidence.PROVED:
        why = "; ".join(whole.notes) or 'see ng.gauge(model, batch, scope="global")'
        return MarginSlopes(gap=f"the slope is {whole.evidence}, not proved: {why}", reading=whole, point=point)
    return MarginSlopes(
        balanced=ROOT2 * exp_up(whole.log_upper),
        folded=ROOT2 * exp_up(whole.log10_folded * LN10),
        published={k: ROOT2 * exp_up(v * LN10) for k, v in whole.published.items() if isinstance(v, float)},
        normalizers=tuple(record for record in whole.layers if record.rule.startswith(NORMALIZING)),
        reading=whole,
        point=point,
    )


def local_slopes(model: nn.Module, centres: Tensor, radii: Sequence[float]) -> list[Tensor] | None:
    """Proved slopes of the margin in the ball around each centre, (centres,) for each radius; None without rules."""
    scopes = [f"ball:{six_digits_up(radius)}" for radius in radii]
    try:
        found = readings(model, centres.to(device_of(model)), scopes, search=False, pictures=False, effort="quick")
    except NormgaugeError:
        return None
    if any(not r.certain or len(r.samples) != len(centres) for r in found):
        return None
    return [
        torch.tensor([ROOT2 * exp_up(float(row["log10_upper"]) * LN10) for row in r.samples], dtype=torch.float64)
        for r in found
    ]


def six_digits_up(radius: float) -> str:
    """The radius with the six digits a scope is printed with, rounded up: a larger ball holds the one asked for.

    >>> six_digits_up(0.41636228), six_digits_up(0.5)
    ('0.416366', '0.5')
    """
    text = f"{radius:g}"
    return text if float(text) >= radius else f"{radius * (1 + 1e-5):g}"
