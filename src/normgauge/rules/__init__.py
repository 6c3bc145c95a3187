"""What a layer does to a slope: every family on one screen."""

from normgauge.rules import (
    activation,
    affine,
    attention,
    combine,
    conv,
    embedding,
    norm_batch,
    norm_layer,
    pooling,
    projection,
    recognise,
    shape,
    softmax,
    stochastic,
)
from normgauge.rules.registry import Registry

REGISTRY = Registry.merge(
    affine.rules,
    conv.rules,
    pooling.rules,
    projection.rules,
    softmax.rules,
    stochastic.rules,
    embedding.rules,
    activation.rules,
    norm_batch.rules,
    norm_layer.rules,
    shape.rules,
    combine.rules,
    attention.rules,
    recognise.rules,
)

__all__ = ["REGISTRY", "Registry"]
