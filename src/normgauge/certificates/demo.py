"""The feature-space certificate end to end: an encoder on one split, a head on the other, Theorem 20 in between."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.certificates.case import Progress, ignore_progress
from normgauge.certificates.table import certify
from normgauge.core.certificate import Certificate
from normgauge.core.errors import InputError
from normgauge.lab.zoo import DATASETS, Split
from normgauge.lab.zoo.places import Folder

POWERS = (1.0, 2.0, 4.0, 8.0)  # features are class probabilities to one of these powers; the choice is paid for
SHARPNESS = 4.0  # confident inputs fall on a few points
BATCH = 100


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """What is fixed before any data is seen.

    Attributes:
        encoder_samples: of the training split, for the encoder; the head and the certificate get the rest.
        epochs: of the encoder.
        width: channels of its first layer.
        flip: whether clothes may be mirrored while the encoder trains.
    """

    encoder_samples: int
    epochs: int
    width: int
    flip: bool = False


PLANS = {
    "digits": EncoderPlan(500, 40, 8),
    "mnist": EncoderPlan(10_000, 10, 16),
    "fashion-mnist": EncoderPlan(10_000, 14, 16, flip=True),
}


class Sharpened(nn.Module):
    """softmax(4x): the probabilities of the classes, sharpened."""

    def forward(self, scores: Tensor) -> Tensor:
        """One row of probabilities a sample."""
        return (SHARPNESS * scores).softmax(1)


def feature_certificate(
    name: str, *, folder: Folder = None, delta: float = 0.05, seed: int = 0, progress: Progress | None = None
) -> Certificate:
    """Train an encoder and a head on disjoint splits and certify them together.

    Args:
        name: ``digits`` (no file needed), ``mnist`` or ``fashion-mnist``.
        folder: where the data lies; None for the folder in NORMGAUGE_DATA.
        delta: the share of failure of each row.
        seed: of the split and the training.
        progress: called with a stage and the share of it done.

    Returns:
        The certificate; its rows ``features.*`` are the ones to look at.

    Raises:
        InputError: for another name.
    """
    if name not in PLANS:
        raise InputError(f"expected one of {', '.join(PLANS)}, got {name!r}")
    told, plan = progress or ignore_progress, PLANS[name]
    whole, test = read_half(name, "train", folder), read_half(name, "test", folder)
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    first, second = (Split(whole.inputs[i], whole.labels[i]) for i in order.tensor_split([plan.encoder_samples]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = train_encoder(first, plan, told)
        model = nn.Sequential(encoder, train_head(encoder, second, told)).eval()
    tried = len(POWERS)
    return certify(model, second, test, encoder=encoder, delta=delta, epochs=0, seed=seed, tries=tried, progress=told)


def read_half(name: str, half: str, folder: Folder) -> Split:
    """The training or the test half of a data set, as images."""
    if name == "digits":
        return DATASETS[name](half).shaped(1, 8, 8)
    return DATASETS[name.replace("-", "_")](half, folder=folder)


def train_encoder(data: Split, plan: EncoderPlan, told: Progress) -> nn.Sequential:
    """A small convolutional network with BatchNorm that gives sharpened class probabilities."""
    w, small = plan.width, data.inputs.shape[-1] < 16
    net = nn.Sequential(
        *_block(1, w, 1 if small else 2),
        *_block(w, 2 * w, 2),
        *_block(2 * w, 4 * w, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * w, 10),
    )
    steps = plan.epochs * (len(data) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=5e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps)
    reach = 1 if small else 2
    for epoch in range(plan.epochs):
        for done, rows in enumerate(torch.randperm(len(data)).split(BATCH)[: len(data) // BATCH], start=1):
            loss = F.cross_entropy(net(shifted_images(data.inputs[rows], reach, plan.flip)), data.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            told("training the encoder", (epoch * (len(data) // BATCH) + done) / steps)
    return nn.Sequential(*net, Sharpened()).eval()


def _block(before: int, after: int, stride: int) -> list[nn.Module]:
    first = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    again = [nn.Conv2d(after, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return [*first, *again]


def shifted_images(images: Tensor, reach: int, flip: bool) -> Tensor:
    """A batch moved by a few pixels, each image mirrored at random if ``flip``; only the encoder sees such images."""
    across, down = (int(v) for v in torch.randint(-reach, reach + 1, (2,)))
    images = torch.roll(images, (down, across), (2, 3))
    if not flip:
        return images
    return torch.where((torch.rand(len(images)) < 0.5)[:, None, None, None], images.flip(3), images)


def train_head(encoder: nn.Module, data: Split, told: Progress) -> nn.Linear:
    """Logistic regression on the features of D, from the class means."""
    told("training the head", 0.0)
    with torch.no_grad():
        features = torch.cat([encoder(x) for x in data.inputs.split(500)])
    classes = int(data.labels.max()) + 1
    means = torch.stack([features[data.labels == k].mean(0) for k in range(classes)])
    head = nn.Linear(features.shape[1], classes)
    with torch.no_grad():
        head.weight.copy_(10 * means)
        head.bias.copy_(-5 * means.square().sum(1))
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=30, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(features), data.labels) + 1e-4 * head.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return head.requires_grad_(False)
