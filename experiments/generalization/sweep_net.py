"""One network of the sweep: built, trained to the loss all are matched at, scored, tested."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normgauge as ng
from experiments.generalization.sweep_plan import Net
from normgauge.certificates.scores import DataSample, cells_of, score_values
from normgauge.lab import zoo

TARGET = 0.01  # cross-entropy of the training set in eval mode at which a network is done
STEPS = 6000  # at most
MOMENTUM = 0.9
HALVED, FLOOR = 1500, 0.1  # the learning rate is halved after so many steps, down to this share of the first
TRAIN, FRESH = 3000, 5000  # images to train on; unlabeled ones, from the end of the same file
FIRST_FRESH = 10_000
READ_GLOBAL, READ_POINT = 4, 32  # images the bounds are read at
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Images:
    """Training, unlabeled and test images, shifted and scaled by two numbers of the training images."""

    train: Tensor
    labels: Tensor
    fresh: Tensor
    test: Tensor
    test_labels: Tensor
    cells: Any


@cache
def images(data: str, train: int = TRAIN, fresh: int = FRESH, test: int | None = None) -> Images:
    """The data set, read once in each process."""
    read = zoo.DATASETS[data]
    first, last = read("train", limit=FIRST_FRESH + fresh), read("test", limit=test)
    mean, std = first.inputs[:train].mean(), first.inputs[:train].std()
    shown = (first.inputs - mean) / std
    unseen = shown[-fresh:].clone()
    cells = cells_of(DataSample(unseen, None))
    return Images(shown[:train].clone(), first.labels[:train], unseen, (last.inputs - mean) / std, last.labels, cells)


def build(net: Net, shape: tuple[int, ...]) -> nn.Module:
    """The network with the weights of its seed; ``shape`` is that of an image."""
    norm = None if net.norm == "none" else net.norm
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(net.seed)
        if net.kind == "mlp":
            return zoo.mlp((math.prod(shape), *[net.width] * net.depth, 10), norm)
        return cnn(net, shape)


def cnn(net: Net, shape: tuple[int, ...]) -> nn.Sequential:
    """Convolutions of 3x3, the first two with stride 2, and a linear map of all that is left."""
    made: list[nn.Module] = []
    inputs, side = shape[0], shape[-1]
    for k in range(net.depth):
        outputs, stride = net.width * (1 if k == 0 else 2), 2 if k < 2 else 1
        made.append(nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1))
        made += normalizer(net.norm, outputs)
        made.append(nn.ReLU())
        inputs, side = outputs, (side - 1) // stride + 1
    return nn.Sequential(*made, nn.Flatten(), nn.Linear(inputs * side**2, 10))


def normalizer(norm: str, channels: int) -> list[nn.Module]:
    """The normalizer of a convolution, or none."""
    match norm:
        case "batch":
            return [nn.BatchNorm2d(channels)]
        case "layer":
            return [nn.GroupNorm(1, channels)]
        case "group":
            return [nn.GroupNorm(4, channels)]
    return []


def fit(model: nn.Module, net: Net, inputs: Tensor, labels: Tensor, *, steps: int = STEPS) -> Record:
    """Train until the loss of the whole training set is at the target, the steps are used up, or it diverges."""
    optimizer = torch.optim.SGD(model.parameters(), lr=net.lr, momentum=MOMENTUM, weight_decay=net.decay)
    cooling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(FLOOR, 0.5 ** (step / HALVED)))
    order = torch.Generator().manual_seed(net.seed)
    done, epochs, loss = 0, 0, math.inf
    while done < steps and loss > TARGET:
        model.train()
        for chosen in torch.randperm(len(labels), generator=order).split(net.batch):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
            cooling.step()
            done += 1
        epochs += 1
        loss = evaluated(model.eval(), inputs, labels)["loss"]
        if not math.isfinite(loss):
            break
    return {"steps": done, "epochs": epochs, "reached": loss <= TARGET}


@torch.no_grad()
def evaluated(model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, float]:
    """Mean loss and error of a network on a sample."""
    logits = torch.cat([model(x) for x in inputs.split(1000)]).double()
    wrong = float((logits.argmax(1) != labels).double().mean())
    return {"loss": float(F.cross_entropy(logits, labels)), "error": wrong}


def run(net: Net, shown: Images | None = None, *, steps: int = STEPS) -> Record:
    """Everything about one network, ready for a line of JSON."""
    here = shown or images(net.data)
    begun = time.process_time()
    model = build(net, tuple(here.train.shape[1:]))
    start = copy.deepcopy(model.state_dict())
    told: Record = {"key": net.key, **asdict(net), **fit(model, net, here.train, here.labels, steps=steps)}
    trained = time.process_time()
    ends = {"train": (here.train, here.labels), "test": (here.test, here.test_labels)}
    for name, pair in ends.items():
        told |= {f"{name}_{what}": value for what, value in evaluated(model, *pair).items()}
    told["gap"] = told["test_error"] - told["train_error"]
    if not all(math.isfinite(told[f"{name}_loss"]) for name in ends):
        told |= {"diverged": True, "train_loss": None, "test_loss": None, "scores": {}}
    else:
        told["scores"] = scored(model, here, start)
    told |= {"train_seconds": trained - begun, "score_seconds": time.process_time() - trained}
    return told


def scored(model: nn.Module, here: Images, start: Mapping[str, Tensor]) -> dict[str, float]:
    """Every score that fits the network, by key."""
    reading = ng.gauge(model, here.train[:READ_GLOBAL], scope="global", search=False, pictures=False, width=1e-2)
    local = ng.gauge(model, here.train[:READ_POINT], scope="point", search=False, pictures=False, width=1e-2)
    pair = (here.train, here.labels)
    return score_values(
        model, pair, unlabeled=here.fresh, reading=reading, local=local, initial=start, partition=here.cells
    )
