"""Top singular directions that are kept from reading to reading: a norm from below for one product each way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from normgauge.core.rounding import house_down
from normgauge.monitor.maps import Maps

WARM_UP = 16  # turns of new directions: enough for a norm within about a per cent

# A CPU keeps more directions, which cost it little beside reading a weight: where norms lie close together or grow, the
# ones behind the first are next. Of so many in all, the first are the best ones, and the next the gradients there.
BLOCK, BEST, SLOPES = 6, 3, 2

RIDGE = 1e-6  # added to the products of directions, so that those that nearly are combinations of others count little

# Share of a norm that a combination may show less of than the first direction alone, and the most that coefficients may
# add up to: beyond these it is made of rounding
FAIR, MOST_PARTS = 1e-3, 16

SQUARINGS = 10  # of a 3 × 3 matrix: two directions are told apart from a part in a thousand on


class Turned(NamedTuple):
    """Directions after a turn, and what they showed.

    Attributes:
        space: (maps, 3 or `BLOCK`, inputs), as the next turn needs it.
        folded: (maps, 1, inputs), the direction of the maps as folded.
        image: ‖A v‖ of the best direction v in the three.
        length: ‖v‖, which is 1 up to rounding.
        parts: Σ|c| of v's coefficients c in the directions.
        gain: ‖A′v′‖ of the folded map A′ and its direction.
        gained: ‖A v‖ over what the first direction alone showed; None where that is not known.
    """

    space: Tensor
    folded: Tensor
    image: Tensor
    length: Tensor
    parts: Tensor
    gain: Tensor
    gained: Tensor | None = None


class Fold(NamedTuple):
    """What makes A′ = diag(outer) A diag(inner) of each map: (maps, 1, outputs), (maps, 1, inputs), None for ones."""

    outer: Tensor | None
    inner: Tensor | None

    def before(self, rows: Tensor) -> Tensor:
        """Rows as they go into the map."""
        return rows if self.inner is None else rows * self.inner

    def behind(self, rows: Tensor) -> Tensor:
        """Rows as they come out of it."""
        return rows if self.outer is None else rows * self.outer


def cold_space(count: int, inputs: int, like: Tensor, dtype: torch.dtype, directions: int = 3) -> Tensor:
    """Some directions a map that look random, made where they are used: copying them to a device would wait."""
    place = torch.arange(1, directions * inputs + 1, dtype=torch.float64, device=like.device)
    rows = torch.cos(place * place * 1.6180339887).reshape(directions, inputs)
    return F.normalize(rows, dim=-1).to(dtype).expand(count, directions, inputs).clone()


class Job(NamedTuple):
    """Maps whose directions are to be turned: (maps, 3 or `BLOCK`, inputs) as they are, (maps, 1, inputs) as folded."""

    maps: Maps
    space: Tensor
    folded: Tensor
    fold: Fold


def warm_folded(maps: Maps, folded: Tensor, fold: Fold) -> Tensor:
    """New directions of the folded maps after as many power steps as `turn` would take to warm all others up."""
    for _ in range(WARM_UP - 1):
        image = fold.behind(maps.forward(fold.before(folded)))
        made = fold.before(maps.adjoint(fold.behind(_unit(image))))
        lengths = torch.linalg.vector_norm(made, dim=-1, keepdim=True, dtype=torch.float64)
        alive = (lengths > 0.0) & (lengths < torch.inf)
        folded = torch.where(alive, (made / lengths).to(folded.dtype), folded)
    return folded


def turn(jobs: Sequence[Job], *, moves: bool = True) -> list[Turned]:
    """One step of locally optimal conjugate directions for the largest singular value of each map.

    The three directions are the best one so far, the gradient of ‖Av‖² there, and the last move; the best combination
    of them is the top Ritz vector, found for all maps at once. The direction of the folded map takes a power step in
    the same products. What died or overflowed (a weight that is 0, or no number) leaves them as they were.

    Args:
        jobs: what is to be turned.
        moves: whether directions move; else the best combination of the three is looked at where they are, for half
            the products, or on a CPU, where products cost more than launches, the first of the three alone.

    Source: Knyazev, SIAM J. Sci. Comput. 23 (2001) 517, with one vector and no preconditioner.
    """
    own = [job.maps.turned(job.space, job.folded, job.fold, moves=moves) for job in jobs]
    others = iter(_turned_together([j for j, f in zip(jobs, own, strict=True) if f is None], moves))
    pairs = zip(jobs, own, strict=True)
    return [next(others) if found is None else Turned(job.space, job.folded, *found[:4]) for job, found in pairs]


def _turned_together(jobs: Sequence[Job], moves: bool) -> list[Turned]:
    if not jobs:
        return []
    if jobs[0].maps.device.type == "cpu" and not moves:
        return [_glanced_at(job) for job in jobs]
    if all(job.space.shape[1] == BLOCK for job in jobs):
        return [_turned_block(job) for job in jobs]
    if any(job.space.shape[1] == BLOCK for job in jobs):
        return [turned for job in jobs for turned in _turned_together([job], moves)]
    bases = [_orthonormal(job.space) for job in jobs]
    images = [j.maps.forward(torch.cat([b, j.fold.before(j.folded)], dim=1)) for j, b in zip(jobs, bases, strict=True)]
    wide = [image[:, :3].double() for image in images]
    grams = [rows @ rows.mT for rows in wide]
    mixes = _top_vector(grams[0] if len(grams) == 1 else torch.cat(grams)).split([len(gram) for gram in grams])
    return [(_moved if moves else _looked_at)(*parts) for parts in zip(jobs, bases, images, mixes, strict=True)]


def _turned_block(job: Job) -> Turned:
    """One step with `BLOCK` directions: Ritz vectors of all, gradients at the first two, the last move of the first.

    With three, a norm that another was about to overtake fell short by 3.5 % under Adam; these see the others come.
    """
    maps, space, folded, fold = job
    images = maps.forward(torch.cat([space, fold.before(folded)], dim=1))
    products, grams = ((rows @ rows.mT).double() for rows in (space, images[:, :BLOCK]))  # they choose, no more
    mix = _top_mixes(products, grams).to(space.dtype)  # (maps, BEST, BLOCK)
    shown, length = (
        torch.linalg.vector_norm(mix[:, 0, None] @ rows, dim=(1, 2)) for rows in (images[:, :BLOCK], space)
    )
    fair = shown / length > (1 - FAIR) * (grams[:, 0, 0] / products[:, 0, 0]).sqrt()
    poor = ~fair | (mix[:, 0].abs().sum(-1) > MOST_PARTS)
    if bool(poor.any()):  # what the products say is their rounding: directions that are all but combinations
        mix = torch.where(poor[:, None, None], torch.eye(BEST, BLOCK, dtype=mix.dtype), mix)
    best = mix @ space
    rows = torch.cat([mix @ images[:, :BLOCK], fold.behind(images[:, BLOCK:])], dim=1)
    sizes = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)
    unit = (rows / sizes).to(space.dtype)
    back = maps.adjoint(torch.cat([unit[:, :SLOPES], fold.behind(unit[:, BEST:])], dim=1))
    slopes = (back[:, :SLOPES] / sizes[:, :SLOPES]).to(space.dtype) - best[:, :SLOPES]
    move = mix[:, :1, BEST:] @ space[:, BEST:]
    rows = torch.cat([best, slopes, move, _unit(fold.before(back[:, SLOPES:]))], dim=1)
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)
    noise = math.sqrt(maps.unit)  # as in `_moved`
    alive = (lengths > noise) & (lengths < torch.inf)
    made = torch.where(alive, (rows / lengths).to(space.dtype), torch.cat([space, folded], dim=1))
    gained = sizes[:, 0, 0] / lengths[:, 0, 0] * (products[:, 0, 0] / grams[:, 0, 0]).sqrt()
    parts = mix[:, 0].abs().sum(-1).double()
    return Turned(made[:, :BLOCK], made[:, BLOCK:], sizes[:, 0, 0], lengths[:, 0, 0], parts, sizes[:, BEST, 0], gained)


def _top_mixes(products: Tensor, grams: Tensor) -> Tensor:
    """Coefficients of the `BEST` top Ritz vectors, from the products of directions and those of their images."""
    known = torch.isfinite(grams).flatten(1).all(1) & torch.isfinite(products).flatten(1).all(1)
    one = torch.eye(BLOCK, dtype=grams.dtype)
    trace = grams.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(torch.finfo(grams.dtype).tiny)
    grams = torch.where(known[:, None, None], grams / trace[:, None, None], one)
    root = torch.linalg.cholesky_ex(torch.where(known[:, None, None], products, one) + RIDGE * one).L
    half = torch.linalg.solve_triangular(root, grams, upper=False)
    whole = torch.linalg.solve_triangular(root, half.mT, upper=False)
    try:
        vectors = torch.linalg.eigh(whole)[1][..., -BEST:].flip(-1)
    except torch.linalg.LinAlgError:  # rarely: numbers too far apart
        vectors = one[:, :BEST].expand(len(grams), BLOCK, BEST)
    return torch.linalg.solve_triangular(root.mT, vectors, upper=True).mT


def _glanced_at(job: Job) -> Turned:
    """What the best direction of the last turn shows, and the folded direction; both stay as they are."""
    maps, space, folded, fold = job
    best = space[:, :1]
    images = maps.forward(torch.cat([best, fold.before(folded)], dim=1))
    sizes = torch.linalg.vector_norm(images[:, 0], dim=-1, dtype=torch.float64)
    gain = torch.linalg.vector_norm(fold.behind(images[:, 1:])[:, 0], dim=-1, dtype=torch.float64)
    length = torch.linalg.vector_norm(best[:, 0], dim=-1, dtype=torch.float64)
    return Turned(space, folded, sizes, length, torch.ones_like(length), gain)


def _looked_at(job: Job, basis: Tensor, images: Tensor, mix: Tensor) -> Turned:
    """What the best combination of the three shows, and the folded direction; all stay as they are."""
    mix = mix.to(basis.dtype).unsqueeze(1)  # (maps, 1, 3)
    rows = torch.cat([mix @ images[:, :3], job.fold.behind(images[:, 3:])], dim=1)
    sizes = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
    length = torch.linalg.vector_norm(mix @ basis, dim=-1, dtype=torch.float64)[:, 0]
    return Turned(job.space, job.folded, sizes[:, 0], length, mix.abs().sum(-1).double()[:, 0], sizes[:, 1])


def _moved(job: Job, basis: Tensor, images: Tensor, mix: Tensor) -> Turned:
    """Directions after a step, from their images and the best combination of the three."""
    maps, space, folded, fold = job
    mix = mix.to(basis.dtype).unsqueeze(1)  # (maps, 1, 3)
    rows = torch.cat([mix @ images[:, :3], fold.behind(images[:, 3:])], dim=1)
    sizes = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)
    unit = (rows / sizes).to(basis.dtype)
    back = maps.adjoint(torch.cat([unit[:, :1], fold.behind(unit[:, 1:])], dim=1))
    best = mix @ basis
    gradient = (back[:, :1] / sizes[:, :1]).to(basis.dtype) - best
    rows = torch.cat([best, gradient, mix[..., 1:] @ basis[:, 1:], _unit(fold.before(back[:, 1:]))], dim=1)
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)
    made = (rows / lengths).to(basis.dtype)
    noise = math.sqrt(maps.unit)  # a gradient or move below this changes a norm by less than rounding does
    made = torch.where((lengths > noise) & (lengths < torch.inf), made, torch.cat([space, folded], dim=1))
    parts = mix.abs().sum(-1).double()[:, 0]
    return Turned(made[:, :3], made[:, 3:], sizes[:, 0, 0], lengths[:, 0, 0], parts, sizes[:, 1, 0])


def proved_lower(maps: Maps, turned: Turned, sizes: Tensor) -> Tensor:
    """‖A‖ ≥ ‖Av‖/‖v‖ with everything that was rounded taken off; 0 where a number is not finite.

    With q_i the directions, the image is Σ c_i fl(A q_i), off by Σ|c_i| of a product's error; the two norms and the
    combinations are off by (inputs + outputs + 64)·unit of themselves, or of Σ|c_i|, at most, in any order of sums.

    Args:
        maps: as they were when the directions were turned.
        turned: what the turn found, one entry a map.
        sizes: Frobenius norm of each weight, from above.
    """
    room = (maps.inputs + maps.outputs + 64) * maps.unit
    lost = turned.parts * (maps.product_error(sizes) + 4 * room * turned.image + maps.underflow)
    lower = house_down((turned.image - lost) / (turned.length * (1 + room) + room * turned.parts))
    return torch.where(torch.isfinite(lower), lower.clamp_min(0.0), 0.0)


def _orthonormal(rows: Tensor) -> Tensor:
    """Gram-Schmidt on three rows; one that is a combination of those before becomes noise, which does no harm."""
    known, second, third = rows.split(1, dim=1)  # each of unit length, as a turn leaves them
    for row in (second, third):
        known = torch.cat([known, _unit(row - (row @ known.mT) @ known)], dim=1)
    return known


def _unit(row: Tensor) -> Tensor:
    return row / torch.linalg.vector_norm(row, dim=-1, keepdim=True).clamp_min(torch.finfo(row.dtype).tiny)


def _top_vector(gram: Tensor) -> Tensor:
    """A unit top eigenvector of each small symmetric matrix; on a device by squaring, so that nothing waits for it."""
    if gram.device.type == "cpu" and bool(torch.isfinite(gram).all()):
        with suppress(torch.linalg.LinAlgError):  # rarely: numbers too far apart
            return torch.linalg.eigh(gram)[1][..., -1]
    power = gram
    for _ in range(2):
        power = power / power.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        for _ in range(SQUARINGS // 2):  # the trace stays above 3^-31 in between
            power = power @ power
    column = power.diagonal(dim1=-2, dim2=-1).argmax(-1)[..., None, None].expand(*power.shape[:-1], 1)
    return F.normalize(power.gather(-1, column).squeeze(-1), dim=-1, eps=torch.finfo(power.dtype).tiny)
