"""Sample compression: networks that were trained on a few samples of D and are right on the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from normgauge.certificates.bounds.compression import pick_to_learn_bound, sample_compression_bound
from normgauge.certificates.bounds.parts import Parts
from normgauge.certificates.bounds.roots import FEW, samples_needed
from normgauge.certificates.case import Case
from normgauge.certificates.conditions import CORESET, PICKED, TRAIN, joined_conditions
from normgauge.core.certificate import Consumed, Row, RowKind, promised_row
from normgauge.core.errors import InputError

SAMPLE = Row(
    key="compression.sample",
    name="Sample compression",
    family="compression",
    kind=RowKind.NOT_APPLICABLE,
    consumed=(Consumed.TRAIN_LABELS,),
    additive=True,
    reason="the network depends on all m samples; train it on a few of them and name their places with coreset=",
    source="Littlestone & Warmuth 1986; Laviolette, Marchand & Shah 2005",
    formula="R ≤ Bin⁻¹(k, m−|i|, δ·(6/π²)(|i|+1)⁻²/C(m,|i|)),  k errors on the m−|i| samples it was not trained on",
)
PICK_TO_LEARN = dataclasses.replace(
    SAMPLE,
    key="compression.pick_to_learn",
    name="Pick-to-learn",
    reason="the network was not trained by pick-to-learn; if it was, say how many samples it picked with picked=",
    source="Paccagnan, Campi & Garatti 2023, Theorem 4.2; Campi & Garatti 2023, Theorem 7",
    formula="R ≤ ε with (δ/m) Σ_{n=k}^{m−1} [C(n,k)/C(m,k)] (1−ε)^−(m−n) = 1,  k samples picked, no other wrong",
)


def compression_rows(
    case: Case, *, coreset: Sequence[int] | Tensor | None = None, picked: int | None = None
) -> Iterator[Row]:
    """The rows of this family.

    Args:
        case: the network and its data.
        coreset: the places in D of all the samples that went into the network, by a recipe fixed in advance.
        picked: how many samples pick-to-learn picked before it stopped by itself.

    Yields:
        ``compression.sample``, ``compression.pick_to_learn``.
    """
    wrong = (case.logits.argmax(1) != case.train.truth).nonzero().flatten()
    kept = None if coreset is None else _places(coreset)
    yield _sample(case, wrong, kept)
    yield _picked(case, wrong, kept, picked)


def _sample(case: Case, wrong: Tensor, kept: Tensor | None) -> Row:
    if kept is None:
        return SAMPLE
    if not torch.isin(kept, torch.arange(case.m)).all():
        met = f"{int(kept.min())} to {int(kept.max())}"
        reason = f"expected coreset= as places in D, from 0 to {case.m - 1}, got {met}"
        return dataclasses.replace(SAMPLE, reason=reason)
    errors = int((~torch.isin(wrong, kept)).sum())
    return _promised(
        SAMPLE,
        lambda m: sample_compression_bound(-(-errors * m // case.m), m, len(kept), case.delta),
        case,
    )


def _picked(case: Case, wrong: Tensor, kept: Tensor | None, picked: int | None) -> Row:
    if picked is None:
        return PICK_TO_LEARN
    if isinstance(picked, bool) or not isinstance(picked, int) or not 0 <= picked <= case.m:
        return dataclasses.replace(PICK_TO_LEARN, reason=f"expected picked= between 0 and {case.m}, got {picked!r}")
    inside = torch.isin(wrong, kept) if kept is not None and len(kept) == picked else torch.zeros_like(wrong).bool()
    left = int((~inside).sum())
    if left:
        reason = f"pick-to-learn ends when no sample is left that is wrong, and {left} of D are; go on picking"
        return dataclasses.replace(PICK_TO_LEARN, reason=reason)
    return _promised(PICK_TO_LEARN, lambda m: pick_to_learn_bound(picked, m, case.delta), case)


def _places(coreset: Sequence[int] | Tensor) -> Tensor:
    """The coreset as places.

    Raises:
        InputError: for a mask, for repeats, for anything but a list of whole numbers.
    """
    try:
        found = torch.as_tensor(coreset)
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(())
    whole = found.numel() == 0 or not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    if found.ndim != 1 or not whole or len(found.unique()) < len(found):
        raise InputError(
            "coreset: expected the places in train of the samples the network was made from, each once, as whole "
            "numbers (of a mask: mask.nonzero().flatten())"
        )
    return found.long()


def _promised(template: Row, at: Callable[[int], Parts], case: Case) -> Row:
    parts = at(case.m)
    return promised_row(
        template,
        reason="",
        value=parts.value,
        terms=parts.terms,
        confidence=1 - case.delta,
        condition=joined_conditions(TRAIN, CORESET if template is SAMPLE else PICKED),
        needed=None if parts.value < 1 else samples_needed(lambda m: at(m).value, case.m, 1.0, FEW),
    )
