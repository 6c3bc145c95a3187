"""The network as it is against the same one without its normalizers, in what worst-case laws of training use."""

from __future__ import annotations

from normgauge.advice.whatif.exchange import ModuleChange, swapped_modules
from normgauge.advice.whatif.question import WhatIf, identity_for
from normgauge.core.errors import ReadingError
from normgauge.core.ratios import Ratios, ratios
from normgauge.core.reading import Reading
from normgauge.instrument.rules.normalizer import BATCH
from normgauge.instrument.rules.tried import of_module

WITHOUT = "the same network without its normalizers, all weights as they are"


def complexity(asked: WhatIf) -> Ratios:
    """Ratios of bounds of a network's slopes in its weights to those of the network without its normalizers.

    Args:
        asked: made by `what_if`; point and ball scopes, where both are finite, say most.

    Returns:
        One entry for each layer with weights.

    Raises:
        ReadingError: when the network has changed since, or has no normalizer that is a module.
    """
    reading, bare = asked.reading, without_normalizers(asked)
    left = [record.name for record in bare.layers if record.sigma is not None]
    notes = [f"Normalizers that are functions and not modules stay in B: {', '.join(left)}."] if left else []
    if reading.mode == "eval" and any(record.rule.startswith(BATCH) for record in reading.layers):
        notes.append("BatchNorm is taken with its statistics frozen; in training they move with the weights.")
    return ratios(reading, bare, names=(f"{reading.model} as it is", WITHOUT), notes=notes)


def without_normalizers(asked: WhatIf) -> Reading:
    """The reading with every normalizer that is a module replaced by the identity, measured once.

    Raises:
        ReadingError: when the network has changed, or there is no such normalizer.
    """
    asked.check_unchanged()
    with swapped_modules(asked.model, asked.changes):
        changes = tuple(_identities(asked))
    if not changes:
        raise ReadingError("the network has no normalizer that is a module: there is nothing to compare it with")
    return asked.changed(changes).reading


def _identities(asked: WhatIf) -> list[ModuleChange]:
    """An identity for every path of a normalizer that runs; one under two names is replaced at both."""
    found = []
    for path, module in asked.model.named_modules(remove_duplicate=False):
        visits = asked.visits(module) if path else []
        if visits and of_module(module, visits[0][0]) is not None:
            found.append(identity_for(path, module))
    return found
