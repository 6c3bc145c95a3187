"""What would make every row false: options of a wrong form, a network of many answers, shuffled labels."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
from numpy import generic, ndarray
from torch import Tensor, nn

from normgauge.certificates.facts.cells import Partition, nearest_centres, neighbours
from normgauge.certificates.facts.sample import BATCH, DataSample, device_of, model_outputs
from normgauge.core.errors import InputError

LOOKED_AT = 2000  # samples whose nearest neighbours are compared
ENOUGH = 200  # samples, fewer say nothing about neighbours
ALONE = 8  # samples asked for one by one
UNLIKELY = 4.0  # standard deviations
MOVED = 0.01  # share of answers that rounding may move where a network jumps
MOST_TRIES, LEAST_DELTA = 10**9, 1e-100
TF32 = 2.0**-11  # what a product on a GPU may be rounded to


def refuse_unsteady(model: nn.Module, sample: DataSample, said: Tensor, name: str, most: int) -> None:
    """Refuse a network whose answers change with the order, the batch size, or from one call to the next.

    Rounding differs between batch sizes, so half of the digits must agree, and the class wherever they decide it.

    Args:
        model: the network.
        sample: what it was asked.
        said: what it said.
        name: of the sample.
        most: samples to ask again.

    Raises:
        InputError: saying whether it is random or depends on its batch.
    """
    order = torch.randperm(len(sample), generator=torch.Generator().manual_seed(0))[:most]
    size = max(1, 2 * min(BATCH, len(order)) // 5)
    first, second = said[order], model_outputs(model, sample, size, order)
    moved = _moved(model, first, second)
    alone = order[:ALONE]
    try:
        by_itself = _moved(model, said[alone], model_outputs(model, sample, 1, alone))
    except InputError:  # it cannot be asked about one sample
        by_itself = len(alone)
    if moved <= MOVED * len(order) and by_itself <= 1:
        return
    moved = max(moved, by_itself)
    if _moved(model, second, model_outputs(model, sample, size, order)) > 0:
        raise InputError(
            f"{name}: {moved} of {len(order)} answers of the network changed when it was asked again: it is random in "
            "eval mode (dropout or noise left on?), and a bound speaks about one function. Switch the randomness off"
        )
    raise InputError(
        f"{name}: {moved} of {len(order)} answers of the network changed with the other samples of the batch "
        "(BatchNorm without running statistics?): there is no one function to speak of. Let each answer depend on its "
        "input alone"
    )


def _moved(model: nn.Module, first: Tensor, second: Tensor) -> int:
    """How many rows differ by more than rounding; a shift of all numbers of a row changes no answer."""
    floats = [p.dtype for p in model.parameters() if p.is_floating_point()]
    eps = max((torch.finfo(kind).eps for kind in floats), default=torch.finfo(torch.float32).eps)
    eps = max(eps, torch.finfo(torch.float32).eps, TF32 if device_of(model).type == "cuda" else 0.0)
    centred = first - first.mean(1, keepdim=True)
    allowed = math.sqrt(eps) * float(centred.abs().max()) + 64 * eps * float(first.abs().max())
    apart = (second - second.mean(1, keepdim=True) - centred).abs().amax(1) > allowed
    flipped = first.argmax(1) != second.argmax(1)
    return max(int(apart.sum()), int(flipped.sum()))


def error_runs(wrong: Tensor, labels: Tensor) -> list[str]:
    """Warn if the wrong answers of a hold-out stand together, class by class: its samples may depend on each other.

    In an independent sample any order of the k wrong ones among the n of a class is as likely as any other: of a pairs
    of neighbours of that class a·k(k−1)/(n(n−1)) are wrong on both sides in the mean, with a variance of at most about
    (1 + 2k/n) times that. Class by class, since a hold-out may be sorted by class.
    """
    same = labels[1:] == labels[:-1]
    sizes, errors = torch.bincount(labels), torch.bincount(labels[wrong], minlength=int(labels.max()) + 1)
    pairs = torch.bincount(labels[1:][same], minlength=len(sizes))
    mean = (pairs * errors * (errors - 1)).double() / (sizes * (sizes - 1)).clamp(min=1)
    spread = math.sqrt(1 + float((mean * (1 + 2 * errors / sizes.clamp(min=1))).sum()))
    met, expected = int((wrong[1:] & wrong[:-1] & same).sum()), float(mean.sum())
    if met <= expected + UNLIKELY * spread:
        return []
    return [
        f"holdout: wrong answers stand together: {met} pairs of neighbours of one class, and independent samples make "
        f"{expected:.0f}. Frames of a scene, a series, repeated measurements? Say with groups= which samples belong "
        "together; nothing is amiss if they are independent and merely sorted"
    ]


def warnings_of(train: DataSample, holdout: DataSample | None) -> list[str]:
    """Sentences about the training sample; empty where nothing is suspicious.

    Args:
        train: the training sample.
        holdout: independent labelled samples, to compare it with.
    """
    said = []
    extra = len(train) - len(set(train.marks))
    if extra:
        said.append(
            f"train: {extra} of {len(train)} samples are exact copies of others. A sample made by copying or "
            "augmenting is not iid, and no bound holds for it; copies that occur in nature do no harm"
        )
    flipped = _mirrored(train)
    if flipped:
        said.append(
            f"train: {flipped} samples are mirror images of others: an augmented sample is not iid, and no bound holds "
            "for it"
        )
    for name, sample in (("train", train), ("holdout", holdout)):
        if sample is not None and sample.labels is not None and len(sample) > 1 and len(sample.labels.unique()) == 1:
            said.append(
                f"{name}: every label is class {int(sample.labels[0])}; the rows speak about a source that gives no "
                "other class"
            )
    size = 0 if holdout is None else min(len(train), len(holdout), LOOKED_AT)
    if holdout is not None and size >= ENOUGH:
        first, second = label_agreement(train, size), label_agreement(holdout, size)
        pooled = (first + second) / 2
        if first < second - UNLIKELY * math.sqrt(2 * pooled * (1 - pooled) / size):
            said.append(
                f"train: neighbours share a label less often than in the hold-out ({first:.3f} against {second:.3f}): "
                "some labels may be shuffled, or hold-out samples come in groups, such as frames of one scene (groups=)"
            )
    return said


def label_agreement(sample: DataSample, count: int = LOOKED_AT) -> float:
    """The share of ``count`` random samples whose nearest neighbour among them has the same label."""
    chosen = torch.randperm(len(sample), generator=torch.Generator().manual_seed(0))[:count]
    points, labels = sample.take(chosen).float(), sample.truth[chosen]
    return float((labels[neighbours(points)[1]] == labels).double().mean()) if len(points) > 1 else 1.0


def _mirrored(sample: DataSample) -> int:
    """How many of the first samples, as images, are another one's mirror image and not their own."""
    first = sample.take(range(min(len(sample), LOOKED_AT)))
    if first.ndim != 4 or first.shape[-1] < 4:
        return 0
    flat, turned = first.flatten(1).float(), first.flip(-1).flatten(1).float()
    own = (flat == turned).all(1)
    _, squares = nearest_centres(turned, flat)
    return int(((squares == 0) & ~own).sum())


