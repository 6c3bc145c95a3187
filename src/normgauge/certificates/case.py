"""What every row is computed from: the network, its data and the settings, gathered once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from normgauge.certificates.facts.sample import DataSample, model_outputs
from normgauge.certificates.facts.space import margins_of

LOOKED_AT = 64  # samples the network is followed on
Progress = Callable[[str, float], None]  # what is being done, share of it done in [0, 1]


def ignore_progress(what: str, share: float) -> None:
    """Take a progress report and do nothing with it."""


@dataclass(frozen=True, slots=True)
class Case:
    """One network and its data.

    The network is in eval mode while rows are computed and must be left as it is found: rows that train or perturb
    work on a deep copy.

    Attributes:
        model: maps a batch of inputs to one number a class.
        train: the sample D the network was trained on, inputs and labels.
        logits: of D, (m, classes), float32, on the CPU, in the order of ``train``.
        delta: the share of failure every row may spend, `tries` paid for; rows hold one at a time.
        holdout: labelled samples the training never saw, and their logits.
        unlabeled: inputs that neither the network nor the partition saw; labels in it are never read.
        encoder: the part of the network that never saw D.
        groups: (n,) which group each hold-out sample belongs to (a scene, a patient); None where each stands alone.
        data_free: names of tensors that were fixed without D, so that nobody pays for them.
        radius: size of the changes of an input that the rows on robust error allow; None leaves them out.
        epochs: passes over the data a row may train for; 0 forbids training.
        seed: of all random draws; two runs give the same certificate.
        progress: told how far the work is.
        untrained: what rows say that need training where ``epochs`` is 0.
    """

    model: nn.Module
    train: DataSample
    logits: Tensor  # (m, classes)
    delta: float = 0.05
    holdout: DataSample | None = None
    holdout_logits: Tensor | None = None
    unlabeled: DataSample | None = None
    encoder: nn.Module | None = None
    epochs: int = 5
    seed: int = 0
    progress: Progress = field(default=ignore_progress)
    groups: Tensor | None = None
    data_free: tuple[str, ...] = ()
    radius: float | None = None
    untrained: str = "it needs extra training, and epochs is 0; allow some with epochs="

    @property
    def classes(self) -> int:
        """The number of classes: how many numbers the network gives."""
        return self.logits.shape[1]

    @property
    def m(self) -> int:
        """The number of training samples."""
        return len(self.train)

    @property
    def margins(self) -> Tensor:
        """(m,) margins of D, float64."""
        return margins_of(self.logits, self.train.truth)

    @property
    def held(self) -> Tensor | None:
        """(n,) margins of the hold-out, float64; None without labelled hold-out samples."""
        if self.holdout is None or self.holdout_logits is None or self.holdout.labels is None:
            return None
        return margins_of(self.holdout_logits, self.holdout.labels)

    @property
    def unseen(self) -> DataSample | None:
        """Inputs the training never saw: unlabeled ones, else those of the hold-out."""
        return self.unlabeled if self.unlabeled is not None else self.holdout

    def answers(self, sample: DataSample) -> Tensor:
        """The network's outputs on a sample, (n, classes); those on the hold-out are known already."""
        known = self.holdout_logits if sample is self.holdout else None
        return model_outputs(self.model, sample) if known is None else known

    def few(self) -> Tensor:
        """The first inputs of D, to see how the network runs."""
        return self.train.take(range(min(LOOKED_AT, self.m)))

    def single(self) -> Case:
        """This case with one random hold-out sample of each group; these samples are independent."""
        if self.groups is None or self.holdout is None or self.holdout_logits is None:
            return self
        order = torch.randperm(len(self.groups), generator=torch.Generator().manual_seed(self.seed)).tolist()
        chosen = torch.tensor(sorted({int(self.groups[i]): i for i in order}.values()))
        return dataclasses.replace(
            self, holdout=self.holdout.part(chosen), holdout_logits=self.holdout_logits[chosen], groups=None
        )
