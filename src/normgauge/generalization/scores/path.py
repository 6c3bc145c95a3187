"""The path norm: the sum over all paths of the squared product of their weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from normgauge.errors import InputError
from normgauge.generalization.scores.fold import traced
from normgauge.trace.step import Step

PASSED = {
    *("Linear", "Conv1d", "Conv2d", "Conv3d", "linear", "conv1d", "conv2d", "conv3d"),
    *("ReLU", "relu", "relu_", "LeakyReLU", "leaky_relu", "Identity", "Dropout", "Dropout1d", "Dropout2d", "dropout"),
    *("Flatten", "flatten", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "contiguous"),
    *("MaxPool1d", "MaxPool2d", "MaxPool3d", "max_pool1d", "max_pool2d", "max_pool3d", "AdaptiveMaxPool2d"),
    *("AvgPool1d", "AvgPool2d", "AvgPool3d", "avg_pool2d", "AdaptiveAvgPool2d", "adaptive_avg_pool2d", "mean"),
    *(
        "__getitem__",
        "cat",
        "pad",
        "ConstantPad2d",
        "ZeroPad2d",
        "chunk",
        "split",
        "add",
        "iadd",
        "__add__",
        "__iadd__",
        "add_",
    ),
}


@torch.no_grad()
def score_path_norm(model: nn.Module, inputs: Tensor) -> float:
    """Σ over paths Π w², by one forward pass of ones through the squared weights.

    Biases begin paths of their own. The mean of k numbers counts as k edges of weight √(1/k), as published; max
    pooling takes the heaviest path. Rescaling across a ReLU changes nothing.

    Holds:  for networks of linear maps, convolutions, (leaky) ReLU, pooling and sums, with BatchNorm folded first.
    Source: Neyshabur, Salakhutdinov & Srebro 2015.

    Args:
        model: with BatchNorm folded.
        inputs: a batch, for its shape.

    Returns:
        The sum over all outputs.

    Raises:
        InputError: for a network with anything else in it.
    """
    if not inputs.is_floating_point():
        raise InputError(f"the inputs are {inputs.dtype}: no path begins at a number looked up in an Embedding")
    strange = [step for step in traced(model, inputs[:1]).steps if not _known(step)]
    if strange:
        raise InputError(
            f"paths have no fixed weight through {strange[0].name} ({strange[0].kind}): the path norm is defined for "
            "linear maps, convolutions, ReLU, pooling and sums"
        )
    squared = copy.deepcopy(model).double().eval()
    for parameter in squared.parameters():
        parameter.square_()
    ones = torch.ones_like(inputs[:1], dtype=torch.float64).to(next(squared.parameters()).device)
    return float(squared(ones).sum())


def _known(step: Step) -> bool:
    return step.kind in PASSED and not step.trouble and not _fills(step)


def _fills(step: Step) -> bool:
    """Whether the step puts in numbers that are not zero and no weights."""
    value = step.get(3, "value") if step.kind == "pad" else getattr(step.module, "value", None)
    return isinstance(value, int | float) and value != 0
