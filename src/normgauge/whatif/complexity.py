"""The network as it is against the same one without its normalizers, in what worst-case laws of training use."""

from __future__ import annotations

import dataclasses

from torch import nn

from normgauge.core.ratios import Ratios, ratios
from normgauge.core.reading import Reading
from normgauge.errors import ReadingError
from normgauge.rules.tried import of_module
from normgauge.whatif.exchange import Change, hooked_like, swapped
from normgauge.whatif.measured import Measured

WITHOUT = "the same network without its normalizers, all weights as they are"


def complexity(reading: Reading) -> Ratios:
    """Ratios of a network's constants in its weights to those of the same network without its normalizers.

    Args:
        reading: made by `gauge` in this process; point and ball scopes, where both are finite, say most.

    Returns:
        One entry for each layer with weights.

    Raises:
        ReadingError: when the reading has no network any more, or the network no normalizer that is a module.
    """
    bare = without_normalizers(reading)
    left = [record.name for record in bare.layers if record.sigma is not None]
    notes = [f"Normalizers that are functions and not modules stay in B: {', '.join(left)}."] if left else []
    if reading.mode == "eval" and any("BatchNorm" in record.kind for record in reading.layers):
        notes.append("BatchNorm is taken with its statistics frozen; in training they move with the weights.")
    return ratios(reading, bare, names=(f"{reading.model} as it is", WITHOUT), notes=notes)


def without_normalizers(reading: Reading) -> Reading:
    """The reading with every normalizer that is a module replaced by the identity, measured once.

    Raises:
        ReadingError: when the reading came from a file, the network has changed, or there is no such normalizer.
    """
    source = reading.source
    if not isinstance(source, Measured):
        raise ReadingError(
            "this reading came from a file and no longer has its network: measure it in this process, or give a "
            "second reading to compare with"
        )
    source.check_unchanged()
    with swapped(source.model, source.changes):
        changes = _identities(source)
    if not changes:
        raise ReadingError("the network has no normalizer that is a module: there is nothing to compare it with")
    *others, last = changes
    both = dataclasses.replace(source, changes=(*source.changes, *others))
    return both.answer(reading, last, 1)


def _identities(source: Measured) -> list[Change]:
    """An identity for every path of a normalizer that runs; one under two names is replaced at both."""
    found = []
    for path, module in source.model.named_modules(remove_duplicate=False):
        visits = source.visits(module) if path else []
        if visits and of_module(module, visits[0][0]) is not None:
            said = f"what if: {path} ({type(module).__name__}) is replaced by the identity, all weights as they are"
            found.append(Change(path, hooked_like(nn.Identity(), module), said))
    return found
