"""Samples in two places: records of train in the hold-out, repeats, near copies; judged by what nature explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from normgauge.certificates.facts.cells import neighbours
from normgauge.certificates.facts.sample import DataSample
from normgauge.core.errors import InputError

SPLITS = 999  # random splits a split is compared with
LEVEL = 0.005  # the share of splits by chance that may be refused, for each of two counts
NOTED = 0.01  # share of near copies worth a word
UNLIKELY = 4.0  # standard deviations that refuse
UNUSUAL = 3.0  # those worth a word; training samples that are near come in pairs, which widens the spread
ZOOM = 4.0  # a smaller and a larger radius by which dense data are told from copies
RARE = 0.1  # share of near samples that is left to look at them in dense data
SPACED = 300  # samples the typical distance is taken from
DIMENSIONS = 32  # of the projection
BLOCK = (512, 2048)  # points and centres compared at a time, so that the distances stay in the cache
PAIRS = 2 * 10**9  # compared at most
OWN = 10_000  # training samples compared with the rest of train


def refuse_leak(
    train: Sequence[Hashable], fresh: Sequence[Hashable], name: str, *, independent: bool = True
) -> list[str]:
    """Refuse fresh records that are in train, or repeated, more often than repeats by nature explain.

    Records of one source fall into train and the fresh sample at random. So the pooled records are split anew at
    random, again and again: counts that hardly any such split reaches were made by hand. Different records are
    counted, so that frequent ones, which are everywhere, add no noise. Equal records as such prove nothing: where
    inputs are discrete they must occur, and taking them out would bias the sample.

    Args:
        train: one record a training sample: its fingerprint, with its label where both sides have labels.
        fresh: those of the other sample.
        name: of the other sample.
        independent: whether fresh records are independent; in groups they may repeat.

    Returns:
        A sentence on what is shared and may be natural.

    Raises:
        InputError: with the counts.
    """
    numbers: dict[Hashable, int] = {}
    ids = torch.tensor([numbers.setdefault(record, len(numbers)) for record in (*fresh, *train)])
    totals = torch.bincount(ids)
    places = (totals[ids] > 1).nonzero().squeeze(1)
    met, ids = ids[places].unique(return_inverse=True)
    totals, n = totals[met], len(fresh)

    def fallen(chosen: Tensor) -> Tensor:
        """How many different records are on both sides, and how many more than once on this side alone."""
        own = torch.bincount(ids[chosen[places]], minlength=len(totals))
        return torch.stack([((own > 0) & (own < totals)).sum(), (own == totals).sum()])

    given = torch.arange(n + len(train)) < n
    seen = fallen(given)
    if not seen.any():
        return []
    generator = torch.Generator().manual_seed(0)
    reached = torch.zeros(2, dtype=torch.long)
    for _ in range(SPLITS):
        reached += fallen(torch.randperm(len(given), generator=generator) < n) >= seen
    leak, copied = ((1 + reached) / (1 + SPLITS) <= LEVEL).tolist()
    known = set(train)
    shared, repeated = sum(record in known for record in fresh), n - len(set(fresh))
    within = len(train) - len(set(train))
    if leak:
        raise InputError(
            f"{name}: {shared} of its {n} samples are training samples too, more than the {within} repeats among the "
            f"{len(train)} of train explain: a leak. Split the data again by record before training; to take out "
            f"equal samples now would bias {name}"
        )
    if copied and independent:
        raise InputError(
            f"{name}: {repeated} of its {n} samples are exact copies of others in it, more than the {within} repeats "
            f"among the {len(train)} of train explain; give every sample that was drawn once"
        )
    if not shared:
        return []
    return [
        f"{name}: {shared} of its {n} samples are training samples too, no more than chance makes of the repeats there "
        "are; if they were copied, split the data again by record before training"
    ]


def refuse_near_copies(train: DataSample, fresh: DataSample, name: str) -> list[str]:
    """Refuse fresh samples that are nearly training samples more often than training samples are near each other.

    Near: closer than a twentieth of the typical distance to the nearest of a few hundred others. Independent draws of
    a source of few dimensions are that near to training samples, as often as training samples are to each other;
    that deserves a word only where it does not look like such draws: see `_spread_evenly`.

    Returns:
        Sentences on near copies that may be natural, and on training samples that were not compared.

    Raises:
        InputError: with the counts.
    """
    limit, m, n = PAIRS // len(fresh), len(train), len(fresh)
    kept = torch.arange(m) if m <= limit else torch.linspace(0, m - 1, limit).long()
    near = max(_spacing(train), _spacing(fresh)) / 20
    if near == 0:
        return []
    basis = _basis(math.prod(train.take([0]).shape))
    centres, points = _projected(train, basis)[kept], _projected(fresh, basis)
    looked = torch.linspace(0, len(kept) - 1, min(len(kept), n, OWN)).long()
    close = _close(fresh, torch.arange(n), points, (train, kept, centres), near)
    usual = _close(train, kept[looked], centres[looked], (train, kept, centres), near)
    said = f"{name}: {close} of its {n} samples are nearly training samples (moved, rescaled or noisy copies?)"
    share, ordinary = close / n, usual / len(looked)
    pooled = (close + usual) / (n + len(looked))
    spread = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / len(looked)))
    if share > NOTED and share > ordinary + UNLIKELY * spread:
        raise InputError(
            f"{said}, and {usual} of {len(looked)} training samples are that near to others: a leak. Split the data "
            "again before training, all copies of a sample to one side"
        )

    def met(radius: float) -> int:
        """How many have a neighbour among so few training samples that having one is rare."""
        thin = torch.linspace(0, len(kept) - 1, math.ceil(len(kept) * min(1.0, RARE / share))).long()
        return _close(fresh, torch.arange(n), points, (train, kept[thin], centres[thin]), radius)

    words = []
    if share > NOTED and (share > ordinary + UNUSUAL * spread or not _spread_evenly(met, near)):
        words.append(
            f"{said}, and {usual} of {len(looked)} training samples are that near to others. Copies of one sample "
            "belong to one side"
        )
    if len(kept) < m:
        words.append(f"{name}: near copies were looked for among {len(kept)} of the {m} training samples only")
    return words


def _spread_evenly(met: Callable[[float], int], near: float) -> bool:
    """Whether samples are near because the source is dense: copies leave a gap in the distances.

    Around a point of a source of d dimensions there are others within r as r^d: a fourth of the radius holds a fourth
    of them or fewer. Of copies as many are within a fourth of the radius, or no fewer within the radius than within
    four times that. So half or less must be within the next smaller radius.

    Args:
        met: how many samples have a neighbour within a radius, where that is rare.
        near: the radius.
    """
    less, close, more = (met(near * scale) for scale in (1 / ZOOM, 1, ZOOM))
    return close > 0 and 2 * less <= close and 2 * close <= more


def _spacing(sample: DataSample) -> float:
    """The median distance to the nearest of a few hundred others."""
    chosen = torch.linspace(0, len(sample) - 1, min(len(sample), SPACED)).long()
    return float(neighbours(sample.take(chosen).float())[0].median()) if len(chosen) > 1 else 0.0


def _basis(width: int) -> Tensor | None:
    """Orthonormal columns; None where the space is small. Distances in their span are never larger than before."""
    if width <= DIMENSIONS:
        return None
    return torch.linalg.qr(torch.randn(width, DIMENSIONS, generator=torch.Generator().manual_seed(0)))[0]


def _projected(sample: DataSample, basis: Tensor | None) -> Tensor:
    flat = (x.flatten(1).float() for x in sample.batches())
    return torch.cat([x if basis is None else x @ basis for x in flat])


def _close(
    sample: DataSample, rows: Tensor, points: Tensor, others: tuple[DataSample, Tensor, Tensor], near: float
) -> int:
    """How many of these rows of a sample, projected to points, have another sample nearer than this.

    Args:
        sample: what the rows are of.
        rows: places in the sample.
        points: their projections.
        others: the other sample, the places of it that count, and their projections.
        near: the distance.
    """
    against, places, centres = others
    found = 0
    for some, block in zip(rows.split(BLOCK[0]), points.split(BLOCK[0]), strict=True):
        best, partner = torch.full((len(some),), math.inf), torch.zeros(len(some), dtype=torch.long)
        for start in range(0, len(centres), BLOCK[1]):
            there = places[start : start + BLOCK[1]]
            squares = _squares(block, centres[start : start + BLOCK[1]])
            if sample is against:
                squares = squares.masked_fill(some[:, None] == there, math.inf)
            least = squares.amin(1)
            better = (least < best) & (least < 4 * near**2)
            if better.any():
                partner[better], best[better] = there[squares[better].argmin(1)], least[better]
        met = best.isfinite().nonzero().squeeze(1)
        if len(met):
            apart = sample.take(some[met]).flatten(1).double() - against.take(partner[met]).flatten(1).double()
            found += int((apart.norm(dim=1) < near).sum())
    return found


def _squares(points: Tensor, centres: Tensor) -> Tensor:
    """Squared distances by ‖x‖² − 2⟨x, c⟩ + ‖c‖², after moving the origin to the centres."""
    origin = centres.mean(0)
    points, centres = points - origin, centres - origin
    return torch.addmm(centres.square().sum(1), points, centres.T, alpha=-2) + points.square().sum(1, keepdim=True)
