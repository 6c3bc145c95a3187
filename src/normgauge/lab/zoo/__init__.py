"""The networks and data sets the demo and the papers use.

mlp, resnet, efficientnet, transformer: the networks; parts: what they share.
extremal: networks whose Lipschitz constants are known exactly.
data: the sets, as Splits (split), found by places, read by formats and unpickle.
weights: trained weights into a network.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from torch import nn

from normgauge.core.errors import InputError
from normgauge.lab.zoo.data import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    cifar10,
    digits,
    fashion_mnist,
    mnist,
    tinyshakespeare,
)
from normgauge.lab.zoo.efficientnet import efficientnet_b3
from normgauge.lab.zoo.extremal import extremal, input_constant, loss_constant, weight_constant, weight_gradient
from normgauge.lab.zoo.mlp import mlp
from normgauge.lab.zoo.resnet import cifar_resnet, resnet18
from normgauge.lab.zoo.split import Split
from normgauge.lab.zoo.transformer import gpt, vit
from normgauge.lab.zoo.weights import load_state

__all__ = [
    "DATASETS",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "ZOO",
    "Split",
    "build_network",
    "cifar10",
    "cifar_resnet",
    "digits",
    "efficientnet_b3",
    "extremal",
    "fashion_mnist",
    "gpt",
    "input_constant",
    "load_state",
    "loss_constant",
    "mlp",
    "mnist",
    "resnet18",
    "tinyshakespeare",
    "vit",
    "weight_constant",
    "weight_gradient",
]

ZOO: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {
        "mlp": mlp,
        "resnet18": resnet18,
        "resnet20": partial(cifar_resnet, 20),
        "resnet32": partial(cifar_resnet, 32),
        "resnet44": partial(cifar_resnet, 44),
        "resnet56": partial(cifar_resnet, 56),
        "efficientnet_b3": efficientnet_b3,
        "gpt": gpt,
        "vit": vit,
    }
)

DATASETS: Mapping[str, Callable[..., Split]] = MappingProxyType(
    {
        "digits": digits,
        "mnist": mnist,
        "fashion_mnist": fashion_mnist,
        "cifar10": cifar10,
        "tinyshakespeare": tinyshakespeare,
    }
)


def build_network(name: str, **options: object) -> nn.Module:
    """Build a network of the zoo by name.

    Args:
        name: a key of ``ZOO``.
        **options: the options of its builder.

    Returns:
        The network, with random weights.

    Raises:
        InputError: if the name or an option is not known.
    """
    if name not in ZOO:
        raise InputError(f"no network called {name!r} in the zoo; known: {', '.join(ZOO)}.")
    builder = ZOO[name]
    known = inspect.signature(builder).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        raise InputError(f"{name} has no option {', '.join(unknown)}; known: {', '.join(known)}.")
    return builder(**options)
