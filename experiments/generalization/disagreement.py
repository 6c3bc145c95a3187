"""A certificate for an unmodified network that was trained on all the data, by way of a surrogate.

    R(f) ≤ R(h) + P(f ≠ h) ≤ CP(errors of h on D∖S₀, δ/2) + CP(disagreements of f and h on U, δ/2)

f is trained on all of D. The surrogate h, here the mean of a few networks, is trained on S₀, a random part of D whose
size is fixed beforehand: the rest of D is a hold-out for h, though not for f. U are the test images without their
labels, which neither saw. Both Clopper–Pearson limits hold together with probability 1 − δ.

Holds:  D and U iid from one distribution; S₀ drawn without looking at the labels; nothing tuned on D∖S₀ through h or on
        U. Augmentation in training is no matter: the theorem asks nothing of how f and h came about.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.generalization import data, nets, train
from experiments.generalization.data import Data
from experiments.generalization.place import LateError, Place
from experiments.generalization.train import Checkpoint, Recipe
from normgauge.certificates.bounds.holdout import clopper_pearson


def certificate(wrong: int, rest: int, differ: int, unlabeled: int, delta: float) -> dict[str, float]:
    """The bound and its two terms.

    Args:
        wrong: errors of the surrogate on labelled samples it never saw.
        rest: how many of these there are.
        differ: samples on which network and surrogate disagree.
        unlabeled: samples neither of them saw.
        delta: the share of failure; half of it goes to each term.

    Returns:
        "surrogate", "disagreement" and their sum "bound".
    """
    share = math.log(delta / 2)
    terms = {
        "surrogate": clopper_pearson(wrong, rest, share),
        "disagreement": clopper_pearson(differ, unlabeled, share),
    }
    return {**terms, "bound": min(1.0, math.nextafter(sum(terms.values()), math.inf))}


def run(settings: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Train f and the surrogates, count, certify.

    Args:
        settings: data, seed, first, surrogates, delta, norm, net, width, depth, recipe; limit cuts the data for a
            quick look.
        place: device, folder of the checkpoints, time.

    Returns:
        Counts, the certificate, and beside it what the test labels say, which no term has used.
    """
    everything = cut(data.load(settings["data"], place.device, place.folder), settings.get("limit"))
    seed = int(settings["seed"])
    chosen, rest = data.split(len(everything.labels), settings["first"], seed)
    first = data.subset(everything, chosen)
    f = trained("f", everything, settings, place, 1000 * seed)
    surrogates = [trained(f"h{k}", first, settings, place, 1000 * seed + 1 + k) for k in range(settings["surrogates"])]
    unseen = rest.to(everything.labels.device)
    held, wanted = everything.train[unseen], everything.labels[unseen]
    said = train.logits(f, everything, everything.test).argmax(1)
    counts = counted(surrogates, everything, held, wanted, said)
    single = counted(surrogates[:1], everything, held, wanted, said)
    delta = settings["delta"]
    own = int((said != everything.test_labels).sum())
    return {
        "counts": {**counts, "first": len(chosen), "samples": len(everything.labels)},
        "certificate": certificate(**counts, delta=delta),
        "single": {**single, **certificate(**single, delta=delta)},
        # With labels of U a plain hold-out bound is better, as always; it is printed beside.
        "holdout": clopper_pearson(own, len(said), math.log(delta)),
        "truth": {
            "error": own / len(said),
            "surrogate_error": float(
                (vote(surrogates, everything, everything.test) != everything.test_labels).double().mean()
            ),
            "train_error": train.errors(f, everything)["train_error"],
        },
    }


def trained(name: str, own: Data, settings: Mapping[str, Any], place: Place, seed: int) -> nn.Module:
    """A network at the end of its training; begun, resumed or read.

    Raises:
        LateError: when the time is up before it is trained.
    """
    model = nets.build(
        settings["net"], settings["norm"], own.shape, width=settings["width"], depth=settings["depth"], seed=seed
    )
    checkpoint = Checkpoint(place.state / f"{name}.pt", place.late)
    if not train.fit(model, own, Recipe(**settings["recipe"]), seed, checkpoint=checkpoint) or place.late():
        raise LateError(f"{name} of {settings['data']} is at {checkpoint.path}; run the command again to go on")
    return model


def vote(models: Sequence[nn.Module], own: Data, images: Tensor) -> Tensor:
    """The classes a group of networks gives: the largest mean of their softmax."""
    return torch.stack([train.logits(model, own, images).softmax(1) for model in models]).mean(0).argmax(1)


def counted(surrogates: Sequence[nn.Module], own: Data, held: Tensor, wanted: Tensor, said: Tensor) -> dict[str, int]:
    """What goes into the certificate.

    Args:
        surrogates: of which h is the mean.
        own: the data, for their scale and the images of U.
        held: images the surrogates never saw.
        wanted: their labels.
        said: what f says of U.
    """
    wrong = int((vote(surrogates, own, held) != wanted).sum())
    differ = int((vote(surrogates, own, own.test) != said).sum())
    return {"wrong": wrong, "rest": len(held), "differ": differ, "unlabeled": len(said)}


def cut(own: Data, limit: int | None) -> Data:
    """The first images only, for a quick look."""
    if limit is None:
        return own
    few = {"train": own.train, "labels": own.labels, "test": own.test, "test_labels": own.test_labels}
    return dataclasses.replace(own, **{name: tensor[:limit] for name, tensor in few.items()})