def refuse_options(
    *,
    delta: Any,
    tries: Any,
    radius: Any,
    epochs: Any,
    seed: Any,
    cells: Any,
    loss: Any,
    clip: Any,
    partition: Any,
    surrogate: Any,
) -> None:
    """Refuse options of the wrong form.

    Raises:
        InputError: with what was expected.
    """

    def number(value: Any, kind: type) -> bool:
        return isinstance(value, kind | int) and not isinstance(value, bool)

    counted = number(tries, int) and 1 <= tries <= MOST_TRIES
    pair = isinstance(surrogate, tuple | list) and len(surrogate) == 2 and isinstance(surrogate[0], nn.Module)
    reach = radius is None or (number(radius, float) and 0 < radius < math.inf)
    passes = epochs is None or (number(epochs, int) and epochs >= 0)
    for fine, said in (
        (counted, f"tries: expected how many networks were compared on these samples, 1 or more, got {tries!r}"),
        (
            counted and number(delta, float) and delta / tries >= LEAST_DELTA and delta < 1,
            f"delta: expected a share of failure between 0 and 1, got {delta!r}",
        ),
        (reach, f"radius: expected a positive number, got {radius!r}"),
        (passes, f"epochs: expected a whole number, 0 or more, got {epochs!r}"),
        (number(seed, int), f"seed: expected a whole number, got {seed!r}"),
        (cells >= 1, f"cells: expected a number from 1 up, got {cells}"),
        (loss in ("ramp", "cross-entropy"), f"loss: expected 'ramp' or 'cross-entropy', got {loss!r}"),
        (clip is None or 0 < clip < math.inf, f"clip: expected a positive number, got {clip}"),
        (
            loss != "ramp" or clip is None,
            "clip: the ramp has the range 1 already; clip= goes with loss='cross-entropy'",
        ),
        (
            partition is None or isinstance(partition, Partition),
            f"partition: expected a Partition, such as k_means(inputs, 100), got {type(partition).__name__}",
        ),
        (surrogate is None or pair, "surrogate: expected (network, labelled samples it never saw)"),
    ):
        if not fine:
            raise InputError(said)


def records(sample: DataSample, labelled: bool) -> Sequence[Hashable]:
    """One record a sample: the fingerprint of its input, with its label if ``labelled``."""
    return list(zip(sample.marks, sample.truth.tolist(), strict=True)) if labelled else sample.marks


def grouping(given: Any, holdout: DataSample | None) -> Tensor | None:
    """The group of each hold-out sample as a number from 0; None without groups.

    Raises:
        InputError: where there is not one label for each hold-out sample.
    """
    if given is None:
        return None
    if holdout is None:
        raise InputError("groups: expected with holdout=, whose samples they belong to; got no hold-out")
    if not isinstance(given, Iterable) or isinstance(given, Mapping | str | bytes | set):
        raise InputError(f"groups: expected one number or name a hold-out sample, got a {type(given).__name__}")
    count = len(holdout)
    labels = given.tolist() if isinstance(given, Tensor | ndarray) else list(given)
    if len(labels) != count:
        raise InputError(f"groups: expected a label for each of the {count} samples of holdout=, got {len(labels)}")
    labels = [label.item() if isinstance(label, Tensor | generic) and label.ndim == 0 else label for label in labels]
    names = [part for label in labels for part in (label if isinstance(label, tuple) else (label,))]
    strange = next((name for name in names if not isinstance(name, int | float | str | bytes)), None)
    if strange is not None:
        raise InputError(f"groups: expected one number or name a sample, got a {type(strange).__name__}")
    numbers: dict[Any, int] = {}
    found = torch.tensor([numbers.setdefault(label, len(numbers)) for label in labels])
    if any(label != label for label in numbers):
        raise InputError("groups: expected a group for every sample, got NaN; name the group of each")
    return found
