"""Every error normgauge raises on purpose: one root, so a caller can catch them all."""

from __future__ import annotations


class NormgaugeError(Exception):
    """A user's mistake or a limit of the instrument; the message says what was expected, what came and what to do."""


class InputError(NormgaugeError):
    """The model, batch or option given cannot be measured as it is."""


class UnknownOpError(NormgaugeError):
    """`strict=True` and the model uses operations no rule covers.

    Attributes:
        unknown: one ``(name, why)`` pair for each of them.
    """

    def __init__(self, unknown: list[tuple[str, str]]) -> None:
        self.unknown = unknown
        listing = "; ".join(f"{name}: {why}" for name, why in unknown)
        super().__init__(
            f"{len(unknown)} operation(s) have no rule ({listing}). Give each a rule with "
            "gauge(..., rules=REGISTRY.extended({...})), or measure without strict=True to get an infinite bound."
        )


class LoadError(NormgaugeError):
    """A model, checkpoint or data set could not be loaded."""


class ReadingError(NormgaugeError):
    """A stored reading cannot be understood."""


class StoreError(NormgaugeError):
    """A run file cannot be written, read or continued."""


class RuleError(NormgaugeError):
    """A rule of the user's has a mistake in it: the message names the rule and the step, the cause is its own error."""


class NotCovered(NormgaugeError):
    """Raised by a rule for a use it does not cover; the step is then `unknown`, and the message says why."""
